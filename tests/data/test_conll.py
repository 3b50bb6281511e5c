"""Laws of labelled words as users bring them."""

import json

import numpy as np
import pytest

from bert_jax.data import conll
from bert_jax.data.conll import Columns

WORDS = [["New", "York", "sleeps"], ["no"]]
LABELS = [["B-LOC", "I-LOC", "O"], ["O"]]
TABBED = "New\tB-LOC\nYork\tI-LOC\nsleeps\tO\n\nno\tO\n"


@pytest.fixture
def write(tmp_path):
    def written(name, content):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return written


def objects(tokens="tokens", labels="ner_tags"):
    pairs = zip(WORDS, LABELS, strict=True)
    return "\n".join(json.dumps({"id": "0", tokens: w, labels: x}) for w, x in pairs)


def test_the_same_sentences_come_from_every_format(write):
    for path, columns in (
        (write("tabs.conll", "\ufeff" + TABBED), None),
        (write("crlf.txt", TABBED.replace("\n", "\r\n")), None),
        (write("blanks.conll", TABBED.replace("\t", "  ").strip()), None),
        # The empty lines of WNUT-17's file hold a tab, at times several stand together.
        (write("wnut.conll", TABBED.replace("\n\n", "\n\t\n\n \n")), None),
        (write("2003.txt", TABBED.replace("\t", " NN I-NP ")), None),
        (write("first.conll", "B-LOC New\nI-LOC York\nO sleeps\n\nO no"), (1, "0")),
        (write("words.jsonl", objects("words", "labels")), None),
        (write("asked.jsonl", objects("w", "tags_of")), ("w", "tags_of")),
    ):
        sentences = conll.read(path, columns and Columns(*columns))
        assert (sentences.words, sentences.labels) == (WORDS, LABELS), path
        assert sentences.documents == [0, 0] and len(sentences) == 2


def test_universal_dependencies_give_the_words_of_the_text(write):
    rows = [
        "# sent_id = 1",
        *("1-2 don't", "1 do do AUX VB", "2 n't not PART RB", "2.1 go go VERB VB"),
        *("3 # # SYM NN", "", "# newdoc id = b", "1 no no X UH", ""),
    ]
    lines = [row if row[:1] in ("", "#") else "\t".join(padded(row)) for row in rows]
    path = write("a.conllu", "\n".join(lines))
    sentences = conll.read(path)
    assert sentences.words == [["do", "n't", "#"], ["no"]]
    assert sentences.labels == [["AUX", "PART", "SYM"], ["X"]]
    assert sentences.documents == [0, 1]
    assert conll.read(path, Columns(label="xpos")).labels[0] == ["VB", "RB", "NN"]


def padded(row):
    cells = row.split()
    return cells + ["_"] * (10 - len(cells))


def test_documents_begin_at_docstart_which_is_no_sentence(write):
    rows = ["-DOCSTART- -X- O\n\na N O\n\nb N O\n", "-DOCSTART- O\n\nc N O\n"]
    sentences = conll.read(write("a.conll", "".join(rows)))
    assert sentences.words == [["a"], ["b"], ["c"]]
    one, other, last = sentences.documents
    assert one == other < last and "2 documents" in sentences.describe()
    lists = [["a"], ["-DOCSTART-"], ["b"]]
    lines = "\n".join(json.dumps({"tokens": x, "tags": x}) for x in lists)
    assert conll.read(write("a.jsonl", lines)).documents == [0, 1]


def test_words_may_be_any_letters_but_blanks_of_ascii(write):
    words = ["\u00a0", "\u2028", "\x85", "\u200d", '"', "-", "a b", "O"]
    sentences = conll.read(write("a.conll", "".join(f"{w}\tX\n" for w in words)))
    assert sentences.words == [words]
    assert sentences.lines == [[*range(1, len(words) + 1)]]


def test_numbers_of_labels_are_replaced_by_their_names(write):
    path = write("a.jsonl", '{"tokens": ["a", "b"], "ner_tags": [2, 0]}')
    assert conll.read(path).labels == [["2", "0"]]
    assert conll.read(path, Columns(names=("O", "X", "Y"))).labels == [["Y", "O"]]


@pytest.mark.parametrize(
    "name, content",
    [
        ("a.conll", "a\n\nb\n"),
        ("a.jsonl", '{"tokens": ["a"]}\n{"tokens": ["b"]}'),
        # Of CoNLL-2003's four columns, those that a tagger may see.
        ("a.conll", "a N I\n\nb N I\n"),
    ],
)
def test_a_file_to_predict_needs_no_labels(write, name, content):
    columns = Columns(label=None if content == "a\n\nb\n" else 3)
    if name == "a.jsonl":
        columns = Columns(label="ner_tags")
    sentences = conll.read(write(name, content), columns, labelled=False)
    assert sentences.words == [["a"], ["b"]] and sentences.labels is None


@pytest.mark.parametrize(
    "name, content, message",
    [
        ("a.conll", "a\tO\nb\n", "1 problem:\n.*2: row 'b': cells: 1, columns: 2"),
        ("a.conll", "a\tO\nb\tO\nc\t\n", "conll:3: label of 'c', '': is empty; fill"),
        ("a.conll", "a\tO\n\tO\n", "conll:2: word '': is empty; fill it in"),
        (
            "a.conll",
            b"a\tO\n\xe9\tO\n",
            "conll:2: byte 0xe9 at offset 4 is not UTF-8; convert",
        ),
        ("a.conll", "\n \n", "a.conll holds no word; it needs a word and a label"),
        ("a.conll", "a\nb\n", "has one column only; it needs a word and its label"),
        (
            "a.tsv",
            "a good one\t1\na bad one\t0\n",
            "a text in each row, as 'a good",
        ),
        ("a.tsv", "a\tO\n" * 1001, "a.tsv:1: this sentence has 1,001 words; put an"),
        ("a.jsonl", '{"tokens": "a b", "tags": ["O"]}', "'\"a b\"': is not a list of"),
        ("a.jsonl", '{"tokens": ["a"], "tags": []}', "a label for each of 1 word"),
        ("a.jsonl", '{"tokens": ["a"], "tags": [null]}', "label of 'a', '': is empty"),
        ("a.jsonl", '{"tokens": ["a"]', "jsonl:1: row .* is not JSON"),
        (
            "a.jsonl",
            "[1]",
            "jsonl:1: row '.1.': is not a JSON object; write one a line",
        ),
        ("a.jsonl", '{"text": "a"}', "there is no tokens or words for the words; it h"),
        (
            "a.jsonl",
            '{"tokens": ["a"]}',
            "there is no tags or .* for the labels; it ha",
        ),
    ],
)
def test_a_problem_is_raised_with_its_line_and_remedy(write, name, content, message):
    with pytest.raises(ValueError, match=message):
        conll.read(write(name, content))


def test_problems_are_listed_together_up_to_twenty(write):
    path = write("a.conll", "".join(f"w{i}\tX\nrow\n" for i in range(23)) + TABBED)
    with pytest.raises(ValueError, match="23 problems .the first 20") as error:
        conll.read(path)
    assert len(str(error.value).splitlines()) == 21


def test_columns_counted_from_the_end_keep_their_position_in_later_files(write):
    first = conll.read(write("a.conll", "a N X\n"), Columns(label="-1"))
    assert first.columns == Columns(token=0, label=2)
    assert conll.read(write("b.conll", "b N Y Z\n"), first.columns).labels == [["Y"]]


def test_columns_that_are_not_there_are_refused(write):
    path = write("a.conll", TABBED)
    for columns in (Columns(label=2), Columns(token="upos"), Columns(label=-3)):
        with pytest.raises(ValueError, match="there is no column .* columns 0 to 1"):
            conll.read(path, columns)


def test_labels_become_numbers_and_unknown_ones_raise_with_their_lines(write):
    sentences = conll.read(write("a.conll", TABBED))
    ids = conll.label_ids(sentences, ("B-LOC", "I-LOC", "O"))
    np.testing.assert_array_equal(ids, [0, 1, 2, 2])
    with pytest.raises(
        ValueError, match="a.conll:2: label 'I-LOC': is not one of B-LOC, O; fix it"
    ):
        conll.label_ids(sentences, ("B-LOC", "O"))
