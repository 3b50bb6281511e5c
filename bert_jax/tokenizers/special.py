"""The special tokens of a vocabulary: their names and how their family pads."""

import dataclasses
import os
from collections.abc import Collection


@dataclasses.dataclass(frozen=True)
class SpecialTokens:
    """The five names, and the side and token type of padding."""

    pad: str
    unk: str
    cls: str
    sep: str
    mask: str
    pads_left: bool = False
    pad_type_id: int = 0

    @property
    def names(self) -> dict[str, str]:
        """Role -> name, in the order of BERT's first five ids."""
        return {role: getattr(self, role) for role in ROLES}


ROLES = ("pad", "unk", "cls", "sep", "mask")

BERT = SpecialTokens("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
ALBERT = SpecialTokens("<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]")
XLNET = SpecialTokens("<pad>", "<unk>", "<cls>", "<sep>", "<mask>", True, 3)
ROBERTA = SpecialTokens("<pad>", "<unk>", "<s>", "</s>", "<mask>")

# XLNet's vocabulary holds RoBERTa's five names too, so it is tried first.
_FAMILIES = (BERT, ALBERT, XLNET, ROBERTA)


def family(vocabulary: Collection[str], path: str | os.PathLike) -> SpecialTokens:
    """The family whose five names the vocabulary holds; the nearest one otherwise,
    for the error to name what it lacks."""

    def held(specials: SpecialTokens) -> int:
        return sum(name in vocabulary for name in specials.names.values())

    nearest = max(_FAMILIES, key=held)
    refuse_missing(nearest, vocabulary, path)
    return nearest


def refuse_missing(
    specials: SpecialTokens,
    vocabulary: Collection[str],
    path: str | os.PathLike = "the vocabulary",
) -> None:
    """Raises ValueError naming the special tokens that a vocabulary lacks."""
    missing = [name for name in specials.names.values() if name not in vocabulary]
    if missing:
        raise ValueError(
            f"{path} lacks the special tokens {', '.join(missing)}; add them, or pass "
            "specials=SpecialTokens(...) with the names it uses"
        )
