"""Laws of files of pairs, triplets, scored pairs, labelled texts and texts."""

import json

import pytest

from bert_jax.data import text_groups
from bert_jax.data.text_groups import GroupColumns


def jsonl(path, *rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.mark.parametrize(
    "row, kind, texts, labels",
    [
        ({"anchor": "a", "positive": "b"}, "pairs", ("a", "b"), None),
        ({"query": "a", "answer": "b"}, "pairs", ("a", "b"), None),
        ({"sentence2": "b", "sentence1": "a", "score": 3}, "scored", "ab", [(3.0,)]),
        ({"text": "a", "label": "x"}, "labelled", ("a",), ["x"]),
        ({"text": "a"}, "texts", ("a",), None),
        (
            {"anchor": "a", "negative": "c", "positive": "b"},
            "triplets",
            ("a", "b", "c"),
            None,
        ),
        (
            {"query": "a", "positive": "b", "negative_1": "c", "negative_2": "d"},
            "triplets",
            ("a", "b", "c", "d"),
            None,
        ),
        (
            {"query": "a", "positive": "b", "negatives": ["c", "d"]},
            "triplets",
            "abcd",
            None,
        ),
        (
            {"query": "a", "positive": "b", "negative": "c", "score": [1, 0.5]},
            "scored",
            "abc",
            [(1.0, 0.5)],
        ),
    ],
)
def test_names_of_columns_tell_the_kind(tmp_path, row, kind, texts, labels):
    groups = text_groups.read(jsonl(tmp_path / "a.jsonl", row))
    assert groups.kind == kind
    assert groups.texts == [tuple(texts)]
    assert groups.labels == labels
    again = text_groups.read(tmp_path / "a.jsonl", groups.columns)
    assert again == groups


@pytest.mark.parametrize(
    "line, kind",
    [
        ("a b,c d,4.5", "scored"),
        ("a b,c d", "pairs"),
        ("a b,c d,e f", "triplets"),
        ("a b", "texts"),
    ],
)
def test_files_without_a_header_are_read_by_position(tmp_path, line, kind):
    path = tmp_path / "a.csv"
    rows = []
    for x in "uvwxyz":
        for text in ("a b", "c d", "e f"):
            line = line.replace(text, f"{x} {text} {x}")
        rows.append(line)
    path.write_text("\n".join(rows))
    if kind == "texts":
        path = path.rename(tmp_path / "a.tsv")
    groups = text_groups.read(path)
    assert (groups.kind, len(groups)) == (kind, 6)


def test_columns_can_be_named(tmp_path):
    row = {"one": "a", "two": "b", "much": 0.5, "title": "t"}
    path = jsonl(tmp_path / "a.jsonl", row)
    groups = text_groups.read(path, GroupColumns(("two", "one"), "much"))
    assert groups.texts == [("b", "a")] and groups.labels == [(0.5,)]
    groups = text_groups.read(path, GroupColumns(("two", "one"), ""))
    assert groups.kind == "pairs"
    with pytest.raises(
        ValueError, match=r"a.jsonl:1: there is no column 'x'; it has o"
    ):
        text_groups.read(path, GroupColumns(("x", "one")))


def test_a_row_can_have_fewer_negatives_than_others(tmp_path):
    first = {"query": "a", "positive": "b", "negatives": ["c", "d"]}
    second = {"query": "e", "positive": "f", "negatives": []}
    groups = text_groups.read(jsonl(tmp_path / "a.jsonl", first, second))
    assert groups.texts == [("a", "b", "c", "d"), ("e", "f", "", "")]


@pytest.mark.parametrize(
    "row, message",
    [
        ({"anchor": "", "positive": "b"}, "column 'anchor', '': needs both texts of t"),
        ({"anchor": "a"}, "column 'positive', '': needs both texts of the pair; fill"),
        (
            {"anchor": "a", "positive": "b", "score": "high"},
            "column 'score', 'high': is no score; write a number, as 0.8",
        ),
        (
            {"anchor": "a", "positive": "b", "score": [1, 2, 3]},
            "column 'score', '.1, 2, 3.': are 3 scores; write 1, one for each text aft",
        ),
    ],
)
def test_a_row_that_cannot_be_right_is_named_with_its_line(tmp_path, row, message):
    good = {"anchor": "a", "positive": "b"}
    good |= {"score": 1} if "score" in row else {}
    path = jsonl(tmp_path / "a.jsonl", good, row)
    with pytest.raises(ValueError, match=rf"a.jsonl:2: {message}"):
        text_groups.read(path)
