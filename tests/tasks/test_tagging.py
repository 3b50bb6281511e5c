"""Laws of fine-tuning on labelled words, from the file to the saved model."""

import dataclasses
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tiny import LETTERS, made, wordpiece

import bert_jax
from bert_jax import metrics
from bert_jax.data import conll
from bert_jax.models import Bert, BertConfig, Features, TokenClassifier
from bert_jax.tasks.tagging import TaggingConfig, word_totals
from bert_jax.training.config import TrainConfig

WORDS = [*LETTERS, *(f"##{letter}" for letter in "abc")]
TINY = BertConfig(
    vocab_size=len(WORDS),
    hidden_size=12,
    num_hidden_layers=1,
    num_attention_heads=3,
    intermediate_size=20,
    max_position_embeddings=20,
    hidden_dropout_prob=0.0,
    attention_probs_dropout_prob=0.0,
    initializer_range=0.2,
)


@pytest.fixture(scope="module")
def start(tmp_path_factory):
    """The directory of a tiny encoder."""
    folder = tmp_path_factory.mktemp("start")
    tokenizer = wordpiece(folder, WORDS)
    made(Features(Bert(TINY)), tokenizer).save(folder / "model")
    return folder / "model"


def drawn(draw, count):
    """A sentence and its labels: q begins an entity, r continues it."""
    words, labels = [], []
    while len(words) < count:
        if draw.random() < 0.3:
            words += ["qa", "r"]
            labels += ["B-Q", "I-Q"]
        else:
            words.append(draw.choice(["a", "bc", "dab", "e", "\u200d"]))
            labels.append("O")
    return words, labels


def written(path, count, seed, labelled=True):
    """Sentences, some of which do not fit into a row."""
    draw, lines = np.random.default_rng(seed), []
    for _ in range(count):
        for word, label in zip(*drawn(draw, draw.integers(1, 14)), strict=True):
            lines.append(f"{word}\t{label}" if labelled else word)
        lines.append("")
    path.write_text("\n".join(lines))
    return path


def config(start, folder, context="sentence", **task):
    files = {"train": folder / "train.conll", "dev": folder / "dev.conll"}
    for seed, file in enumerate(files.values()):
        if not file.exists():
            written(file, 40 - 17 * seed, seed)
    fields = {k: str(x) for k, x in files.items()} | {"max_length": 16} | task
    return TrainConfig(
        encoder=None,
        task=TaggingConfig(**fields, context=context),
        batch_size=16,
        init_from=str(start),
    )


@pytest.fixture(scope="module")
def tuned(start, tmp_path_factory):
    folder = tmp_path_factory.mktemp("tuned")
    model = bert_jax.finetune(
        start,
        "tag",
        train=written(folder / "train.conll", 320, 0),
        dev=written(folder / "dev.conll", 23, 1),
        test=written(folder / "plain.conll", 5, 2, labelled=False),
        epochs=1,
        learning_rate=2e-2,
        batch_size=16,
        max_length=16,
        workdir=folder / "run",
    )
    return model, folder


def lines_of(folder):
    return [json.loads(x) for x in (folder / "run/metrics.jsonl").open()]


def test_a_run_turns_files_into_a_model_that_tags_texts_and_words(tuned):
    model, folder = tuned
    assert model.labels == ("B-Q", "I-Q", "O")
    text = "a qa r  bc"
    tags = model.tag(text)
    assert [tag.label for tag in tags] == ["O", "B-Q", "I-Q", "O"]
    assert [text[tag.start : tag.end] for tag in tags] == ["a", "qa", "r", "bc"]
    by_word, empty = model.tag([["a", "qa", "r", "bc"], []])
    assert [tag[:2] for tag in by_word] == [tag[:2] for tag in tags] and empty == []
    assert [tag[2:4] for tag in by_word] == [(0, 1), (2, 4), (5, 6), (7, 9)]
    best = max(x["f1"] for x in lines_of(folder) if x["split"] == "eval")
    assert best > 0.9


def test_scores_equal_those_of_the_finished_model(tuned):
    model, folder = tuned
    dev = conll.read(folder / "dev.conll")
    predictions = [
        [tag.label for tag in row] for row in model.tag(dev.words, batch_size=5)
    ]
    assert [*map(len, predictions)] == [*map(len, dev.words)]
    expected = metrics.entity_score(dev.labels, predictions)
    scores = json.loads((folder / "run/scores.json").read_text())["scores"]["eval"]
    assert scores["f1"] == pytest.approx(expected.f1)
    assert scores["precision"] == pytest.approx(expected.precision)
    right = np.concatenate(predictions) == np.concatenate(dev.labels)
    assert scores["accuracy"] == pytest.approx(right.mean())


def test_predictions_are_written_word_by_word_with_or_without_labels(tuned):
    model, folder = tuned
    dev = conll.read(folder / "dev.conll")
    file = folder / "run/predictions/eval.conll"
    again = conll.read(file, conll.Columns(0, 1))
    assert (again.words, again.labels) == (dev.words, dev.labels)
    predictions = conll.read(file, conll.Columns(0, 2)).labels
    assert predictions == [[tag.label for tag in row] for row in model.tag(dev.words)]
    plain = conll.read(folder / "plain.conll", labelled=False)
    unlabelled = conll.read(folder / "run/predictions/plain.conll")
    assert unlabelled.words == plain.words and unlabelled.columns.label == 1
    scores = json.loads((folder / "run/scores.json").read_text())["scores"]
    assert scores["plain"] == {}


def test_the_demo_shows_a_sentence_and_a_score_for_each_type(tuned, capsys):
    model, folder = tuned
    task = config("", folder).task
    task = dataclasses.replace(task, init_from=str(folder / "run/model"))
    ready = task.prepare(folder, TINY, 0)
    text = ready.demo(model, folder / "run")
    dev = conll.read(folder / "dev.conll")
    entities = sum(row.count("B-Q") for row in dev.labels)
    row = next(line.split() for line in text.splitlines() if line.startswith("  Q "))
    assert int(row[4]) == entities and float(row[3]) > 0.9
    assert dev.words[0][0] in text
    words = " ".join(dev.words[0])
    assert f"model.tag('{words}')" in ready.next_steps(folder / "run", False)
    assert f"bert-jax tag '{words}'" in ready.next_steps(folder / "run", True)
    assert "320 sentences" in capsys.readouterr().out


@pytest.mark.parity
def test_transformers_loads_a_tuned_model_with_equal_outputs(tuned):
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    model, folder = tuned
    theirs = transformers.AutoModelForTokenClassification.from_pretrained(
        folder / "run/model"
    )
    assert theirs.config.id2label == {0: "B-Q", 1: "I-Q", 2: "O"}
    batch = model.tokenizer(["a qa r", "bc"])
    with torch.no_grad():
        logits = theirs(**{k: torch.tensor(x) for k, x in batch.items()}).logits.numpy()
    real = batch["attention_mask"] > 0
    np.testing.assert_allclose(logits[real], model(**batch)[real], atol=1e-5)
    again = bert_jax.load(folder / "run")
    assert again.max_length == 16 and again.labels == model.labels


def prepared(start, folder, context="sentence", **task):
    settings = config(start, folder, context, **task)
    return settings.task.resolve(settings).task.prepare(folder, TINY, 0)


def test_only_the_first_piece_of_each_word_of_a_sentence_has_a_label(start, tmp_path):
    (tmp_path / "train.conll").write_text("abc X\nd Y\n\ne X\n")
    for context, expected in (
        ("sentence", [[-1, 0, -1, -1, 1, -1], [-1, 0, -1]]),
        ("document", [[-1, 0, -1, -1, 1, -1, -1], [-1, -1, -1, -1, -1, 0, -1]]),
    ):
        (tmp_path / "dev.conll").write_text("a X\n")
        rows = prepared(start, tmp_path, context).rows["train"]
        labels = rows.gather(np.arange(2), 7)["labels"].tolist()
        assert labels == [row + [-1] * (7 - len(row)) for row in expected]


def test_evaluation_reads_sentences_with_their_document_too(start, tmp_path):
    text = "-DOCSTART- O\n\na O\n\nb B-Q\n\n-DOCSTART- O\n\nc O\n"
    (tmp_path / "train.conll").write_text(text)
    (tmp_path / "dev.conll").write_text(text)
    task = prepared(start, tmp_path, "document", test=(str(tmp_path / "dev.conll"),))
    for split in ("train", "eval", "dev"):
        assert task.rows[split].lengths.tolist() == [4, 4, 3]


def test_an_epoch_counts_rows_after_sentences_are_split(start, tmp_path):
    settings = config(start, tmp_path, epochs=2.0)
    (tmp_path / "train.conll").write_text("a O\n" * 64 + "\nb B-Q\n")
    (tmp_path / "dev.conll").write_text("a O\n")
    done = settings.task.resolve(settings)
    rows = done.task.prepare(tmp_path, TINY, 0).rows["train"]
    assert len(rows) > 5 and done.task.count() == len(rows)
    assert done.num_steps == int(2 * len(rows) / 16)


def test_words_without_entities_are_scored_by_accuracy(start, tmp_path):
    (tmp_path / "train.conll").write_text("a NOUN\nb VERB\n")
    (tmp_path / "dev.conll").write_text("a NOUN\nb NOUN\n\nb VERB\n")
    task = prepared(start, tmp_path)
    assert task.best_metric == "accuracy" and task.labels == ("NOUN", "VERB")
    predictions = {"labels": np.array([[0, 0, 1, 0], [0, 1, 0, 0]])}
    score = task.score("eval", predictions)
    assert score == {"accuracy": pytest.approx(2 / 3)}


def test_the_loss_is_the_mean_over_labelled_words():
    head = TokenClassifier(Bert(TINY), num_labels=2)
    logits = jnp.log(jnp.array([[[3, 1], [1, 1], [1, 4]], [[1, 1]] * 3], jnp.float32))
    batch = {
        "labels": np.array([[0, -1, 0], [1, 1, 1]]),
        "attention_mask": np.ones((2, 3), np.int32),
        "valid": np.array([True, False]),
    }
    totals = word_totals(head, batch, logits)
    expected = -np.log(3 / 4) - np.log(1 / 5)
    assert [float(x) for x in totals["loss"]] == pytest.approx([expected, 2])
    assert [float(x) for x in totals["accuracy"]] == [1, 2]
    assert float(totals["tokens"][0]) == 3


@pytest.mark.parametrize(
    "task, message",
    [
        ({"train": None}, "task.train names no file; give a .conll, .conllu or .jsonl"),
        ({"context": "page"}, "task.context='page' is not one of sentence, document"),
        ({"label": "upos"}, "train.conll: there is no column 'upos' for the label; it"),
        ({"labels": ("O", "B-Q")}, "train.conll:.*: label 'I-Q': is not one of O, B-Q"),
        ({"max_length": 21}, "task.max_length=21 is not between 4 and the 20"),
    ],
)
def test_a_wrong_task_is_refused_before_compilation(
    start, tmp_path, task, message, monkeypatch
):
    settings = config(start, tmp_path)
    settings = dataclasses.replace(
        settings, task=dataclasses.replace(settings.task, **task)
    )
    train = bert_jax.train  # what it imports is compiled by need
    monkeypatch.setattr(jax, "jit", None)
    with pytest.raises(ValueError, match=message):
        train(settings, tmp_path / "run")
    assert not (tmp_path / "run/config.json").exists()


def test_a_dev_label_missing_in_train_is_refused(start, tmp_path):
    settings = config(start, tmp_path)
    (tmp_path / "dev.conll").write_text("a O\nb B-R\n")
    with pytest.raises(ValueError, match="dev.conll:2: label 'B-R': is not one of B-Q"):
        bert_jax.train(settings, tmp_path / "run")
