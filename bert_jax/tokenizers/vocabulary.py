"""Vocabularies: special tokens, files, and checks of their ids."""

import collections
import dataclasses
import os
from collections.abc import Collection

from bert_jax.files import counted
from bert_jax.tokenizers.text import read_text


@dataclasses.dataclass(frozen=True)
class SpecialTokens:
    """The names of the five special tokens, and the side of padding.

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
    """The special tokens named in a tokenizer_config.json.

    A token it does not name is that of the family which shares the most special tokens
    with the vocabulary.
    """

    def shared(specials: SpecialTokens) -> int:
        return sum(name in vocabulary for name in specials.names.values())

    specials = max(_FAMILIES, key=shared)
    named = {role: config.get(f"{role}_token") for role in ROLES}
    names = specials.names | {role: _content(x) for role, x in named.items() if x}
    pads_left = specials.pads_left
    if "padding_side" in config:
        pads_left = config["padding_side"] == "left"
    return SpecialTokens(**names, pads_left=pads_left)


def _content(token: str | dict) -> str:
    return token if isinstance(token, str) else token["content"]


def check_specials(
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


def read_vocabulary(path: str | os.PathLike) -> dict[str, int]:
    """Piece -> id of a `vocab.txt`; duplicate lines are refused by name.

    Only a newline ends a line: pieces hold other separators of Unicode.
    """
    pieces = read_text(path).split("\n")
    if not pieces[-1]:
        pieces.pop()
    if not pieces:
        raise ValueError(f"{path} is empty; a vocabulary has one piece a line")
    counts = collections.Counter(pieces)
    repeated = [piece for piece, count in counts.items() if count > 1]
    if repeated:
        shown = ", ".join(f"{p!r} (line {pieces.index(p) + 1})" for p in repeated[:5])
        raise ValueError(
            f"{path} has {counted(len(repeated), 'piece')} on several lines: {shown}; "
            "ids would exceed the vocabulary's size, so remove or rename the repeated "
            "lines"
        )
    return {piece: i for i, piece in enumerate(pieces)}


def check_ids(vocabulary: dict[str, int], source: str | os.PathLike) -> None:
    """Raises ValueError unless the ids are 0, 1, 2 … to the vocabulary's size."""
    if sorted(vocabulary.values()) != list(range(len(vocabulary))):
        raise ValueError(
            f"{source} does not number its {len(vocabulary)} pieces from 0 without a "
            "gap or a repeat; was it made from a vocabulary with duplicate lines?"
        )


def check_vocab_size(ids: int, vocab_size: int) -> None:
    """Raises ValueError if a tokenizer has more ids than an encoder's `vocab_size`.

    >>> check_vocab_size(31, vocab_size=30)
    Traceback (most recent call last):
    ValueError: the tokenizer has 31 ids but encoder.vocab_size=30; set it to ...
    """
    if ids > vocab_size:
        raise ValueError(
            f"the tokenizer has {ids} ids but encoder.vocab_size={vocab_size}; set it "
            "to at least that many"
        )


def check_trained_size(vocabulary: Collection[str], vocab_size: int) -> None:
    """Raises ValueError when training made more or fewer pieces than `vocab_size`."""
    made = len(vocabulary)
    if made < vocab_size:
        raise ValueError(
            f"vocab_size={vocab_size}, but the texts support only {made} pieces; "
            f"set vocab_size={made} or give more text"
        )
    if made > vocab_size:
        raise ValueError(
            f"vocab_size={vocab_size} does not hold the {made} special tokens and "
            f"characters of the texts; set at least vocab_size={made}"
        )
