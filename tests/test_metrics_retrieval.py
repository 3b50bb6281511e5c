"""Scores of rankings and similarities equal those of scikit-learn and trec_eval."""

import numpy as np
import pytest
from sklearn import metrics as sklearn

from bert_jax import metrics


def draw_ranking(seed, documents=60, graded=True):
    """Judgements of some documents, and scores of all by their ids."""
    random = np.random.default_rng(seed)
    grades = random.integers(0, 4 if graded else 2, documents)
    ids = [f"d{i}" for i in range(documents)]
    judged = random.choice(documents, documents // 3, replace=False)
    judgements = {ids[i]: int(grades[i]) for i in judged}
    scores = random.permutation(documents) / 7 + 0.1
    return judgements, dict(zip(ids, map(float, scores), strict=True))


def ranking(scores):
    return sorted(scores, key=scores.__getitem__, reverse=True)


@pytest.mark.parametrize("k", [1, 10, 100])
def test_ndcg_is_that_of_scikit_learn(k):
    judgements, scores = draw_ranking(0)
    grades = [judgements.get(x, 0) for x in scores]
    expected = sklearn.ndcg_score([grades], [[*scores.values()]], k=k)
    assert metrics.ndcg_at(ranking(scores), judgements, k) == pytest.approx(
        expected, abs=1e-12
    )


def test_average_precision_is_that_of_scikit_learn():
    judgements, scores = draw_ranking(1)
    labels = [judgements.get(x, 0) > 0 for x in scores]
    expected = sklearn.average_precision_score(labels, [*scores.values()])
    result = metrics.average_precision(ranking(scores), judgements)
    assert result == pytest.approx(expected, abs=1e-12)


def test_places_without_a_document_count_in_precision_and_not_in_recall():
    assert metrics.precision_at(["a"], {"a": 1}, 10) == 0.1
    assert metrics.recall_at(["a"], {"a": 1}, 10) == 1
    assert metrics.average_precision(["x", "a"], {"a": 1, "b": 1}, 1) == 0
    assert metrics.reciprocal_rank(["x", "a"], {"a": 1}, 1) == 0


def test_queries_without_a_relevant_document_are_left_out():
    rankings = {1: ["a"], 2: ["a"]}
    scores = metrics.retrieval_scores(rankings, {1: {"a": 1}, 2: {"a": 0}})
    assert scores["ndcg@10"] == 1
    with pytest.raises(ValueError, match="no query has a relevant document; give"):
        metrics.retrieval_scores(rankings, {2: {"a": 0}})
    with pytest.raises(ValueError, match="queries without a ranking: 1, 3 the first"):
        metrics.retrieval_scores(rankings, {3: {"a": 1}})
    with pytest.raises(ValueError, match="k=0; it must be at least 1"):
        metrics.ndcg_at(["a"], {"a": 1}, 0)


@pytest.mark.parametrize("seed", range(3))
def test_the_best_thresholds_of_pairs_are_the_best_of_all(seed):
    random = np.random.default_rng(seed)
    labels = random.integers(0, 2, 83)
    values = np.round(random.normal(labels, 1), 1).astype(np.float32)
    scores = metrics.pair_scores(labels, values)
    thresholds = [*np.unique(values), values.max() + 1]
    accuracies = [np.mean((values >= x) == labels) for x in thresholds]
    f1 = [sklearn.f1_score(labels, values >= x) for x in thresholds]
    assert scores["accuracy"] == pytest.approx(max(accuracies), abs=1e-12)
    assert scores["f1"] == pytest.approx(max(f1), abs=1e-12)
    positive = values >= np.float32(scores["f1_threshold"])
    expected = {
        "f1": sklearn.f1_score(labels, positive),
        "precision": sklearn.precision_score(labels, positive),
        "recall": sklearn.recall_score(labels, positive),
        "mcc": sklearn.matthews_corrcoef(labels, positive),
        "ap": sklearn.average_precision_score(labels, values),
        "accuracy": np.mean((values >= scores["accuracy_threshold"]) == labels),
    }
    for name, value in expected.items():
        assert scores[name] == pytest.approx(value, abs=1e-12), name


def test_pairs_without_a_similar_one_are_best_called_all_different():
    scores = metrics.pair_scores([1, 0, 0, 0], np.float32([0.1, 0.9, 0.8, 0.7]))
    assert scores["accuracy"] == 0.75 and scores["accuracy_threshold"] > 0.9
    with pytest.raises(ValueError, match="pairs are labelled 1; give 1 for pairs"):
        metrics.pair_scores([1, 1], [0.1, 0.2])


def test_candidates_with_equal_scores_share_their_places():
    labels = [[1, 0, 0, 1], [0, 0, 1, 0, 0]]
    scores = [[0.5, 0.5, 0.9, 0.1], [0.3, 0.3, 0.3, 0.8, 0.1]]
    result = metrics.reranking_scores(labels, scores, k=2)
    pairs = list(zip(labels, scores, strict=True))
    expected = np.mean([sklearn.ndcg_score([a], [b], k=2) for a, b in pairs])
    assert result["ndcg@2"] == pytest.approx(expected, abs=1e-12)
    expected = np.mean([sklearn.average_precision_score(a, b) for a, b in pairs])
    assert result["map"] == pytest.approx(expected, abs=1e-12)
    with pytest.raises(ValueError, match="query 0 has no relevant candidate; leave"):
        metrics.reranking_scores([[0]], [[0.5]])
    with pytest.raises(ValueError, match="k=0; it must be at least 1"):
        metrics.reranking_scores(labels, scores, k=0)


@pytest.mark.parity
def test_retrieval_scores_are_those_of_trec_eval():
    import pytrec_eval

    drawn = {str(seed): draw_ranking(seed) for seed in range(5)}
    judgements = {query: x for query, (x, _) in drawn.items()}
    run = {query: x for query, (_, x) in drawn.items()}
    names = {"ndcg_cut.10", "map", "recip_rank", "P.5", "recall.10", "success.1"}
    theirs = pytrec_eval.RelevanceEvaluator(judgements, names).evaluate(run)
    cutoffs = {"ndcg": [10], "mrr": [60], "map": [60], "precision": [5]}
    cutoffs |= {"recall": [10], "accuracy": [1]}
    rankings = {query: ranking(x) for query, x in run.items()}
    ours = metrics.retrieval_scores(rankings, judgements, cutoffs)
    same = {
        "ndcg@10": "ndcg_cut_10",
        "mrr@60": "recip_rank",
        "map@60": "map",
        "precision@5": "P_5",
        "recall@10": "recall_10",
        "accuracy@1": "success_1",
    }
    for name, their_name in same.items():
        expected = np.mean([x[their_name] for x in theirs.values()])
        assert ours[name] == pytest.approx(expected, abs=1e-9), name


@pytest.mark.parity
def test_retrieval_scores_are_those_of_sentence_transformers():
    from sentence_transformers.sentence_transformer import evaluation

    drawn = {str(seed): draw_ranking(seed, graded=False) for seed in range(5)}
    relevant = {
        q: {x for x, grade in j.items() if grade} for q, (j, _) in drawn.items()
    }
    evaluator = evaluation.InformationRetrievalEvaluator(
        dict.fromkeys(drawn, ""), dict.fromkeys(drawn["0"][1], ""), relevant
    )
    results = [
        [{"corpus_id": x, "score": score} for x, score in drawn[q][1].items()]
        for q in evaluator.queries_ids
    ]
    theirs = evaluator.compute_metrics(results)
    ours = metrics.retrieval_scores(
        {q: ranking(scores) for q, (_, scores) in drawn.items()},
        {q: judgements for q, (judgements, _) in drawn.items()},
    )
    compared = 0
    for name, by_cutoff in theirs.items():
        for k, value in by_cutoff.items():
            compared += 1
            assert ours[name.replace("@k", f"@{k}")] == pytest.approx(value, abs=1e-9)
    assert compared == len(ours) - 1  # they have no recall@100


@pytest.mark.parity
def test_pair_scores_are_those_of_sentence_transformers():
    from sentence_transformers.sentence_transformer import evaluation

    theirs = evaluation.BinaryClassificationEvaluator
    for seed in range(20):
        random = np.random.default_rng(seed)
        labels = random.integers(0, 2, 50)
        labels[:2] = 0, 1
        values = np.round(random.normal(labels / 2, 1), seed % 3).astype(np.float32)
        ours = metrics.pair_scores(labels, values)
        accuracy, at = theirs.find_best_acc_and_threshold(values, labels, True)
        f1, precision, recall, f1_at = theirs.find_best_f1_and_threshold(
            values, labels, True
        )
        expected = {
            "accuracy": accuracy,
            "accuracy_threshold": at,
            "f1": f1,
            "precision": precision,
            "recall": recall,
            "f1_threshold": f1_at,
        }
        for name, value in expected.items():
            assert ours[name] == pytest.approx(float(value), abs=1e-9), (seed, name)
