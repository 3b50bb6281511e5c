"""Text -> sentences."""

import re

import sentencex

# sentencex keeps quotations whole, so one stray quotation mark can join everything
# after it: text goes through in windows, and a longer piece is taken apart.
WINDOW = 4_000
LONGEST_QUOTATION = 300
_STOP_IN_QUOTATION = re.compile(
    r"""(?:(?<=[a-z]{3}[.!?])|(?<=[.!?]["”’')])|(?<= [.!?])) (?=["“‘'(]?[A-Z])"""
)
# sentencex takes the number of a list or section for a sentence.
_NUMBER = re.compile(r"(?:\d{1,3}|[A-Za-z])\.\s*")


def split(text: str) -> list[str]:
    """The sentences of a paragraph, without the blanks around them.

    English rules for abbreviations; the stops of other scripts (。！？ । ؟) end a
    sentence too. Time and memory are linear in the text.
    """
    sentences, rest = [], ""
    for start in range(0, len(text), WINDOW):
        *complete, rest = _pieces(rest + text[start : start + WINDOW])
        sentences += complete
        if len(rest) > WINDOW:
            sentences.append(rest)
            rest = ""
    return [piece.strip() for piece in [*sentences, rest] if piece.strip()]


def _pieces(text: str) -> list[str]:
    pieces: list[str] = []
    for piece in sentencex.segment("en", text):
        if pieces and _continues(pieces[-1]):
            piece = pieces.pop() + piece
        pieces.append(piece)
    return [part for piece in pieces for part in _parts(piece)] or [""]


def _continues(piece: str) -> bool:
    # A stop with no blank after it is inside a name: `threading.Thread`.
    return piece.endswith((".", "?", "!")) or _NUMBER.fullmatch(piece) is not None


def _parts(piece: str) -> list[str]:
    is_long = len(piece) > LONGEST_QUOTATION
    return _STOP_IN_QUOTATION.split(piece) if is_long else [piece]
