"""Scores of predictions: classes, numbers, entities, answers, similarity, retrieval.

They need NumPy only, and agree with scikit-learn, SciPy, seqeval, trec_eval,
sentence-transformers and the official scripts of SQuAD to the last digit; the tests
hold them to that.
"""

from bert_jax.metrics.answers import (
    Answers,
    answer_f1,
    as_shares,
    best_threshold,
    exact_match,
    normalize_answer,
    squad_1,
    squad_2,
)
from bert_jax.metrics.classes import (
    BASELINES,
    CORRELATIONS,
    accuracy,
    baseline_name,
    f1,
    is_no_better,
    matthews,
    pearson,
    spearman,
)
from bert_jax.metrics.retrieval import (
    CUTOFFS,
    accuracy_at,
    average_precision,
    ndcg_at,
    precision_at,
    recall_at,
    reciprocal_rank,
    retrieval_scores,
)
from bert_jax.metrics.similarity import pair_scores, reranking_scores, triplet_accuracy
from bert_jax.metrics.tagging import (
    Entity,
    EntityScore,
    Sentences,
    are_entities,
    entities,
    entity_score,
    entity_scores_by_type,
)

__all__ = [
    "BASELINES",
    "CORRELATIONS",
    "CUTOFFS",
    "Answers",
    "Entity",
    "EntityScore",
    "Sentences",
    "accuracy",
    "accuracy_at",
    "answer_f1",
    "are_entities",
    "as_shares",
    "average_precision",
    "baseline_name",
    "best_threshold",
    "entities",
    "entity_score",
    "entity_scores_by_type",
    "exact_match",
    "f1",
    "is_no_better",
    "matthews",
    "ndcg_at",
    "normalize_answer",
    "pair_scores",
    "pearson",
    "precision_at",
    "recall_at",
    "reciprocal_rank",
    "reranking_scores",
    "retrieval_scores",
    "spearman",
    "squad_1",
    "squad_2",
    "triplet_accuracy",
]
