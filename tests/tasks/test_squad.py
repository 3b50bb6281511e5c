"""Laws of question answering: files of SQuAD, official scores, and a whole run."""

import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tiny import LETTERS, made, wordpiece

import bert_jax
from bert_jax import metrics, tokenizers
from bert_jax.data import squad
from bert_jax.inference.model import Model
from bert_jax.models import Bert, BertConfig, Features, SpanClassifier
from bert_jax.tasks import answering
from bert_jax.tasks.answering import AnsweringConfig
from bert_jax.training.config import TrainConfig
from bert_jax.training.optimizers import OptimizerConfig

GOLDEN = json.loads(
    (Path(__file__).parents[1] / "goldens/squad.json").read_text("utf-8")
)

LONG = (
    "The Gudenå rises near Tørring and is the longest river of Denmark. It flows past "
    "Vestbirk, Voervadsbro and Ry, where it fills several lakes with brown water; then "
    "through Silkeborg, whose paper mill it once drove, and at last past Bjerringbro "
    "and Langå to Randers, where it meets the fjord of that name after 149 km. Barges "
    "were drawn up it by men and horses until the railway came in 1871."
)
PARAGRAPHS = {
    "The lighthouse of Skagen was built in 1858 by Niels Sigfred Nebelong; with its "
    "46 metres it was the tallest of Denmark.": [
        ("Who built the lighthouse?", "Niels Sigfred Nebelong"),
        ("When was the lighthouse built?", "1858"),
        ("How tall is it?", "46 metres"),
        ("Who painted the lighthouse?", None),
    ],
    "Łódź lies in Poland. Its name means “boat”; it has 655,279 inhabitants, a school "
    "of film, many mills and one long street.": [
        ("What does its name mean?", "boat"),
        ("Where does Łódź lie?", "Poland"),
        ("How many inhabitants are there?", "655,279"),
        ("How many boats are there?", None),
    ],
    "東京 (Tōkyō) was called 江戸 (Edo) until 1868, when the emperor came there from "
    "京都 (Kyōto), where he had lived.": [
        ("What was 東京 called?", "江戸"),
        ("Until when was it called Edo?", "1868"),
    ],
    "Zoë Müller's cafe\u0301 opened in Zürich in 1901 and closed in 1950; now there is "
    "a bank, and nobody drinks.": [
        ("Whose cafe\u0301 was it?", "Zoë Müller's"),
        ("What did Zoë open?", "cafe\u0301"),
        ("When did it close?", "1950"),
        ("Who bought it?", None),
    ],
    LONG: [
        ("Where does the Gudenå rise?", "near Tørring"),
        ("When did the railway come?", "1871"),
        ("What does the Gudenå meet at Randers?", "the fjord of that name"),
        ("What came in 1950?", None),
    ],
}


def nested(paragraphs):
    """Questions in SQuAD's form."""
    entries, number = [], 0
    for context, questions in paragraphs.items():
        qas = []
        for question, text in questions:
            number += 1
            texts = [] if text is None else [text]
            answers = [{"text": x, "answer_start": context.index(x)} for x in texts]
            qas.append({"id": f"q{number}", "question": question, "answers": answers})
        entries.append({"context": context, "qas": qas})
    return {"version": "v2.0", "data": [{"title": "Places", "paragraphs": entries}]}


def written(path, value=None):
    """A .json of SQuAD's form, or rows of JSONL."""
    value = nested(PARAGRAPHS) if value is None else value
    rows = value if isinstance(value, list) else [value]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    return path


def questions_of(paragraphs):
    return [(q, c, text) for c, qas in paragraphs.items() for q, text in qas]


def test_both_forms_of_files_hold_the_same_questions(tmp_path):
    one = squad.read(written(tmp_path / "a.json"))
    rows = [
        {
            "id": x.id,
            "question": x.question,
            "context": x.context,
            "answers": {
                "text": [text for text, _ in x.answers],
                "answer_start": [start for _, start in x.answers],
            },
        }
        for x in one
    ]
    assert squad.read(written(tmp_path / "a.jsonl", rows)) == one
    assert [x.answers[0].text if x.answers else None for x in one] == [
        text for *_, text in questions_of(PARAGRAPHS)
    ]
    assert squad.has_unanswerable(one) and not squad.has_unanswerable(one[:3])
    assert squad.overlap(one, one[2:5]) == 3


def test_answers_are_optional_in_unlabelled_files(tmp_path):
    row = {"id": 7, "question": "a?", "context": "a"}
    path = written(tmp_path / "a.jsonl", [row])
    [question] = squad.read(path, labelled=False)
    assert question == squad.Question("7", "a?", "a", None)
    with pytest.raises(ValueError, match="1: answers 'null': needs answers; write"):
        squad.read(path)
    path = written(tmp_path / "b.jsonl", [row | {"is_impossible": True}])
    assert squad.read(path)[0].answers == ()


ROW = {"id": "q", "question": "who?", "context": "Ada wrote it", "answers": []}


def with_answer(text, start):
    return ROW | {"answers": {"text": [text], "answer_start": [start]}}


@pytest.mark.parametrize(
    "row, message",
    [
        (with_answer("wrote", 5), "is not at answer_start=5 of the context but at 4"),
        (with_answer("wrote", -8), "is not at answer_start=-8 of the context but at"),
        (with_answer("wrote", None), "is not at answer_start=null of the context but"),
        (with_answer("Bob", 0), "answer 'Bob': is not in the context; copy it"),
        (with_answer(" ", 3), "has no text; write it, or give no answers at all"),
        (ROW | {"context": " "}, "context ' ': needs a context; write it"),
        (ROW | {"question": None}, "question 'null': needs a question; write it"),
        (ROW | {"answers": "Ada"}, "answers 'Ada': is not {.text.: "),
        (
            ROW | {"answers": {"text": ["Ada"], "answer_start": []}},
            "of one length; fix it",
        ),
        (with_answer("Ada", 0) | {"is_impossible": True}, "is_impossible is true; rem"),
    ],
)
def test_a_wrong_row_is_reported_with_its_line_and_remedy(row, message, tmp_path):
    path = written(tmp_path / "a.jsonl", [ROW | {"id": "first"}, row])
    with pytest.raises(ValueError, match=f"has 1 problem:\n.*a.jsonl:2: .*{message}"):
        squad.read(path)


def test_one_error_lists_up_to_twenty_problems_with_their_places(tmp_path):
    value = nested(PARAGRAPHS)
    paragraphs = value["data"][0]["paragraphs"]
    paragraphs[0]["qas"][1]["answers"][0]["answer_start"] += 1
    paragraphs[1]["qas"][0]["id"] = paragraphs[0]["qas"][0]["id"]
    del paragraphs[2]["context"], paragraphs[3]["qas"]
    paragraphs.append("text")
    with pytest.raises(ValueError) as error:
        squad.read(written(tmp_path / "a.json", value))
    place = "a.json:data[0].paragraphs"
    message = str(error.value)
    assert "has 6 problems:" in message
    for line in (
        f"{place}[0].qas[1]: answer '1858': is not at answer_start=",
        f"{place}[1].qas[0]: id 'q1': data[0].paragraphs[0].qas[0] has it too; give",
        f"{place}[2].qas[1]: context 'null': needs a context",
        f"{place}[3]: qas 'null': is not a list of objects; SQuAD has data, paragraphs",
        f"{place}[5]: paragraphs 'text': is not an object; fix it",
    ):
        assert line in message
    rows = [ROW] * 40
    with pytest.raises(ValueError) as error:
        squad.read(written(tmp_path / "b.jsonl", rows))
    assert "39 problems (the first 20):" in str(error.value)
    assert len(str(error.value).splitlines()) == 21


@pytest.mark.parametrize(
    "name, text, message",
    [
        ("a.json", '{"data": [\n}', "a.json:2: column 1, '}': is not JSON .* fix it"),
        ("a.json", "[]", "a.json holds no question; add some"),
        ("a.json", "3", "a.json:1: data 'null': is not a list of objects"),
        ("a.json", '{"data": []}', "a.json holds no question; add some"),
        ("a.jsonl", "{}\n[1]", "3 problems|4 problems"),
        ("a.jsonl", "\n", "a.jsonl holds no question; add some"),
        ("a.txt", "", "a.txt ends in '.txt'; give SQuAD's .json, or a .jsonl file"),
    ],
)
def test_a_file_without_questions_is_refused_with_the_reason(
    name, text, message, tmp_path
):
    (tmp_path / name).write_text(text)
    with pytest.raises(ValueError, match=message):
        squad.read(tmp_path / name)


@pytest.mark.parametrize("exam", GOLDEN["exams"])
def test_scores_equal_those_of_the_official_scripts(exam):
    right, predictions, odds = exam["right"], exam["said"], exam["odds"]
    if "squad_1" in exam:
        scores = metrics.squad_1(right, predictions)
        assert scores == pytest.approx(exam["squad_1"], abs=1e-9)
    scores = metrics.squad_2(right, predictions, odds, exam["threshold"])
    assert scores == pytest.approx(exam["squad_2"], abs=1e-9)


@pytest.mark.parametrize(
    "right, predicted, exact, f1",
    [
        ("The first program.", "first  PROGRAM", 1, 1),
        ("a", "the", 1, 1),  # nothing but articles
        ("...", "", 1, 1),
        ("x", "", 0, 0),
        ("l’été", "l'été", 0, 0),  # only ASCII punctuation is left out
        ("Ada Lovelace wrote", "Lovelace wrote notes", 0, 2 / 3),
    ],
)
def test_answers_are_compared_without_case_articles_and_punctuation(
    right, predicted, exact, f1
):
    assert metrics.exact_match(right, predicted) == exact
    assert metrics.answer_f1(right, predicted) == pytest.approx(f1)
    assert metrics.answer_f1("...", "", blank=False) == 0


def test_questions_without_a_prediction_are_refused_or_score_zero():
    right = {"a": ["x"], "b": ["y"]}
    scores = metrics.squad_1(right, {"a": "x"})
    assert scores == {"exact_match": 50, "f1": 50}
    with pytest.raises(ValueError, match="questions without answer: 1, 'b' the first"):
        metrics.squad_2(right, {"a": "x"})
    with pytest.raises(ValueError, match="questions without odds: 2, 'a' the first"):
        metrics.squad_2(right, {"a": "x", "b": ""}, odds={})
    with pytest.raises(ValueError, match="there is no question to score"):
        metrics.squad_1({}, {})


def test_the_best_threshold_gives_the_best_f1_and_equals_no_odds():
    draw = np.random.default_rng(0)
    for _ in range(50):
        keys = [f"q{i}" for i in range(7)]
        right = {key: ["x y"] if draw.random() < 0.6 else [] for key in keys}
        predictions = {key: str(draw.choice(["x y", "x", "z"])) for key in keys}
        odds = dict(zip(keys, draw.permutation(7) - 3.0, strict=True))
        threshold = answering.best_threshold(right, predictions, odds)
        assert threshold not in odds.values()
        scores = metrics.squad_2(right, predictions, odds, threshold)
        assert scores["f1"] == pytest.approx(scores["best_f1"])


def test_the_loss_is_the_mean_over_starts_and_ends_without_padding():
    batch = {
        "targets": np.array([[1, 2], [0, 0], [1, 1], [-1, -1]]),
        "attention_mask": np.array([[1, 1, 1], [1, 1, 0], [1, 1, 1], [1, 1, 1]]),
        "valid": np.array([True, True, False, True]),
    }
    logits = np.random.default_rng(0).normal(size=(4, 3, 2)).astype(np.float32)
    logits[1, 2] = 99
    head = SpanClassifier(Bert(TINY))
    totals = answering.span_totals(head, batch, jnp.array(logits))
    log = lambda x: np.log(np.exp(x) / np.exp(x).sum())  # noqa: E731
    first = -(log(logits[0, :, 0])[1] + log(logits[0, :, 1])[2]) / 2
    second = -(log(logits[1, :2, 0])[0] + log(logits[1, :2, 1])[0]) / 2
    np.testing.assert_allclose(totals["loss"], [first + second, 2], rtol=1e-5)
    assert float(totals["tokens"][0]) == 8


TINY = BertConfig(
    vocab_size=len(LETTERS),
    hidden_size=32,
    num_hidden_layers=2,
    num_attention_heads=4,
    intermediate_size=64,
    max_position_embeddings=64,
    hidden_dropout_prob=0.0,
    attention_probs_dropout_prob=0.0,
    initializer_range=0.2,
)


def config(start, train, **fields):
    """A run with 16 windows a step; one file is both training and held-out data."""
    task = {"train": str(train), "dev": str(train), "epochs": 0.0}
    # With this stride no window is so short that it is padded to another length.
    task |= {"max_length": 48, "doc_stride": 14}
    run = {"num_steps": 2, "eval_every": 150, "checkpoint_every": 150}
    changes = {k: fields.pop(k) for k in list(fields) if k in run}
    return TrainConfig(
        encoder=None,
        task=AnsweringConfig(**task | fields),
        optimizer=OptimizerConfig(name="adamw", learning_rate=3e-3, schedule="linear"),
        batch_size=16,
        init_from=str(start),
        **run | changes,
    )


def encoder_of(start):
    return bert_jax.load(start).config


def prepared(start, file, workdir):
    """The task after its rows are prepared."""
    settings = config(start, file)
    return settings.task.resolve(settings).task.prepare(workdir, encoder_of(start), 0)


@pytest.fixture(scope="module")
def start(tmp_path_factory):
    """The directory of a tiny encoder and a vocabulary of the paragraphs."""
    folder = tmp_path_factory.mktemp("start")
    texts = [x for triple in questions_of(PARAGRAPHS) for x in triple if x]
    tokenizer = tokenizers.WordPiece.train(texts, vocab_size=300)
    encoder = Bert(BertConfig(**vars(TINY) | {"vocab_size": tokenizer.vocab_size}))
    # Drawn op by op, two layers would take longer than the training step to compile.
    init = jax.jit(Features(encoder).init)
    params = init(jax.random.key(0), np.zeros((1, 2), np.int32))["params"]
    Model.of(Features(encoder), params, tokenizer).save(folder / "model")
    return folder / "model"


@pytest.fixture(scope="module")
def tuned(start, tmp_path_factory):
    """A finished run on questions, some without an answer; its directory and config."""
    folder = tmp_path_factory.mktemp("tuned")
    file = written(folder / "train.json")
    hidden = {"id": "q", "question": "What does it meet?", "context": LONG}
    unlabelled = written(folder / "hidden.jsonl", [hidden])
    run = config(start, file, test=(str(unlabelled),), num_steps=150)
    with pytest.warns(UserWarning, match="18 of the 18 questions of .* are also in"):
        model = bert_jax.train(run, folder / "run")
    return model, folder / "run", run


def reports(run, split="eval"):
    lines = [json.loads(x) for x in (run / "metrics.jsonl").open()]
    return [line for line in lines if line["split"] == split]


@pytest.mark.slow
def test_a_run_learns_answers_in_long_and_foreign_texts_and_missing_answers(tuned):
    model, run, _ = tuned
    last = reports(run)[-1]
    names = ("exact_match", "f1", "best_exact", "best_f1", "HasAns_f1", "NoAns_exact")
    assert {name: last[name] for name in names} == dict.fromkeys(names, 100)
    questions, contexts, texts = zip(*questions_of(PARAGRAPHS), strict=True)
    for answer, context, text in zip(
        model.answer(questions, contexts), contexts, texts, strict=True
    ):
        assert answer.text == (text or "")
        assert answer.text == context[answer.start : answer.end]
    again = bert_jax.load(run)
    assert again.extra == model.extra and again.extra.keys() > {"doc_stride"}
    assert again.max_length == 48
    assert [x.text for x in again.answer(questions, contexts)] == [
        text or "" for text in texts
    ]


@pytest.mark.slow
def test_predictions_are_written_in_the_formats_of_squad_and_google(tuned):
    _, run, _ = tuned
    files = {x.name for x in (run / "predictions").iterdir()}
    kinds = ("predictions", "nbest_predictions", "null_odds")
    assert files == {f"{x}_{split}.json" for x in kinds for split in ("eval", "hidden")}
    predictions, best, odds = (
        json.loads((run / f"predictions/{kind}_eval.json").read_text())
        for kind in kinds
    )
    triples = questions_of(PARAGRAPHS)
    assert predictions == {
        f"q{i}": text or "" for i, (*_, text) in enumerate(triples, 1)
    }
    assert best["q1"][0].keys() == {"text", "probability", "start_logit", "end_logit"}
    right = {key: [text] if text else [] for key, text in predictions.items()}
    scores = metrics.squad_2(right, predictions, odds, max(odds.values()))
    last = reports(run)[-1]
    assert scores["exact"] == last["exact_match"] and scores["f1"] == last["f1"]
    assert scores["best_f1_thresh"] == pytest.approx(last["best_f1_thresh"])


@pytest.mark.slow
def test_a_complete_run_returns_the_same_model_and_threshold(tuned):
    model, run, settings = tuned
    with pytest.warns(UserWarning):
        again = bert_jax.train(settings, run)
    assert again.extra == model.extra
    jax.tree.map(np.testing.assert_array_equal, again.params, model.params)


@pytest.mark.parity
def test_transformers_loads_the_model_of_a_run_with_equal_logits(start, tmp_path):
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    with pytest.warns(UserWarning, match="18 of the 18"):
        task = prepared(start, written(tmp_path / "train.json"), tmp_path)
    task.tuned["threshold"] = 1.5
    head = made(task.build(encoder_of(start).build()))
    model = task.to_model(head.head, head.params)
    model.save(tmp_path / "model")
    path = tmp_path / "model"
    theirs = transformers.AutoModelForQuestionAnswering.from_pretrained(path)
    assert type(theirs).__name__ == "BertForQuestionAnswering"
    assert theirs.config.null_threshold == model.extra["null_threshold"] == 1.5
    batch = model.tokenizer(["Who?", "When was it?"], ["Ada wrote it.", "In 1843."])
    with torch.no_grad():
        outputs = theirs(**{k: torch.tensor(x) for k, x in batch.items()})
    logits = np.stack([outputs.start_logits, outputs.end_logits], -1)
    np.testing.assert_allclose(logits, model(**batch), atol=1e-5)


def test_without_unanswerable_questions_no_prediction_is_empty(start, tmp_path):
    full = {c: [x for x in qas if x[1]] for c, qas in PARAGRAPHS.items()}
    file = written(tmp_path / "train.json", nested(full))
    encoder = encoder_of(start)
    with pytest.warns(UserWarning, match="14 of the 14"):
        task = prepared(start, file, tmp_path)
    source = task.rows["eval"]
    draw = np.random.default_rng(0).normal(size=(len(source), 48, 2))
    scores = task.score("eval", {"logits": draw})
    assert scores.keys() == {"exact_match", "f1"} and scores["f1"] < 100
    task.write_predictions(tmp_path, "eval", {"logits": draw})
    predictions = json.loads(
        (tmp_path / "predictions/predictions_eval.json").read_text()
    )
    assert len(predictions) == 14 and all(predictions.values())
    assert not list((tmp_path / "predictions").glob("null_odds*"))
    assert task.to_model(SpanClassifier(Bert(encoder)), {}).extra == {"doc_stride": 14}


def test_steps_are_counted_from_questions_not_from_windows(start, tmp_path):
    file = written(tmp_path / "train.json")
    settings = config(start, file, epochs=8.0)
    assert settings.task.resolve(settings).num_steps == 18 * 8 // 16
    with pytest.warns(UserWarning):
        source = prepared(start, file, tmp_path).rows["train"]
    assert len(source) > 30
    targets = source.columns["targets"]
    assert (targets == 0).all(1).sum() > 10 and (targets > 0).all(1).sum() >= 14


def test_the_span_head_of_a_start_model_is_reused(start, tmp_path):
    tokenizer = bert_jax.load(start).tokenizer
    theirs = made(SpanClassifier(Bert(encoder_of(start))), tokenizer, ("x", "y"))
    theirs.save(tmp_path / "model")
    file = written(tmp_path / "train.json")
    with pytest.warns(UserWarning):
        task = prepared(tmp_path / "model", file, tmp_path)
    assert task.pretrained_params("").keys() == {"encoder", "span"}


@pytest.mark.parametrize(
    "fields, message",
    [
        ({"dev": None}, "task.dev names no file; give SQuAD's .json, or a .jsonl"),
        ({"max_length": 65}, "task.max_length=65 is not between 4 and the 64 positi"),
        ({"max_query": 45}, "max_length=48 leaves no room for a context beside 3"),
        ({"doc_stride": 0}, "doc_stride=0; it must be at least 1, or None"),
    ],
)
def test_a_wrong_task_is_refused_before_compilation(
    fields, message, start, tmp_path, monkeypatch
):
    file = written(tmp_path / "train.json")
    settings = config(start, file, **fields)
    monkeypatch.setattr(jax, "jit", None)
    with pytest.raises(ValueError, match=message):
        bert_jax.train(settings, tmp_path / "run")


def test_answers_are_located_with_a_vocabulary_of_letters(tmp_path):
    tokenizer = wordpiece(tmp_path, LETTERS)
    exam = answering.make_examples(
        [squad.Question("q", "a?", "b c", (squad.Answer("c", 2),))],
        tokenizer,
        answering.WindowConfig(20),
    )
    rows = answering.rows_of(exam, tokenizer, 20)
    assert rows.columns["targets"].tolist() == [[5, 5]]
