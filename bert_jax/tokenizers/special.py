"""The special tokens of a vocabulary: their names and how their family pads."""

import dataclasses
import os
from collections.abc import Collection


@dataclasses.dataclass(frozen=True)
class SpecialTokens:
    """The five names, and the side of padding.

    >>> SpecialTokens("<pad>", "<unk>", "<s>", "</s>", "<mask>").names["cls"]
    '<s>'
    """

    pad: str
    unk: str
    cls: str
    sep: str
    mask: str
    pads_left: bool = False

    @property
    def names(self) -> dict[str, str]:
        """Role -> name, in the order of BERT's first five ids."""
        return {role: getattr(self, role) for role in ROLES}


ROLES = ("pad", "unk", "cls", "sep", "mask")

BERT = SpecialTokens("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
ALBERT = SpecialTokens("<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]")
XLNET = SpecialTokens("<pad>", "<unk>", "<cls>", "<sep>", "<mask>", pads_left=True)
ROBERTA = SpecialTokens("<pad>", "<unk>", "<s>", "</s>", "<mask>")

# XLNet's vocabulary holds RoBERTa's five names too, so it is tried first.
_FAMILIES = (BERT, ALBERT, XLNET, ROBERTA)


def special_tokens(vocabulary: Collection[str], config: dict) -> SpecialTokens:
    """What a tokenizer_config.json names; where it is silent, the names of the family
    that most of the vocabulary's special tokens belong to."""

    def held(specials: SpecialTokens) -> int:
        return sum(name in vocabulary for name in specials.names.values())

    named = {role: config.get(f"{role}_token") for role in ROLES}
    changes = {role: _content(token) for role, token in named.items() if token}
    if "padding_side" in config:
        changes["pads_left"] = config["padding_side"] == "left"
    return dataclasses.replace(max(_FAMILIES, key=held), **changes)


def _content(token: str | dict) -> str:
    return token if isinstance(token, str) else token["content"]


def refuse_missing(
    specials: SpecialTokens,
    vocabulary: Collection[str],
    source: str | os.PathLike = "the vocabulary",
) -> None:
    """Raises ValueError naming the special tokens that a vocabulary lacks."""
    missing = [name for name in specials.names.values() if name not in vocabulary]
    if missing:
        raise ValueError(
            f"{source} lacks the special tokens {', '.join(missing)}; "
            "add them, or pass specials=SpecialTokens(...) with the names it uses"
        )
