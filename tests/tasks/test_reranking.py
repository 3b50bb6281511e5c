"""Laws of rerankers, from the file to the saved model."""

import json

import jax
import numpy as np
import pytest
from tiny import LETTERS, TINY, made, published, wordpiece

import bert_jax
from bert_jax.data import text_groups
from bert_jax.inference.model import load
from bert_jax.models import Bert, SequenceClassifier
from bert_jax.pretrained import cross_encoder
from bert_jax.tasks.reranking import RerankingConfig, metrics_of, rankings_of, rows_of


@pytest.fixture(scope="module")
def start(tmp_path_factory):
    return published(tmp_path_factory.mktemp("start"))


def lists(path, count, seed):
    """Queries with two to four documents; those with a q are relevant."""
    draw, rows = np.random.default_rng(seed), []
    for _ in range(count):
        query, *texts = (
            list(draw.choice(list("abcdefgh"), draw.integers(1, 4)))
            for _ in range(draw.integers(3, 6))
        )
        labels, right = [0] * len(texts), draw.integers(len(texts))
        labels[right], texts[right][-1] = int(draw.integers(1, 3)), "q"
        documents = [" ".join(x) for x in texts]
        rows.append(
            {"query": " ".join(query), "documents": documents, "labels": labels}
        )
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.fixture(scope="module")
def tuned(start, tmp_path_factory):
    folder = tmp_path_factory.mktemp("tuned")
    files = {
        "train": lists(folder / "train.jsonl", 96, 0),
        "dev": lists(folder / "dev.jsonl", 21, 1),
    }
    settings = {"learning_rate": 2e-2, "batch_size": 16, "epochs": 4.0}
    run = {"workdir": folder / "run", "max_length": 16}
    return bert_jax.finetune(start, "rerank", **files, **settings, **run), folder


@pytest.mark.slow
def test_a_tiny_encoder_learns_which_documents_are_relevant(tuned):
    _, folder = tuned
    lines = [json.loads(x) for x in (folder / "run/metrics.jsonl").open()]
    (*_, last) = [x for x in lines if x["split"] == "eval"]
    assert last["ndcg@10"] > 0.95 > last["constant_ndcg@10"]
    assert {"mrr@10", "map", "loss"} <= last.keys()


@pytest.mark.slow
def test_a_saved_model_ranks_as_its_predictions_say(tuned):
    model, folder = tuned
    model = load(folder / "run/model")
    assert cross_encoder.activation(model.extra) == "Identity"
    rows = [json.loads(x) for x in (folder / "dev.jsonl").open()]
    ranked = model.rank([x["query"] for x in rows], [x["documents"] for x in rows])
    table = (folder / "run/predictions/eval.tsv").read_text().splitlines()[1:]
    expected = {tuple(x.split("\t")[:2]): x.split("\t")[2:] for x in table}
    assert len(expected) == sum(len(x["documents"]) for x in rows)
    for i, (row, result) in enumerate(zip(rows, ranked, strict=True)):
        assert [x.score for x in result] == sorted(x.score for x in result)[::-1]
        for x in result:
            assert x.text == row["documents"][x.number]
            score, label = expected[str(i), str(x.number)]
            assert x.score == pytest.approx(float(score), abs=1e-4)
            assert float(label) == row["labels"][x.number]


@pytest.mark.slow
def test_training_continues_with_the_head_of_a_reranker(tuned, tmp_path):
    model, folder = tuned
    files = {"train": str(folder / "train.jsonl"), "dev": str(folder / "dev.jsonl")}
    source = str(folder / "run/model")
    task = RerankingConfig(**files, init_from=source, max_length=16)
    params = task.prepare(tmp_path, TINY, 0).pretrained_params(source)
    kernels = [x["classifier"]["kernel"] for x in (params, model.params)]
    np.testing.assert_array_equal(*kernels)


@pytest.fixture(scope="module")
def reranker(tmp_path_factory):
    tokenizer = wordpiece(tmp_path_factory.mktemp("vocabulary"), LETTERS)
    return made(SequenceClassifier(Bert(TINY), 1), tokenizer)


@pytest.mark.parametrize(
    "rows, documents, labels",
    [
        ([["a", "b", 0.5]], [["b"]], [[0.5]]),
        (
            [{"query": "a", "positive": "b", "negative": ["c", "d"]}],
            [["b", "c", "d"]],
            [[1, 0, 0]],
        ),
        (
            [{"query": "a", "positive": "b", "negative": "c", "label": 2.5}],
            [["b", "c"]],
            [[0, -2.5]],
        ),
        (
            [
                {"query": "a", "documents": ["b", "c"], "labels": [0, 2]},
                {"query": "d", "documents": ["e", "f", "g"], "labels": [1, 0, 3]},
            ],
            [["b", "c"], ["e", "f", "g"]],
            [[0, 2], [1, 0, 3]],
        ),
    ],
)
def test_rows_of_each_kind_are_queries_with_documents(
    rows, documents, labels, tmp_path
):
    named = [x if isinstance(x, dict) else dict(enumerate(x)) for x in rows]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(x) + "\n" for x in named))
    rankings = rankings_of(text_groups.read(tmp_path / "a.jsonl"), is_per_query=False)
    assert (rankings.documents, rankings.labels) == (documents, labels)


def test_pairs_of_one_query_are_joined_for_a_loss_that_compares_them(tmp_path):
    path = tmp_path / "a.tsv"
    rows = "a\tb\t1\nc\td\t0\na\te\t0\nc\tf\t1\na\tg\t2\n"
    path.write_text(f"query\tdocument\tlabel\n{rows}")
    groups = text_groups.read(path)
    rankings = rankings_of(groups, is_per_query=True)
    assert rankings.queries == ["a", "c"]
    assert rankings.documents == [["b", "e", "g"], ["d", "f"]]
    assert rankings.labels == [[1, 0, 2], [0, 1]]
    assert metrics_of(rankings) == ("ndcg@10", "mrr@10", "map")
    assert metrics_of(rankings_of(groups, False)) == ("spearman", "pearson")
    fields = {"train": str(path), "dev": str(path)}
    assert RerankingConfig(**fields, loss="rank_net").count() == 2
    assert RerankingConfig(**fields).count() == 5


def test_missing_documents_and_rows_that_fill_a_batch_count_nothing(
    reranker, start, tmp_path
):
    path = lists(tmp_path / "a.jsonl", 5, 3)
    task = RerankingConfig(str(path), str(path), init_from=str(start), max_length=16)
    with pytest.warns(UserWarning, match="5 of the 5 rows"):
        prepared = task.prepare(tmp_path, TINY, 0)
    rows = prepared.rows["eval"]
    batch = rows.gather(np.arange(5))
    assert not (batch["attention_mask"] > 0).any(-1).all()
    filled = rows.gather(np.array([0, 1, 2, 3, 4, 0, 1]))
    filled["valid"] = np.arange(7) < 5
    losses = []
    loss = jax.jit(lambda x: prepared.loss(reranker.head, reranker.params, x, None))
    for x in (batch, filled):
        totals, outputs = loss(x)
        losses.append([float(y) for name in ("loss", "tokens") for y in totals[name]])
    np.testing.assert_allclose(*losses, rtol=1e-5)
    exists = prepared.rankings["eval"].exists()
    expected = reranker.classify(_pairs(prepared.rankings["eval"]))
    np.testing.assert_allclose(outputs["logits"][:5][exists], expected, atol=1e-5)


def test_a_teacher_is_another_reranker(reranker, start, tmp_path):
    path = lists(tmp_path / "a.jsonl", 5, 3)
    reranker.save(tmp_path / "teacher")
    files = {"train": str(path), "dev": str(path), "init_from": str(start)}
    task = RerankingConfig(**files, teacher=str(tmp_path / "teacher"), max_length=16)
    with pytest.warns(UserWarning, match="5 of the 5 rows"):
        prepared = task.prepare(tmp_path, TINY, 0)
    batch = prepared.rows["train"].gather(np.arange(5))
    student = made(SequenceClassifier(Bert(TINY), 1), seed=1)
    params = {**student.params, **prepared.constants}

    def loss(params):
        return prepared.loss(student.head, params, batch, jax.random.key(0))

    totals, outputs = jax.jit(loss)(params)
    exists = prepared.rankings["train"].exists()
    expected = reranker.classify(_pairs(prepared.rankings["train"]))
    distances = (np.asarray(outputs["logits"])[exists] - np.array(expected)) ** 2
    total, count = totals["ce_loss"]
    assert float(total / count) == pytest.approx(distances.mean(), abs=1e-5)
    assert prepared.loss_weights == {"loss": 0.5, "ce_loss": 0.5}


def _pairs(rankings):
    both = zip(rankings.queries, rankings.documents, strict=True)
    return [(query, x) for query, row in both for x in row]


def test_a_pair_is_the_query_with_the_document(tmp_path):
    path = tmp_path / "a.tsv"
    path.write_text("query\tdocument\tlabel\na b\tc\t4\nd\te f g\t1\n")
    rankings = rankings_of(text_groups.read(path), is_per_query=False)
    tokenizer = wordpiece(tmp_path, LETTERS)
    batch = rows_of(rankings, tokenizer, 16, max_score=5.0).gather(np.array([1, 0]))
    expected = tokenizer(["d", "a b"], ["e f g", "c"])
    for name, x in expected.items():
        np.testing.assert_array_equal(batch[name][:, 0, : x.shape[1]], x)
        assert not batch[name][:, 0, x.shape[1] :].any()
    np.testing.assert_allclose(batch["labels"], [[0.2], [0.8]])


@pytest.mark.parametrize(
    "text, settings, message",
    [
        ("a\tb\t5\nc\td\t1\n", {}, "tsv:1: label '5': is not from 0 to 1; set .*max_s"),
        ("a\tb\t-1\nc\td\t1\n", {"max_score": 5.0}, "tsv:1: label '-1': is not from 0"),
        ("a\tb\t1\nc\td\t0\n", {"loss": "lambda"}, "one document for each query"),
        ("query\tpositive\na\tb\n", {}, "has pairs without numbers and negatives"),
        ("a\t\t1\nc\td\t0\n", {}, "tsv:1: .*needs both texts of the pair"),
        ("text\tlabel\na\t1\nc\t0\n", {}, "has rows of one text; give a query and a"),
        ("a\tb\t1\nc\td\t0\n", {"loss": "bce"}, "loss='bce' is unknown; choose one of"),
        ("a\tb\t1\nc\td\t0\n", {"max_score": 0.0}, "max_score=0.0. it must be above 0"),
    ],
)
def test_bad_rows_and_settings_are_refused_before_compilation(
    text, settings, message, start, tmp_path, monkeypatch
):
    path = tmp_path / "a.tsv"
    path.write_text(text)
    monkeypatch.setattr(jax, "jit", None)
    files = {"train": path, "dev": path}
    with pytest.raises(ValueError, match=message) as error:
        bert_jax.finetune(start, "rerank", **files, **settings)
    assert len(str(error.value).splitlines()) <= 3


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda model: model.rank("a", "b"), r"documents\[0\] is 'b'; give a list"),
        (lambda model: model.rank(["a", "b"], [["c"]]), "2 queries came with 1 list"),
        (lambda model: model.rank("a", ["b", None]), r"documents\[0\]\[1\] is None"),
        (lambda model: model.rank("a", ["b"], k=0), "k=0; it must be at least 1"),
    ],
)
def test_documents_that_are_no_list_of_texts_are_refused(call, message, reranker):
    with pytest.raises(ValueError, match=message):
        call(reranker)


def test_a_classifier_of_several_labels_does_not_rank(reranker):
    several = made(SequenceClassifier(Bert(TINY), 3), reranker.tokenizer)
    with pytest.raises(ValueError, match="cannot rank: it has 3 labels, and no single"):
        several.rank("a", ["b"])


def test_the_best_documents_come_first_and_no_document_gives_none(reranker):
    ranked = reranker.rank("a", ["b", "c d", "e"], k=2)
    everything = reranker.rank("a", ["b", "c d", "e"])
    assert ranked == everything[:2] and len(everything) == 3
    assert reranker.rank("a", []) == [] and reranker.rank([], []) == []
