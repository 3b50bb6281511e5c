"""Laws of `Model.evaluate`: kinds of data, prompts, and one sentence for bad input."""

import json

import numpy as np
import pytest
from scipy import stats
from tiny import LETTERS, TINY, made, wordpiece

from bert_jax import cli, inference, metrics
from bert_jax.inference import jitted, nearest
from bert_jax.models import Bert, Features, MaskedLM, SequenceClassifier
from bert_jax.pretrained import LateInteraction, Pooling, SparsePooling

TEXTS = ["a b", "c d e", "f", "g h a", "b b", "c a d", "e f", "h g", "a a a", "d"]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    tokenizer = wordpiece(tmp_path_factory.mktemp("model"), LETTERS)
    return made(Features(Bert(TINY)), tokenizer)


def written(path, lines):
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = (x if isinstance(x, str) else json.dumps(x) for x in lines)
    path.write_text("".join(f"{row}\n" for row in rows))
    return path


@pytest.fixture
def collection(tmp_path):
    """A folder as those of BEIR."""
    corpus = [{"_id": f"d{i}", "title": "", "text": x} for i, x in enumerate(TEXTS)]
    written(tmp_path / "corpus.jsonl", corpus)
    queries = [{"_id": f"q{i}", "text": x} for i, x in enumerate(["b a", "e c", "z"])]
    written(tmp_path / "queries.jsonl", queries)
    judgements = ["query-id\tcorpus-id\tscore", "q0\td0\t1", "q0\td4\t2", "q1\td1\t1"]
    written(tmp_path / "qrels.tsv", judgements)
    return tmp_path


def cosine(a, b):
    return (a * b).sum(-1) / np.linalg.norm(a, axis=-1) / np.linalg.norm(b, axis=-1)


def test_similarity_correlates_cosines_and_products_with_the_numbers(model):
    numbers = [0.5, 3, 2, 5, 4.5]
    rows = list(zip(TEXTS[:5], TEXTS[5:], numbers, strict=True))
    scores = model.evaluate(rows)
    # One call, as the evaluator's: vectors of other batches differ by rounding, and
    # a correlation of five cosines that are nearly equal multiplies that.
    a, b = np.split(model.embed(TEXTS).astype(np.float64), 2)
    for name, values in (("cosine", cosine(a, b)), ("dot", (a * b).sum(1))):
        expected = stats.pearsonr(numbers, values).statistic
        assert scores[f"pearson_{name}"] == pytest.approx(expected, abs=1e-9)
        expected = stats.spearmanr(numbers, values).statistic
        assert scores[f"spearman_{name}"] == pytest.approx(expected, abs=1e-9)
    named = [{"sentence1": a, "sentence2": b, "score": x} for a, b, x in rows]
    assert model.evaluate(named) == scores


def test_of_a_score_and_a_class_the_score_is_read(model, tmp_path):
    rows = list(zip(TEXTS[:5], TEXTS[5:], [0.5, 3, 2, 5, 4.5], strict=True))
    lines = ["Sentence1\tSentence2\tScore\tlabel"]
    lines += [f"{a}\t{b}\t{x}\tneutral" for a, b, x in rows]
    assert model.evaluate(written(tmp_path / "x.tsv", lines)) == model.evaluate(rows)


def test_classes_0_and_1_are_scored_by_the_best_thresholds(model, tmp_path):
    rows = list(zip(TEXTS[:5], TEXTS[5:], [1, 0, 0, 1, 0], strict=True))
    scores = model.evaluate(rows)
    values = cosine(model.embed(TEXTS[:5]), model.embed(TEXTS[5:]))
    expected = metrics.pair_scores([1, 0, 0, 1, 0], values)
    assert scores["ap_cosine"] == pytest.approx(expected["ap"], abs=1e-9)
    assert "spearman_cosine" in model.evaluate(rows, kind="similarity")
    file = written(tmp_path / "x.tsv", ["\t".join(map(str, row)) for row in rows])
    assert model.evaluate(file) == scores


def test_triplets_count_positives_nearer_than_negatives(model, tmp_path):
    rows = list(zip(TEXTS[:3], TEXTS[3:6], TEXTS[6:9], strict=True))
    scores = model.evaluate(rows)
    a, b, c = (model.embed(list(x)) for x in zip(*rows, strict=True))
    expected = np.mean(cosine(a, b) > cosine(a, c))
    assert scores["accuracy_cosine"] == pytest.approx(expected)
    lines = ["anchor\tpositive\tnegative", *("\t".join(row) for row in rows)]
    assert model.evaluate(written(tmp_path / "x.tsv", lines)) == scores


def test_candidates_are_ranked_by_similarity_to_the_query(model, tmp_path):
    row = {"query": "a b", "positive": ["g h a"], "negative": ["f", "c d e", "h g"]}
    file = written(tmp_path / "x.jsonl", [row, row])
    documents = model.embed([*row["positive"], *row["negative"]])
    values = cosine(model.embed("a b"), documents)
    expected = metrics.reranking_scores([[1, 0, 0, 0]], [values])
    assert model.evaluate(file) == pytest.approx(expected)


def test_retrieval_scores_the_ranking_of_the_whole_corpus(model, collection):
    scores = model.evaluate(collection)
    corpus = model.embed(TEXTS)
    rankings = {
        name: [f"d{i}" for i in np.argsort(-cosine(model.embed(text), corpus))]
        for name, text in (("q0", "b a"), ("q1", "e c"))
    }
    judgements = {"q0": {"d0": 1, "d4": 2}, "q1": {"d1": 1}}
    expected = metrics.retrieval_scores(rankings, judgements)
    assert scores == pytest.approx(expected, abs=1e-9)
    (collection / "qrels").mkdir()
    (collection / "qrels.tsv").rename(collection / "qrels" / "dev.tsv")
    assert model.evaluate(collection, split="dev") == scores
    with pytest.raises(ValueError, match=r"qrels has no split 'test' but dev\.tsv; na"):
        model.evaluate(collection)


def test_queries_and_documents_get_their_own_prompts(tmp_path):
    tokenizer = wordpiece(tmp_path, LETTERS)
    model = made(Features(Bert(TINY)), tokenizer)
    model.pooling = Pooling(prompt="z ", prompts=(("query", "q "), ("passage", "p ")))
    for side, prompt in (("query", "q "), ("document", "p ")):
        vectors = nearest.embed_as(model, side, ["a"], 8)
        plain = made(Features(Bert(TINY)), tokenizer).embed(prompt + "a")
        np.testing.assert_allclose(vectors, plain, atol=1e-6)


def test_a_sparse_model_is_evaluated_by_products_of_its_sparse_vectors(
    tmp_path, collection
):
    model = made(MaskedLM(Bert(TINY)), wordpiece(tmp_path, LETTERS))
    model.sparse = SparsePooling()
    queries, corpus = model.embed_sparse(["b a", "e c"]), model.embed_sparse(TEXTS)
    products = (queries @ corpus.T).toarray()
    rankings = {
        f"q{i}": [f"d{j}" for j in np.argsort(-row, kind="stable")]
        for i, row in enumerate(products)
    }
    judgements = {"q0": {"d0": 1, "d4": 2}, "q1": {"d1": 1}}
    expected = metrics.retrieval_scores(rankings, judgements)
    assert model.evaluate(collection) == pytest.approx(expected, abs=1e-9)
    numbers = [0.5, 3, 2, 5, 4.5]
    scores = model.evaluate(list(zip(TEXTS[:5], TEXTS[5:], numbers, strict=True)))
    dense = corpus.toarray()
    values = (dense[:5] * dense[5:]).sum(1)
    expected = metrics.spearman(numbers, values)
    assert scores["spearman_dot"] == pytest.approx(expected, abs=1e-9)
    for use in (model.index, lambda texts: model.search("a", texts)):
        with pytest.raises(ValueError, match="this model makes sparse vectors; search"):
            use(TEXTS)


def test_late_interaction_is_evaluated_by_the_scores_of_tokens(tmp_path, collection):
    model = made(Features(Bert(TINY)), wordpiece(tmp_path, LETTERS))
    model.late = LateInteraction(fill_to=8)

    def score(queries, documents):
        of_queries = model.embed_tokens(queries, "query")
        return inference.maxsim(of_queries, model.embed_tokens(documents))

    order = np.argsort(-score(["b a", "e c"], TEXTS), kind="stable")
    rankings = {f"q{i}": [f"d{j}" for j in row] for i, row in enumerate(order)}
    judgements = {"q0": {"d0": 1, "d4": 2}, "q1": {"d1": 1}}
    expected = metrics.retrieval_scores(rankings, judgements)
    assert model.evaluate(collection) == pytest.approx(expected, abs=1e-9)
    rows = list(zip(TEXTS[:3], TEXTS[3:6], TEXTS[6:9], strict=True))
    wins = [score([a], [b]) > score([a], [c]) for a, b, c in rows]
    assert model.evaluate(rows) == {"accuracy": pytest.approx(np.mean(wins))}
    row = {"query": "a b", "positive": ["g h a"], "negative": ["f", "c d e", "h g"]}
    values = score(["a b"], [*row["positive"], *row["negative"]])
    expected = metrics.reranking_scores([[1, 0, 0, 0]], values)
    assert model.evaluate([row]) == pytest.approx(expected)
    with pytest.raises(ValueError, match="a model of late interaction compares quer"):
        model.evaluate([("a", "b", 1.0), ("a", "c", 3.0)])
    with pytest.raises(ValueError, match="this model has a vector for each token; com"):
        model.index(TEXTS)


@pytest.mark.parametrize(
    "name, lines, error",
    [
        (
            "qrels.tsv",
            ["q0\td99\t1"],
            r"qrels.tsv:1: corpus id 'd99' does not exist; give",
        ),
        ("qrels.tsv", ["q9\td1\t1"], r"qrels.tsv:1: query id 'q9' does not exist"),
        ("qrels.tsv", ["q0\td1\tx", "q0 d1"], r"qrels.tsv:2: 'q0 d1' is no judgement"),
        ("qrels.tsv", ["q0\td1\t0"], "no query has a relevant document; give"),
        ("qrels.tsv", [], r"qrels.tsv is empty; it needs a line for each"),
        ("corpus.jsonl", ['{"_id": "d0", "text": " "}'], r"corpus.jsonl:1: there is n"),
        ("corpus.jsonl", ['{"_id": "d0"'], r"corpus.jsonl:1: not JSON"),
        ("corpus.jsonl", ["[1]"], r"corpus.jsonl:1: \[1\] is not a JSON object"),
        (
            "corpus.jsonl",
            ['{"_id": 0, "text": "a"}'] * 2,
            r"corpus.jsonl:2: the id '0' is there twice",
        ),
    ],
)
def test_a_malformed_collection_is_one_sentence(model, collection, name, lines, error):
    written(collection / name, lines)
    with pytest.raises(ValueError, match=error) as raised:
        model.evaluate(collection)
    assert str(raised.value).count("\n") < 3


@pytest.mark.parametrize(
    "rows, kind, error",
    [
        ([], None, "there is no row to evaluate"),
        ([("a", "b")], None, r"\('a', 'b'\) is no row; give dictionaries, or tuples"),
        ([("a", "", 1.0), ("a", "b", 2.0)], None, "row 0: sentence2 is empty; fill"),
        ([("a", "b", None)], None, "row 0: the label is None; give two texts and a"),
        ([("a", "b", 2.0)], None, "every pair has the label 2.0; give others"),
        ([("a", "b", 2), ("a", "c", 1)], "pairs", "row 0: the label is 2.0; pairs h"),
        ([("a", "b", 2)], "triplets", "row 0: the fields are sentence1, sentence2, s"),
        ([{"query": "a", "positive": ["b"], "negative": []}], None, "row 0: negative"),
        ([("a", "b", 2)], "sts", "kind='sts' is unknown; choose one of similarity, p"),
    ],
)
def test_malformed_rows_are_one_sentence(model, rows, kind, error):
    with pytest.raises(ValueError, match=error):
        model.evaluate(rows, kind)


def test_the_command_prints_the_scores_and_writes_them(
    model, collection, capsys, monkeypatch
):
    monkeypatch.setattr(jitted, "use_compilation_cache", lambda: None)
    model.save(collection / "model")
    arguments = [collection, "--model", collection / "model"]
    cli.main(["evaluate", *map(str, arguments), "--out", str(collection / "out.json")])
    scores = json.loads((collection / "out.json").read_text())[str(collection)]
    assert scores == pytest.approx(model.evaluate(collection), abs=1e-6)
    assert f"ndcg@10{scores['ndcg@10']:23.4f}" in capsys.readouterr().out


def test_a_reranker_scores_pairs_triplets_and_candidates_itself(model, collection):
    reranker = made(SequenceClassifier(Bert(TINY), 1), model.tokenizer)
    pairs, numbers = list(zip(TEXTS[:5], TEXTS[5:], strict=True)), [0.5, 3, 2, 5, 4.5]
    values = [reranker.rank(one, [two])[0].score for one, two in pairs]
    scores = reranker.evaluate([(*x, y) for x, y in zip(pairs, numbers, strict=True)])
    expected = stats.spearmanr(numbers, values).statistic
    assert scores["spearman"] == pytest.approx(expected, abs=1e-9)
    labels = [1, 0, 1, 1, 0]
    scores = reranker.evaluate([(*x, y) for x, y in zip(pairs, labels, strict=True)])
    assert scores == pytest.approx(metrics.pair_scores(labels, values), abs=1e-6)
    rows = [
        {"query": "a", "positive": TEXTS[:2], "negative": TEXTS[2:5]},
        {"query": "b c", "positive": TEXTS[5], "negative": TEXTS[6:]},
    ]
    candidates = [TEXTS[:5], TEXTS[5:]]
    ranked = reranker.rank(["a", "b c"], candidates)
    values = [[x.score for x in sorted(row, key=lambda x: x.number)] for row in ranked]
    expected = metrics.reranking_scores([[1, 1, 0, 0, 0], [1, 0, 0, 0, 0]], values)
    assert reranker.evaluate(rows) == pytest.approx(expected)
    rows = list(zip(TEXTS[:3], TEXTS[3:6], TEXTS[6:9], strict=True))
    ranked = [reranker.rank(a, [b, c])[0].number == 0 for a, b, c in rows]
    assert reranker.evaluate(rows) == {"accuracy": pytest.approx(np.mean(ranked))}
    with pytest.raises(ValueError, match="a reranker scores pairs, which takes too lo"):
        reranker.evaluate(collection)
