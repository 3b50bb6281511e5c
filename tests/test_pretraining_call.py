"""Laws of `bert_jax.pretrain` and `bert-jax pretrain`."""

import dataclasses
import json

import numpy as np
import pytest
from tiny import LETTERS, TINY, made, wordpiece

import bert_jax
from bert_jax import cli
from bert_jax.inference import jitted
from bert_jax.models import Bert, BertConfig, Features, MaskedLM, Pretraining
from bert_jax.pretrained import Pooling, new_head

# What a run makes of it.
OF_A_RUN = BertConfig(**vars(TINY) | {"attention": "plain", "remat": True})
# Its positions begin behind the number of the padding.
ROBERTA = BertConfig(**vars(TINY) | {"model_type": "roberta", "position_offset": 1})


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    """Documents in which every second letter is a q, so that a model can learn it."""
    draw = np.random.default_rng(0)
    path = tmp_path_factory.mktemp("text") / "text.txt"

    def line():
        return f"{' q '.join(draw.choice(list('abcdefgh'), 6))} .\n"

    documents = ["".join(line() for _ in range(6)) for _ in range(60)]
    path.write_text("\n".join(documents))
    return path


def start(folder, head):
    made(head, wordpiece(folder, LETTERS)).save(folder / "start")
    return folder / "start"


def lines(workdir):
    return [json.loads(x) for x in (workdir / "metrics.jsonl").open()]


HOW = {"max_length": 16, "batch_size": 8, "learning_rate": 1e-2}


def test_pretrain_learns_from_text_and_the_same_call_resumes(tmp_path, text, capsys):
    begin = start(tmp_path, Pretraining(Bert(TINY)))
    model = bert_jax.pretrain(begin, text, workdir=tmp_path / "run", epochs=2, **HOW)
    assert isinstance(model.head, Pretraining)
    (guesses,) = model.fill_mask("a q b [MASK] c q d", k=1)
    assert guesses[0].token == "q"
    reports = [x for x in lines(tmp_path / "run") if x["split"] == "eval"]
    assert len(reports) == 2  # one for each epoch
    # Who knows nothing loses the logarithm of the vocabulary.
    assert reports[-1]["mlm_loss"] < 0.7 * np.log(TINY.vocab_size)
    capsys.readouterr()
    again = bert_jax.pretrain(begin, text, workdir=tmp_path / "run", epochs=2, **HOW)
    assert "this run is complete" in capsys.readouterr().out
    np.testing.assert_array_equal(again.embed("a q"), model.embed("a q"))


@pytest.mark.parametrize(
    "head, made_of",
    [
        pytest.param(
            *(MaskedLM(Bert(OF_A_RUN)), MaskedLM), id="run", marks=pytest.mark.slow
        ),
        pytest.param(Features(Bert(TINY)), MaskedLM, id="features"),
        pytest.param(
            *(new_head(MaskedLM, Bert(ROBERTA)), MaskedLM),
            id="roberta",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_the_result_has_no_untrained_head_and_declares_what_the_start_declared(
    tmp_path, text, head, made_of, capsys
):
    declared = {
        "pooling": Pooling(
            ("cls", "mean"), True, "a ", (("ask", "b "), ("tell", "a ")), "dot"
        ),
        "max_length": 18,
        "extra": {"use_cache": True, "classifier_dropout": 0.3, "doc_stride": 5},
    }
    model = made(head, wordpiece(tmp_path, LETTERS))
    model = dataclasses.replace(model, **declared)
    declared["extra"] = {"use_cache": True, "classifier_dropout": 0.3}
    trained = bert_jax.pretrain(
        model, text, epochs=0.1, workdir=tmp_path / "run", **HOW
    )
    lacks = isinstance(head, Features)
    assert ("starts with random values: mlm (" in capsys.readouterr().out) == lacks
    assert type(trained.head) is made_of
    assert trained.config.model_type == head.encoder.config.model_type
    loaded = bert_jax.load(tmp_path / "run")
    np.testing.assert_array_equal(loaded.embed("a q"), trained.embed("a q"))
    step = bert_jax.load(next((tmp_path / "run/checkpoints").glob("[1-9]*")))
    for each in (trained, loaded, step):
        # RoBERTa's directories hold the ids of its special tokens, too.
        ids = {k for k in each.extra if k.endswith("_token_id")}
        each.extra = {k: v for k, v in each.extra.items() if k not in ids}
        assert {k: getattr(each, k) for k in declared} == declared
        assert not ids or each.config.model_type == "roberta"
        assert np.linalg.norm(each.embed("a q")) == pytest.approx(1, abs=1e-5)


def test_pairs_that_a_family_does_not_publish_are_refused(tmp_path, text):
    model = made(new_head(MaskedLM, Bert(ROBERTA)), wordpiece(tmp_path, LETTERS))
    with pytest.raises(ValueError, match="'roberta' has no Pretraining head"):
        bert_jax.pretrain(model, text, pairs="next", **HOW)


@pytest.mark.slow
def test_the_command_gives_the_same_model_as_the_call(
    tmp_path, text, monkeypatch, capsys
):
    monkeypatch.setattr(jitted, "use_compilation_cache", lambda: None)
    begin = start(tmp_path, Pretraining(Bert(TINY)))
    flags = "--epochs 0.1 --max-length 16 --batch-size 8 --learning-rate 0.01".split()
    out = ["--model", str(begin), "--workdir", str(tmp_path / "run")]
    cli.main(["pretrain", str(text), *out, *flags])
    output = capsys.readouterr().out
    # Who has installed the package has no train.py.
    assert (
        f"The model is in {tmp_path}/run/model" in output and "train.py" not in output
    )
    model = bert_jax.pretrain(begin, text, epochs=0.1, **HOW)
    assert "The model is in" not in capsys.readouterr().out  # it would be gone
    vectors = bert_jax.load(tmp_path / "run").embed("a q b")
    np.testing.assert_array_equal(vectors, model.embed("a q b"))


@pytest.mark.parametrize("epochs, batch_size", [(0, 8), (float("nan"), 8), (1, 0)])
def test_a_run_without_epochs_or_batches_is_refused(tmp_path, text, epochs, batch_size):
    model = made(MaskedLM(Bert(TINY)), wordpiece(tmp_path, LETTERS))
    with pytest.raises(ValueError, match="must be above 0"):
        bert_jax.pretrain(model, text, epochs=epochs, batch_size=batch_size)


def test_a_text_too_short_for_held_out_documents_is_refused(tmp_path, text):
    model = made(MaskedLM(Bert(TINY)), wordpiece(tmp_path, LETTERS))
    short = tmp_path / "short.txt"
    short.write_text("\n\n".join(text.read_text().split("\n\n")[:6]))
    how = HOW | {"workdir": tmp_path / "run", "epochs": 0.1}
    with pytest.raises(ValueError, match="no document is in eval, with held_out=0.0"):
        bert_jax.pretrain(model, short, held_out=0.0, **how)
    trained = bert_jax.pretrain(model, short, held_out=0.5, **how)
    assert type(trained.head) is MaskedLM


def test_a_length_beyond_the_positions_is_refused_and_fewer_are_the_default(
    tmp_path, text
):
    model = made(MaskedLM(Bert(TINY)), wordpiece(tmp_path, LETTERS))
    how = {"workdir": tmp_path / "run", "num_steps": 1, "batch_size": 8}
    with pytest.raises(ValueError, match="^max_length=100 is more than the 20 pos"):
        bert_jax.pretrain(model, text, **how, max_length=100)
    with pytest.raises(ValueError, match="pretrain has no 'length'; its .* max_length"):
        bert_jax.pretrain(model, text, length=100)
    assert not (tmp_path / "run").exists()
    bert_jax.pretrain(model, text, **how, whole_words=True)
    config = json.loads((tmp_path / "run/config.json").read_text())
    assert config["task.recipe.sequence_length"] == TINY.max_position_embeddings
    assert config["num_steps"] == 1 and config["task.masking.whole_words"]
    assert (tmp_path / "run/checkpoints/1").is_dir()  # to be continued
