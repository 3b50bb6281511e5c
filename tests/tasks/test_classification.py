"""Laws of fine-tuning on labelled texts, from the file to the saved model."""

import contextlib
import dataclasses
import io
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tiny import LETTERS, TINY, made, published, wordpiece, written

import bert_jax
from bert_jax.api import finetune
from bert_jax.data import tfds_files
from bert_jax.models import Bert, Features, ModernBertConfig, SequenceClassifier
from bert_jax.pretrained import Checkpoint, Pooling, config_json, new_head
from bert_jax.tasks import AnsweringConfig
from bert_jax.tasks.classification import (
    GLUE,
    METRICS,
    ClassificationConfig,
    classification_totals,
)
from bert_jax.tasks.fine_tuning import row_pooling
from bert_jax.training.config import TrainConfig


@pytest.fixture(scope="module")
def start(tmp_path_factory):
    """The directory of a tiny encoder."""
    return published(tmp_path_factory.mktemp("start"))


@pytest.fixture(scope="module")
def tuned(start, tmp_path_factory):
    folder = tmp_path_factory.mktemp("tuned")
    model = finetune(
        start,
        "classify",
        train=written(folder / "train.tsv", 576, 0),
        dev=written(folder / "dev.tsv", 29, 1),
        epochs=2,
        learning_rate=1e-2,
        batch_size=16,
        max_length=16,
        workdir=folder / "run",
    )
    return model, folder


def test_a_call_turns_two_files_into_a_model_that_knows_the_labels(tuned):
    model, folder = tuned
    assert model.labels == ("no", "yes")
    (first, second), other = model.classify(["a b q c", "a b c"])
    assert (first.name, second.name, other[0].name) == ("yes", "no", "no")
    assert first.probability + second.probability == pytest.approx(1, abs=1e-6)
    alone = dict(model.classify("a b q c"))
    assert alone == pytest.approx(dict([first, second]), abs=1e-6)
    lines = [json.loads(x) for x in (folder / "run/metrics.jsonl").open()]
    scores = [x["accuracy"] for x in lines if x["split"] == "eval"]
    assert len(scores) == 2 and scores[-1] > 0.9


def test_the_logged_score_equals_that_of_the_finished_model(tuned):
    model, folder = tuned
    rows = [x.split("\t") for x in (folder / "dev.tsv").read_text().splitlines()]
    results = model.classify([text for text, _ in rows], batch_size=5)
    right = np.mean([f[0].name == y for f, (_, y) in zip(results, rows, strict=True)])
    last = json.loads((folder / "run/metrics.jsonl").read_text().splitlines()[-1])
    assert last["split"] == "eval" and last["accuracy"] == pytest.approx(right)


def test_a_tuned_model_is_saved_with_its_labels_and_read_again(tuned):
    model, folder = tuned
    published = json.loads((folder / "run/model/config.json").read_text())
    assert published["id2label"] == {"0": "no", "1": "yes"}
    assert published["architectures"] == ["BertForSequenceClassification"]
    again = bert_jax.load(folder / "run")
    assert dict(again.classify("a q")) == pytest.approx(dict(model.classify("a q")))
    assert again.max_length == 16


@pytest.mark.parity
def test_transformers_loads_a_tuned_model_with_equal_outputs(tuned):
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    model, folder = tuned
    theirs = transformers.AutoModelForSequenceClassification.from_pretrained(
        folder / "run/model"
    )
    assert theirs.config.id2label == {0: "no", 1: "yes"}
    batch = model.tokenizer(["a q b", "c d e f"])
    with torch.no_grad():
        logits = theirs(**{k: torch.tensor(x) for k, x in batch.items()}).logits.numpy()
    np.testing.assert_allclose(logits, model(**batch), atol=1e-5)


@pytest.fixture(scope="module")
def pooled(tmp_path_factory):
    """A classifier from a model that declares mean pooling, and what the run prints."""
    folder = tmp_path_factory.mktemp("pooled")
    start = made(Features(Bert(TINY), has_pooler=True), wordpiece(folder, LETTERS))
    start.pooling = Pooling(normalize=True)
    start.save(folder / "start")
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        model = finetune(
            folder / "start",
            "classify",
            train=written(folder / "train.tsv", 48, 0),
            dev=written(folder / "dev.tsv", 9, 1),
            epochs=1,
            batch_size=16,
            max_length=16,
            workdir=folder / "run",
            keep_checkpoints=True,
        )
    return model, folder, printed.getvalue()


def test_a_classifier_reads_the_pooling_that_its_start_declares(pooled):
    model, folder, _ = pooled
    assert model.params.keys() == {"encoder", "classifier"}
    text, last = "a b q c", model.params["classifier"]
    states = np.asarray(model.hidden_states(**model.tokenizer(text)))[-1, 0]
    logits = states.mean(0) @ last["kernel"] + last["bias"]
    np.testing.assert_allclose(model(**model.tokenizer(text))[0], logits, atol=1e-5)
    for source in ("run", "run/model", "run/checkpoints/3"):
        loaded = bert_jax.load(folder / source)
        assert (loaded.head.pooling, loaded.head.hidden_act) == ("mean", None)
        assert loaded.pooling == Pooling(normalize=True)
        assert loaded.classify(text) == model.classify(text)


def test_a_run_names_what_starts_at_random_and_says_that_nothing_was_learnt(pooled):
    _, folder, printed = pooled
    assert "starts with random values: classifier (26 parameters)" in printed
    report = json.loads((folder / "run/scores.json").read_text())["scores"]["eval"]
    assert report["constant_accuracy"] == pytest.approx(5 / 9)  # four of nine have a q
    learnt = report["accuracy"] > report["constant_accuracy"]
    assert ("no better than a constant answer: accuracy" in printed) != learnt


@pytest.mark.parity
def test_transformers_refuses_a_classifier_of_pooled_vectors(pooled):
    transformers = pytest.importorskip("transformers")
    folder = pooled[1] / "run/model"
    with pytest.raises(ValueError, match="model type `pooled_bert`"):
        transformers.AutoModelForSequenceClassification.from_pretrained(folder)


def test_a_pooling_is_the_wanted_one_the_classifiers_own_or_the_declared_one():
    encoder, declared = Bert(TINY), Pooling(("cls", "mean"))
    plain = Checkpoint(Features(encoder), {})
    sentence = Checkpoint(Features(encoder), {}, pooling=declared)
    own = Checkpoint(SequenceClassifier(encoder, 2), {}, pooling=declared)
    maximum = SequenceClassifier(encoder, 2, hidden_act=None, pooling="max")
    for start, wanted, expected in (
        (None, None, None),
        (plain, None, None),
        (plain, "mean", "mean"),
        (sentence, None, "cls+mean"),
        (sentence, "pooler", None),
        (own, None, None),
        (Checkpoint(maximum, {}, pooling=declared), None, "max"),
    ):
        assert row_pooling(wanted, start, SequenceClassifier) == expected
    with pytest.raises(ValueError, match="task.pooling='average' is unknown; choose"):
        ClassificationConfig(train="a", dev="b", pooling="average").check()


def test_a_new_head_has_the_settings_that_the_config_of_its_start_declares():
    """ModernBERT's published encoders declare the mean in their config.json."""
    encoder = ModernBertConfig(31, 12, 20, 1, 3).build()
    start = Checkpoint(Features(encoder), {}, extra={"classifier_pooling": "mean"})
    assert new_head(SequenceClassifier, encoder, start, num_labels=2).pooling == "mean"
    assert new_head(SequenceClassifier, encoder, num_labels=2).pooling == "cls"


@pytest.mark.slow
def test_regression_predicts_unscaled_numbers(start, tmp_path):
    size = lambda text: "1.75" if "q" in text else "-0.25"  # noqa: E731
    model = finetune(
        start,
        "classify",
        train=written(tmp_path / "train.tsv", 960, 0, size),
        dev=written(tmp_path / "dev.tsv", 17, 1, size),
        epochs=2,
        learning_rate=1e-2,
        batch_size=16,
        max_length=16,
        workdir=tmp_path / "run",
    )
    assert model.labels == () and model.head.num_labels == 1
    small, large = model.classify(["a b c", "a b q c"])
    assert isinstance(small, float) and small < 0.3 and large > 1.2
    last = json.loads((tmp_path / "run/metrics.jsonl").read_text().splitlines()[-1])
    assert last["pearson"] > 0.8 and {"spearman", "loss"} <= last.keys()


def test_regression_takes_the_squared_error_of_unscaled_labels():
    head = SequenceClassifier(Bert(TINY), num_labels=1)
    batch = {
        "labels": np.array([5.0, 1.0, 9.0], np.float32),
        "attention_mask": np.ones((3, 2), np.int32),
        "valid": np.array([True, True, False]),
    }
    totals = classification_totals(head, batch, jnp.array([[3.0], [1.5], [0.0]]))
    assert [float(x) for x in totals["loss"]] == [4.25, 2.0]
    assert float(totals["tokens"][0]) == 4 and "accuracy" not in totals


def config(start, tmp_path, **task):
    files = {"train": tmp_path / "train.tsv", "dev": tmp_path / "dev.tsv"}
    for seed, file in enumerate(files.values()):
        if not file.exists():
            written(file, 40, seed)
    fields = {k: str(x) for k, x in files.items()} | {"max_length": 16} | task
    return TrainConfig(
        encoder=None,
        task=ClassificationConfig(**fields),
        batch_size=16,
        init_from=str(start),
    )


def test_steps_warmup_and_encoder_follow_from_data_and_start_model(start, tmp_path):
    settings = config(start, tmp_path, epochs=4.0, warmup=0.2)
    resolved = settings.task.resolve(settings)
    assert resolved.encoder == TINY
    assert (resolved.num_steps, resolved.eval_every, resolved.checkpoint_every) == (
        10,
        3,
        3,
    )
    assert resolved.optimizer.warmup_steps == 2
    by_steps = config(start, tmp_path, epochs=0.0)
    assert by_steps.task.resolve(by_steps).num_steps == by_steps.num_steps == 1000
    assert settings.encoder is None and settings.task.init_from is None


@pytest.mark.parametrize(
    "task, message",
    [
        ({"train": None}, "task.train names no file; give a .tsv, .csv or .jsonl"),
        ({"name": "sst3"}, "task.name='sst3' is not one of GLUE's cola, sst2"),
        ({"metrics": ("bleu",)}, "task.metrics has 'bleu'; choose from accuracy, f1"),
        (
            {"max_length": 21},
            "task.max_length=21 is not between 4 and the 20 positions",
        ),
        ({"warmup": 1.0}, "task.warmup=1.0 a share below 1"),
        ({"dev": "1.5"}, "task.dev=1.5 is no share of task.train between 0 and 1"),
        ({"dev": "0.001"}, "40 rows, of which a share of 0.001 leaves nothing to"),
        ({"truncation": "end"}, "task.truncation='end' is unknown; choose one of head"),
        (
            {"name": "mnli"},
            "(?s)40 problems .the first 20.*tsv:1: label 'no': is not one of",
        ),
        ({"label": "stars"}, "train.tsv has no header, so it has no column 'stars'"),
        ({"regression": True}, "train.tsv:1: label 'no': is not a number"),
    ],
)
def test_a_wrong_task_is_refused_before_compilation(
    start, tmp_path, task, message, monkeypatch
):
    monkeypatch.setattr(jax, "jit", None)
    with pytest.raises(ValueError, match=message):
        bert_jax.train(config(start, tmp_path, **task), tmp_path / "run")
    assert not (tmp_path / "run/config.json").exists()


def test_dev_labels_missing_in_train_are_refused_with_their_lines(start, tmp_path):
    settings = config(start, tmp_path)
    (tmp_path / "dev.tsv").write_text("a b\tyes\nc d\tmaybe\ne f\tno\n")
    with pytest.raises(
        ValueError, match="dev.tsv:2: label 'maybe': is not one of no, yes"
    ):
        bert_jax.train(settings, tmp_path / "run")


def test_classes_need_two_labels(start, tmp_path):
    settings = config(start, tmp_path, epochs=0.0)
    (tmp_path / "train.tsv").write_text("a\tyes\nb\tyes\n")
    with pytest.raises(ValueError, match="has no label but 'yes'; add rows of others"):
        settings.task.prepare(tmp_path, TINY, 0)


def test_dev_rows_that_are_also_in_train_are_counted_in_a_warning(start, tmp_path):
    settings = config(start, tmp_path, dev=str(tmp_path / "train.tsv"))
    task = settings.task.resolve(settings).task
    with pytest.warns(UserWarning, match="40 of the 40 rows of .*.tsv are also in"):
        task.prepare(tmp_path, TINY, 0)


def test_a_share_of_each_class_is_held_out_whatever_the_seed(start, tmp_path):
    settings = config(start, tmp_path, dev="0.25")
    tables = settings.task.resolve(settings).task.content
    train, dev = tables["train"], tables["eval"]
    assert sorted(dev.labels) == ["no"] * 5 + ["yes"] * 5
    assert sorted(train.lines + dev.lines) == list(range(1, 41))
    assert dev.lines == sorted(dev.lines) and dev.lines != list(range(1, 11))
    again = dataclasses.replace(settings, seed=7)
    assert again.task.resolve(again).task.content["eval"].lines == dev.lines
    assert settings.task.count() == 30


def test_a_task_that_cannot_divide_its_file_refuses_a_share():
    task = AnsweringConfig(train="train.json", dev="0.1")
    with pytest.raises(ValueError, match="task.dev=0.1 is a share, and this task does"):
        task.hold_out([], 0.1)


def test_a_model_reads_the_part_of_long_texts_that_it_was_trained_on(start, tmp_path):
    # The class is in the last letter, which rows of six tokens reach from the end only.
    rows = [(f"{'abcd'[i % 4]} b c d e f g {'hq'[i % 2]}", i % 2) for i in range(256)]
    model = finetune(
        start,
        "classify",
        train=[{"text": text, "label": "no yes".split()[y]} for text, y in rows],
        dev=0.25,
        epochs=2,
        learning_rate=1e-2,
        batch_size=16,
        max_length=6,
        truncation="tail",
        workdir=tmp_path / "run",
    )
    with pytest.warns(UserWarning, match="cut 2 of 2 texts to 6 tokens"):
        first, second = model.classify(["a b c d e f g q", "a b c d e f g h"])
    assert (first[0].name, second[0].name) == ("yes", "no")
    published = json.loads((tmp_path / "run/model/config.json").read_text())
    assert published["truncation"] == "tail"
    again = bert_jax.load(tmp_path / "run")
    with pytest.warns(UserWarning, match="cut 1 of"):
        assert again.classify("a b c d e f g q")[0].name == "yes"
    # A model that is trained from it reads the beginning again.
    assert "truncation" not in config_json.settings_of(again._checkpoint()).extra


def test_a_run_without_start_model_or_encoder_is_refused_with_the_remedy(tmp_path):
    settings = config("", tmp_path)
    with pytest.raises(ValueError, match="neither init_from nor encoder; name a model"):
        bert_jax.train(settings, tmp_path / "run")


def prepared_from(model, directory, tmp_path):
    model.save(directory)
    settings = config(directory, tmp_path)
    task = settings.task.resolve(settings).task
    return task.prepare(tmp_path, model.config, 0)


def test_a_classifier_head_is_reused_only_with_the_same_labels(start, tmp_path):
    tokenizer = bert_jax.load(start).tokenizer
    head = SequenceClassifier(Bert(TINY), num_labels=2)
    for labels, expected in (
        (("no", "yes"), {"encoder", "pooler", "classifier"}),
        (("yes", "no"), {"encoder", "pooler"}),
    ):
        theirs = made(head, tokenizer, labels)
        task = prepared_from(theirs, tmp_path / labels[0], tmp_path)
        assert task.pretrained_params("").keys() == expected


def test_a_pooler_that_the_classifier_does_not_use_is_not_loaded(start, tmp_path):
    tokenizer = bert_jax.load(start).tokenizer
    family = dataclasses.replace(
        TINY, model_type="roberta", position_offset=1, pad_token_id=0
    )
    theirs = made(Features(Bert(family), has_pooler=True), tokenizer)
    task = prepared_from(theirs, tmp_path / "roberta", tmp_path)
    assert task.pretrained_params("").keys() == {"encoder"}
    assert task.build(theirs.encoder).drops_input


def test_an_unknown_task_is_refused():
    with pytest.raises(ValueError, match="task='sing' is unknown; choose one of class"):
        finetune("nowhere", "sing", train="a", dev="b")


def test_every_task_of_glue_has_scores_and_regression_has_no_labels():
    assert set(GLUE) == set("cola sst2 mrpc qqp stsb mnli qnli rte wnli".split())
    counts = {"stsb": 0, "mnli": 3}
    for name, task in GLUE.items():
        assert task.metrics and set(task.metrics) <= METRICS.keys(), name
        assert len(task.labels) == len(set(task.labels)) == counts.get(name, 2), name


def test_a_glue_task_without_files_uses_tfds(start, tmp_path, monkeypatch):
    requested = []

    def local(path):
        requested.append(path)
        file = tmp_path / f"{path.split(':')[-1]}.jsonl"
        file.write_text(
            '{"sentence": "a", "label": 0}\n{"sentence": "q", "label": 1}\n'
        )
        return str(file)

    monkeypatch.setattr(tfds_files, "local_file", local)
    for name, splits in (
        ("sst2", ("train", "validation", "test")),
        ("mnli", ("train", "validation_matched", "validation_mismatched")),
    ):
        requested.clear()
        task = ClassificationConfig(name=name, max_length=16)
        config = TrainConfig(encoder=None, task=task, init_from=str(start))
        resolved = task.resolve(config).task
        assert requested[: len(splits)] == [f"tfds:glue/{name}:{x}" for x in splits]
        assert resolved.dev == str(tmp_path / f"{splits[1]}.jsonl")
