"""Raw text -> a prepared directory of packed rows, as `bert-jax prepare` makes it.

It streams, uses several processes and continues after being killed. The result depends
neither on the number of processes nor on where it was interrupted.
"""

import dataclasses
import importlib.metadata
import importlib.util
import os
import platform
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from bert_jax.data import corpus, prepared_rows, python_docs, workers
from bert_jax.data.prepared_rows import Staging, Statistics
from bert_jax.data.records import RowConfig
from bert_jax.data.shards import Chunk, group, prepare_shard, unigrams
from bert_jax.files import local_path

VERSION = 1  # of rules and records: raise it when the same input gives other rows

# More text in a shard costs memory in each process; more shards cost open files.
LEAST_SHARD, SHARDS = 4_000_000, 500


def prepare(
    paths: Sequence[str],
    out_dir: str | os.PathLike,
    *,
    tokenizer: Any,
    recipe: RowConfig,
    format: str = "auto",
    processes: int | None = None,
    shard_bytes: int | None = None,
    progress: bool = True,
) -> Statistics:
    """Prepares a corpus into `out_dir`, or returns at once if that is done already.

    Raises ValueError, with the differences, for a directory made from other text, by
    another recipe or tokenizer. If several hosts share a disk, one of them prepares.

    Args:
        tokenizer: anything picklable with `encode_batch(texts)` (ids without special
            tokens), `vocab_size, pad_id, cls_id, sep_id` and a `fingerprint`.
        processes: default one for each CPU; a corpus of one shard needs no other.
        shard_bytes: approximate size of the text in a shard; each process holds a
            few times that. Default a 500th of the corpus, but at least 4 million.
    """
    recipe.validate()
    format = corpus.resolve(paths, format)
    files = [os.path.abspath(f) for f in corpus.files(paths)] if paths else []
    total = sum(map(os.path.getsize, files))  # 0 if the corpus has no files
    shard_bytes = shard_bytes or max(total // SHARDS, LEAST_SHARD)
    stamp = _stamp(files, format, tokenizer, recipe, shard_bytes)
    staging = Staging(local_path(out_dir), stamp)
    if whole := staging.whole():
        staging.discard()  # left by a run that was killed in its last moment
        return whole
    with staging.opened():
        if whole := staging.whole():  # by a process that has ended in the meantime
            staging.discard()
            return whole
        chunks = _unfinished(corpus.read(paths, format), recipe, shard_bytes, staging)
        constants = staging, tokenizer, recipe, format
        processes = processes or _useful_processes(total, shard_bytes)
        try:
            written = workers.run(_write_shard, chunks, processes, *constants)
            _show(written, total if progress else None)
        except ValueError:
            staging.discard_if_empty()
            raise
        layout = recipe.layout(tokenizer.vocab_size)
        return prepared_rows.statistics(staging.finish(layout, tokenizer.vocab_size))


def _stamp(
    files: Sequence[str],
    format: str,
    tokenizer: Any,
    recipe: RowConfig,
    shard_bytes: int,
) -> dict:
    """Text, config and tokenizer of a directory: equal stamps mean equal rows."""
    return {
        "version": VERSION,
        "format": format,
        "inputs": _file_states(files),
        "installed": _installed() if format == "python-docs" else {},
        "recipe": dataclasses.asdict(recipe),
        "tokenizer": tokenizer.fingerprint,
        "shard_bytes": shard_bytes,
    }


def _file_states(files: Sequence[str]) -> dict[str, str]:
    """Name below the common folder -> size and time of change."""
    root = os.path.commonpath([os.path.dirname(f) for f in files]) if files else ""
    out = {}
    for file in files:
        status = os.stat(file)
        moment = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(status.st_mtime))
        out[os.path.relpath(file, root)] = f"{status.st_size} bytes of {moment}"
    return out


def _installed() -> dict[str, str]:
    """The versions of the packages that `python-docs` reads."""
    installed = [p for p in python_docs.PACKAGES if importlib.util.find_spec(p)]
    versions = {package: importlib.metadata.version(package) for package in installed}
    return {"python": platform.python_version(), **versions}


def _useful_processes(total: int, shard_bytes: int) -> int:
    processors = os.cpu_count() or 1
    return min(processors, max(1, total // shard_bytes)) if total else processors


def _unfinished(
    documents: Iterable[tuple[str, ...]],
    recipe: RowConfig,
    shard_bytes: int,
    staging: Staging,
) -> Iterator[Chunk]:
    grouped = group(
        documents,
        held_out=recipe.held_out,
        fewest=2 if recipe.pairs == "next" else 1,
        size=shard_bytes,
    )
    return (c for c in grouped if not staging.has(c.split, c.index))


def _write_shard(
    staging: Staging, tokenizer: Any, recipe: RowConfig, format: str, chunk: Chunk
) -> int:
    """Writes the shard of a chunk, in a worker; returns its characters."""
    records, counts = prepare_shard(
        chunk.documents,
        chunk.split,
        chunk.index,
        tokenizer=tokenizer,
        recipe=recipe,
        format=format,
    )
    common = unigrams(records, tokenizer)
    staging.write(chunk.split, chunk.index, records, counts, common)
    return chunk.characters


def _show(written: Iterable[int], total: int | None) -> None:
    """A bar over the text done; `total` None for no bar, 0 if it is not known."""
    from tqdm import tqdm

    bar = tqdm(
        desc="prepare",
        unit="B",
        unit_scale=True,
        total=total or None,
        disable=total is None,
        # Notebooks paint standard error red.
        file=sys.stderr if sys.stderr.isatty() else sys.stdout,
    )
    with bar:
        for characters in written:
            bar.update(characters)
