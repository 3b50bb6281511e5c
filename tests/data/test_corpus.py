import bz2
import functools
import gzip
import json
import tracemalloc

import pytest

from bert_jax.data import corpus, python_docs

WIKI = """<doc id="12" url="https://a.org/?curid=12" title="Salt &amp; Pepper">
Salt &amp; Pepper

Salt is white. Pepper is not.
Both are ground.


</doc>
<doc id="7" url="https://a.org/?curid=7" title="Tea">
Tea

Tea is a drink.
</doc>
"""


def write(folder, text, name="text.txt"):
    path = folder / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return str(path)


def read(folder, text, format="auto", name="text.txt"):
    return list(corpus.read([write(folder, text, name)], format))


def json_lines(*records):
    return "".join(json.dumps(record) + "\n" for record in records)


# Formats


def test_lines_are_kept_as_they_are(tmp_path):
    text = "\n\nOne. Still one.\n two \n\n\n\nThree.\n"
    documents = read(tmp_path, text, "lines")
    assert documents == [("One. Still one.", "two"), ("Three.",)]
    assert corpus.sentences(documents[0], "lines") == ["One. Still one.", "two"]


def test_hard_wrapped_lines_are_joined_and_then_split(tmp_path):
    text = "The cat sat. It\nslept on the mat\nall day.\n\nIt\nwoke.\n"
    (document,) = read(tmp_path, text, "paragraphs")
    assert document == ("The cat sat. It slept on the mat all day.", "It woke.")
    assert corpus.sentences(document, "paragraphs") == [
        "The cat sat.",
        "It slept on the mat all day.",
        "It woke.",
    ]


def test_a_long_line_is_a_paragraph_by_itself(tmp_path):
    long = "word " * 40 + "end"
    assert read(tmp_path, f"{long}\n{long}.\n", "paragraphs") == [(long, f"{long}.")]


def test_two_blank_lines_end_a_document_but_not_after_a_heading(tmp_path):
    text = "CHAPTER I\n\n\nIt rained.\n\nIt poured.\n\n\n\nCHAPTER II\n\n\nSun.\n"
    assert read(tmp_path, text, "paragraphs") == [
        ("CHAPTER I", "It rained.", "It poured."),
        ("CHAPTER II", "Sun."),
    ]


def test_titles_of_wikitext_separate_documents_and_headings_are_dropped(tmp_path):
    text = (
        " \n = Robert ( actor ) = \n \n Robert is 5 @.@ 5 feet tall . \n"
        " \n = = Career = = \n \n \n = = = 2000 = = = \n \n A film @-@ star . \n"
        " \n = Tea = \n \n Tea is hot . \n"
    )
    assert read(tmp_path, text, "paragraphs") == [
        ("Robert is 5.5 feet tall .", "A film-star ."),
        ("Tea is hot .",),
    ]


@pytest.mark.parametrize("gap", ["\n\n", "\n"])
def test_a_book_without_marks_gives_many_documents(tmp_path, gap):
    book = gap.join(
        "It was a dark night, and it rained on London." for _ in range(3000)
    )
    documents = read(tmp_path, book, "paragraphs")
    assert len(documents) == pytest.approx(3000 * 45 / 16_000, abs=2)
    assert sum(len(corpus.sentences(d, "paragraphs")) for d in documents) > 2900


def test_jsonl_reads_text_and_skips_blank_lines(tmp_path):
    text = json_lines(
        {"text": "One. Two.\n\nThree."},
        {"text": " \n "},
        {"title": "Tea", "text": "Tea\nIt is hot."},
    )
    documents = read(tmp_path, text + "\n", "jsonl")
    assert documents == [("One. Two.", "Three."), ("It is hot.",)]


def test_a_lone_surrogate_is_replaced(tmp_path):
    (document,) = read(tmp_path, r'{"text": "a \ud83d b \ud83d\ude00"}', "jsonl")
    assert document == ("a \ufffd b \U0001f600",)
    corpus.is_held_out(document, 0.1)
    assert corpus.sentences(document, "jsonl") == ["a \ufffd b \U0001f600"]


def test_wikiextractor_drops_titles(tmp_path):
    assert read(tmp_path, WIKI.replace("\nSalt &amp;", "\nSalt &")) == [
        ("Salt is white. Pepper is not.", "Both are ground."),
        ("Tea is a drink.",),
    ]


def test_wikiextractor_json_reads_as_its_markup(tmp_path):
    text = json_lines({"id": "7", "title": "Tea", "text": "Tea\n\nTea is a drink."})
    assert read(tmp_path, text, "wikiextractor") == [("Tea is a drink.",)]


@pytest.mark.parametrize("ending", ["\n", "\r\n"])
@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
def test_line_endings_and_byte_order_marks_do_not_matter(tmp_path, ending, mark):
    text = mark + ending.join(["One.", "Two.", "", "Three."]).encode()
    assert read(tmp_path, text, "lines") == [("One.", "Two."), ("Three.",)]


@pytest.mark.parametrize("suffix, opener", [(".gz", gzip.open), (".bz2", bz2.open)])
def test_packed_files_read_as_plain_ones(tmp_path, suffix, opener):
    with opener(tmp_path / f"a.jsonl{suffix}", "wt") as file:
        file.write(json_lines({"text": "Tea is hot."}))
    assert list(corpus.read([str(tmp_path)])) == [("Tea is hot.",)]


# Detection


@pytest.mark.parametrize(
    "text, name, format",
    [
        ("Tea is hot.\nIs it?\n\nSalt is white.\n", "a.txt", "lines"),
        ("Tea is hot. Is it?\n\nSalt is\nwhite. Or\nnot.\n", "a.txt", "paragraphs"),
        ("It rained on\nthe cat, and\nthe dog.\n", "a.txt", "paragraphs"),
        ("\n = Tea = \n\n Tea is hot . It is . \n", "a.tokens", "paragraphs"),
        ('{"text": "Tea."}\n', "a.txt", "jsonl"),
        ('\n{"text": "Tea."}\n', "a.jsonl", "jsonl"),
        ('{"title": "Tea", "text": "Tea."}\n', "wiki_00", "jsonl"),
        (WIKI, "wiki_00", "wikiextractor"),
        ("", "a.txt", "paragraphs"),
    ],
)
def test_the_format_follows_from_name_and_first_lines(tmp_path, text, name, format):
    assert corpus.resolve([write(tmp_path, text, name)]) == format


@pytest.fixture
def no_packages(monkeypatch):
    """Of the installed documentation, the reference of the language alone."""
    monkeypatch.setattr(python_docs, "_folders", list)
    read = functools.cache(python_docs.documents.__wrapped__)
    monkeypatch.setattr(python_docs, "documents", read)


def test_no_paths_are_the_documentation_of_python(no_packages):
    assert corpus.resolve([]) == "python-docs"
    assert len(next(corpus.read([]))) >= 4


@pytest.mark.parametrize("name", ["a.tsv", "a.csv", "a.tsv.gz"])
def test_a_table_is_no_raw_text(tmp_path, name):
    write(tmp_path, "tea is hot\t1\n", name)
    with pytest.raises(ValueError, match=rf"{name} is a table.*one a line"):
        corpus.resolve([str(tmp_path)])


def test_two_formats_are_refused(tmp_path):
    write(tmp_path, WIKI, "wiki_00")
    write(tmp_path, "Tea is hot.\n", "a.txt")
    write(tmp_path, "", "empty")
    with pytest.raises(ValueError, match="two formats.*a.txt is plain.*prepare them"):
        corpus.resolve([str(tmp_path)])


# Files


def test_files_come_sorted_once_and_without_the_hidden(tmp_path):
    b, a = write(tmp_path, "B.", "b.txt"), write(tmp_path, "A.", "sub/a.txt")
    write(tmp_path, "C.", ".hidden")
    assert corpus.files([str(tmp_path)]) == [b, a]
    assert corpus.files([a, str(tmp_path)]) == [a, b]
    assert corpus.files([f"{tmp_path}/**/*.txt"]) == [b, a]
    assert list(corpus.read([str(tmp_path)], "lines")) == [("B.",), ("A.",)]


@pytest.mark.parametrize("name", ["missing.txt", "*.md", "empty"])
def test_a_path_without_files_is_refused(tmp_path, name):
    (tmp_path / "empty").mkdir()
    path = str(tmp_path / name)
    with pytest.raises(ValueError, match="no such file") as error:
        corpus.resolve([path], "lines")
    assert f"{path!r}; give a file, a directory" in str(error.value)


# Errors


@pytest.mark.parametrize("format", ["lines", "paragraphs", "jsonl", "wikiextractor"])
def test_invalid_utf8_is_refused_with_its_place(tmp_path, format):
    path = write(tmp_path, b"\xef\xbb\xbfTea.\n\nCaf\xe9.\n")
    with pytest.raises(ValueError) as error:
        list(corpus.READERS["lines"](path))
    assert str(error.value).startswith(
        f"{path}:3: byte 0xe9 at offset 12 is not UTF-8; convert"
    )
    with pytest.raises(ValueError):
        list(corpus.read([path], format))


def test_a_damaged_packed_file_is_refused(tmp_path):
    path = write(tmp_path, gzip.compress(b"Tea is hot.\n" * 999)[:40], "a.gz")
    with pytest.raises(ValueError, match=r"a.gz cannot be read .*; repair it"):
        list(corpus.read([path], "lines"))


@pytest.mark.parametrize(
    "line, message",
    [
        ('{"text": "a"', "a.jsonl:2: not JSON .*one object a line"),
        ('{"content": "a"}', "a.jsonl:2: no field `text` .*fields content; rename"),
        ('{"text": 5}', "a.jsonl:2: no field `text` with a string"),
        ("[1, 2]", r"a.jsonl:2: no field `text` .*but \[1, 2\]"),
    ],
)
def test_a_bad_json_line_is_refused_with_its_number(tmp_path, line, message):
    with pytest.raises(ValueError, match=message):
        read(tmp_path, f'{{"text": "fine"}}\n{line}\n', name="a.jsonl")


@pytest.mark.parametrize(
    "text, message",
    [
        (WIKI.removesuffix("</doc>\n"), "text.txt:9: this <doc ...> has no </doc>"),
        (WIKI.replace("</doc>", "", 1), "text.txt:1: this <doc ...> has no </doc>"),
        (WIKI + "Stray.\n", "text.txt:14: 'Stray.' is outside"),
    ],
)
def test_a_damaged_wikiextractor_file_is_refused(tmp_path, text, message):
    with pytest.raises(ValueError, match=message):
        read(tmp_path, text)


def test_an_unknown_format_is_refused():
    with pytest.raises(ValueError, match="format 'csv' is not known; use one of auto"):
        corpus.resolve(["a.csv"], "csv")


def test_a_format_of_files_needs_paths():
    with pytest.raises(ValueError, match="no paths; give a file, a directory or a"):
        corpus.resolve([], "lines")


def test_the_documentation_takes_no_paths():
    with pytest.raises(ValueError, match="reads no paths, and got 'a.txt'"):
        corpus.resolve(["a.txt"], "python-docs")


def test_too_few_documents_are_refused(tmp_path, no_packages):
    empty, one = write(tmp_path, "\n\n", "a"), write(tmp_path, "Tea is hot.", "b")
    with pytest.raises(ValueError, match="corpus .* is empty"):
        corpus.require([empty])
    with pytest.raises(ValueError, match="(?s)holds 1 document.*pairs need 2.*without"):
        corpus.require([one], documents=2)
    corpus.require([one])
    corpus.require([], documents=2)


# Held-out documents


def test_held_out_is_a_matter_of_the_text_alone():
    # Written down, so that a new Python or machine cannot move them.
    held = [n for n in range(40) if corpus.is_held_out((f"Text {n}.", "More."), 0.1)]
    assert held == [3, 10, 16, 21, 35]


def test_held_out_has_its_share_and_grows_with_it():
    documents = [(str(n),) for n in range(4000)]
    few = {d for d in documents if corpus.is_held_out(d, 0.05)}
    more = {d for d in documents if corpus.is_held_out(d, 0.2)}
    assert few < more
    assert len(few) == pytest.approx(200, abs=50)
    assert not any(corpus.is_held_out(d, 0.0) for d in documents)


# Memory


@pytest.mark.parametrize("format", ["lines", "paragraphs", "jsonl", "wikiextractor"])
def test_memory_does_not_grow_with_the_file(tmp_path, format):
    text = {
        "lines": "Tea is hot.\n" * 20 + "\n",
        "paragraphs": "Tea is hot, and it was\nhot in London.\n" * 10,
        "jsonl": json_lines({"text": "Tea is hot. " * 20}),
        "wikiextractor": '<doc id="1" title="Tea">\n' + "Tea is.\n" * 30 + "</doc>\n",
    }[format]
    path = write(tmp_path, text * (1_000_000 // len(text)))
    next(
        corpus.read([path], format)
    )  # what is imported and compiled once does not count
    tracemalloc.start()
    try:
        assert sum(1 for _ in corpus.read([path], format)) > 50
        assert tracemalloc.get_traced_memory()[1] < 500_000
    finally:
        tracemalloc.stop()


# Datasets and real text


def store_tfds(folder, name, feature):
    tfds = pytest.importorskip("tensorflow_datasets")
    tfds.dataset_builders.store_as_tfds_dataset(
        name,
        version="1.0.0",
        features=tfds.features.FeaturesDict({feature: tfds.features.Text()}),
        split_datasets={
            "train": [(n, {feature: f"Tea {n}.\n\nHot."}) for n in range(3)]
        },
        data_dir=folder,
    )


def test_a_tfds_dataset_reads_its_text(tmp_path):
    store_tfds(tmp_path, "teas", "text")
    documents = list(corpus.read([str(tmp_path)], "tfds:teas"))
    assert sorted(documents) == [(f"Tea {n}.", "Hot.") for n in range(3)]
    assert documents == list(corpus.read([str(tmp_path)], "tfds:teas"))


def test_a_tfds_dataset_without_text_is_refused(tmp_path):
    store_tfds(tmp_path, "teas", "body")
    with pytest.raises(
        ValueError, match="'teas' has no feature `text` but body; write"
    ):
        next(corpus.read([str(tmp_path)], "tfds:teas"))
    with pytest.raises(ValueError, match="TFDS has no dataset 'coffees'; see"):
        next(corpus.read([str(tmp_path)], "tfds:coffees"))


ARTICLE = "".join(
    f"Topic {i} is one of many, and this sentence says so in a few words. "
    f"Dr. Smith wrote {i} pages on it, e.g. in 1999. It has no end!\n"
    for i in range(20)
)


DOC = f'<doc id="1" title="A">\nA\n\n{ARTICLE}</doc>\n'


@pytest.mark.parametrize(
    "format, text",
    [
        ("wikiextractor", DOC + DOC),
        ("paragraphs", f" = A = \n\n {ARTICLE}\n = B = \n = = Part = = \n{ARTICLE}"),
    ],
)
def test_articles_are_read_as_documents_of_whole_sentences(tmp_path, format, text):
    path = write(tmp_path, text)
    assert corpus.resolve([path]) == format
    documents = list(corpus.read([path]))
    assert len(documents) == 2
    sentences = [s for d in documents for s in corpus.sentences(d, format)]
    assert {s[-1] for s in sentences} == {".", "!"}
    assert len(sentences) == 2 * 3 * 20


@pytest.mark.parametrize(
    "name, text",
    [
        ("a.json", json.dumps([{"text": "Tea."}, {"text": "Ice."}])),
        ("a.jsonl", json.dumps([{"text": "Tea."}, {"text": "Ice."}], indent=1)),
        ("a.txt", "Tea.\n\nIce.\n".encode("utf-16")),
    ],
)
def test_documents_come_from_arrays_and_utf_16(tmp_path, name, text):
    assert read(tmp_path, text, name=name) == [("Tea.",), ("Ice.",)]


def test_documents_come_from_parquet(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    rows = [{"text": "Tea.", "id": 1}, {"text": "Ice.", "id": 2}]
    parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "a.parquet")
    path = str(tmp_path / "a.parquet")
    assert list(corpus.read([path])) == [("Tea.",), ("Ice.",)]
    parquet.write_table(pyarrow.Table.from_pylist([{"body": "Tea."}]), path)
    with pytest.raises(ValueError, match="a.parquet:1: no field `text`"):
        list(corpus.read([path]))
