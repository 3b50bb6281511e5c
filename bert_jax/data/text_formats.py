"""What raw text looks like in files, and how each format becomes documents.

One line and one document are held in memory, never a file.
"""

import bz2
import codecs
import contextlib
import gzip
import html
import itertools
import json
import lzma
import os
import re
import sys
import zlib
from collections.abc import Iterable, Iterator, Sequence

import sentencex

Document = tuple[str, ...]

# Prose without headings or gaps is cut into documents of about this many characters
# (a hundred sentences), so that one book gives many. Under headings only memory limits.
UNTITLED_CHARACTERS, TITLED_CHARACTERS = 16_000, 1_000_000
# No line of hard-wrapped text is longer; a longer one is a paragraph by itself.
WRAPPED_CHARACTERS = 120
# How much of a corpus `detect` reads to tell sentences from paragraphs.
SAMPLED_FILES, SAMPLED_LINES = 20, 200

_OPEN = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}
_STOP = re.compile(r"""[.!?…。！？।؟]\s*["'”’»)\]]*$""")
_HEADING = re.compile(r"^(=(?: ?=)*) (.+) \1$")
_TITLE = re.compile(r'\btitle="(.*?)"(?:\s+\w+="|\s*>$)')
# Wikitext writes a hyphen or point inside a word as ` @-@ `, as Moses does.
_INNER_MARK = re.compile(" @([-,.])@ ")
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")


def detect(files: Sequence[str]) -> str:
    """The format that the names and first lines of files tell; see `corpus.resolve`."""
    formats = {format: path for path in files if (format := _marked_format(path))}
    if len(formats) > 1:
        (one, here), (other, there) = sorted(formats.items())[:2]
        raise ValueError(
            f"the corpus has two formats: {here} is {one}, {there} is {other}; "
            "prepare them apart, or name the format"
        )
    (format,) = formats or ["plain text"]
    return _plain_format(files[:SAMPLED_FILES]) if format == "plain text" else format


def lines(path: str) -> Iterator[tuple[int, str]]:
    """Yields (number from 1, stripped line); raises where a line is not UTF-8.

    `-` is standard input.
    """
    opener = _OPEN.get(os.path.splitext(path)[1], open)
    given = contextlib.nullcontext(sys.stdin.buffer)
    name = "standard input" if path == "-" else path
    offset = 0
    try:
        with given if path == "-" else opener(path, "rb") as file:
            for number, line in enumerate(file, 1):
                if number == 1 and line.startswith(codecs.BOM_UTF8):
                    offset = len(codecs.BOM_UTF8)
                    line = line[offset:]
                yield number, line.decode().strip()
                offset += len(line)
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{name}:{number}: byte {line[error.start]:#04x} at offset "
            f"{offset + error.start} is not UTF-8; convert the file, for example\n"
            f"iconv -f LATIN1 -t UTF-8 {path} > converted.txt"
        ) from None
    except (OSError, EOFError, zlib.error, lzma.LZMAError) as error:
        raise ValueError(
            f"{name} cannot be read ({error}); repair it or leave it out"
        ) from error


def read_lines(path: str) -> Iterator[Document]:
    for has_text, group in itertools.groupby((x for _, x in lines(path)), key=bool):
        if has_text:
            yield tuple(group)


def read_paragraphs(path: str) -> Iterator[Document]:
    document: list[str] = []
    size, gap, is_titled = 0, 0, False
    for block in _unwrap(_INNER_MARK.sub(r"\1", line) for _, line in lines(path)):
        if not block:
            gap += 1
            continue
        heading = _HEADING.match(block)
        is_title = heading is not None and heading[1] == "="
        is_gap = gap > 1 and not is_titled and any(map(_STOP.search, document))
        is_full = size > (TITLED_CHARACTERS if is_titled else UNTITLED_CHARACTERS)
        if document and (is_title or is_gap or is_full):
            yield tuple(document)
            document, size = [], 0
        if not heading:
            document.append(block)
        is_titled |= is_title
        size, gap = size + len(block), 0
    if document:
        yield tuple(document)


def read_jsonl(path: str) -> Iterator[Document]:
    for number, line in lines(path):
        if line:
            record = _record(f"{path}:{number}", line)
            document = document_of(record["text"], record.get("title"))
            if document:
                yield document


def read_wikiextractor(path: str) -> Iterator[Document]:
    opened, title, text = 0, None, []
    for number, line in lines(path):
        if line.startswith("{") and not opened:
            yield from read_jsonl(path)
            return
        if line.startswith("<doc ") and not opened:
            match = _TITLE.search(line)
            opened, title, text = number, match and html.unescape(match[1]), []
        elif line == "</doc>" and opened:
            document = tuple(filter(None, _without_title(text, title)))
            if document:
                yield document
            opened = 0
        elif line.startswith("<doc "):
            break
        elif opened:
            text.append(line)
        elif line:
            raise ValueError(
                f"{path}:{number}: {line[:40]!r} stands outside <doc ...> and </doc>; "
                "extract the file again, or name its format"
            )
    if opened:
        raise ValueError(
            f"{path}:{opened}: this <doc ...> has no </doc>: the file is damaged; "
            "extract it again or leave it out"
        )


def document_of(text: str, title: str | None = None) -> Document:
    """The paragraphs of one text, without a first line that repeats its title.

    A lone surrogate, which JSON can write and UTF-8 cannot, becomes U+FFFD.
    """
    text = _LONE_SURROGATE.sub("\ufffd", text)
    stripped = [line.strip() for line in text.split("\n")]
    return tuple(filter(None, _unwrap(_without_title(stripped, title))))


READERS = {
    "lines": read_lines,
    "paragraphs": read_paragraphs,
    "jsonl": read_jsonl,
    "wikiextractor": read_wikiextractor,
}


def _marked_format(path: str) -> str | None:
    first = next((line for _, line in lines(path) if line), "")
    if not first:
        return None
    if first.startswith("<doc "):
        return "wikiextractor"
    is_json = first.startswith("{") or re.search(r"\.jsonl?(\.\w+)?$", path)
    return "jsonl" if is_json else "plain text"


def _plain_format(files: Sequence[str]) -> str:
    sample = [
        line
        for path in files
        for _, line in itertools.islice(lines(path), SAMPLED_LINES)
        if line
    ]
    single = [x for x in sample if _STOP.search(x) and len(split(x)) == 1]
    return "lines" if 4 * len(single) > 3 * len(sample) else "paragraphs"


def _unwrap(text: Iterable[str]) -> Iterator[str]:
    """Joins runs of hard-wrapped lines; blank lines, headings and long lines pass."""
    for is_wrapped, group in itertools.groupby(text, key=_is_wrapped):
        if not is_wrapped:
            yield from group
            continue
        run, size = [], 0
        for line in group:
            run.append(line)
            size += len(line)
            if size > UNTITLED_CHARACTERS:
                yield " ".join(run)
                run, size = [], 0
        if run:
            yield " ".join(run)


def _is_wrapped(line: str) -> bool:
    return 0 < len(line) <= WRAPPED_CHARACTERS and not _HEADING.match(line)


def _without_title(text: list[str], title: str | None) -> list[str]:
    return text[1:] if text and text[0] == title else text


def _record(place: str, line: str) -> dict:
    try:
        record = json.loads(line)
    except json.JSONDecodeError as error:
        raise ValueError(
            f"{place}: not JSON ({error}); a JSONL file holds one object a line, "
            'as {"text": "..."}'
        ) from None
    if not isinstance(record, dict) or not isinstance(record.get("text"), str):
        found = f"fields {', '.join(record)}" if isinstance(record, dict) else line
        raise ValueError(
            f"{place}: no field `text` with a string in it, but {found[:80]}; "
            "rename the field that holds the document"
        )
    return record


# sentencex keeps quotations whole, so one stray quotation mark can join everything
# after it: text goes through in windows, and a longer piece is taken apart.
WINDOW = 4_000
LONGEST_QUOTATION = 300
_STOP_IN_QUOTATION = re.compile(
    r"""(?:(?<=[a-z]{3}[.!?])|(?<=[.!?]["”’')])|(?<= [.!?])) (?=["“‘'(]?[A-Z])"""
)
# What sentencex takes for a sentence and is the number of a list or section.
_NUMBER = re.compile(r"(?:\d{1,3}|[A-Za-z])\.\s*")


def split(text: str) -> list[str]:
    """The sentences of a paragraph, without the blanks around them.

    English rules for abbreviations; the stops of other scripts (。！？ । ؟) end a
    sentence too. Time and memory are linear in the text.
    """
    found, rest = [], ""
    for start in range(0, len(text), WINDOW):
        *complete, rest = _pieces(rest + text[start : start + WINDOW])
        found += complete
        if len(rest) > WINDOW:
            found.append(rest)
            rest = ""
    return [piece.strip() for piece in [*found, rest] if piece.strip()]


def _pieces(text: str) -> list[str]:
    pieces: list[str] = []
    for piece in sentencex.segment("en", text):
        if pieces and _goes_on(pieces[-1]):
            piece = pieces.pop() + piece
        pieces.append(piece)
    return [part for piece in pieces for part in _parts(piece)] or [""]


def _goes_on(piece: str) -> bool:
    # A stop with no blank after it stands inside a name: `threading.Thread`.
    return piece.endswith((".", "?", "!")) or _NUMBER.fullmatch(piece) is not None


def _parts(piece: str) -> list[str]:
    is_long = len(piece) > LONGEST_QUOTATION
    return _STOP_IN_QUOTATION.split(piece) if is_long else [piece]
