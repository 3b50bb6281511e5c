"""Laws of the command line: input, output, errors and exit codes."""

import gzip
import importlib
import io
import json
import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest
import scipy.sparse
from tiny import LETTERS, TINY, made, wordpiece

import bert_jax
from bert_jax import cli
from bert_jax.cli import interrupt
from bert_jax.inference import jitted
from bert_jax.models import (
    Bert,
    MaskedLM,
    MultipleChoice,
    SequenceClassifier,
    SpanClassifier,
    TokenClassifier,
)

ENCODER = Bert(TINY)
HEADS = {
    "mlm": (MaskedLM(ENCODER), ()),
    "classes": (SequenceClassifier(ENCODER, 2), ("no", "yes")),
    "number": (SequenceClassifier(ENCODER, 1), ()),
    "spans": (SpanClassifier(ENCODER), ()),
    "tags": (TokenClassifier(ENCODER, 3), ("O", "B-x", "I-x")),
}
ROOT = str(Path(__file__).parents[2])
COMMANDS = [name for group in cli.COMMANDS.values() for name in group]


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """Directories of tiny models, by their heads."""
    folder = tmp_path_factory.mktemp("models")
    tokenizer = wordpiece(folder, LETTERS)
    for name, (head, labels) in HEADS.items():
        made(head, tokenizer, labels).save(folder / name)
    ids = np.zeros((1, 2, 2), np.int32)
    chooser = MultipleChoice(ENCODER)
    params = chooser.init(jax.random.key(0), ids)["params"]
    bert_jax.Model.of(chooser, params, tokenizer).save(folder / "choices")
    return folder


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    """An empty working directory, and no compilation cache outside of it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(jitted, "use_compilation_cache", lambda: None)
    return tmp_path


@pytest.fixture
def typed(capsys, monkeypatch):
    """Runs a command and returns its output and its errors."""

    def run(*argv, stdin=None, ends=None):
        if stdin is not None:
            stdin = stdin if isinstance(stdin, bytes) else stdin.encode()
            monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        if ends is None:
            cli.main([str(x) for x in argv])
        else:
            with pytest.raises(SystemExit) as ended:
                cli.main([str(x) for x in argv])
            assert ended.value.code == ends
        return capsys.readouterr()

    return run


def objects(printed):
    return [json.loads(line) for line in printed.out.splitlines()]


def test_help_lists_every_command_and_imports_next_to_nothing():
    script = (
        "import sys, time; start = time.perf_counter()\n"
        "from bert_jax import cli\n"
        "try: cli.main(['--help'])\n"
        "except SystemExit as ended: assert ended.code == 0\n"
        "assert time.perf_counter() - start < 0.4\n"
        "assert not {'jax', 'numpy', 'tqdm'} & sys.modules.keys()"
    )
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert not done.returncode, done.stderr
    assert all(re.search(rf"(?m)^  {name} ", done.stdout) for name in COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_example_in_the_help_of_a_command_can_be_parsed(name):
    module = importlib.import_module(f"bert_jax.cli.{name.replace('-', '_')}")
    examples = re.findall(r"(?m)^  (?:cat .*\| )?bert-jax (.*)$", module.__doc__)
    assert any(example.startswith(name) for example in examples)
    for example in examples:
        command = re.split(r" [|>] ", example)[0]
        cli.parse(shlex.split(command))


def test_a_typo_is_answered_with_the_closest_command(typed):
    message = typed("clasify", "a b", ends=2)
    assert (
        message.err
        == "bert-jax: there is no command 'clasify'; did you mean classify?\n"
    )


@pytest.mark.parametrize(
    "flag, meant",
    [("--modle=x", "did you mean --model?"), ("--qq", "see bert-jax embed --help")],
)
def test_an_unknown_flag_is_answered_in_one_line(typed, flag, meant):
    message = f"bert-jax embed: unrecognized arguments: {flag}; {meant}\n"
    assert typed("embed", flag, ends=2).err == message


def test_lines_become_vectors_in_their_order(typed, models, here):
    lines = ["a b c", "", "z", "a"]
    (here / "in.txt").write_text("\n".join(lines) + "\n")
    expected = bert_jax.load(models / "mlm").embed(lines)
    typed("embed", "in.txt", "--model", models / "mlm", "--out", "vectors.npy")
    np.testing.assert_allclose(np.load("vectors.npy"), expected, atol=1e-6)
    result = objects(typed("embed", "in.txt", "--model", models / "mlm"))
    assert [x["text"] for x in result] == lines
    # Every digit that a float32 has.
    vectors = np.array([x["vector"] for x in result], np.float32)
    assert (vectors == np.load("vectors.npy")).all()


def test_sparse_vectors_are_written_by_word_and_as_a_matrix(typed, models, here):
    lines = ["a b c", "z", "a"]
    (here / "in.txt").write_text("\n".join(lines) + "\n")
    model = bert_jax.load(models / "mlm")
    expected = model.embed_sparse(lines)
    command = "embed", "in.txt", "--sparse", "--model", models / "mlm"
    typed(*command, "--out", "vectors.npz")
    written = scipy.sparse.load_npz("vectors.npz")
    np.testing.assert_allclose(written.toarray(), expected.toarray(), atol=1e-6)
    for row, result in zip(expected, objects(typed(*command)), strict=True):
        ids = [model.tokenizer.token_to_id(word) for word in result["weights"]]
        assert sorted(ids) == row.indices.tolist()
        assert sorted(result["weights"].values())[::-1] == [*result["weights"].values()]
    message = typed(*command, "--pooling", "cls", ends=2).err
    assert message == "bert-jax: --pooling is not for --sparse; leave it out\n"
    message = typed("embed", "in.txt", "--out", "v.npz", ends=2).err
    assert "only embed --sparse writes .npz; name --out with .jsonl" in message


def test_blocks_and_batches_change_nothing(typed, models, here, monkeypatch):
    lines = "".join(f"{'a b c d e f'[: 2 * i % 11]}\n" for i in range(23))
    monkeypatch.setattr("bert_jax.inference.batching.WINDOW", 2)
    small = typed("embed", "--model", models / "mlm", "--batch-size", 2, stdin=lines)
    whole = bert_jax.load(models / "mlm").embed(lines.splitlines())
    result = [x["vector"] for x in objects(small)]
    np.testing.assert_allclose(result, whole, atol=1e-5)


def test_fields_of_an_object_come_out_again(typed, models):
    stdin = '{"id": 7, "body": "a b", "label": "yes"}\n\n{"id": 8, "body": "\\ud800"}\n'
    arguments = "classify", "-", "--model", models / "classes", "--text", "body"
    one, two = objects(typed(*arguments, stdin=stdin))
    assert (one["id"], one["body"], one["label"]) == (7, "a b", "yes")
    (best, other) = bert_jax.load(models / "classes").classify("a b")
    assert one["prediction"][0]["name"] == best.name
    assert one["prediction"][1]["probability"] == pytest.approx(other.probability)
    assert two["body"] == "\ud800"


def test_pairs_are_objects_or_rows_of_a_table(typed, models, here):
    (expected,) = bert_jax.load(models / "number").classify([("a b", "c")])
    stdin = '{"text": "a b", "pair": "c"}\n'
    (result,) = objects(typed("classify", "--model", models / "number", stdin=stdin))
    assert result["prediction"] == pytest.approx(expected)
    (here / "in.tsv").write_text("sentence1\tsentence2\na b\tc\n")
    (result,) = objects(typed("classify", "in.tsv", "--model", models / "number"))
    assert result == {"text": "a b", "pair": "c", "prediction": pytest.approx(expected)}


def test_masks_are_filled_and_shown(typed, models):
    guesses = bert_jax.load(models / "mlm").fill_mask("a [MASK] b", k=2)
    command = "fill-mask", "a [MASK] b", "--k", 2, "--model", models / "mlm"
    (result,) = objects(typed(*command))
    assert [x["token"] for x in result["prediction"][0]] == [x[0] for x in guesses[0]]
    shown = typed(*command, "--format", "text").out.splitlines()
    assert shown[0] == "a [MASK] b"
    assert shown[1].endswith(f"  {guesses[0][0].token}") and "%" in shown[1]


def test_questions_are_answered_in_one_text_or_in_their_own(typed, models, here):
    (here / "book.txt").write_text("a b c\nd e f\n")
    model = bert_jax.load(models / "spans")
    span = model.answer("q r", "a b c\nd e f")
    command = "answer", "q r", "--model", models / "spans"
    (result,) = objects(typed(*command, "--context", "book.txt"))
    assert result["prediction"]["text"] == span.text
    stdin = json.dumps({"question": "q r", "context": "a b c\nd e f"})
    (result,) = objects(typed("answer", "--model", models / "spans", stdin=stdin))
    assert result["prediction"]["start"] == span.start
    assert "Give --context" in typed(*command, ends=2).err
    (here / "in.tsv").write_text("id\tcontext\tquestion\n7\ta b c d e f\tq r\n")
    command = "answer", "in.tsv", "--model", models / "spans"
    (result,) = objects(typed(*command))
    assert (result["id"], result["question"]) == ("7", "q r")
    assert result["prediction"]["text"] == model.answer("q r", "a b c d e f").text
    (result,) = objects(typed(*command, "--context", "book.txt"))
    assert result["prediction"]["text"] == span.text


def test_words_are_tagged_as_text_and_as_objects(typed, models):
    tags = bert_jax.load(models / "tags").tag([["ab", "c"]])[0]
    stdin = '{"tokens": ["ab", "c"]}\n'
    command = "tag", "-", "--model", models / "tags"
    (result,) = objects(typed(*command, stdin=stdin))
    assert [x["label"] for x in result["prediction"]] == [x.label for x in tags]
    shown = typed(*command, "--format", "text", stdin=stdin).out
    assert shown == f"ab\t{tags[0].label}\nc\t{tags[1].label}\n\n"


def test_entities_are_shown_as_text_and_as_objects(typed, models):
    text = "ab c d e f"
    expected = bert_jax.load(models / "tags").entities(text)
    command = "tag", text, "--entities", "--model", models / "tags"
    (result,) = objects(typed(*command))
    assert [x["text"] for x in result["prediction"]] == [x.text for x in expected]
    shown = typed(*command, "--format", "text").out
    lines = [f"{x.text}\t{x.type}\t{x.probability:.1%}" for x in expected]
    assert shown.splitlines() == [*lines, ""]


def test_choices_are_ranked(typed, models):
    expected = bert_jax.load(models / "choices").choose(("a", "b"), ["c", "d e"])
    stdin = '{"context": "a", "opening": "b", "choices": ["c", "d e"]}'
    (result,) = objects(typed("choose", "--model", models / "choices", stdin=stdin))
    assert [x["text"] for x in result["prediction"]] == [x.text for x in expected]


def test_documents_are_ranked_for_each_query(typed, models, here):
    model = bert_jax.load(models / "number")
    expected = [x._asdict() for x in model.rank("a b", ["c", "d e", "f"])]
    row = {"query": "a b", "documents": ["c", "d e", "f"]}
    command = "rank", "--model", models / "number"
    (result,) = objects(typed(*command, stdin=json.dumps(row)))
    assert result == {**row, "prediction": expected}
    (here / "texts.txt").write_text("c\nd e\nf\n")
    among = "--documents", "texts.txt", "--k", "2"
    (result,) = objects(typed(*command, "a b", *among))
    assert result == {"text": "a b", "prediction": expected[:2]}
    shown = typed(*command, "a b", *among, "--format", "text").out
    lines = [f"  {x['score']:8.4f}  {x['text']}" for x in expected[:2]]
    assert shown.splitlines() == ["a b", *lines]


ROWS = [{"text": "a b", "id": 1}, {"text": "c", "id": 2}]


@pytest.mark.parametrize("name", ["in.json", "in.jsonl", "-"])
@pytest.mark.parametrize("indent", [None, 1])
def test_an_array_of_objects_is_rows(typed, models, here, name, indent):
    (here / name).write_text(text := json.dumps(ROWS, indent=indent))
    shown = typed("embed", name, "--model", models / "mlm", stdin=text)
    assert [(x["text"], x["id"]) for x in objects(shown)] == [("a b", 1), ("c", 2)]


def test_files_of_other_tasks_are_read_as_in_training(typed, models, here):
    words = "a B-x\nb O\n\nc O\n"
    (here / "in.conll").write_text(words)
    (here / "in.tsv").write_text(words.replace(" ", "\t"))
    for name in ("in.conll", "in.tsv"):
        one, two = objects(typed("tag", name, "--model", models / "tags"))
        assert (one["tokens"], two["tokens"]) == (["a", "b"], ["c"])
        assert len(one["prediction"]) == 2
    (here / "in.csv").write_text("sent1,sent2,ending0,ending1,label\na,b,c,d,0\n")
    (result,) = objects(typed("choose", "in.csv", "--model", models / "choices"))
    assert (result["opening"], result["choices"]) == ("b", ["c", "d"])
    question = {"id": "7", "question": "a?", "answers": []}
    squad = {"data": [{"paragraphs": [{"context": "a b c", "qas": [question]}]}]}
    (here / "in.json").write_text(json.dumps(squad))
    (result,) = objects(typed("answer", "in.json", "--model", models / "spans"))
    assert (result["id"], result["context"]) == ("7", "a b c")


def test_a_column_of_a_table_is_named(typed, models, here):
    (here / "in.tsv").write_text("id\ttitle\treview\nx1\ta\tb c\nx2\td\te f\n")
    command = "embed", "in.tsv", "--model", models / "mlm", "--text"
    result = objects(typed(*command, "title"))
    assert [(x["id"], x["title"], x["review"]) for x in result] == [
        ("x1", "a", "b c"),
        ("x2", "d", "e f"),
    ]
    shown = typed(*command, "body", ends=2)
    assert "in.tsv: there is no column 'body' for the text; it has" in shown.err


def test_a_packed_file_is_read(typed, models, here):
    (here / "in.jsonl.gz").write_bytes(gzip.compress(b'{"text": "a b"}\n'))
    command = "embed", "in.jsonl.gz", "a b", "--model", models / "mlm"
    one, two = objects(typed(*command))
    assert one == two


@pytest.mark.parametrize(
    "command, stdin, message",
    [
        ("embed none.txt", "", "there is no file 'none.txt'; check the path"),
        (
            "embed",
            b"a\ncaf\xe9\n",
            "standard input:2: byte 0xe9 at offset 5 is not UTF",
        ),
        (
            "embed",
            '{"text": 3}',
            "standard input:1: the field 'text' is 3, not a string",
        ),
        ("embed", '{"text": "a"}\n{"x": 1}', "input:2: there is no field 'text' but x"),
        ("embed", '{"text": "a"}\n[1]', "standard input:2: [1] is not a JSON object"),
        ("embed", '{"text": "a"', "standard input:1: not JSON"),
        ("embed", '{"text": "a", "vector": 1}', "there is a field 'vector' already"),
        ("embed --format npy", "a", "the format npy needs a file; give --out FILE"),
        ("embed --out no/v.npy", "a", "there is no directory no; make it"),
        ("embed --batch-size 0", "a", "--batch-size 0; it must be at least 1"),
        ("embed --layers 9", "a", "there is no layer 9"),
        ("embed --max-length 99", "a", "--max-length 99; the model has 20 positions"),
        ("embed --strict", "a " * 99, "1 of 1 text; shorten them, or remove --strict"),
        ("fill-mask", "a [MASK]\na b", "standard input:2 has no [MASK]: 'a b'"),
        ("fill-mask --out g.npy", "a [MASK]", "only embed writes .npy"),
        (
            "classify",
            "a",
            "this model cannot classify: its head is for masked words; train one: "
            "bert-jax finetune classify --model DIR --train FILE",
        ),
        ("choose", "a", "this model cannot choose: its head is for masked words"),
    ],
)
def test_an_error_is_a_line_or_two(typed, models, command, stdin, message):
    name, *flags = command.split()
    ended = typed(name, *flags, "--model", models / "mlm", stdin=stdin, ends=2)
    assert message in ended.err
    assert ended.err.startswith("bert-jax: ") and ended.err.count("\n") <= 3


def test_layers_that_are_no_numbers_are_an_error_with_an_example(typed):
    ended = typed("embed", "a b", "--layers", "abc", ends=2)
    assert "argument --layers: 'abc' is not a list of numbers, such as -1" in ended.err


def test_the_warning_of_a_cut_text_names_the_flag(typed, models):
    flags = "--model", models / "mlm", "--max-length"
    ended = typed("embed", *flags, 9, stdin="a " * 15)
    assert "cut 1 of 1 text to 9 tokens; for up to 20, set --max-length 20" in ended.err
    assert not typed("embed", *flags, 20, stdin="a " * 15).err


def test_pairs_are_given_to_all_or_to_none(typed, models):
    stdin = '{"text": "a", "pair": "b"}\n{"text": "a"}\n'
    ended = typed("classify", "--model", models / "classes", stdin=stdin, ends=2)
    assert (
        "standard input:2: there is no field 'pair', but standard input:1" in ended.err
    )


def test_a_warning_is_a_sentence_on_standard_error(typed, models):
    shown = typed("embed", "--model", models / "mlm", stdin="a " * 99)
    assert shown.err == (
        "bert-jax: cut 1 of 1 text to 20 tokens; split them, for the model has no "
        "more positions\n"
    )


def test_an_incomplete_file_does_not_appear(typed, models, here):
    stdin = '{"text": "a"}\n{"x": 1}\n'
    (here / "old.jsonl").write_text("old\n")
    command = "embed", "--model", models / "mlm", "--batch-size", 1
    typed(*command, "--out", "old.jsonl", stdin=stdin, ends=2)
    typed(*command, "--out", "new.npy", stdin=stdin, ends=2)
    assert [file.name for file in here.iterdir()] == ["old.jsonl"]
    assert (here / "old.jsonl").read_text() == "old\n"


def test_no_input_gives_no_output(typed, models):
    assert typed("embed", "--model", models / "mlm", stdin="").out == ""


def test_the_newest_run_with_a_fitting_head_is_the_default(typed, models, here):
    assert "no model was named; use --model" in typed("embed", stdin="a", ends=2).err
    for number, name in enumerate(("mlm", "tags", "classes")):
        bert_jax.load(models / name).save(here / f"runs/{number}/model")
    shown = typed("tag", stdin="a b")
    assert shown.err == "model: runs/1/model\n"
    assert objects(shown)[0]["prediction"]


def test_an_interrupt_ends_with_130(typed, models, monkeypatch):
    def stopped(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(bert_jax.Model, "embed", stopped)
    shown = typed("embed", "--model", models / "mlm", stdin="a", ends=130)
    assert "Traceback" not in shown.err


# Python drops what a destructor raises, and libraries what their callbacks raise.
LOST = """
import hashlib, os, pathlib, signal, sys, time
from bert_jax import files
from bert_jax.cli import vocab

class Collected:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGINT)

def lost(_):
    Collected()
    time.sleep(30)

def turned(_):
    try:
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(30)
    except KeyboardInterrupt:
        raise RecursionError

def blocked(_):
    # A call in which no handler runs, while a file is being written.
    with files.new_file(pathlib.Path("vectors.txt")):
        os.kill(os.getpid(), signal.SIGINT) or hashlib.pbkdf2_hmac(
            "sha256", b"a", b"b", 10**8
        )

vocab.run = KIND
sys.argv = "bert-jax vocab text.txt --out vocabulary".split()
from bert_jax.__main__ import main
main()
"""

FIRST_MOMENT = """
import importlib.abc, os, runpy, signal, sys

class Finder(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == "bert_jax.cli":
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Finder())
runpy.run_module("bert_jax", run_name="__main__")
"""


def ended(script):
    """The status of a script, and what it printed."""
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        timeout=20,
        env=os.environ | {"PYTHONPATH": ROOT},
    )
    return done.returncode, done.stdout + done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["lost", "turned", "blocked"])
def test_ctrl_c_is_never_lost(kind, here):
    assert ended(LOST.replace("KIND", kind)) == (interrupt.STATUS, "")
    assert not list(here.iterdir())


@pytest.mark.slow
def test_ctrl_c_in_the_first_moment_prints_nothing():
    assert ended(FIRST_MOMENT) == (-signal.SIGINT, "")


@pytest.mark.slow
@pytest.mark.parametrize("flags", ["--help", "embed --help"])
def test_help_ends_quietly_where_its_reader_has_gone(flags):
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [sys.executable, "-m", "bert_jax", *flags.split()],
        stdout=writer,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": ROOT},
    )
    os.close(writer)
    assert (done.returncode, done.stderr) == (cli.CLOSED_PIPE, "")


@pytest.mark.slow
def test_an_endless_pipe_is_read_until_its_reader_ends(models, here):
    """So memory is bounded, results are streamed, and a closed pipe is no error."""
    command = [sys.executable, "-m", "bert_jax", "embed", "-", "--batch-size", "1"]
    line = f"{shlex.join([*command, '--model', str(models / 'mlm')])} | head -3"
    done = subprocess.run(
        ["bash", "-c", f"yes 'a b' | {line}; echo ${{PIPESTATUS[1]}}"],
        capture_output=True,
        text=True,
        env=os.environ | {"HOME": str(here), "PYTHONPATH": ROOT},
    )
    *vectors, status = done.stdout.splitlines()
    assert len(vectors) == 3 and status == str(cli.CLOSED_PIPE)
    assert done.stderr == ""


def test_a_vocabulary_is_trained_on_text(typed, here):
    (here / "text.txt").write_text("low lower lowest\nnew newer newest\n" * 9)
    typed("vocab", "text.txt", "--vocab-size", 40, "--out", "one", ends=2)  # too many
    for name in ("one", "two"):
        shown = typed("vocab", "text.txt", "--vocab-size", 22, "--out", name)
        assert shown.out == f"{name}: 22 pieces\n"
    assert (here / "one/vocab.txt").read_text() == (here / "two/vocab.txt").read_text()
    assert "exists already" in typed("vocab", "text.txt", "--out", "one", ends=2).err


@pytest.mark.parametrize("other", ["orbax", "google"])
def test_a_model_converts_there_and_back(typed, models, other):
    typed("convert", models / "classes", "--to", other, "--out", "there")
    typed("convert", "there", "--out", "back")
    start, back = bert_jax.load(models / "classes"), bert_jax.load("back")
    np.testing.assert_array_equal(start.embed("a b c"), back.embed("a b c"))
    best, again = start.classify("a b"), back.classify("a b")
    assert [x.probability for x in best] == [x.probability for x in again]
    assert "exists already" in typed("convert", "there", "--out", "back", ends=2).err


def test_a_model_is_described(typed, models):
    shown = typed("describe", models / "tags", "--length", 8).out
    assert shown.startswith("bert: 1 layer, hidden size 12, 3 heads")
    assert "FLOPs per token, rows of 8" in shown


def test_attention_becomes_a_page(typed, models, here):
    shown = typed("view", "a b", "--pair", "c d", "--model", models / "tags").out
    assert shown == "view.html: 1 layer x 3 heads, 7 tokens; open it in a browser\n"
    assert '"tokens": ["[CLS]", "a", "b"' in (here / "view.html").read_text("utf-8")


def test_the_attention_of_a_text_in_a_file_becomes_a_page(typed, models, here):
    (here / "film.txt").write_text("a b\n")
    (here / "film.jsonl").write_text('{"text": "a b"}\n')
    for name in ("film.txt", "film.jsonl"):
        typed("view", name, "--pair", "film.txt", "--model", models / "tags")
        html = (here / "view.html").read_text("utf-8")
        assert '"tokens": ["[CLS]", "a", "b", "[SEP]", "a", "b", "[SEP]"]' in html


def test_a_word_in_its_contexts_becomes_a_page(typed, models, here):
    files = {
        "lines.txt": "a b c\nd\nB e\n",
        "rows.tsv": "text\tlabel\na b c\tx\nd\tx\nB e\ty\n",
        "senses.tsv": "text\tsense\na b c\tx\nd\tx\nB e\ty\n",
        "rows.jsonl": '{"said": "a b c", "who": "x"}\n'
        '{"said": "d", "who": "x"}\n{"said": "B e", "who": "y"}\n',
    }
    for name, text in files.items():
        (here / name).write_text(text)
    view = ("view", "--word", "b", "--model", models / "mlm")
    assert (
        typed(*view, "lines.txt").out
        == "view.html: 'b' in 2 contexts; open it in a browser\n"
    )
    facts = facts_of(here / "view.html")
    assert facts["contexts"] == [["a ", "b", " c"], ["", "B", " e"]]
    assert facts["groups"] is None
    typed(*view, "rows.tsv", "--groups", "label", "--out", "table.html")
    typed(*view, "rows.jsonl", "--text", "said", "--groups", "who", "--out", "b.html")
    typed(*view, "senses.tsv", "--groups", "sense", "--out", "senses.html")
    for name in ("table.html", "senses.html", "b.html"):
        assert facts_of(here / name) == facts | {"groups": ["x", "y"]}


def facts_of(path):
    html = path.read_text("utf-8")
    return json.loads(re.search(r'data-part="facts">(.*?)</script>', html)[1])


@pytest.mark.parametrize(
    "argv, message",
    [
        (["a b", "c d"], "attention is shown on one text; quote it"),
        (["a b", "--groups", "label"], "one word of many texts with --word"),
        (
            ["a b", "--word", "a", "--pair", "c"],
            "--pair is a second text for attention",
        ),
        (["a b", "--word", "q"], "'q' occurs 0 times as a word of its own in 1 text"),
        (["a b", "--word", "a", "--groups", "x"], "text 1: there is no field 'x'"),
        (["nothing", "--word", "a"], "there is no file 'nothing'"),
        (["nothing"], "there is no file 'nothing'"),
        (["two.jsonl"], "two.jsonl has 2 rows, and one text is needed"),
    ],
)
def test_a_view_without_its_text_or_word_is_an_error(
    typed, models, here, argv, message
):
    (here / "two.jsonl").write_text('{"text": "a"}\n{"text": "b", "id": 1}\n')
    assert message in typed("view", *argv, "--model", models / "mlm", ends=2).err


TAG = "finetune tag --model nowhere --train a --dev b --workdir run".split()


@pytest.mark.parametrize(
    "argv, message",
    [
        ([*TAG, "--lr", "3"], "no --lr; its name here is --learning-rate"),
        (["finetune", "tag", "--output_dir", "x"], "its name here is --workdir"),
        ([*TAG, "--patienc", "3"], "arguments: --patienc 3; did you mean --patience?"),
        ([*TAG, "--epochs", "0"], "--epochs 0.0 must be above 0; --num-steps N sets"),
        ([*TAG, "--text", "x"], "finetune tag has no 'text'"),
        (["pretrain", "a.txt", "--length", "9"], "its name here is --max-length"),
        (["prepare", "--out", "rows", "--dupe-factor", "0"], "--dupe-factor 0 must"),
    ],
)
def test_a_wrong_setting_of_a_run_is_answered_with_flags(typed, here, argv, message):
    shown = typed(*argv, ends=2).err
    assert message in shown and shown.count("\n") == 1
    assert not (here / "run").exists()


@pytest.mark.parametrize("name", ["finetune", "pretrain"])
def test_help_lists_the_fields_of_a_run_with_their_defaults(typed, name):
    shown = " ".join(typed(name, "--help", ends=0).out.split())
    assert "--accumulation N micro-batches" in shown and "(default: 1)" in shown
    assert "--optimizer TEXT" in shown and "(default: adamw)" in shown
    assert "--keep-checkpoints, --no-keep-checkpoints" in shown
