"""`Model.index`: vectors of a corpus, in memory or as a directory of shards.

A directory has `index.json`, what it was made with, and for each shard its documents,
a JSON line each (`documents-00000.jsonl`), where these lines begin
(`lines-00000.npy`), and their vectors (`vectors-00000.npy`, float32 `[n, D]`), which
appear last. Shards are memory-mapped, so that an index of any size opens at once.
"""

import array
import dataclasses
import hashlib
import itertools
import json
import math
import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bert_jax import digests, files
from bert_jax.data import lock, retrieval
from bert_jax.data.progress import Bar
from bert_jax.data.retrieval import Document
from bert_jax.inference import checks
from bert_jax.inference.nearest import embed_as, prompt_name
from bert_jax.pretrained import Pooling
from bert_jax.tokenizers.text import listed

if TYPE_CHECKING:
    from bert_jax.inference.model import Model

# Documents in a shard: those that are in memory at once, and lost after a kill.
SHARD = 16384

NAME = "index.json"

# The files of a shard; the vectors appear last.
KINDS = ("documents", "lines", "vectors")

Corpus = str | os.PathLike | Sequence[str] | Mapping[str, str]


@dataclasses.dataclass(frozen=True)
class Shard:
    """Vectors float32 `[n, D]`, and the id and text of each."""

    vectors: np.ndarray
    documents: Sequence[tuple[str | int, str]]


@dataclasses.dataclass(frozen=True)
class Index:
    """A corpus with its vectors, for `Model.search`.

    Attributes:
      shards: its parts in order.
      model: the fingerprint of the model that made the vectors.

    >>> index = model.index(["a b", "c d e"])
    >>> len(index), index.document(1)
    (2, (1, 'c d e'))
    """

    shards: tuple[Shard, ...]
    model: Mapping[str, Any]

    def __len__(self) -> int:
        return sum(len(shard.vectors) for shard in self.shards)

    def vectors(self) -> Iterator[np.ndarray]:
        """The vectors of the shards in order, `[n, D]` each; from disk as needed.

        >>> [x.shape for x in model.index(["a b", "c d e"]).vectors()]
        [(2, 12)]
        """
        yield from (shard.vectors for shard in self.shards)

    def document(self, row: int) -> tuple[str | int, str]:
        """The id and the text of a row. Raises IndexError beyond the last.

        >>> model.index({"x": "a b"}).document(0)
        ('x', 'a b')
        """
        for shard in self.shards:
            if 0 <= row < len(shard.documents):
                return shard.documents[row]
            row -= len(shard.documents)
        raise IndexError(f"the index has {len(self)} documents")

    @classmethod
    def open(cls, directory: str | os.PathLike) -> "Index":
        """The index of a directory that `Model.index` wrote, memory-mapped.

        Raises:
          ValueError: if it is none, is not finished, or lacks a file.

        >>> index = model.index(["a b", "c d e"], "letters")
        >>> Index.open("letters").document(1)
        (1, 'c d e')
        """
        folder = files.local_path(directory)
        settings = files.read_object(folder / NAME)
        with files.readable_errors(folder / NAME, "build the index again"):
            count = settings["documents"]
            shards = math.ceil(count / settings["shard"])
            model = dict(settings["model"])
        missing = [i for i in range(shards) if not _file(folder, i, "vectors").exists()]
        if missing:
            raise ValueError(
                f"{folder} has {shards - len(missing)} of {shards} shards; finish it "
                "with the call that began it, model.index"
            )
        opened = tuple(_open_shard(folder, i) for i in range(shards))
        if sum(len(shard.vectors) for shard in opened) != count:
            raise ValueError(f"{folder} does not hold {count} vectors; build it again")
        return cls(opened, model)


def index(
    model: "Model",
    corpus: Corpus,
    directory: str | os.PathLike | None,
    batch_size: int,
) -> Index:
    """See `Model.index`."""
    checks.check_count("batch_size", batch_size)
    read = documents_of(corpus)
    if directory is None:
        _check(read)
        documents = list(read())
        texts = [document.text for document in documents]
        vectors = embed_as(model, "document", texts, batch_size)
        names = [(document.id, document.text) for document in documents]
        return Index((Shard(vectors, names),), fingerprint(model))
    folder = files.make_directory(files.local_path(directory))
    with lock.locked(folder):
        _build(model, read, folder, batch_size)
    return Index.open(folder)


def documents_of(corpus: Corpus) -> Callable[[], Iterable[Document]]:
    """A function that reads the documents of a corpus from the start."""
    if isinstance(corpus, str | os.PathLike):
        path = files.local_path(corpus)
        path = retrieval.corpus_file(path) if path.is_dir() else path
        return lambda: retrieval.documents(path)
    names: Sequence[str | int]
    if isinstance(corpus, Mapping):
        names, texts = list(corpus), listed(list(corpus.values()), "corpus")
    else:
        texts = listed(corpus, "corpus")
        names = range(len(texts))
    for name, text in zip(names, texts, strict=True):
        if not text.strip():
            raise ValueError(f"corpus[{name!r}] is empty; leave it out or fill it in")
    return lambda: map(Document, names, texts, itertools.repeat("corpus"))


def fingerprint(model: "Model") -> dict[str, Any]:
    """Facts that two models share only if they embed a document alike.

    The type that a model computes in is none of them: it changes the last digits only.
    """
    pooling = model.pooling or Pooling()
    arrays = {"encoder": model.params["encoder"], "pooling": pooling}
    text = json.dumps(digests.leaves(arrays), sort_keys=True)
    return {
        "weights": hashlib.sha256(text.encode()).hexdigest()[:16],
        "pooling": pooling.describe(),
        "prompt": checks.prompt_text(pooling, prompt_name(model, "document")),
        "max_length": model.max_length,
        "tokenizer": model.check_tokenizer().fingerprint,
    }


def check_model(index: Index, model: "Model") -> None:
    """Raises ValueError if an index is of another model.

    Its rows may have been longer or shorter.
    """
    files.check_unchanged(
        index.model,
        fingerprint(model),
        "the index was made by another model",
        "search with that one, or build the index again",
        harmless=("max_length",),
    )


def _build(
    model: "Model",
    read: Callable[[], Iterable[Document]],
    folder: Path,
    batch_size: int,
) -> None:
    """Writes the shards that are missing."""
    settings = {"model": fingerprint(model), "shard": SHARD} | _check(read)
    if (folder / NAME).exists():
        files.check_unchanged(
            files.read_object(folder / NAME),
            settings,
            f"{folder} has another index",
            "choose another directory, or delete it",
        )
    else:
        others = sorted(x.name for x in folder.iterdir() if x.name != lock.FILE)
        if others:
            raise ValueError(
                f"{folder} is not empty and holds no index: it has {others[0]!r}; "
                "choose another directory"
            )
        files.write_json(folder / NAME, settings)
    for torn in folder.glob(".*-?????.*"):  # of a process that was killed
        torn.unlink()
    quiet = dataclasses.replace(model, progress=False)
    documents, warned = iter(read()), False
    count: Any = settings["documents"]
    with Bar(count, "documents", "index", shown=bool(model.progress)) as bar:
        for number in itertools.count():
            shard = list(itertools.islice(documents, SHARD))
            if not shard:
                return
            if not _file(folder, number, "vectors").exists():
                texts = [document.text for document in shard]
                with warnings.catch_warnings(record=True) as caught:
                    warnings.simplefilter("always")
                    vectors = embed_as(quiet, "document", texts, batch_size)
                # All shards have texts that are cut; one warning is enough.
                more = "; other parts may have more" if len(shard) == SHARD else ""
                for warning in [] if warned else caught:
                    warnings.warn(f"{warning.message}{more}", stacklevel=5)
                warned = warned or bool(caught)
                _write_shard(folder, number, shard, vectors)
            bar.update(len(shard))


def _check(read: Callable[[], Iterable[Document]]) -> dict[str, Any]:
    """The number of documents and a checksum; ValueError for none, and equal ids."""
    checksum, hashes = hashlib.sha256(), array.array("q")
    for document in read():
        checksum.update(json.dumps([document.id, document.text]).encode())
        hashes.append(hash(document.id))
    if not hashes:
        raise ValueError("the corpus has no document; give at least one")
    values, counts = np.unique(np.asarray(hashes), return_counts=True)
    if (counts > 1).any():
        likely, seen = set(values[counts > 1].tolist()), set()
        for document in (x for x in read() if hash(x.id) in likely):
            if document.id in seen:
                raise ValueError(f"{document.place}: {retrieval.repeated(document.id)}")
            seen.add(document.id)
    return {"documents": len(hashes), "checksum": checksum.hexdigest()[:16]}


def _file(folder: Path, number: int, kind: str) -> Path:
    ending = "jsonl" if kind == "documents" else "npy"
    return folder / f"{kind}-{number:05}.{ending}"


def _write_shard(
    folder: Path, number: int, documents: Sequence[Document], vectors: np.ndarray
) -> None:
    lines = [
        json.dumps([document.id, document.text]).encode() + b"\n"
        for document in documents
    ]
    starts = np.cumsum([0, *map(len, lines)])
    files.write_bytes(_file(folder, number, "documents"), b"".join(lines))
    for kind, x in (("lines", starts), ("vectors", vectors)):
        with files.new_file(_file(folder, number, kind), "wb") as file:
            np.save(file, x)


class _Documents(Sequence[tuple[str | int, str]]):
    """The documents of a shard on disk, read one at a time."""

    def __init__(self, path: Path, starts: np.ndarray):
        self._path, self._starts = path, starts
        self._content = np.memmap(path, np.uint8, "r")

    def __len__(self) -> int:
        return len(self._starts) - 1

    def __getitem__(self, row: Any) -> Any:
        first, end = map(int, self._starts[row : row + 2])
        line = self._content[first:end].tobytes()
        with files.readable_errors(self._path, "build the index again"):
            name, text = json.loads(line)
            return name, text


def _open_shard(folder: Path, number: int) -> Shard:
    paths = {kind: _file(folder, number, kind) for kind in KINDS}
    try:
        vectors = np.load(paths["vectors"], mmap_mode="r")
        starts = np.load(paths["lines"], mmap_mode="r")
        documents = _Documents(paths["documents"], starts)
        if len(documents) != len(vectors):
            raise ValueError(f"{len(documents)} documents, {len(vectors)} vectors")
    except (OSError, ValueError) as error:
        raise ValueError(
            f"{paths['vectors']} or a file beside it cannot be read ({error}); delete "
            "it and build the index again"
        ) from None
    return Shard(vectors, documents)
