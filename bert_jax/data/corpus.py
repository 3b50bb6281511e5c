"""Raw text -> documents -> sentences, streaming.

The order of documents depends on the arguments and the files alone.
"""

import glob
import hashlib
import itertools
import os
from collections.abc import Iterator, Sequence

from bert_jax.data import python_docs, text_formats
from bert_jax.data import text_formats as splitter

Document = text_formats.Document
"""The blocks of a document: lines that are sentences, or paragraphs to be split."""

FORMATS = ("auto", *text_formats.READERS, "python-docs", "tfds:NAME")


def resolve(paths: Sequence[str], format: str = "auto") -> str:
    """The format of a corpus; raises where a path or the format is wrong.

    `auto` is `python-docs` without paths. Otherwise it looks at the name and the
    first lines of each file: a first line that begins with `<doc ` is
    `wikiextractor`; one that begins with `{`, or a name in `.json` or `.jsonl`, is
    `jsonl`; the rest is plain text. That is `lines` where three quarters of the first
    200 lines of the first 20 files are one sentence that ends with a stop, and
    `paragraphs` otherwise. A corpus of two formats is refused.
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
    found = files(paths)
    return text_formats.detect(found) if format == "auto" else format


def read(paths: Sequence[str], format: str = "auto") -> Iterator[Document]:
    """Yields the documents of files, directories (recursed, sorted) and globs.

    `.gz`, `.bz2` and `.xz` files are unpacked on the way. Formats:

    * `lines`: one sentence a line, a blank line between documents.
    * `paragraphs`: prose. A blank line separates paragraphs, and a line of more than
      120 characters is one by itself; shorter lines are joined. Where a file has
      headings ` = Title = ` (wikitext) they separate documents, and all headings are
      dropped; elsewhere two or more blank lines do, or 16,000 characters.
    * `jsonl`: one JSON object a line, with the document in its field `text`.
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
            yield from text_formats.READERS[format](path)


def require(paths: Sequence[str], format: str = "auto", documents: int = 1) -> None:
    """Raises unless the corpus holds so many documents; reads no further than that.

    Sentence pairs need two: the random next sentence comes from another document.
    """
    found = sum(1 for _ in itertools.islice(read(paths, format), documents))
    if found == 0:
        raise ValueError(f"the corpus {_name(paths, format)} is empty; give it text")
    if found < documents:
        raise ValueError(
            f"the corpus {_name(paths, format)} holds {found} document, and sentence "
            f"pairs need {documents};\nseparate its documents (`lines`: a blank line, "
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
    """Whether a document belongs to the held-out `fraction`, by its text alone.

    Equal documents fall on the same side, on every machine and in every run.
    """
    digest = hashlib.blake2b("\n".join(document).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") < fraction * 2**64


def files(paths: Sequence[str]) -> list[str]:
    """The files of `paths`, each once; hidden ones in directories are left out."""
    found: list[str] = []
    for path in map(os.path.expanduser, paths):
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
        found += matched
    if not found:
        raise ValueError("no paths; give a file, a directory or a glob")
    return list(dict.fromkeys(found))


def _name(paths: Sequence[str], format: str) -> str:
    return ", ".join(map(repr, paths[:3])) or repr(format)


def _tfds(name: str, data_dir: str | None = None) -> Iterator[Document]:
    from bert_jax.data import pipeline

    pipeline.tensorflow()  # hides the accelerator from it
    import tensorflow_datasets as tfds

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
    for record in tfds.as_numpy(builder.as_dataset(split="train")):
        document = text_formats.document_of(record["text"].decode(errors="replace"))
        if document:
            yield document
