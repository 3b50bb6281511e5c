"""docs/errors.md has the exact message for each mistake that it lists."""

import re
import warnings

import jax
import numpy as np
import pytest
from pages import ROOT
from tiny import made, wordpiece

import bert_jax
from bert_jax import cli, files
from bert_jax.models import BertConfig, Features, MaskedLM
from bert_jax.training import sharding

TOKENIZER = ("vocab.txt", "tokenizer.json", "tokenizer_config.json")
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
GOOD = "a cat\tyes\nthe mat\tno\n"
COMPILES = "/jax/core/compile/backend_compile_duration"

# The first column of the page, with code that makes the mistake.
MISTAKES = {
    "`embed` of a text of 900 words": lambda: load("encoder").embed("a cat sat " * 300),
    "the same, loaded with `strict=True`": lambda: bert_jax.load(
        "encoder", strict=True
    ).embed("a cat sat " * 300),
    '`fill_mask("a cat sat")`': lambda: load("mlm").fill_mask("a cat sat"),
    "`embed([])`": lambda: load("encoder").embed([]),
    '`embed(["a cat", None])`': lambda: load("encoder").embed(["a cat", None]),
    '`load("./nowhere")`': lambda: load("./nowhere"),
    "`load` of a directory without weights": lambda: load("no_weights"),
    "`load` of half a `model.safetensors`": lambda: load("torn"),
    "`load` of a model in a bucket": lambda: load("gs://bucket/model"),
    "`bert-jax embed` of a file on a server": lambda: cli.main(
        ["embed", "https://host/texts.txt", "--model", "encoder"]
    ),
    "`save` where the disk is full": lambda: load("encoder").save("saved"),
    "`embed` without the tokenizer's files": lambda: load("no_tokenizer").embed("a"),
    "`classify` with an encoder alone": lambda: load("encoder").classify("a cat"),
    "an id beyond the vocabulary": lambda: called([[2, 30522, 3]]),
    "`input_ids` of floats": lambda: called([[2, 5, 3]], np.float32),
    "`input_ids` without a batch": lambda: called([2, 5, 3]),
    "an `attention_mask` of another length": lambda: called(
        [[2, 5, 3]], attention_mask=np.ones((1, 4), int)
    ),
    "a table that does not exist": lambda: tuned("trian.tsv", "good.tsv"),
    "a row with a cell too many": lambda: tuned("wide.tsv", "good.tsv"),
    "a row with a cell too few": lambda: tuned("narrow.tsv", "good.tsv"),
    "a label of `dev` that `train` lacks": lambda: tuned("good.tsv", "dev.tsv"),
    "an incomplete line of JSONL": lambda: cli.main(
        ["embed", "texts.jsonl", "--model", "encoder"]
    ),
    '`bert-jax embed "a cat" --batchsize 3`': lambda: cli.main(
        ["embed", "a cat", "--batchsize", "3"]
    ),
    "`model_parallel=3` on 8 devices": lambda: sharding.make_mesh(3),
}


def load(name):
    return bert_jax.load(name)


def called(ids, dtype=np.int32, **others):
    return load("encoder")(input_ids=np.array(ids, dtype), **others)


def tuned(train, dev):
    return bert_jax.finetune("encoder", "classify", train=train, dev=dev, max_length=16)


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """A directory of complete and damaged models, with BERT's sizes, and files."""
    folder = tmp_path_factory.mktemp("world")
    unused = [f"[unused{i}]" for i in range(30522 - len(SPECIAL) - 3)]
    tokenizer = wordpiece(folder, [*SPECIAL, *unused, "a", "cat", "sat"])
    encoder = BertConfig(tokenizer.vocab_size, 12, 1, 3, 20).build()
    made(MaskedLM(encoder), tokenizer).save(folder / "mlm")
    for name in ("encoder", "no_weights", "torn", "no_tokenizer"):
        made(Features(encoder), tokenizer).save(folder / name)
    (folder / "no_weights/model.safetensors").unlink()
    torn = folder / "torn/model.safetensors"
    torn.write_bytes(torn.read_bytes()[: torn.stat().st_size // 2])
    for name in TOKENIZER:
        (folder / "no_tokenizer" / name).unlink(missing_ok=True)
    files = {
        "good.tsv": GOOD * 8,
        "dev.tsv": f"a cat\tyes\nthe mat\tperhaps\n{GOOD}",
        "wide.tsv": f"{GOOD}a\tb\tc\n{GOOD}",
        "narrow.tsv": f"{GOOD}no tab\n{GOOD}",
        "texts.jsonl": '{"text": "a cat"}\n{"text": "the mat"\n',
    }
    for name, text in files.items():
        (folder / name).write_text(text)
    for name in ("mlm", "encoder"):  # compiles the copies of arrays of each shape
        bert_jax.load(folder / name)
    return folder


@pytest.fixture
def compiled():
    """Names of the programs that were compiled during the test."""
    events = []

    def listener(event, seconds, **_):
        events.extend([event] if event == COMPILES else [])

    jax.monitoring.register_event_duration_secs_listener(listener)
    yield events
    jax.monitoring.unregister_event_duration_listener(listener)


def fill_disk(monkeypatch):
    """Gives every file that is written the place of one on a full disk."""

    def opened(path, mode="r", **text):
        return open("/dev/full" if "w" in mode else path, mode, **text)

    monkeypatch.setattr(files, "open", opened, raising=False)


def rows():
    """The cells of the table, row by row."""
    text = (ROOT / "docs/errors.md").read_text("utf-8")
    lines = [x for x in text.splitlines() if x.startswith("| ")]
    return [re.split(r" ?\| ?", x)[1:-1] for x in lines[1:]]


def answer_to(mistake, capsys):
    """The message for a mistake, or its result, as the page writes it."""
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        try:
            vectors = mistake()
        except (ValueError, files.WriteError) as error:
            lines = str(error).splitlines()
        except SystemExit as error:
            assert error.code == 2
            lines = capsys.readouterr().err.splitlines()
        else:
            (shape,) = {str(x.message) for x in warned} or {""}
            empty = f"no error: {vectors.dtype} `[{len(vectors)}, D]`"
            return f"a warning: `{shape}`" if shape else empty
    assert len(lines) <= 3
    return "<br>".join(f"`{line}`" for line in lines)


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_gives_the_message_on_the_page(
    mistake, world, compiled, capsys, monkeypatch
):
    monkeypatch.chdir(world)
    monkeypatch.setattr("bert_jax.inference.jitted.use_compilation_cache", lambda: None)
    if "disk is full" in mistake:
        fill_disk(monkeypatch)
    answer = answer_to(MISTAKES[mistake], capsys)
    assert dict(row[:2] for row in rows())[mistake] == answer
    assert answer.startswith("a warning") or not compiled


def test_the_page_lists_every_mistake_once():
    assert [row[0] for row in rows()] == [*MISTAKES]
