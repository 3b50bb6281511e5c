"""Raw text -> documents -> sentences, streaming.

What is held in memory is one line of a file and one document, never a file. The
order of documents depends on the arguments and the files alone.
"""

import bz2
import codecs
import glob
import gzip
import hashlib
import html
import itertools
import json
import lzma
import os
import re
import zlib
from collections.abc import Iterable, Iterator, Sequence

from bert_jax.data import python_docs, sentences as splitter

Document = tuple[str, ...]
"""The blocks of a document: lines that are sentences, or paragraphs to be split."""

FORMATS = ("auto", "lines", "paragraphs", "jsonl", "wikiextractor", "python-docs")

# Prose without headings or gaps is cut into documents of about this many characters
# (a hundred sentences), so that one book gives many.
UNTITLED_CHARACTERS = 16_000
TITLED_CHARACTERS = 1_000_000
# No line of hard-wrapped text is longer; a longer one is a paragraph by itself.
WRAPPED_CHARACTERS = 120
SAMPLED_FILES, SAMPLED_LINES = 20, 200

_OPEN = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}
_STOP = re.compile(r"""[.!?。！？।؟…]["'”’»)\]]*\s*$""")
_HEADING = re.compile(r"^ ?(=(?: ?=)*) (.+?) \1 ?$")
_DOC = re.compile(r"<doc\b.*?(?:title=\"(.*?)\")?\s*>\s*$")
# The tokens of Moses that stand in wikitext for a hyphen or a point inside a word.
_ESCAPED = re.compile(" @([-,.])@ ")
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")


def resolve(paths: Sequence[str], format: str = "auto") -> str:
    """The format of a corpus; raises where a path or the format is wrong.

    `auto` is `python-docs` without paths. Otherwise it looks at the name and the
    first lines of each file: `.jsonl`, or a first line that begins with `{`, is
    `jsonl`; a first line that begins with `<doc ` is `wikiextractor`; the rest is
    plain text, which is `lines` where most of the first lines of the first files end
    with a stop and hold one sentence, and `paragraphs` otherwise. A corpus of two
    formats is refused.
    """
    if format.startswith("tfds:"):
        return format
    if format not in FORMATS:
        raise ValueError(
            f"format {format!r} is not known; use one of {', '.join(FORMATS)}, tfds:NAME"
        )
    if not paths and format == "auto":
        return "python-docs"
    if format == "python-docs":
        if paths:
            raise ValueError(
                f"format 'python-docs' reads no paths, and got {paths[0]!r}; "
                "leave the paths out or choose another format"
            )
        return format
    files = _files(paths)
    return _detect(files) if format == "auto" else format


def read(paths: Sequence[str], format: str = "auto") -> Iterator[Document]:
    """Yields the documents of files, directories (recursed, sorted) and globs.

    `.gz`, `.bz2` and `.xz` files are read as they are. Formats:

    * `lines`: one sentence a line, a blank line between documents.
    * `paragraphs`: prose. A blank line separates paragraphs, and lines of more than
      120 characters are paragraphs of their own; shorter lines are joined. A document
      ends at a heading ` = Title = ` (wikitext), at two or more blank lines, at the
      end of the file, and in prose without headings after 16,000 characters.
    * `jsonl`: one JSON object a line, with the document in its field `text`.
    * `wikiextractor`: `<doc ...>` to `</doc>`, or the output of `--json`; the line
      that repeats the title is dropped.
    * `tfds:NAME`: the field `text` of split `train` of a TFDS dataset.
    * `python-docs`: the documentation installed with Python; no paths.
    * `auto`: see `resolve`.
    """
    format = resolve(paths, format)
    if format == "python-docs":
        yield from python_docs.documents()
    elif format.startswith("tfds:"):
        yield from _tfds(format.removeprefix("tfds:"))
    else:
        for path in _files(paths):
            yield from _READERS[format](path)


def require(paths: Sequence[str], format: str = "auto", documents: int = 1) -> None:
    """Raises unless the corpus holds so many documents; reads no further than that.

    Sentence pairs need two documents: the random next sentence comes from another.
    """
    found = sum(1 for _ in itertools.islice(read(paths, format), documents))
    if found == 0:
        raise ValueError(
            f"the corpus {_name(paths, format)} is empty; give it some text"
        )
    if found < documents:
        raise ValueError(
            f"the corpus {_name(paths, format)} holds {found} document, and sentence "
            f"pairs need {documents}: separate its documents (`lines`: a blank line; "
            "`paragraphs`: two) or prepare it without pairs"
        )


def sentences(document: Document, format: str) -> list[str]:
    """The sentences of a document: `lines` are kept, all else is split.

    `format` is what `resolve` returned; `auto` splits.
    """
    if format == "lines":
        return list(document)
    return [sentence for block in document for sentence in splitter.split(block)]


def is_held_out(document: Document, fraction: float) -> bool:
    """Whether a document belongs to the held-out `fraction`: a matter of its text alone.

    Equal documents fall on the same side, on every machine and in every run.
    """
    digest = hashlib.blake2b("\n".join(document).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") < fraction * 2**64


def _name(paths: Sequence[str], format: str) -> str:
    return ", ".join(map(repr, paths[:3])) or repr(format)


def _files(paths: Sequence[str]) -> list[str]:
    """The files of `paths`, each once; hidden ones in directories are left out."""
    found: list[str] = []
    for path in map(os.path.expanduser, paths):
        if os.path.isdir(path):
            inside = glob.glob(os.path.join(glob.escape(path), "**"), recursive=True)
        else:
            inside = [path] if os.path.exists(path) else glob.glob(path, recursive=True)
        files = sorted(filter(os.path.isfile, inside))
        if not files:
            raise ValueError(
                f"no such file: {path!r}; give a file, a directory that holds some, "
                "or a glob that matches some"
            )
        found += files
    if not found:
        raise ValueError("no paths; give a file, a directory or a glob")
    return list(dict.fromkeys(found))


def _detect(files: list[str]) -> str:
    formats = {_marked_format(path): path for path in files}
    if len(formats) > 1:
        (one, here), (other, there) = sorted(formats.items())[:2]
        raise ValueError(
            f"the corpus holds two formats: {here} is {one}, {there} is {other}; "
            "prepare them apart, or name the format"
        )
    (format,) = formats
    return _plain_format(files[:SAMPLED_FILES]) if format == "plain text" else format


def _marked_format(path: str) -> str:
    first = next((line for _, line in _lines(path) if line), "")
    if re.search(r"\.jsonl(\.\w+)?$", path):
        return "jsonl"
    marks = {"{": "jsonl", "<doc ": "wikiextractor"}
    return next((marks[mark] for mark in marks if first.startswith(mark)), "plain text")


def _plain_format(files: list[str]) -> str:
    sample = [
        line
        for path in files
        for _, line in itertools.islice(_lines(path), SAMPLED_LINES)
        if line
    ]
    single = [x for x in sample if _STOP.search(x) and len(splitter.split(x)) == 1]
    return "lines" if 2 * len(single) > len(sample) else "paragraphs"


def _lines(path: str) -> Iterator[tuple[int, str]]:
    """Yields (number from 1, stripped line); raises where a line is not UTF-8."""
    opener = _OPEN.get(os.path.splitext(path)[1], open)
    offset = 0
    try:
        with opener(path, "rb") as file:
            for number, line in enumerate(file, 1):
                if number == 1 and line.startswith(codecs.BOM_UTF8):
                    offset = len(codecs.BOM_UTF8)
                    line = line[offset:]
                yield number, line.decode().strip()
                offset += len(line)
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{path}:{number}: byte {line[error.start]:#04x} at offset "
            f"{offset + error.start} is not UTF-8; convert the file, for example\n"
            f"iconv -f LATIN1 -t UTF-8 {path} > converted.txt"
        ) from None
    except (OSError, EOFError, zlib.error, lzma.LZMAError) as error:
        raise ValueError(
            f"{path} cannot be read ({error}); repair it or leave it out"
        ) from error


def _read_lines(path: str) -> Iterator[Document]:
    lines = (line for _, line in _lines(path))
    for has_text, group in itertools.groupby(lines, key=bool):
        if has_text:
            yield tuple(group)


def _read_paragraphs(path: str) -> Iterator[Document]:
    document: list[str] = []
    size, gap, limit = 0, 0, UNTITLED_CHARACTERS
    for block in _unwrap(line for _, line in _lines(path)):
        if not block:
            gap += 1
            continue
        heading = _HEADING.match(block)
        is_title = heading is not None and heading[1] == "="
        if is_title:
            limit = TITLED_CHARACTERS
        is_gap = gap > 1 and any(map(_STOP.search, document))
        if document and (is_title or is_gap or size > limit):
            yield tuple(document)
            document, size = [], 0
        if not heading:
            document.append(block)
        size, gap = size + len(block), 0
    if document:
        yield tuple(document)


def _unwrap(lines: Iterable[str]) -> Iterator[str]:
    """Joins runs of hard-wrapped lines; blank lines, headings and long lines pass."""
    lines = (_ESCAPED.sub(r"\1", line) for line in lines)
    for is_wrapped, group in itertools.groupby(lines, key=_is_wrapped):
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


def _read_jsonl(path: str) -> Iterator[Document]:
    for number, line in _lines(path):
        if not line:
            continue
        try:
            record = json.loads(line)
        except json.JSONDecodeError as error:
            raise ValueError(
                f"{path}:{number}: not JSON ({error}); a JSONL file holds one object a "
                'line, as {"text": "..."}'
            ) from None
        if not isinstance(record, dict) or not isinstance(record.get("text"), str):
            names = ", ".join(record) if isinstance(record, dict) else line[:40]
            raise ValueError(
                f"{path}:{number}: no field `text` that holds a string in: {names}; "
                "rename the field that holds the document"
            )
        document = _document(record["text"], record.get("title"))
        if document:
            yield document


def _read_wikiextractor(path: str) -> Iterator[Document]:
    opened, title, text = 0, "", []
    for number, line in _lines(path):
        start = _DOC.match(line)
        if not opened and line.startswith("{"):
            yield from _read_jsonl(path)
            return
        if start and not opened:
            opened, title, text = number, html.unescape(start[1] or ""), []
        elif line == "</doc>" and opened:
            document = _document("\n".join(text), title)
            if document:
                yield document
            opened = 0
        elif opened and not start:
            text.append(line)
        elif line:
            raise ValueError(
                f"{path}:{number}: {line[:40]!r} stands where <doc ...> or </doc> is "
                "expected; extract the file again or leave it out"
            )
    if opened:
        raise ValueError(
            f"{path}:{opened}: this <doc ...> has no </doc>: the file is cut short; "
            "extract it again or leave it out"
        )


def _document(text: str, title: str | None) -> Document:
    """The paragraphs of a text, without a first line that repeats its title."""
    text = _LONE_SURROGATE.sub("\ufffd", text)
    blocks = [b for b in _unwrap(x.strip() for x in text.split("\n")) if b]
    return tuple(blocks[1:] if blocks and blocks[0] == title else blocks)


def _tfds(name: str) -> Iterator[Document]:
    import tensorflow as tf
    import tensorflow_datasets as tfds

    tf.config.set_visible_devices([], "GPU")
    builder = tfds.builder(name)
    if "text" not in (builder.info.features or {}):
        raise ValueError(
            f"dataset tfds:{name} has no feature `text` but "
            f"{', '.join(builder.info.features or {})}; write it out as JSONL instead"
        )
    builder.download_and_prepare()
    for record in tfds.as_numpy(builder.as_dataset(split="train")):
        document = _document(record["text"].decode(errors="replace"), None)
        if document:
            yield document


_READERS = {
    "lines": _read_lines,
    "paragraphs": _read_paragraphs,
    "jsonl": _read_jsonl,
    "wikiextractor": _read_wikiextractor,
}
