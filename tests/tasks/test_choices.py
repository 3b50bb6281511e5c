"""Laws of multiple choice, from the file to the saved model."""

import csv
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tiny import LETTERS, made, wordpiece

import bert_jax
from bert_jax.data import choices, pipeline
from bert_jax.data.choices import ChoiceColumns
from bert_jax.models import Bert, BertConfig, Features, MultipleChoice
from bert_jax.tasks.choices import ChoiceConfig, rows_of
from bert_jax.training.config import TrainConfig
from bert_jax.training.optimizers import OptimizerConfig

TINY = BertConfig(
    vocab_size=len(LETTERS),
    hidden_size=12,
    num_hidden_layers=1,
    num_attention_heads=3,
    intermediate_size=20,
    max_position_embeddings=24,
    hidden_dropout_prob=0.0,
    attention_probs_dropout_prob=0.0,
    initializer_range=0.2,
)
SWAG = ",video-id,fold-ind,startphrase,sent1,sent2,gold-source".split(",")
ENDINGS = [f"ending{i}" for i in range(4)]


@pytest.fixture(scope="module")
def start(tmp_path_factory):
    """The directory of a tiny encoder."""
    folder = tmp_path_factory.mktemp("start")
    tokenizer = wordpiece(folder, LETTERS)
    made(Features(Bert(TINY), has_pooler=True), tokenizer).save(folder / "model")
    return folder / "model"


def swag(path, count, seed, labelled=True):
    """A file in SWAG's format; the right ending is the one that contains a q."""
    draw = np.random.default_rng(seed)
    header = [*SWAG, *ENDINGS, *(["label"] if labelled else [])]
    rows = []
    for i in range(count):
        words = [draw.choice(list("abcdefgh"), draw.integers(1, 5)) for _ in range(6)]
        label = draw.integers(4)
        words[label][-1] = "q"
        *endings, one, two = (" ".join(x) for x in words)
        row = [i, "anetv", i, f"{one} {two}", one, two, "gold", *endings]
        rows.append([*row, label] if labelled else row)
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([header, *rows])
    return path


def config(start, folder, **task):
    files = {"train": folder / "train.csv", "dev": folder / "dev.csv"}
    for seed, file in enumerate(files.values()):
        if not file.exists():
            swag(file, (96, 29)[seed], seed)
    fields = {k: str(x) for k, x in files.items()} | {"max_length": 24} | task
    return TrainConfig(
        encoder=None,
        task=ChoiceConfig(**fields),
        optimizer=OptimizerConfig("adamw", 2e-2, "linear"),
        batch_size=16,
        init_from=str(start),
    )


@pytest.fixture(scope="module")
def tuned(start, tmp_path_factory):
    folder = tmp_path_factory.mktemp("tuned")
    test = str(swag(folder / "test.csv", 13, 2, labelled=False))
    settings = config(start, folder, epochs=4.0, test=(test,))
    return bert_jax.train(settings, folder / "run"), folder


def questions(folder, name):
    table = choices.read(folder / name, labelled=name != "test.csv")
    contexts = list(zip(table.contexts, table.openings, strict=True))
    return contexts, table.choices, table.labels


@pytest.mark.slow
def test_a_tiny_encoder_learns_which_ending_is_right(tuned):
    _, folder = tuned
    lines = [json.loads(x) for x in (folder / "run/metrics.jsonl").open()]
    scores = [x["accuracy"] for x in lines if x["split"] == "eval"]
    assert len(scores) >= 4 and scores[-1] > 0.9


def test_prediction_files_have_the_choices_of_the_finished_model(tuned):
    model, folder = tuned
    for split, name in (("eval", "dev.csv"), ("test", "test.csv")):
        contexts, options, labels = questions(folder, name)
        results = model.choose(contexts, options, batch_size=7)
        file = folder / f"run/predictions/{split}.tsv"
        rows = [row.split("\t") for row in file.read_text().splitlines()[1:]]
        predictions = [row[1] for row in rows]
        best = [str(x.index(f[0].text)) for x, f in zip(options, results, strict=True)]
        assert predictions == best
        assert [row[0] for row in rows] == [str(i) for i in range(len(options))]
        if labels:
            assert [row[2] for row in rows] == [str(x) for x in labels]
            right = np.mean(
                [int(x) == y for x, y in zip(predictions, labels, strict=True)]
            )
            lines = (folder / "run/metrics.jsonl").read_text().splitlines()
            last = [x for x in map(json.loads, lines) if x["split"] == "eval"][-1]
            assert last["accuracy"] == pytest.approx(right)


@pytest.mark.parity
def test_transformers_loads_a_tuned_model_with_equal_outputs(tuned):
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    model, folder = tuned
    theirs = transformers.AutoModelForMultipleChoice.from_pretrained(
        folder / "run/model"
    )
    assert type(theirs).__name__ == "BertForMultipleChoice"
    batch = model.tokenizer(["a b"] * 3, ["c d e", "q", "f g"])
    batch = {name: x[None] for name, x in batch.items()}
    with torch.no_grad():
        logits = theirs(**{k: torch.tensor(x) for k, x in batch.items()}).logits.numpy()
    np.testing.assert_allclose(logits, model(**batch), atol=1e-5)


def test_a_tuned_model_continues_with_its_own_head(tuned, tmp_path):
    model, folder = tuned
    task = config(folder / "run/model", folder).task
    task.init_from = str(folder / "run/model")
    params = task.prepare(tmp_path, TINY, 0).pretrained_params("")
    assert params.keys() == {"encoder", "pooler", "classifier"}
    np.testing.assert_array_equal(
        params["classifier"]["kernel"], model.params["classifier"]["kernel"]
    )


def test_a_pair_is_the_context_and_the_opening_with_the_choice(tmp_path):
    table = choices.read(swag(tmp_path / "a.csv", 5, 0))
    assert table.columns.context == "sent1" and table.columns.opening == "sent2"
    tokenizer = wordpiece(tmp_path, LETTERS)
    batch = rows_of(table, tokenizer, 24).gather(np.array([3, 0]))
    assert batch["input_ids"].shape == (2, 4, batch["input_ids"].shape[2])
    for b, row in enumerate((3, 0)):
        context, opening = table.contexts[row], table.openings[row]
        for c, choice in enumerate(table.choices[row]):
            real = batch["attention_mask"][b, c] > 0
            expected = tokenizer(context, f"{opening} {choice}")
            for name in ("input_ids", "token_type_ids"):
                assert batch[name][b, c, real].tolist() == expected[name][0].tolist()
    assert batch["labels"].tolist() == [table.labels[3], table.labels[0]]


def test_batches_of_choices_visit_each_row_once_with_every_choice(tmp_path):
    table = choices.read(swag(tmp_path / "a.csv", 21, 0))
    rows = rows_of(table, wordpiece(tmp_path, LETTERS), 24)
    batches = list(pipeline.eval_batches(rows, batch_size=6))
    valid = np.concatenate([batch["valid"] for batch in batches])
    example = np.concatenate([batch["example"] for batch in batches])[valid]
    assert sorted(example) == list(range(21))
    longest = [batch["attention_mask"].sum(-1).max() for batch in batches]
    assert longest == sorted(longest) and longest[0] < longest[-1]
    again = [rows.lengths[batch["example"]].max() for batch in batches]
    assert longest == again


def test_missing_choices_have_no_probability(start, tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text(
        '{"article": "a b", "question": "c", "options": ["d", "e", "f"], "answer": "C"}'
        '\n{"article": "a", "question": "", "options": ["g h", "q"], "answer": "A"}\n'
    )
    task = ChoiceConfig(str(path), str(path), init_from=str(start), max_length=24)
    with pytest.warns(UserWarning, match="2 of the 2 rows of .*jsonl are also in"):
        prepared = task.prepare(tmp_path, TINY, 0)
    batch = prepared.rows["eval"].gather(np.array([0, 1]))
    assert batch["attention_mask"][1, 2].sum() == 0
    model = made(MultipleChoice(Bert(TINY)))

    @jax.jit
    def both(params):
        def loss(params):
            totals, _ = prepared.loss(model.head, params, batch, jax.random.key(0))
            return totals["loss"]

        outputs = prepared.loss(model.head, params, batch, None)
        return *outputs, jax.grad(lambda params: loss(params)[0])(params)

    totals, outputs, slopes = both(model.params)
    logits = np.asarray(model(**{k: batch[k] for k in batch if k != "labels"}))
    shares = np.exp(logits[1, :2]) / np.exp(logits[1, :2]).sum()
    np.testing.assert_allclose(outputs["probabilities"][1], [*shares, 0], atol=1e-6)
    first = np.log(np.exp(logits[0]).sum()) - logits[0, 2]
    expected = first - np.log(shares[0])
    assert float(totals["loss"][0]) == pytest.approx(expected, abs=1e-5)
    assert all(jnp.isfinite(x).all() for x in jax.tree.leaves(slopes))
    prepared.write_predictions(tmp_path, "eval", {"probabilities": np.eye(3)[[2, 1]]})
    written = (tmp_path / "predictions/eval.tsv").read_text().split()
    assert written == "index prediction label 0 C C 1 B A".split()


def test_rows_without_labels_have_predictions_and_no_score(tuned):
    _, folder = tuned
    scores = json.loads((folder / "run/scores.json").read_text())["scores"]
    assert scores["eval"]["accuracy"] > 0.9 and scores["test"] == {}


@pytest.mark.parametrize(
    "text, columns, labels",
    [
        ("premise,choice1,choice2,label\na,b,c,0\na,b,c,1\n", ("premise", ""), [0, 1]),
        ("sentence,option1,option2,answer\na,b,c,2\n", ("sentence", ""), [1]),
        ("context,question,answerA,answerB,label\na,b,c,d,B\n", (0, 1), [1]),
        ("question,A,B,C,answer\na,b,c,,b\na,b,c,d,c\n", ("question", ""), [1, 2]),
        ("ctx_a,ctx_b,ending_0,ending_1,gold\na,,b,c,ending_1\n", (0, 1), [1]),
    ],
)
def test_columns_and_label_numbering_are_detected(text, columns, labels, tmp_path):
    (tmp_path / "a.csv").write_text(text)
    table = choices.read(tmp_path / "a.csv")
    names = text.split("\n")[0].split(",")
    expected = [names[x] if isinstance(x, int) else x for x in columns]
    assert [table.columns.context, table.columns.opening] == expected
    assert table.labels == labels
    written = [table.columns.label_of(x) for x in labels]
    assert written == [row.split(",")[-1] for row in text.splitlines()[1:]]


def test_named_columns_apply_to_every_file(tmp_path):
    (tmp_path / "a.tsv").write_text("w\tx\ty\tz\na\tb\tc\t1\na\tb\tc\t2\n")
    columns = ChoiceColumns("w", "", ("x", "y"), "z")
    train = choices.read(tmp_path / "a.tsv", columns)
    assert (train.choices[0], train.labels) == (["b", "c"], [0, 1])
    # Alone, it would count from 0.
    (tmp_path / "b.tsv").write_text("z\ty\tx\tw\n1\tc\tb\ta\n")
    assert choices.read(tmp_path / "b.tsv", train.columns).labels == [0]


@pytest.mark.parametrize(
    "text, message",
    [
        ("", "a.csv has no question; it needs names of columns and rows"),
        ("sent1,label\na,b\n", "columns sent1, label has the choices. name it"),
        ("sent1,A,B\na,b,c\n", "columns sent1, A, B has the label. name it"),
        ("w,x,A,B,label\na,b,c,d,A\n", "A, B, label has the context. name it"),
        ("sent1,A,B,label\na,b,c\n", "a.csv:2: row .*cells: 3, columns: 4"),
        (
            "sent1,A,B,label\na,b,c,D\n",
            "'D': is not one of its 2 choices; write A to B",
        ),
        (
            "sent1,A,B,label\na,,c,A\n,b,c,X\n",
            "(?s)2 problems.*:2: .*:3: .*context",
        ),
        ("sent1,A,B,label\na,b,,A\n", "csv:2: column 'A', 'b': needs two choices"),
        (
            "sent1,choices,label\na,[x,0\n",
            "'choices', '.x': is not a list of texts",
        ),
    ],
)
def test_one_error_lists_all_wrong_lines_of_a_file(text, message, tmp_path):
    (tmp_path / "a.csv").write_text(text)
    with pytest.raises(ValueError, match=message):
        choices.read(tmp_path / "a.csv")


def test_a_missing_named_column_is_refused_before_compilation(
    start, tmp_path, monkeypatch
):
    monkeypatch.setattr(jax, "jit", None)
    with pytest.raises(ValueError, match="there is no column 'ctx'; it has video-id"):
        bert_jax.train(config(start, tmp_path, context="ctx"), tmp_path / "run")
