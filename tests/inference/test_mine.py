"""Laws of mining: negatives near the anchor, no positives, within all rules."""

import collections
import json
import sys
import types

import numpy as np
import pytest
from tiny import LETTERS, TINY, made, wordpiece

import bert_jax
from bert_jax import cli
from bert_jax.inference import jitted
from bert_jax.models import Bert, Features, SequenceClassifier

DRAW = np.random.default_rng(0)
TEXTS = [" ".join(DRAW.choice(list("abcdefgh"), 3 + i % 5)) for i in range(30)]
# The first anchor has two positives.
PAIRS = [("a b", TEXTS[0]), ("a b", TEXTS[7]), ("c", TEXTS[1]), ("h e", TEXTS[2])]
ANCHORS = {"a b": {TEXTS[0], TEXTS[7]}, "c": {TEXTS[1]}, "h e": {TEXTS[2]}}


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    return wordpiece(tmp_path_factory.mktemp("model"), LETTERS)


@pytest.fixture(scope="module")
def model(tokenizer):
    return made(Features(Bert(TINY)), tokenizer)


def cosines(model, anchor):
    """The similarities of all texts to an anchor, by text."""
    x, corpus = model.embed(anchor)[0], model.embed(TEXTS)
    values = corpus @ x / np.linalg.norm(corpus, axis=1) / np.linalg.norm(x)
    return dict(zip(TEXTS, values, strict=True))


def ranked(model, anchor):
    """The texts that are no positives of an anchor, the nearest first."""
    values = cosines(model, anchor)
    return sorted(values.keys() - ANCHORS[anchor], key=values.__getitem__)[::-1]


def negatives(row):
    return [text for name, text in row.items() if name.startswith("negative")]


def test_negatives_are_the_nearest_documents_that_are_no_positives(model):
    rows = bert_jax.mine(model, PAIRS, TEXTS, num_negatives=4)
    assert [(row["anchor"], row["positive"]) for row in rows] == PAIRS
    for row in rows:
        assert negatives(row) == ranked(model, row["anchor"])[:4]
    named = [{"anchor": a, "positive": b} for a, b in PAIRS]
    index = model.index(TEXTS)
    assert bert_jax.mine(model, named, index, num_negatives=4) == rows


def test_without_a_corpus_the_positives_are_the_documents(model):
    rows = bert_jax.mine(model, PAIRS, num_negatives=1)
    assert {text for row in rows for text in negatives(row)} <= {x for _, x in PAIRS}


def test_the_range_counts_the_candidates_that_pass(model):
    rules = {"num_negatives": 3, "range_min": 2, "range_max": 6}
    for row in bert_jax.mine(model, PAIRS, TEXTS, **rules):
        assert negatives(row) == ranked(model, row["anchor"])[2:5]
    drawn = bert_jax.mine(model, PAIRS, TEXTS, sampling="random", **rules)
    for row in drawn:
        between = ranked(model, row["anchor"])[2:6]
        assert negatives(row) == [x for x in between if x in negatives(row)]
    assert drawn == bert_jax.mine(model, PAIRS, TEXTS, sampling="random", **rules)
    other = bert_jax.mine(model, PAIRS, TEXTS, sampling="random", seed=5, **rules)
    assert drawn != other


@pytest.mark.parametrize(
    "rule, passes",
    [
        ({"max_score": 0.92}, lambda x, least: x <= 0.92),
        ({"min_score": 0.92}, lambda x, least: x >= 0.92),
        ({"absolute_margin": 0.01}, lambda x, least: x + 0.01 <= least),
        ({"relative_margin": 0.01}, lambda x, least: x <= 0.99 * least),
    ],
)
def test_negatives_are_those_that_pass_a_rule(model, rule, passes):
    rule = {"range_max": 30, **rule}
    # An anchor with fewer has no row of this form.
    with pytest.warns(UserWarning, match="fewer than 20 negatives; lower the margins"):
        rows = bert_jax.mine(
            model, PAIRS, TEXTS, num_negatives=20, form="triplets", **rule
        )
    for anchor, positives in ANCHORS.items():
        values = cosines(model, anchor)
        least = min(values[text] for text in positives)
        expected = [x for x in ranked(model, anchor) if passes(values[x], least)][:20]
        mined = [row["negative"] for row in rows if row["anchor"] == anchor]
        assert mined == expected * len(positives)


def test_scores_are_those_of_the_vectors_or_of_the_reranking_model(model, tokenizer):
    (row, *_) = bert_jax.mine(model, PAIRS, TEXTS, scores=True)
    values = cosines(model, "a b")
    texts = [row["positive"], *negatives(row)]
    assert row["scores"] == pytest.approx([values[x] for x in texts], abs=1e-5)

    def length(pairs):
        return [len(document) + len(anchor) / 100 for anchor, document in pairs]

    for row in bert_jax.mine(
        model, PAIRS, TEXTS, reranker=length, scores=True, range_max=30
    ):
        expected = sorted(map(len, ranked(model, row["anchor"])))[::-1][:3]
        assert [len(x) for x in negatives(row)] == expected
        assert row["scores"][0] == pytest.approx(
            len(row["positive"]) + len(row["anchor"]) / 100
        )
    reranker = made(SequenceClassifier(Bert(TINY), 1), tokenizer)
    (row, *_) = bert_jax.mine(model, PAIRS, TEXTS, reranker=reranker, scores=True)
    texts = [row["positive"], *negatives(row)]
    scores = {x.text: x.score for x in reranker.rank("a b", texts)}
    assert row["scores"] == pytest.approx([scores[x] for x in texts], abs=1e-5)


def test_pairs_are_labelled_1_for_positives_and_0_for_negatives(model):
    rows = bert_jax.mine(model, PAIRS, TEXTS, form="pairs", num_negatives=2)
    assert [row["label"] for row in rows] == [1, 1, 0, 0, 1, 0, 0, 1, 0, 0]
    assert rows[0] == {"query": "a b", "document": TEXTS[0], "label": 1}


@pytest.mark.parametrize(
    "pairs, settings, error",
    [
        ([], {}, "there is no pair; give at least one anchor"),
        ([("a", "")], {}, r"pairs\[0\] is \('a', ''\); give an anchor and a positive"),
        ([{"anchor": "a"}], {}, r"pairs\[0\] is {'anchor': 'a'}; give an anchor and"),
        (PAIRS, {"num_negatives": 0}, "num_negatives=0; it must be at least 1"),
        (PAIRS, {"range_min": -1}, "range_min=-1; it must be at least 0"),
        (PAIRS, {"range_max": 2}, "range_max=2 leaves no room for num_negatives=3"),
        (PAIRS, {"sampling": "x"}, "sampling='x' is unknown; choose one of top, ran"),
        (PAIRS, {"form": "x"}, "form='x' is unknown; choose one of groups, triplets"),
        (PAIRS, {"max_score": -2}, "no candidate passes all rules; lower the margins"),
        (PAIRS, {"reranker": len}, r"reranker returned the shape \[\] for \d+ pairs"),
    ],
)
def test_wrong_arguments_are_one_sentence(model, pairs, settings, error):
    with pytest.raises(ValueError, match=error):
        bert_jax.mine(model, pairs, **settings)


def test_a_reranking_model_must_score_pairs(model):
    with pytest.raises(
        ValueError, match="this model cannot rank: its head is for vectors of"
    ):
        bert_jax.mine(model, PAIRS, reranker=model)


def test_the_command_writes_rows_to_train_on(model, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(jitted, "use_compilation_cache", lambda: None)
    monkeypatch.chdir(tmp_path)
    model.save("model")
    lines = ["anchor\tpositive", *map("\t".join, PAIRS)]
    (tmp_path / "pairs.tsv").write_text("\n".join(lines))
    (tmp_path / "corpus.txt").write_text("\n".join(TEXTS))
    arguments = "mine pairs.tsv --corpus corpus.txt --model model --out rows.jsonl"
    cli.main(f"{arguments} --range-min 1 --num-negatives 2".split())
    rows = [json.loads(line) for line in (tmp_path / "rows.jsonl").open()]
    assert rows == bert_jax.mine(model, PAIRS, TEXTS, num_negatives=2, range_min=1)
    assert capsys.readouterr().out == "rows.jsonl: 4 rows\n"


class Columns(dict):
    """Columns as `datasets.Dataset` has them, as far as sentence-transformers asks."""

    column_names = property(list)
    from_dict = classmethod(lambda cls, columns: cls(columns))

    def __len__(self):
        return len(self["anchor"])

    def to_pandas(self):
        return self

    def groupby(self, name):
        return self

    def count(self):
        return self

    def to_dict(self):
        return {"positive": collections.Counter(self["anchor"])}


@pytest.mark.parity
@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"range_min": 2, "range_max": 9},
        {"absolute_margin": 0.02, "range_max": 25},
        {"relative_margin": 0.03, "range_max": 25},
        {"max_score": 0.95, "min_score": 0.9, "range_max": 25},
    ],
)
def test_rows_are_those_of_sentence_transformers(
    tokenizer, tmp_path, monkeypatch, settings
):
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.util import hard_negatives

    model = made(Features(Bert(TINY)), tokenizer)
    model.pooling = bert_jax.pretrained.Pooling()
    model.save(tmp_path)
    datasets = types.SimpleNamespace(Dataset=Columns)
    monkeypatch.setitem(sys.modules, "datasets", datasets)
    monkeypatch.setattr(hard_negatives, "is_datasets_available", lambda: True)
    anchors, positives = zip(*PAIRS, strict=True)
    theirs = hard_negatives.mine_hard_negatives(
        Columns(anchor=list(anchors), positive=list(positives)),
        SentenceTransformer(str(tmp_path), device="cpu"),
        corpus=TEXTS,
        output_scores=True,
        verbose=False,
        **settings,
    )
    ours = bert_jax.mine(model, PAIRS, TEXTS, form="triplets", scores=True, **settings)
    assert len(ours) == len(theirs) >= 8
    for name in ("anchor", "positive", "negative"):
        assert [row[name] for row in ours] == theirs[name]
    np.testing.assert_allclose([x["scores"] for x in ours], theirs["scores"], atol=1e-5)
