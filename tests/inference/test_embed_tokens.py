"""Laws of the vectors of tokens, and of their score."""

import dataclasses

import numpy as np
import pytest
from tiny import LETTERS, TINY, made, wordpiece

from bert_jax.inference import maxsim
from bert_jax.inference.model import load
from bert_jax.models import Bert, Features
from bert_jax.pretrained import LateInteraction

TEXTS = ["a b c", "q", "d e f g a a a z", "b", "k l m n o p"]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    tokenizer = wordpiece(tmp_path_factory.mktemp("late"), LETTERS)
    late = LateInteraction(fill_to=6, query_length=8, skipped=("b",))
    return dataclasses.replace(made(Features(Bert(TINY)), tokenizer), late=late)


def unit(x):
    return x / np.linalg.norm(x, axis=-1, keepdims=True)


def test_documents_have_a_vector_for_each_token_that_is_not_skipped(model):
    vectors = model.embed_tokens(TEXTS, batch_size=2)
    assert [len(x) for x in vectors] == [4, 3, 10, 2, 8]
    states = np.asarray(model(**model.tokenizer(["a b c"])))[0]
    np.testing.assert_allclose(vectors[0], unit(states)[[0, 1, 3, 4]], atol=1e-6)


def test_queries_are_filled_with_mask_tokens_that_no_token_sees(model):
    query, long = model.embed_tokens(["a b", "a b c d e"], kind="query", batch_size=1)
    assert len(query) == 6 and len(long) == 7
    rows = model.tokenizer(["a b [MASK] [MASK]"])
    rows["input_ids"][0] = rows["input_ids"][0][[0, 1, 2, 5, 3, 4]]  # [SEP] is third
    rows["attention_mask"][0, 4:] = 0
    expected = unit(np.asarray(model(**rows))[0])
    np.testing.assert_allclose(query, expected, atol=1e-6)
    attending = dataclasses.replace(model.late, attends=True)
    other = dataclasses.replace(model, late=attending).embed_tokens("a b", "query")
    assert abs(other[0] - query).max() > 1e-3


def test_scores_sum_the_best_products_whatever_the_blocks(model, monkeypatch):
    queries = model.embed_tokens(TEXTS[:3], kind="query")
    documents = model.embed_tokens(TEXTS)
    expected = [[(q @ d.T).max(1).sum() for d in documents] for q in queries]
    monkeypatch.setattr("bert_jax.inference.embed_tokens.DOCUMENTS", 2)
    np.testing.assert_allclose(maxsim(queries, documents), expected, atol=1e-5)
    lengths = [[len(q)] for q in queries]
    means = np.array(expected) / lengths
    np.testing.assert_allclose(maxsim(queries, documents, True), means, atol=1e-6)
    nothing = maxsim(queries, [documents[0], documents[0][:0]])
    assert (nothing[:, 1] < -1e8).all() and (nothing[:, 0] > -1e8).all()


def test_settings_are_saved_with_the_model(model, tmp_path):
    model.save(tmp_path / "saved")
    again = load(tmp_path / "saved")
    assert again.pooling is None and "late interaction" in repr(again)
    for x, y in zip(again.embed_tokens(TEXTS), model.embed_tokens(TEXTS), strict=True):
        np.testing.assert_array_equal(x, y)


def test_wrong_input_is_a_sentence(model):
    with pytest.raises(ValueError, match="kind='queries' is unknown; choose one of do"):
        model.embed_tokens(["a"], kind="queries")
    with pytest.raises(ValueError, match="no settings of late interaction; load a Col"):
        dataclasses.replace(model, late=None).embed_tokens(["a"])
    with pytest.raises(ValueError, match="queries holds an array of 1 axes; give a li"):
        maxsim(np.ones((2, 3), "f4"), [np.ones((2, 3), "f4")])
    with pytest.raises(ValueError, match="vectors have 3 and 4 numbers; use one model"):
        maxsim([np.ones((2, 3), "f4")], [np.ones((2, 4), "f4")])
    with pytest.raises(ValueError, match="similarity='cosine' is unknown; choose one"):
        LateInteraction(similarity="cosine")
    with pytest.warns(UserWarning, match="1 query of 1 had more than 8 tokens, and lo"):
        model.embed_tokens(["a b c d e f g h"], kind="query")
