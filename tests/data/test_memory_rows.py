"""Laws of labelled rows in memory."""

import dataclasses
import json

import numpy as np
import pytest

from bert_jax.data import memory_rows, tables


class Table:
    """The functions of a table of pandas that are used."""

    columns = ("text", "label")

    def to_dict(self, orient):
        assert orient == "records"
        return [{"text": "a", "label": np.int64(1)}, {"text": "b", "label": np.nan}]


@pytest.mark.parametrize(
    "rows, lines",
    [
        ([{"text": "ä", "label": 1}], [{"text": "ä", "label": 1}]),
        ([("a", "b", 0.5)], [{"0": "a", "1": "b", "2": 0.5}]),
        (iter([{"x": b"a", "y": np.array([1, 2])}]), [{"x": "a", "y": [1, 2]}]),
        (Table(), [{"text": "a", "label": 1}, {"text": "b"}]),
    ],
)
def test_rows_of_any_kind_become_a_line_each(tmp_path, rows, lines):
    assert memory_rows.is_rows(rows)
    memory_rows.write(rows, tmp_path / "a/rows.jsonl", "train")
    text = (tmp_path / "a/rows.jsonl").read_text()
    assert [json.loads(line) for line in text.splitlines()] == lines


def test_rows_are_read_as_a_file_of_the_same_content(tmp_path):
    rows = [("a b", "yes"), ("c d", "no"), ("e f", "no"), ("g h", "yes")]
    file = tmp_path / "rows.tsv"
    file.write_text("".join("\t".join(row) + "\n" for row in rows))
    memory_rows.write(rows, tmp_path / "rows.jsonl", "train")
    one, other = (tables.read(tmp_path / x) for x in ("rows.tsv", "rows.jsonl"))
    assert dataclasses.replace(other, path=one.path) == one


def test_paths_are_no_rows(tmp_path):
    for value in ("a.tsv", tmp_path, ["a.tsv", tmp_path], ()):
        assert not memory_rows.is_rows(value)


@pytest.mark.parametrize(
    "rows, message",
    [
        ([], "^dev has no row; give some$"),
        ([{"text": "a"}, 3], "^dev:2: row 3: is no dictionary and no tuple; give rows"),
    ],
)
def test_rows_that_cannot_be_read_are_refused_by_name(tmp_path, rows, message):
    with pytest.raises(ValueError, match=message):
        memory_rows.write(rows, tmp_path / "rows.jsonl", "dev")


def test_errors_name_the_rows_and_not_their_file():
    with pytest.raises(ValueError, match="^train:3: empty$"):
        with memory_rows.errors_named({"/x/train.jsonl": "train"}):
            raise ValueError("/x/train.jsonl:3: empty")
