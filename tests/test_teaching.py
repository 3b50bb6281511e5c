"""Laws of classifiers that learn from a classifier."""

import dataclasses
import json

import jax
import numpy as np
import pytest
from tiny import LETTERS, TINY, made, published, wordpiece, written

import bert_jax
from bert_jax.data import pipeline
from bert_jax.models import Bert, SequenceClassifier
from bert_jax.tasks.classification import Classification
from bert_jax.training.config import TrainConfig
from bert_jax.training.optimizers import OptimizerConfig


@pytest.fixture
def config(tmp_path):
    """A student of one layer, and a teacher of two that was never trained."""
    (tmp_path / "teacher").mkdir()
    encoder = Bert(dataclasses.replace(TINY, num_hidden_layers=2))
    tokenizer = wordpiece(tmp_path, LETTERS)
    teacher = made(SequenceClassifier(encoder, 2), tokenizer, ("no", "yes"), seed=9)
    teacher.save(tmp_path / "teacher")
    return TrainConfig(
        encoder=None,
        task=Classification(
            train=str(written(tmp_path / "train.tsv", 64, 0)),
            dev=str(written(tmp_path / "dev.tsv", 24, 1)),
            labels=("no", "yes"),
            max_length=20,
            epochs=2,
            teacher=str(tmp_path / "teacher"),
            alpha_ce=1.0,
        ),
        optimizer=OptimizerConfig(name="adamw", learning_rate=1e-2, schedule="linear"),
        batch_size=8,
        init_from=str(published(tmp_path)),
        log_every=8,
    )


def prepared(config, workdir):
    config = config.task.complete(config)
    return config.task.prepare(workdir, config.encoder, config.seed)


def test_a_student_comes_to_predict_what_its_teacher_does(config, tmp_path):
    task = dataclasses.replace(config.task, epochs=15)
    student = bert_jax.train(dataclasses.replace(config, task=task), tmp_path / "run")
    teacher = bert_jax.load(config.task.teacher)
    rows = student.tokenizer(["a b q", "c d e f", "q", "h g f e d c b a"])
    # Probabilities follow from the difference of the two logits alone.
    ours, theirs = (np.diff(np.asarray(model(**rows))) for model in (student, teacher))
    np.testing.assert_allclose(ours, theirs, atol=0.1)
    lines = (tmp_path / "run/metrics.jsonl").read_text().splitlines()
    found = [json.loads(line) for line in lines]
    found = [line["ce_loss"] for line in found if line["split"] == "train"]
    assert found[-1] < found[0] / 5


def test_labels_and_teacher_share_the_loss(config, tmp_path):
    for share in (0.0, 0.25, 1.0):
        task = dataclasses.replace(config.task, alpha_ce=share)
        made_of = prepared(dataclasses.replace(config, task=task), tmp_path).objective
        assert made_of == {"loss": 1 - share, "ce_loss": share}
    alone = dataclasses.replace(config.task, teacher=None)
    task = prepared(dataclasses.replace(config, task=alone), tmp_path)
    assert task.objective == {"loss": 1.0} and not task.constants


def test_a_teacher_that_agrees_teaches_nothing(config, tmp_path):
    task = prepared(config, tmp_path)
    teacher = bert_jax.load(config.task.teacher)
    batch = next(iter(pipeline.batches(task.source("train"), batch_size=8, seed=0)))
    params = {**teacher.params, **task.constants}

    def loss(params):
        totals = task.loss(teacher.head, params, batch, jax.random.key(0))
        return totals["ce_loss"][0]

    value, grads = jax.value_and_grad(loss)(params)
    assert abs(float(value)) < 1e-5
    for x in jax.tree.leaves({k: x for k, x in grads.items() if k != "teacher"}):
        np.testing.assert_allclose(x, 0, atol=1e-5)


@pytest.mark.parametrize(
    "labels, message",
    [(("yes", "no"), "has the labels no, yes, not yes, no"), ((), None)],
)
def test_a_teacher_of_other_labels_is_refused(config, tmp_path, labels, message):
    task = dataclasses.replace(config.task, labels=labels)
    config = dataclasses.replace(config, task=task)
    if message is None:
        assert prepared(config, tmp_path).labels == ("no", "yes")
        return
    with pytest.raises(ValueError, match=message):
        prepared(config, tmp_path)


def test_a_teacher_that_is_no_classifier_or_reads_other_words_is_refused(
    config, tmp_path
):
    task = dataclasses.replace(config.task, teacher=config.init_from)
    with pytest.raises(ValueError, match="is no classifier but a Features"):
        prepared(dataclasses.replace(config, task=task), tmp_path)
    (tmp_path / "other").mkdir()
    words = wordpiece(tmp_path / "other", [*LETTERS[:-2], "aa", "bb"])
    head = SequenceClassifier(Bert(TINY), 2)
    made(head, words, ("no", "yes")).save(tmp_path / "other")
    task = dataclasses.replace(config.task, teacher=str(tmp_path / "other"))
    with pytest.raises(ValueError, match="has another vocabulary than init_from"):
        prepared(dataclasses.replace(config, task=task), tmp_path)
    task = dataclasses.replace(config.task, alpha_ce=1.5)
    with pytest.raises(ValueError, match="task.alpha_ce=1.5 must be a share"):
        task.check()
