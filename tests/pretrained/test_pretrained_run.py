"""Laws of the steps that a run saves: each loads as the model of that step."""

import json
import shutil

import jax
import numpy as np
import pytest

import bert_jax
from bert_jax import digests
from bert_jax.data.records import RowConfig
from bert_jax.models import BertConfig, Pretraining
from bert_jax.tasks import pretraining
from bert_jax.training.config import TrainConfig
from bert_jax.training.optimizers import OptimizerConfig

WORDS = "a the cat dog tree bird sat ran flew slept on under over by with".split()


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """The work directory of a run of three steps, with its steps 2 and 3."""
    folder = tmp_path_factory.mktemp("run")
    draw = np.random.default_rng(0)
    documents = [
        "\n".join(" ".join(draw.choice(WORDS, 7)) + "." for _ in range(6))
        for _ in range(30)
    ]
    (folder / "text.txt").write_text("\n\n".join(documents))
    task = pretraining.PretrainingConfig(
        paths=(str(folder / "text.txt"),),
        recipe=RowConfig(sequence_length=16, held_out=0.3),
    )
    config = TrainConfig(
        encoder=BertConfig(60, 12, 1, 3, 20, max_position_embeddings=16),
        task=task,
        optimizer=OptimizerConfig(learning_rate=1e-2, warmup_steps=1),
        batch_size=8,
        num_steps=3,
        checkpoint_every=2,
    )
    bert_jax.train(config, folder / "run")
    return folder / "run"


@pytest.fixture
def copied(run, tmp_path):
    shutil.copytree(run, tmp_path / "run")
    return tmp_path / "run"


def assert_same(tree, other):
    assert jax.tree.structure(tree) == jax.tree.structure(other)
    jax.tree.map(np.testing.assert_array_equal, tree, other)


def test_the_last_step_is_the_finished_model(run):
    finished, last = bert_jax.load(run), bert_jax.load(run / "checkpoints/3")
    assert isinstance(last.head, Pretraining) and last.head == finished.head
    assert_same(last.params, finished.params)
    assert last.tokenizer.fingerprint == finished.tokenizer.fingerprint
    assert last.fill_mask("a [MASK] sat.") == finished.fill_mask("a [MASK] sat.")


def test_each_step_is_its_own_model(run):
    first, last = (bert_jax.load(run / f"checkpoints/{n}") for n in (2, 3))
    assert (first.params["pair"]["kernel"] != last.params["pair"]["kernel"]).any()


def test_an_unfinished_run_is_its_newest_step(copied):
    last = bert_jax.load(copied / "checkpoints/3")
    shutil.rmtree(copied / "model")
    for place in (copied, copied / "checkpoints"):
        loaded = bert_jax.load(place, dtype="bfloat16")
        assert loaded.config.dtype == "bfloat16"
        assert_same(loaded.params, last.params)
    shutil.rmtree(copied / "checkpoints")
    with pytest.raises(ValueError, match="of a run without a checkpoint; let it train"):
        bert_jax.load(copied)


def test_a_step_saves_as_a_directory_for_transformers(run, tmp_path):
    step = bert_jax.load(run / "checkpoints/2")
    step.save(tmp_path)
    assert_same(bert_jax.load(tmp_path).params, step.params)


def test_a_step_without_its_tokenizer_is_refused_with_the_remedy(copied):
    for place in ("model", "data"):
        shutil.rmtree(copied / place)
    with pytest.raises(
        ValueError, match="is in none of .*\ncopy it to .*data/tok"
    ) as e:
        bert_jax.load(copied / "checkpoints/3")
    assert str(e.value).count("\n") <= 2


def change_record(step, **values):
    """Changes entries of the record, and its checksum accordingly."""
    path = step / "record/metadata"
    record = json.loads(path.read_text())
    record["meta"]["config"] |= values
    path.write_text(json.dumps(digests.sign(record)))


def test_a_record_of_another_version_or_family_is_refused(copied):
    step = copied / "checkpoints/3"
    change_record(step, **{"encoder.colour": "red"})
    with pytest.raises(ValueError, match="unknown encoder fields: colour; load it"):
        bert_jax.load(step)
    step = copied / "checkpoints/2"
    change_record(step, **{"encoder.model_type": "electra"})
    with pytest.raises(ValueError, match="no head of a electra has the parameters mlm"):
        bert_jax.load(step)


def test_damage_that_orbax_does_not_notice_is_refused(copied):
    path = copied / "checkpoints/3/record/metadata"
    path.write_text(path.read_text().replace('"digest": ', '"digest": 1', 1))
    with pytest.raises(ValueError, match="record/metadata is damaged; load another"):
        bert_jax.load(path.parents[1])
    path = copied / "checkpoints/2/record/metadata"
    record = json.loads(path.read_text())
    record["leaves"]["params/pair/bias"]["digest"] ^= 1
    path.write_text(json.dumps(digests.sign(record)))
    with pytest.raises(ValueError, match="2 is damaged: params/pair/bias changed sinc"):
        bert_jax.load(path.parents[1])


def test_a_step_that_lost_its_arrays_is_damaged(copied):
    shutil.rmtree(copied / "checkpoints/3/state")
    with pytest.raises(ValueError, match="state is damaged .*; save it again") as error:
        bert_jax.load(copied / "checkpoints/3")
    assert str(error.value).count("\n") <= 2
