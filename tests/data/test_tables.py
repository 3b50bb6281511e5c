"""Laws of labelled texts as users bring them."""

import gzip
import json
import sys

import pytest

from bert_jax.data import labelled_files, tables
from bert_jax.data.tables import Columns, Table

ROWS = [("a good one", "yes"), ("a bad one", "no"), ("so so", "no"), ("fine", "yes")]


@pytest.fixture
def write(tmp_path):
    def written(name, content):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return written


def tabbed(*rows):
    return "".join("\t".join(row) + "\n" for row in rows)


def read(path, *settings, **columns):
    table = tables.read(path, Columns(*settings, **columns))
    return list(zip(table.texts, table.pairs or table.texts, table.labels, strict=True))


def test_the_same_rows_come_from_every_format_with_and_without_a_header(write):
    objects = "\n".join(json.dumps({"text": a, "label": b}) for a, b in ROWS)
    comma = "".join(f'"{a}",{b}\r\n' for a, b in ROWS)
    for path in (
        write("plain.tsv", tabbed(*ROWS)),
        write("headed.tsv", "\ufeff" + tabbed(("sentence", "label"), *ROWS)),
        write("plain.csv", comma),
        write("headed.csv", "label,text\n" + "".join(f"{b},{a}\n" for a, b in ROWS)),
        write("rows.jsonl", objects),
    ):
        table = tables.read(path)
        assert [*zip(table.texts, table.labels, strict=True)] == ROWS
        assert table.pairs is None and len(table) == 4


@pytest.mark.parametrize(
    "header, row, expected",
    [
        # GLUE's own files: SST-2, MRPC, QQP, STS-B, MNLI, QNLI, RTE.
        ("sentence label", "S 1", ("S", "S", "1")),
        ("Quality,#1 ID,#2 ID,#1 String,#2 String", "1,5,6,S,T", ("S", "T", "1")),
        ("id qid1 qid2 question1 question2 is_duplicate", "1 2 3 S T 0", "S T 0"),
        (
            "index genre filename year old_index source1 source2 sentence1 sentence2 "
            "score",
            "0 g f 2012 1 x y S T 5.0",
            ("S", "T", "5.0"),
        ),
        (
            "index promptID pairID genre sentence1_binary_parse sentence1 sentence2 "
            "label1 gold_label",
            "0 1 1n fic ((S)) S T neutral neutral",
            "S T neutral",
        ),
        ("index question sentence label", "0 S T entailment", "S T entailment"),
        ("index sentence1 sentence2 label", "0 S T entailment", "S T entailment"),
    ],
)
def test_the_columns_of_known_headers_are_found(write, header, row, expected):
    separator = "," if "," in header else " "
    path = write("t.tsv", tabbed(header.split(separator), row.split(separator)))
    wanted = tuple(expected.split()) if isinstance(expected, str) else expected
    assert read(path) == [wanted]


def test_columns_are_taken_by_name_by_position_and_by_the_width_of_the_file(write):
    rows = [
        ("gj04", "1", "", "One."),
        ("gj04", "0", "*", "Two the."),
        ("x", "1", "", "3"),
    ]
    path = write("cola.tsv", tabbed(*rows))
    wanted = [("One.", "One.", "1"), ("Two the.", "Two the.", "0"), ("3", "3", "1")]
    assert read(path, text=3, label="1") == wanted
    assert read(path, by_width={4: Columns(text=3, label=1)}) == wanted
    named = write("named.tsv", tabbed(("src", "ok", "mark", "words"), *rows))
    assert read(named, text="words", label="ok") == wanted


def test_a_text_may_hold_quotes_commas_and_separators_of_unicode(write):
    text = 'he said "no\u2028,\x85 never'
    assert read(write("t.tsv", tabbed((text, "1"), ("b", "0"))))[0][0] == text
    comma = '"a ""quoted"", word\nover lines",1\nother,0\n'
    assert read(write("t.csv", comma))[0][0] == 'a "quoted", word\nover lines'


def test_a_column_of_numbers_under_a_word_has_a_header(write):
    path = write("t.csv", "first,second,how alike\na b,c d,0.25\ne f,g,4.5\nh,i,3\n")
    assert read(path)[0] == ("a b", "c d", "0.25")


def test_all_problems_of_a_file_are_listed_up_to_twenty_with_their_lines(write):
    bad = tabbed(*[("x", "y", "z")] * 25)
    path = write("t.tsv", tabbed(*ROWS * 10) + bad)
    with pytest.raises(ValueError) as raised:
        tables.read(path)
    lines = str(raised.value).splitlines()
    assert lines[0] == f"{path} has 25 problems (the first 20):"
    assert len(lines) == 21
    assert lines[1] == (
        f"{path}:41: row 'x\\ty\\tz': cells: 3, columns: 2; fix its separators"
    )


@pytest.mark.parametrize(
    "name, content, message",
    [
        ("t.tsv", "", "t.tsv is empty; it needs rows of a text and a label"),
        ("t.tsv", "text\tlabel\n", "has a header and no row below it"),
        (
            "t.tsv",
            "a\t1\nb\xe9\t0\n".encode("latin1"),
            r"t.tsv:2: byte 0xe9 at offset 5 is not UTF",
        ),
        ("t.xlsx", "a", "ends in '.xlsx'; give a .tsv, .csv, .jsonl or .parquet file"),
        ("t.tsv", "text\tlabel\na\t\n", r"t.tsv:2: column 'label', '': needs a label"),
        ("t.tsv", "text\tlabel\n \t1\n", r"t.tsv:2: column 'text', ' ': needs a text"),
        ("t.jsonl", '{"text": "a", "label": 1}\n{"text"\n', "t.jsonl:2: .*not JSON"),
        ("t.jsonl", "[1]\n", "t.jsonl:1: row .* is not a JSON object"),
        ("t.jsonl", '{"text": "a", "label": 1}\n{"text": "b"}\n', "2: .*needs a label"),
        ("t.csv", 'text,label\na,1\n"b,0\n', "t.csv:3: row .* fix the quotes"),
        (
            "t.tsv",
            "only one\ncolumn\n",
            "one column was found; separate the cells by tabs",
        ),
        (
            "t.tsv",
            tabbed(*[(f"a{i}", f"b{i}", f"c{i}", "1") for i in range(9)]),
            "which",
        ),
    ],
)
def test_a_file_that_cannot_be_used_is_refused_with_place_and_remedy(
    write, name, content, message
):
    with pytest.raises(ValueError, match=message):
        tables.read(write(name, content))


def test_missing_files_and_columns_are_refused(write, tmp_path):
    with pytest.raises(ValueError, match="nowhere.tsv: No such file.*check the path"):
        tables.read(tmp_path / "nowhere.tsv")
    path = write("t.tsv", tabbed(("text", "label"), *ROWS))
    for column in ("stars", 2):
        with pytest.raises(ValueError, match=f"no column {column!r} for the label; it"):
            tables.read(path, Columns(label=column))


def test_labels_are_classes_or_numbers_and_others_are_listed():
    table = Table("t.tsv", ["a", "b", "c"], None, ["1", "x", "nan"], [1, 2, 5])
    assert tables.classes(table, ["nan", "1", "x"]) == [1, 2, 0]
    with pytest.raises(
        ValueError, match="t.tsv:2: label 'x': is not one of 1, nan; fix"
    ):
        tables.classes(table, ["1", "nan"])
    with pytest.raises(
        ValueError, match="(?s)2 problems.*:2: label 'x'.*:5: label 'nan'"
    ):
        tables.numbers(table)
    numeric = Table("t.tsv", ["a"], None, ["2.5"], [1])
    assert tables.numbers(numeric) == [2.5]


def test_rows_that_two_files_share_are_counted():
    one = Table("a", ["x", "y"], ["1", "2"], ["0", "0"], [1, 2])
    other = Table("b", ["x", "y", "y"], ["1", "1", "2"], ["1", "1", "1"], [1, 2, 3])
    assert tables.overlap(one, other) == 2


# Files to predict


def to_predict(tmp_path, train, name, test):
    """A file read by the columns of another."""
    (tmp_path / "train.tsv").write_text(train)
    (tmp_path / name).write_text(test)
    columns = tables.read(
        tmp_path / "train.tsv", Columns(by_width={4: Columns(text=3, label=1)})
    ).columns
    return tables.read(tmp_path / name, columns, labelled=False)


def test_a_test_set_may_have_another_header_than_no_header(tmp_path):
    # CoLA's files: four columns without names to train on, two with names to predict.
    predicted = to_predict(
        tmp_path,
        "gj04\t1\t\tTea is hot.\ngj04\t0\t*\tHot tea is is.\n",
        "test.tsv",
        "index\tsentence\n0\tIce is cold.\n1\tIs.\n",
    )
    assert predicted.texts == ["Ice is cold.", "Is."] and predicted.labels is None


def test_a_test_set_may_name_its_columns_otherwise(tmp_path):
    # MNLI's diagnostics, and MNLI itself.
    predicted = to_predict(
        tmp_path,
        "index\tsentence1\tsentence2\tgold_label\n0\ta b\tc d\tneutral\n"
        "1\te\tf\tentailment\n",
        "diagnostic.tsv",
        "Domain\tPremise\tHypothesis\tLabel\nNews\tIt is.\tIs it?\tneutral\n",
    )
    assert (predicted.texts, predicted.pairs) == (["It is."], ["Is it?"])
    plain = to_predict(
        tmp_path,
        "index\tsentence1\tsentence2\tgold_label\n0\ta b\tc d\tneutral\n"
        "1\te\tf\tentailment\n",
        "test_matched.tsv",
        "index\tsentence1\tsentence2\n0\tIt is.\tIs it?\n",
    )
    assert (plain.texts, plain.pairs, plain.labels) == (["It is."], ["Is it?"], None)


def test_labels_of_a_test_set_are_read_unless_they_are_hidden(tmp_path):
    train = "sentence\tlabel\na b\t0\nc d\t1\n"
    seen = to_predict(tmp_path, train, "a.tsv", "sentence\tlabel\ne\t1\nf\t0\n")
    hidden = to_predict(tmp_path, train, "b.tsv", "sentence\tlabel\ne\t-1\nf\t-1\n")
    assert seen.labels == ["1", "0"] and hidden.labels is None


def test_a_test_set_of_pairs_needs_the_second_texts(tmp_path):
    with pytest.raises(ValueError, match="no column 'sentence2' for the pair"):
        to_predict(
            tmp_path,
            "sentence1\tsentence2\tlabel\na b\tc d\tx\ne\tf\ty\n",
            "test.tsv",
            "sentence1\tlabel\na\tx\n",
        )


def test_problems_of_every_kind_are_listed_together_in_the_order_of_lines(tmp_path):
    file = tmp_path / "mixed.jsonl"
    file.write_text(
        '{"text": "a", "label": "x"}\nnope\n{"text": "", "label": "y"}\n'
        '{"text": "b"}\n[1]\n'
    )
    with pytest.raises(ValueError) as raised:
        tables.read(file)
    head, *rest = str(raised.value).splitlines()
    assert head == f"{file} has 4 problems:"
    assert [int(x.removeprefix(f"{file}:").split(":")[0]) for x in rest] == [2, 3, 4, 5]
    table = tmp_path / "mixed.tsv"
    table.write_text("text\tlabel\na\tx\nb\n\ty\n")
    with pytest.raises(ValueError, match="(?s)2 problems.*:3: row 'b'.*:4: column 'te"):
        tables.read(table)


OBJECTS = [{"text": a, "label": b} for a, b in ROWS]


@pytest.mark.parametrize(
    "name, content",
    [
        ("a.json", json.dumps(OBJECTS)),
        ("a.json", json.dumps(OBJECTS, indent=2)),
        ("a.jsonl", json.dumps(OBJECTS)),
        ("a.json", "\n".join(map(json.dumps, OBJECTS))),
        ("a.ndjson", "\n".join(map(json.dumps, OBJECTS))),
        ("a.tsv.gz", gzip.compress(tabbed(*ROWS).encode(), mtime=0)),
        ("a.tsv", tabbed(("text", "label"), *ROWS).encode("utf-16")),
        ("a.csv", "".join(f"{a};{b}\n" for a, b in ROWS)),
        ("a.csv", "text;label\n" + "".join(f'"{a}";{b}\n' for a, b in ROWS)),
    ],
)
def test_rows_are_read_from_arrays_packed_files_and_other_separators(
    write, name, content
):
    table = tables.read(write(name, content))
    assert [*zip(table.texts, table.labels, strict=True)] == ROWS


def test_the_rows_of_parquet_are_read_or_its_package_is_named(tmp_path, monkeypatch):
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "a.parquet"
    parquet.write_table(pyarrow.Table.from_pylist(OBJECTS), path)
    table = tables.read(path)
    assert [*zip(table.texts, table.labels, strict=True)] == ROWS
    assert table.lines == [1, 2, 3, 4]
    path.write_bytes(path.read_bytes()[:50])
    with pytest.raises(ValueError, match="a.parquet cannot be read .*fetch it again"):
        tables.read(path)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ValueError, match="install it with: pip install pyarrow"):
        tables.read(path)


@pytest.mark.parametrize(
    "name, content, message",
    [
        (
            "a.json",
            '[{"text": "a", "label": 1},\n{"text"]',
            "json:2: row .* is not JSON",
        ),
        ("a.json", '[{"text": "a", "label": 1}\n 3', "json:1: row .*Expecting ',' or"),
        ("a.json", '["a", "b"]', "a.json:1: row '\"a\"': is not a JSON object"),
        (
            "a.tsv",
            "good one  1\nbad one  0\n",
            "one column .* separate the cells by",
        ),
        ("a.csv", "a good one\n", "one column was found; separate the cells by commas"),
        # In prose a blank follows a semicolon.
        ("a.csv", "so; so\nbad; bad\n", "one column was found"),
        (
            "a.jsonl",
            '{"text": "a", "labels": ["x", "y"]}\n{"text": "b", "labels": ["x"]}\n',
            "a.jsonl:1: label .* is a list, as in 2 rows; give a text one label",
        ),
        ("a.tsv", "text\tlabel\na b\t['x', 'y']\n", "is a list, as in 1 row; give"),
    ],
)
def test_rows_without_one_label_each_are_refused(write, name, content, message):
    with pytest.raises(ValueError, match=message):
        tables.read(write(name, content))


def test_columns_of_a_file_without_a_header_are_named_by_position(write):
    path = write("a.tsv", tabbed(*ROWS))
    with pytest.raises(ValueError, match="no header, so it has no column 'review'"):
        tables.read(path, Columns(text="review"))
    assert tables.read(path, Columns(text="0", label="1")).texts[0] == "a good one"


def test_other_columns_keep_their_names(write):
    path = write("a.tsv", tabbed(("id", "text", "label"), ("x7", "a good one", "1")))
    assert tables.read(path).others == {"id": ["x7"]}
    assert "others" not in repr(tables.read(path))  # which is digested in each run


def test_the_labels_of_a_test_file_may_have_another_known_name(write):
    """As those of GLUE's diagnostics (AX), which are for models of MNLI."""
    rows = ("Logic", "A man sleeps.", "Nobody is awake.", "contradiction")
    header = ("Domain", "Premise", "Hypothesis", "Label")
    path = write("diagnostic-full.tsv", tabbed(header, rows))
    mnli = Columns("sentence1", "sentence2", "gold_label")
    table = tables.read(path, mnli, labelled=False)
    assert (table.texts, table.pairs) == (["A man sleeps."], ["Nobody is awake."])
    assert table.labels == ["contradiction"]


def test_a_compressed_file_gives_its_split_the_name_without_its_endings():
    by_split = labelled_files.files_by_split("a.tsv", "b.tsv", ["x/more.tsv.gz"])
    assert by_split["more"] == "x/more.tsv.gz"
