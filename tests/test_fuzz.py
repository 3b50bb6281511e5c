"""Any content of a file, a text or a field gives a result or one of our own errors.

A deeper search: HYPOTHESIS_PROFILE=deep python -m pytest tests/test_fuzz.py
"""

import dataclasses
import json
import os
import shutil

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tiny import LETTERS, TINY, made, wordpiece

import bert_jax
from bert_jax import tokenizers
from bert_jax.data import check, corpus
from bert_jax.data.prepared_rows import PreparedRows
from bert_jax.data.records import RowConfig
from bert_jax.models import BertConfig, SequenceClassifier
from bert_jax.models.bert import Bert
from bert_jax.tasks.classification import ClassificationConfig
from bert_jax.tasks.pretraining import PretrainingConfig
from bert_jax.training.checkpoints import Checkpoints
from bert_jax.training.config import TrainConfig, resolve
from bert_jax.training.optimizers import OptimizerConfig

COMMON = dict(
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
settings.register_profile("quick", max_examples=60, derandomize=True, **COMMON)
settings.register_profile("deep", max_examples=1000, **COMMON)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "quick"))

# A report of a labelled file names up to twenty places, between two sentences.
LONGEST_REPORT = 22


def only_ours(call, lines=3):
    """The result of `call`; None if it raises one of our errors."""
    try:
        return call()
    except ValueError as error:
        assert type(error) is ValueError, repr(error)
        assert 0 < len(str(error).splitlines()) <= lines, str(error)
        return None


@st.composite
def damaged(draw, content):
    """`content` with a place cut off, changed, left out or filled with noise."""
    start = draw(st.integers(0, len(content)))
    end = draw(st.integers(start, min(len(content), start + 60)))
    noise = draw(st.binary(max_size=20) | st.sampled_from(TROUBLE))
    changed = draw(st.booleans())
    return content[:start] + noise + (content[end:] if changed else b"")


TROUBLE = [
    b"",
    b"\t",
    b"\n\n",
    b"\r",
    b'"',
    b"'",
    b",",
    b"\\",
    b"null",
    b"NaN",
    b"1e999",
    b"-1",
    b"[[[[",
    b"{}",
    b"\x00",
    b"\xff\xfe",
    b"\xef\xbb\xbf",
    "\u2028\u0085".encode(),
    b"\\ud800",
]
LABELLED = {
    "a.tsv": (b"text\tlabel\na good one\tyes\nanother\tno\n", "classify"),
    "b.csv": (b'one,two,score\na,"b, c",1.5\nd,e,2\n', "classify"),
    "c.jsonl": (b'{"text": "a", "label": 1}\n{"text": "b", "label": 0}\n', "classify"),
    "d.conll": (b"-DOCSTART- O\n\nEU B-ORG\nrejects O\n\nPeter B-PER\n", "tag"),
    "e.jsonl": (b'{"tokens": ["a", "b"], "tags": ["O", "B-X"]}\n', "tag"),
    "f.conllu": (b"1\ta\t_\tDET\n2-3\tb\t_\t_\n2\tc\t_\tNOUN\n\n", "tag"),
    "g.json": (
        b'{"data": [{"paragraphs": [{"context": "a b c", "qas": [{"id": "1", '
        b'"question": "q", "answers": [{"text": "b", "answer_start": 2}]}]}]}]}',
        "answer",
    ),
    "h.csv": (b"sent1,sent2,ending0,ending1,label\na,b,c,d,0\ne,f,g,h,1\n", "choose"),
}


@pytest.mark.parametrize("name", LABELLED)
@given(data=st.data())
def test_labelled_files_give_rows_or_an_error(tmp_path, name, data):
    content, task = LABELLED[name]
    file = tmp_path / name
    file.write_bytes(data.draw(damaged(content) | st.binary(max_size=200)))
    only_ours(lambda: list(check.describe_files([str(file)], task)), LONGEST_REPORT)


TEXT = {
    "auto": b"A title\n\nSome text. More of it.\n\nAnother document.\n",
    "lines": b"one\ntwo\n\nthree\n",
    "paragraphs": b"one\n\n\ntwo\n",
    "jsonl": b'{"text": "one two", "title": "x"}\n{"text": "three"}\n',
    "wikiextractor": b'<doc id="1" url="u" title="t">\nt\n\nbody\n</doc>\n',
}


@pytest.mark.parametrize("format", TEXT)
@given(data=st.data())
def test_raw_text_gives_documents_or_an_error(tmp_path, format, data):
    file = tmp_path / "text.txt"
    file.write_bytes(data.draw(damaged(TEXT[format]) | st.binary(max_size=200)))

    def read():
        result = list(corpus.read([str(file)], format))
        return [corpus.sentences(document, format) for document in result]

    only_ours(read)


@pytest.fixture(scope="module")
def three(tmp_path_factory):
    """A tokenizer of each kind, and their directories."""
    folder = tmp_path_factory.mktemp("tokenizers")
    texts = ["the quick brown fox", "jumps over the lazy dog", "naïve café 12"] * 20
    result = {
        "wordpiece": tokenizers.WordPiece.train(texts, 60),
        "bytelevel": tokenizers.ByteLevelBPE.train(texts, 300),
        "sentencepiece": tokenizers.SentencePiece.train(texts, 36),
    }
    for name, tokenizer in result.items():
        tokenizer.save(folder / name)
    return folder, result


@pytest.mark.parametrize("kind", ["wordpiece", "bytelevel", "sentencepiece"])
@given(text=st.text(st.characters(exclude_categories=()), max_size=60))
@pytest.mark.filterwarnings("ignore:.*surrogate")
def test_any_text_has_ids_and_any_ids_have_text(three, kind, text):
    tokenizer = three[1][kind]
    ids = tokenizer.encode(text)
    assert all(0 <= i < tokenizer.vocab_size for i in ids)
    assert isinstance(tokenizer.decode(ids), str)
    assert len(tokenizer.tokenize(text)) == len(ids)


@pytest.mark.parametrize("kind", ["wordpiece", "bytelevel", "sentencepiece"])
@given(data=st.data())
def test_damaged_tokenizers_load_or_give_an_error(three, tmp_path, kind, data):
    target = tmp_path / "damaged"
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(three[0] / kind, target)
    files = sorted(path for path in target.iterdir() if path.is_file())
    file = data.draw(st.sampled_from(files))
    file.write_bytes(data.draw(damaged(file.read_bytes())))
    if tokenizer := only_ours(lambda: tokenizers.load(target)):
        assert all(0 <= i < tokenizer.vocab_size for i in tokenizer.encode("the fox"))


@pytest.fixture(scope="module")
def model_directory(tmp_path_factory):
    """The directory of a saved classifier with its tokenizer."""
    folder = tmp_path_factory.mktemp("model")
    head = SequenceClassifier(Bert(TINY), num_labels=2)
    made(head, wordpiece(folder, LETTERS), ("no", "yes")).save(folder / "model")
    return folder / "model"


ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=4,
)


@given(data=st.data())
def test_damaged_models_load_or_give_an_error(model_directory, tmp_path, data):
    target = tmp_path / "damaged"
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(model_directory, target)
    file = data.draw(st.sampled_from(sorted(target.iterdir())))
    if file.suffix == ".json" and data.draw(st.booleans()):
        content = json.loads(file.read_text())
        content[data.draw(st.sampled_from(sorted(content)))] = data.draw(ANY_JSON)
        file.write_text(json.dumps(content))
    else:
        file.write_bytes(data.draw(damaged(file.read_bytes())))
    if model := only_ours(lambda: bert_jax.load(target)):
        only_ours(lambda: model.classify("a b c"))


FIELDS = [
    *((TrainConfig, field.name) for field in dataclasses.fields(TrainConfig)),
    *((OptimizerConfig, field.name) for field in dataclasses.fields(OptimizerConfig)),
    *((BertConfig, field.name) for field in dataclasses.fields(BertConfig)),
    *((RowConfig, field.name) for field in dataclasses.fields(RowConfig)),
]
OF_TYPE = {
    bool: st.booleans(),
    int: st.integers() | st.integers(-2, 5),
    float: st.floats() | st.integers(-2, 5).map(float),
    str: st.text(max_size=9) | st.just(""),
}


@given(data=st.data())
@settings(max_examples=10 * settings().max_examples)
def test_config_fields_are_valid_or_give_an_error(data):
    """Values of the field's own type: the command line accepts no others."""
    encoder, optimizer = dataclasses.replace(TINY), OptimizerConfig()
    task = PretrainingConfig(paths=("x.txt",), recipe=RowConfig(sequence_length=16))
    config = TrainConfig(encoder=encoder, task=task, optimizer=optimizer)
    owner = {
        TrainConfig: config,
        OptimizerConfig: optimizer,
        BertConfig: encoder,
        RowConfig: task.recipe,
    }
    for kind, name in data.draw(st.lists(st.sampled_from(FIELDS), max_size=3)):
        value = getattr(owner[kind], name)
        if type(value) in OF_TYPE:
            setattr(owner[kind], name, data.draw(OF_TYPE[type(value)]))
    only_ours(lambda: resolve(config))


@given(
    epochs=st.floats(),
    warmup=st.floats(),
    max_length=st.integers(),
    batch_size=st.integers(),
)
def test_fine_tuning_fields_are_valid_or_give_an_error(
    three, tmp_path, epochs, warmup, max_length, batch_size
):
    file = tmp_path / "a.tsv"
    file.write_text("a\tyes\nb\tno\n" * 9)
    task = ClassificationConfig(
        train=str(file),
        dev=str(file),
        epochs=epochs,
        warmup=warmup,
        max_length=max_length,
        tokenizer=str(three[0] / "wordpiece"),
    )
    config = TrainConfig(encoder=TINY, task=task, batch_size=batch_size)

    def complete():
        resolve(config)

    only_ours(complete)


STATE = {"w": jnp.arange(4000.0).reshape(50, 80), "step": jnp.int32(7)}
SHAPES = jax.tree.map(
    lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=x.sharding), STATE
)


@pytest.fixture(scope="module")
def two_checkpoints(tmp_path_factory):
    """A directory with checkpoints of steps 1 and 2."""
    folder = tmp_path_factory.mktemp("checkpoints")
    with Checkpoints(folder, keep=5) as checkpoints:
        for step in (1, 2):
            state = jax.tree.map(lambda x, step=step: x + step, STATE)
            checkpoints.save(step, state, {"at": step})
    return folder


@given(data=st.data())
@settings(max_examples=max(20, settings().max_examples // 3))
def test_damaged_checkpoints_are_skipped_or_harmless(two_checkpoints, tmp_path, data):
    """A damaged checkpoint is skipped, or its damage has no effect."""
    target = tmp_path / "damaged"
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(two_checkpoints, target)
    files = sorted(path for path in (target / "2").rglob("*") if path.is_file())
    file = data.draw(st.sampled_from(files))
    how = data.draw(st.sampled_from(["damage", "delete", "directory"]))
    content = data.draw(damaged(file.read_bytes()))
    file.unlink()
    if how == "damage":
        file.write_bytes(content)
    elif how == "directory":
        file.mkdir()
    with Checkpoints(target) as checkpoints:
        result = only_ours(lambda: checkpoints.restore(SHAPES))
    assert result.step in (1, 2) and len(result.skipped) == 2 - result.step
    assert result.meta == {"at": result.step}
    np.testing.assert_array_equal(result.state["w"], STATE["w"] + result.step)


@pytest.fixture(scope="module")
def prepared_rows(tmp_path_factory):
    """A small prepared directory."""
    folder = tmp_path_factory.mktemp("rows")
    text = "\n\n\n".join(f"The fox number {i} runs. It is quick." for i in range(60))
    (folder / "text.txt").write_text(text)
    task = PretrainingConfig(
        paths=(str(folder / "text.txt"),),
        format="paragraphs",
        recipe=RowConfig(sequence_length=16, held_out=0.2),
    )
    task.write_rows(folder / "rows", folder / "tokenizer", vocab_size=60)
    return folder / "rows"


@given(data=st.data())
def test_damaged_rows_are_read_or_give_an_error(prepared_rows, tmp_path, data):
    target = tmp_path / "damaged"
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(prepared_rows, target)
    files = sorted(path for path in target.iterdir() if path.is_file())
    file = data.draw(st.sampled_from(files))
    file.write_bytes(data.draw(damaged(file.read_bytes())))
    for split in ("train", "eval"):
        if rows := only_ours(lambda split=split: PreparedRows(target, split)):
            only_ours(lambda rows=rows: rows.gather(np.arange(len(rows))))
            only_ours(lambda rows=rows: rows.unigrams)
