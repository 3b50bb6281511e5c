"""Corpora, queries and judgements of retrieval, in folders as those of BEIR.

A folder has `corpus.jsonl` and `queries.jsonl`, with `_id` and `text` (and `title`) in
each line, and judgements in `qrels.tsv`, or for each split in `qrels/SPLIT.tsv`: query,
document, grade. (Thakur et al., 2021.)
"""

import dataclasses
import json
import os
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from bert_jax.data import decoding
from bert_jax.data.decoding import COMPRESSED, ending, lines
from bert_jax.files import local_path

# Fields with the id of a document or a query, the likeliest first.
IDS = ("_id", "id", "doc_id", "docid", "query_id")

JSON_LINES = (".jsonl", ".ndjson")


class Document(NamedTuple):
    """A document, or a query, of a file.

    Attributes:
      id: its name among all.
      text: its title, if it has one, and its text.
      place: its file and line, for errors.
    """

    id: str | int
    text: str
    place: str


@dataclasses.dataclass(frozen=True)
class Retrieval:
    """A collection with judgements.

    Attributes:
      corpus: the text of each document by its id.
      queries: the text of each judged query by its id.
      judgements: the grades of documents by their ids, by the ids of queries; a grade
        above 0 is relevant.
    """

    corpus: dict[str, str]
    queries: dict[str, str]
    judgements: dict[str, dict[str, int]]


def read(folder: str | os.PathLike, split: str = "test") -> Retrieval:
    """Reads a folder; the judgements are those of `split` if there are several.

    Raises:
      ValueError: for a file that is missing or malformed, an empty text, an id that is
        there twice, and a judgement of an id that does not exist.
    """
    place = local_path(folder)
    if not place.is_dir():
        raise ValueError(f"{folder} is not a directory; give one with corpus.jsonl")
    corpus = texts(place, "corpus")
    queries = texts(place, "queries")
    path = _judgement_file(place, split)
    judgements = read_judgements(path, corpus.keys(), queries.keys())
    judged = {query: queries[query] for query in judgements}
    return Retrieval(corpus, judged, judgements)


def corpus_file(folder: Path) -> Path:
    """The file of the documents in a folder. Raises ValueError if there is none."""
    return _existing(folder, ["corpus.jsonl"])


def texts(folder: Path, name: str) -> dict[str, str]:
    """The texts of a folder's `corpus` or `queries` by their ids."""
    path = _existing(folder, [f"{name}.jsonl"])
    result: dict[str, str] = {}
    for document in documents(path):
        name = str(document.id)
        if name in result:
            raise ValueError(f"{document.place}: {repeated(name)}")
        result[name] = document.text
    if not result:
        raise ValueError(f"{path} is empty; it needs a line for each text")
    return result


def documents(path: str | os.PathLike) -> Iterator[Document]:
    """The documents of a file, read line by line.

    A line of `.jsonl` is an object with a text and perhaps a title, and an id; without
    an id the number of the line takes its place. In other files a line is a text, and
    empty lines are skipped.

    Raises:
      ValueError: for a line without a text, with its place.
    """
    path = os.fspath(path)
    is_json = ending(path) in JSON_LINES
    for number, line in lines(path):
        place = f"{decoding.name_of(path)}:{number}"
        if not line:
            continue
        yield (
            _document(line, place, number)
            if is_json
            else Document(str(number), line, place)
        )


def read_judgements(
    path: str | os.PathLike, corpus: Collection[str], queries: Collection[str]
) -> dict[str, dict[str, int]]:
    """Grades by query and document from lines of three cells, or four as in TREC.

    Raises:
      ValueError: for a malformed line, or an id that is not in the corpus or queries.
    """
    result: dict[str, dict[str, int]] = {}
    unknown: list[tuple[str, str, str]] = []
    for number, line in lines(os.fspath(path)):
        cells, place = line.split("\t") if "\t" in line else line.split(), number
        if not line or (number == 1 and not _is_grade(cells[-1])):
            continue  # a header
        if len(cells) not in (3, 4) or not _is_grade(cells[-1]):
            raise ValueError(
                f"{path}:{place}: {line!r:.60} is no judgement; write the ids of a "
                "query and a document and a whole number, with tabs between"
            )
        query, document = cells[0], cells[-2]
        for kind, name, known in (
            ("corpus", document, corpus),
            ("query", query, queries),
        ):
            if name not in known:
                unknown.append((f"{path}:{place}", kind, name))
        result.setdefault(query, {})[document] = int(cells[-1])
    if unknown:
        first, kind, name = unknown[0]
        more = f" (and {len(unknown) - 1} more)" if unknown[1:] else ""
        raise ValueError(
            f"{first}: {kind} id {name!r} does not exist{more}; give the files that "
            "the judgements belong to, or delete these lines"
        )
    if not result:
        raise ValueError(f"{path} is empty; it needs a line for each judgement")
    return result


def repeated(name: str | int) -> str:
    """The sentence on an id that two documents have."""
    return f"the id {name!r} is there twice; give each document one of its own"


def _document(line: str, place: str, number: int) -> Document:
    try:
        row: Any = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ValueError(
            f'{place}: not JSON ({error}); each line is an object, as {{"_id": "1", '
            '"text": "..."}'
        ) from None
    if not isinstance(row, dict):
        raise ValueError(f"{place}: {line:.60} is not a JSON object with fields")
    parts = [row.get("title") or "", row.get("text") or ""]
    if not all(isinstance(part, str) for part in parts):
        raise ValueError(f"{place}: the title or the text is not a string; correct it")
    text = " ".join(part.strip() for part in parts).strip()
    if not text:
        raise ValueError(
            f"{place}: there is no text; fill in 'text' or delete the line"
        )
    name = next((row[x] for x in IDS if row.get(x) is not None), number)
    return Document(str(name), text, place)


def _judgement_file(folder: Path, split: str) -> Path:
    if (folder / "qrels").is_dir():
        names = sorted(path.name for path in (folder / "qrels").iterdir())
        for name in names:
            if name.split(".")[0] == split:
                return folder / "qrels" / name
        raise ValueError(
            f"{folder}/qrels has no split {split!r} but {', '.join(names) or 'nothing'}"
            "; name another one"
        )
    return _existing(folder, ["qrels.tsv", "qrels.txt"])


def _existing(folder: Path, names: list[str]) -> Path:
    """The first of the files that exists, perhaps compressed."""
    for name in names:
        for path in (folder / name, *(folder / f"{name}{x}" for x in COMPRESSED)):
            if path.is_file():
                return path
    raise ValueError(f"{folder} has no {names[0]}; give a directory with this file")


def _is_grade(cell: str) -> bool:
    return cell.strip().removeprefix("-").isdigit()
