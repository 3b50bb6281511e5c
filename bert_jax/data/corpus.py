"""Raw text -> documents -> sentences, streaming.

The order of documents depends on the arguments and the files alone.
"""

import glob
import hashlib
import html
import itertools
import json
import os
import re
from collections.abc import Iterable, Iterator, Sequence

from bert_jax.data import labelled_files, optional, python_docs, tfds_files
from bert_jax.data.decoding import ending, lines
from bert_jax.data.sentences import split
from bert_jax.files import local_path

# The blocks of a document: lines that are sentences, or paragraphs to be split.
Document = tuple[str, ...]

# Prose without headings or gaps is cut into documents of about this many characters
# (a hundred sentences), so that one book gives many. Under headings only memory limits.
UNTITLED_CHARACTERS, TITLED_CHARACTERS = 16_000, 1_000_000
# No line of hard-wrapped text is longer; a longer one is a paragraph by itself.
WRAPPED_CHARACTERS = 120
# How much of a corpus `detect` reads to tell sentences from paragraphs.
SAMPLED_FILES, SAMPLED_LINES = 20, 200

_STOP = re.compile(r"""[.!?…。！？।؟]\s*["'”’»)\]]*$""")
_HEADING = re.compile(r"^(=(?: ?=)*) (.+) \1$")
_TITLE = re.compile(r'\btitle="(.*?)"(?:\s+\w+="|\s*>$)')
# Wikitext writes a hyphen or point inside a word as ` @-@ `, as Moses does.
_INNER_MARK = re.compile(" @([-,.])@ ")
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")


def detect(files: Sequence[str]) -> str:
    """The format of files by their names and first lines; see `resolve`."""
    formats = {format: path for path in files if (format := _marked_format(path))}
    if len(formats) > 1:
        (one, here), (other, there) = sorted(formats.items())[:2]
        raise ValueError(
            f"the corpus has two formats: {here} is {one}, {there} is {other}; "
            "prepare them apart, or name the format"
        )
    (format,) = formats or ["plain text"]
    return _plain_format(files[:SAMPLED_FILES]) if format == "plain text" else format


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
    for place, value in _json_values(path):
        record = _check_record(place, value)
        document = document_of(record["text"], record.get("title"))
        if document:
            yield document


def _json_values(path: str) -> Iterator[tuple[str, object]]:
    """The place and the value of each row of JSONL, of an array, or of Parquet."""
    if ending(path) == ".parquet" or _is_array(path):
        problems = labelled_files.Problems(path)
        for number, value in labelled_files.read_objects(path, problems):
            yield f"{path}:{number}", value
        problems.raise_any()
        return
    for number, line in lines(path):
        if line:
            yield f"{path}:{number}", _parsed(f"{path}:{number}", line)


def _is_array(path: str) -> bool:
    first = next((line for _, line in lines(path) if line), "")
    return first == "[" or labelled_files.ARRAY.match(first) is not None


def read_wikiextractor(path: str) -> Iterator[Document]:
    opened, title = 0, None
    text: list[str] = []
    for number, line in lines(path):
        if line.startswith("{") and not opened:
            yield from read_jsonl(path)
            return
        if line.startswith("<doc ") and not opened:
            match = _TITLE.search(line)
            opened, title = number, html.unescape(match[1]) if match else None
            text = []
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
                f"{path}:{number}: {line[:40]!r} is outside <doc ...> and </doc>; "
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
    if ending(path) == ".parquet":
        return "jsonl"
    if ending(path) in (".tsv", ".csv"):
        raise ValueError(
            f"{path} is a table, and its labels would be read as text; write its texts "
            "to a .txt file, one a line, or to a .jsonl file with the field `text`"
        )
    first = next((line for _, line in lines(path) if line), "")
    if not first:
        return None
    if first.startswith("<doc "):
        return "wikiextractor"
    is_json = first.startswith("{") or ending(path) in labelled_files.OBJECTS
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


def _parsed(place: str, line: str) -> object:
    try:
        return json.loads(line)
    except json.JSONDecodeError as error:
        raise ValueError(
            f"{place}: not JSON ({error}); a JSONL file holds one object a line, "
            'as {"text": "..."}'
        ) from None


def _check_record(place: str, record: object) -> dict:
    """A row. Raises ValueError for one without a text."""
    if not isinstance(record, dict) or not isinstance(record.get("text"), str):
        actual = repr(record)
        if isinstance(record, dict):
            actual = f"fields {', '.join(record)}"
        raise ValueError(
            f"{place}: no field `text` with a string in it, but {actual[:80]}; "
            "rename the field that holds the document"
        )
    return record


FORMATS = ("auto", *READERS, "python-docs", "tfds:NAME")


def resolve(paths: Sequence[str], format: str = "auto") -> str:
    """The format of a corpus; raises where a path or the format is wrong.

    `auto` is `python-docs` without paths. Otherwise it looks at the name and the
    first lines of each file: a first line that begins with `<doc ` is
    `wikiextractor`; one that begins with `{`, or a name in `.json`, `.jsonl` or
    `.parquet`, is `jsonl`; the rest is plain text. That is `lines` where three quarters
    of the first 200 lines of the first 20 files are one sentence that ends with a stop,
    and `paragraphs` otherwise. A corpus of two formats is refused, and so is a table
    (.tsv, .csv), whose labels are no text.
    """
    if format not in FORMATS and not format.startswith("tfds:"):
        raise ValueError(
            f"format {format!r} is not known; use one of {', '.join(FORMATS)}"
        )
    if format == "python-docs" and paths:
        raise ValueError(
            f"format 'python-docs' reads no paths, and got {paths[0]!r}; "
            "leave the paths out or choose another format"
        )
    if format.startswith("tfds:"):
        return format
    if format == "python-docs" or (format == "auto" and not paths):
        return "python-docs"
    matched = files(paths)
    return detect(matched) if format == "auto" else format


def read(paths: Sequence[str], format: str = "auto") -> Iterator[Document]:
    """Yields the documents of files, directories (recursed, sorted) and globs.

    `.gz`, `.bz2` and `.xz` files are unpacked on the way. Formats:

    * `lines`: one sentence a line, a blank line between documents.
    * `paragraphs`: prose. A blank line separates paragraphs, and a line of more than
      120 characters is one by itself; shorter lines are joined. Where a file has
      headings ` = Title = ` (wikitext) they separate documents, and all headings are
      dropped; elsewhere two or more blank lines do, or 16,000 characters.
    * `jsonl`: one JSON object a line, an array of them, or rows of Parquet, with the
      document in the field `text`.
    * `wikiextractor`: `<doc ...>` to `</doc>`, or the output of `--json`; the line
      that repeats the title is dropped.
    * `tfds:NAME`: the feature `text` in the split `train` of a TFDS dataset; a path,
      if any, is its `data_dir`.
    * `python-docs`: the documentation installed with Python; no paths.
    * `auto`: see `resolve`.
    """
    format = resolve(paths, format)
    if format == "python-docs":
        yield from python_docs.documents()
    elif format.startswith("tfds:"):
        yield from _tfds(format.removeprefix("tfds:"), *paths[:1])
    else:
        for path in files(paths):
            yield from READERS[format](path)


def require(paths: Sequence[str], format: str = "auto", documents: int = 1) -> None:
    """Raises unless the corpus holds so many documents; reads no further than that.

    Sentence pairs need two: the random next sentence comes from another document.
    """
    count = sum(1 for _ in itertools.islice(read(paths, format), documents))
    if count == 0:
        raise ValueError(f"the corpus {_name(paths, format)} is empty; give it text")
    if count < documents:
        raise ValueError(
            f"the corpus {_name(paths, format)} holds {count} document, and sentence "
            f"pairs need {documents};\nseparate its documents (`lines`: a blank line, "
            "`paragraphs`: two) or prepare it without pairs"
        )


def sentences(document: Document, format: str) -> list[str]:
    """The sentences of a document: the blocks of `lines`, else those that are split.

    `format` is a result of `resolve`; `auto` splits.
    """
    if format == "lines":
        return list(document)
    return [sentence for block in document for sentence in split(block)]


def is_held_out(document: Document, fraction: float) -> bool:
    """True if a document belongs to the held-out `fraction`, by its text alone.

    Equal documents give equal results, on every machine and in every run.
    """
    digest = hashlib.blake2b("\n".join(document).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") < fraction * 2**64


def files(paths: Sequence[str]) -> list[str]:
    """The files of `paths`, each once; hidden ones in directories are left out."""
    unique: dict[str, None] = {}
    for path in map(str, map(local_path, paths)):
        if os.path.isdir(path):
            inside = glob.glob(os.path.join(glob.escape(path), "**"), recursive=True)
        else:
            inside = [path] if os.path.exists(path) else glob.glob(path, recursive=True)
        matched = sorted(filter(os.path.isfile, inside))
        if not matched:
            raise ValueError(
                f"no such file: {path!r}; give a file, a directory that holds some, "
                "or a glob that matches some"
            )
        unique |= dict.fromkeys(matched)
    if not unique:
        raise ValueError("no paths; give a file, a directory or a glob")
    return list(unique)


def _name(paths: Sequence[str], format: str) -> str:
    return ", ".join(map(repr, paths[:3])) or repr(format)


def _tfds(name: str, data_dir: str | None = None) -> Iterator[Document]:
    tfds = optional.tensorflow_datasets()
    try:
        builder = tfds.builder(name, data_dir=data_dir)
    except tfds.core.DatasetNotFoundError:
        raise ValueError(
            f"TFDS has no dataset {name!r}; "
            "see tensorflow.org/datasets/catalog, or write the text out as JSONL"
        ) from None
    features = list(builder.info.features or {})
    if "text" not in features:
        raise ValueError(
            f"dataset {name!r} has no feature `text` but {', '.join(features)}; "
            "write the documents out as JSONL"
        )
    builder.download_and_prepare()
    for record in tfds_files.examples(builder, "train"):
        document = document_of(record["text"].decode(errors="replace"))
        if document:
            yield document
