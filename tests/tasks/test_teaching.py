"""Laws of students that are fine-tuned with a fine-tuned teacher."""

import dataclasses
import json

import jax
import numpy as np
import pytest
from tiny import LETTERS, TINY, made, published, wordpiece, written

import bert_jax
from bert_jax.api import make_task
from bert_jax.data import pipeline
from bert_jax.models import (
    Bert,
    MultipleChoice,
    SequenceClassifier,
    SpanClassifier,
    TokenClassifier,
)
from bert_jax.tasks.classification import ClassificationConfig
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
        task=ClassificationConfig(
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
    config = config.task.resolve(config)
    return config.task.prepare(workdir, config.encoder, config.seed)


@pytest.mark.slow
def test_a_student_learns_the_predictions_of_its_teacher(config, tmp_path):
    task = dataclasses.replace(config.task, epochs=15)
    student = bert_jax.train(dataclasses.replace(config, task=task), tmp_path / "run")
    teacher = bert_jax.load(config.task.teacher)
    rows = student.tokenizer(["a b q", "c d e f", "q", "h g f e d c b a"])
    # Probabilities follow from the difference of the two logits alone.
    ours, theirs = (np.diff(np.asarray(model(**rows))) for model in (student, teacher))
    np.testing.assert_allclose(ours, theirs, atol=0.1)
    lines = (tmp_path / "run/metrics.jsonl").read_text().splitlines()
    losses = [json.loads(line) for line in lines]
    losses = [line["ce_loss"] for line in losses if line["split"] == "train"]
    assert losses[-1] < losses[0] / 5


def test_labels_and_teacher_share_the_loss(config, tmp_path):
    for share in (0.0, 0.25, 1.0):
        task = dataclasses.replace(config.task, alpha_ce=share)
        made_of = prepared(
            dataclasses.replace(config, task=task), tmp_path
        ).loss_weights
        assert made_of == {"loss": 1 - share, "ce_loss": share}
    alone = dataclasses.replace(config.task, teacher=None)
    task = prepared(dataclasses.replace(config, task=alone), tmp_path)
    assert task.loss_weights == {"loss": 1.0} and not task.constants


@pytest.mark.slow
def test_a_teacher_equal_to_its_student_gives_no_gradient(config, tmp_path):
    task = prepared(config, tmp_path)
    teacher = bert_jax.load(config.task.teacher)
    batch = next(iter(pipeline.batches(task.rows["train"], batch_size=8, seed=0)))
    params = {**teacher.params, **task.constants}

    def loss(params):
        totals, _ = task.loss(teacher.head, params, batch, jax.random.key(0))
        return totals["ce_loss"][0]

    value, grads = jax.value_and_grad(loss)(params)
    assert abs(float(value)) < 1e-5
    for x in jax.tree.leaves({k: x for k, x in grads.items() if k != "teacher"}):
        np.testing.assert_allclose(x, 0, atol=1e-5)


@pytest.mark.parametrize(
    "labels, message",
    [(("yes", "no"), "has the labels no, yes, not yes, no"), ((), None)],
)
def test_a_teacher_with_other_labels_is_refused(config, tmp_path, labels, message):
    task = dataclasses.replace(config.task, labels=labels)
    config = dataclasses.replace(config, task=task)
    if message is None:
        assert prepared(config, tmp_path).labels == ("no", "yes")
        return
    with pytest.raises(ValueError, match=message):
        prepared(config, tmp_path)


def test_a_teacher_without_classifier_or_with_another_vocabulary_is_refused(
    config, tmp_path
):
    task = dataclasses.replace(config.task, teacher=config.init_from)
    with pytest.raises(ValueError, match="is a Features, not a SequenceClassifier"):
        prepared(dataclasses.replace(config, task=task), tmp_path)
    (tmp_path / "other").mkdir()
    words = wordpiece(tmp_path / "other", [*LETTERS[:-2], "aa", "bb"])
    head = SequenceClassifier(Bert(TINY), 2)
    made(head, words, ("no", "yes")).save(tmp_path / "other")
    task = dataclasses.replace(config.task, teacher=str(tmp_path / "other"))
    with pytest.raises(ValueError, match="has another vocabulary than init_from"):
        prepared(dataclasses.replace(config, task=task), tmp_path)
    task = dataclasses.replace(config.task, max_length=21)
    longer = dataclasses.replace(TINY, max_position_embeddings=24)
    with pytest.raises(ValueError, match="reads 20 tokens; set task.max_length=20"):
        prepared(dataclasses.replace(config, encoder=longer, task=task), tmp_path)
    task = dataclasses.replace(config.task, alpha_ce=1.5)
    with pytest.raises(ValueError, match="task.alpha_ce=1.5 must be a share"):
        task.check()


def answer(text, start):
    return {"text": [text], "answer_start": [start]}


# A task, its head, and two rows, the second of which is padded.
ROWS = {
    "tag": (
        TokenClassifier(Bert(TINY), 2),
        {"tokens": ["a", "bc", "d", "q"], "tags": ["O", "B-x", "O", "B-x"]},
        {"tokens": ["e", "q"], "tags": ["O", "B-x"]},
    ),
    "answer": (
        SpanClassifier(Bert(TINY)),
        {"id": "1", "question": "a", "context": "b c q e", "answers": answer("q", 4)},
        {"id": "2", "question": "f", "context": "q g", "answers": answer("q", 0)},
    ),
    "choose": (
        MultipleChoice(Bert(TINY)),
        {"context": "a b c", "choices": ["d", "e", "q"], "label": 2},
        {"context": "f", "choices": ["q", "g"], "label": 0},
    ),
}
LABELS = {"tag": ("B-x", "O")}


def log_softmax(x):
    x = np.asarray(x, np.float64)
    return x - np.log(np.exp(x).sum(-1, keepdims=True))


def predictions(task, logits, batch):
    """The logits in the loss: of words, of both ends of an answer, of choices."""
    real = np.asarray(batch["attention_mask"]) > 0
    for row, row_logits in enumerate(np.asarray(logits)):
        if task == "tag":
            yield from row_logits[np.asarray(batch["labels"])[row] >= 0]
        elif task == "answer":
            yield from row_logits[real[row]].T
        else:
            yield row_logits[real[row].any(-1)]


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.slow) for name in ROWS],
)
def test_every_head_learns_the_predictions_of_its_teacher(name, tmp_path):
    head, *rows = ROWS[name]
    file = tmp_path / "rows.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    tokenizer = wordpiece(tmp_path, LETTERS)
    teacher, student = (
        made(head, tokenizer, LABELS.get(name, ()), seed) for seed in (1, 2)
    )
    # As they are drawn, heads hardly prefer anything.
    teacher, student = (
        dataclasses.replace(x, params=jax.tree.map(lambda p: 4 * p, x.params))
        for x in (teacher, student)
    )
    (tmp_path / "teacher").mkdir()
    teacher.save(tmp_path / "teacher")
    student.save(tmp_path / "student")
    fields = {"teacher": str(tmp_path / "teacher"), "temperature": 3.0}
    task = make_task(name, {"train": str(file), "dev": str(file), **fields})
    task.max_length, task.init_from = 20, str(tmp_path / "student")
    task = task.prepare(tmp_path / "run", TINY, 0)
    assert task.loss_weights == {"loss": 0.5, "ce_loss": 0.5}
    batch = next(iter(pipeline.batches(task.rows["train"], batch_size=2, seed=0)))

    def loss(params):
        key = jax.random.key(0)
        totals, _ = task.loss(student.head, params | task.constants, batch, key)
        total, count = totals["ce_loss"]
        return total / count, count

    pairs = zip(
        *(
            predictions(name, task.logits(x.head, x.params, batch, None), batch)
            for x in (student, teacher)
        ),
        strict=True,
    )
    pairs = [[log_softmax(logits / 3) for logits in pair] for pair in pairs]
    apart = [9 * (np.exp(q) * (q - p)).sum() for p, q in pairs]
    (value, count), grads = jax.value_and_grad(loss, has_aux=True)(student.params)
    assert count == len(apart) and value == pytest.approx(np.mean(apart), rel=1e-4)
    assert value > 1e-4
    nearer = jax.tree.map(lambda x, g: x - 0.01 * g, student.params, grads)
    assert loss(nearer)[0] < value
    assert loss(teacher.params)[0] == pytest.approx(0, abs=1e-5)
