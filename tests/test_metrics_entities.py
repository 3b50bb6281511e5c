"""Scores of entities equal those of seqeval."""

import json
import random
from pathlib import Path

import pytest

from bert_jax import metrics
from bert_jax.metrics import Entity, entities

GOLDENS = json.loads((Path(__file__).parent / "goldens/entities.json").read_text())


@pytest.mark.parametrize("golden", GOLDENS, ids=lambda golden: golden["scheme"])
def test_scores_equal_those_of_seqeval_in_every_scheme(golden):
    pair, expected = (golden["labels"], golden["predictions"]), golden["scores"]
    assert metrics.entity_score(*pair) == pytest.approx(expected.pop("micro avg"))
    score = metrics.entity_scores_by_type(*pair)
    # seqeval leaves out a type that is nowhere in the labels.
    assert {k for k, x in score.items() if x.support} == expected.keys()
    for kind, scores in expected.items():
        assert score[kind] == pytest.approx(scores)


@pytest.mark.filterwarnings("ignore")
def test_scores_equal_those_of_the_installed_seqeval():
    seqeval = pytest.importorskip("seqeval.metrics")
    draw = random.Random(1)
    for _ in range(50):
        names = ["O", *(f"{part}-{kind}" for part in "BIES" for kind in "xy")]
        actual = [draw.choices(names, k=7) for _ in range(5)]
        predicted = [[x if draw.random() < 0.6 else "O" for x in row] for row in actual]
        score = metrics.entity_score(actual, predicted)
        assert score.f1 == pytest.approx(seqeval.f1_score(actual, predicted))
        assert score.precision == pytest.approx(
            seqeval.precision_score(actual, predicted)
        )


@pytest.mark.parametrize(
    "labels, expected",
    [
        ("I-A I-A B-A O", [("A", 0, 2), ("A", 2, 3)]),  # IOB1
        ("B-A I-A B-A O", [("A", 0, 2), ("A", 2, 3)]),  # IOB2
        ("B-A E-A S-A O", [("A", 0, 2), ("A", 2, 3)]),  # BIOES
        ("B-A L-A U-A O", [("A", 0, 2), ("A", 2, 3)]),  # BILOU
        ("B-A I-B I-A", [("A", 0, 1), ("B", 1, 2), ("A", 2, 3)]),
        ("O B-x-y I-x-y", [("x-y", 1, 3)]),
        ("", []),
    ],
)
def test_labels_of_every_scheme_and_invalid_ones_are_read(labels, expected):
    assert entities(labels.split()) == [Entity(*x) for x in expected]


def test_an_entity_ends_with_its_sentence():
    split, joined = [["B-A"], ["I-A"]], [["B-A", "I-A"]]
    assert metrics.entity_score(split, split).support == 2
    assert metrics.entity_score(joined, joined).support == 1


def test_labels_and_predictions_are_not_interchangeable():
    score = metrics.entity_score([["B-A", "B-A", "O"]], [["B-A", "O", "O"]])
    assert score == (1.0, 0.5, pytest.approx(2 / 3), 2)
    nothing = metrics.entity_score([["O"]], [["O"]])
    assert nothing == (0.0, 0.0, 0.0, 0)


@pytest.mark.parametrize(
    "labels, expected",
    [
        (("O", "B-person", "I-creative-work"), True),
        (("O", "B", "I"), True),
        (("O", "S-LOC", "L-LOC"), True),
        (("NOUN", "VERB", "X"), False),
        (("IN", "B-A"), False),
        (("O",), False),
    ],
)
def test_labels_of_entities_are_recognised(labels, expected):
    assert metrics.are_entities(labels) is expected
