"""Laws of sparse vectors in use."""

import numpy as np
import pytest
from tiny import LETTERS, TINY, made, wordpiece

from bert_jax.inference.model import load
from bert_jax.models import Bert, Features, MaskedLM, Pretraining, sparse
from bert_jax.pretrained import SparsePooling

TEXTS = ["a b c", "q", "d e f g a a a z", "b", "k l m n o p"]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    tokenizer = wordpiece(tmp_path_factory.mktemp("sparse"), LETTERS)
    return made(MaskedLM(Bert(TINY)), tokenizer)


def by_hand(model, text):
    """The weights of a text, from all logits of an unpadded row."""
    logits = np.asarray(model(**model.tokenizer([text])))[0]
    return np.log1p(np.maximum(logits, 0))


def test_weights_are_logarithms_of_the_highest_logits_whatever_the_padding(model):
    rows = model.embed_sparse(TEXTS, batch_size=2).toarray()
    expected = [by_hand(model, text).max(0) for text in TEXTS]
    np.testing.assert_allclose(rows, expected, atol=1e-6)
    assert 0 < (rows == 0).mean() < 1


@pytest.mark.parametrize("pooling", sparse.POOLINGS)
def test_parts_of_a_row_give_the_weights_of_the_whole(model, pooling, monkeypatch):
    changed = made(model.head, model.tokenizer)
    changed.sparse = SparsePooling(pooling, "log1p_relu")
    whole = changed.embed_sparse(TEXTS, batch_size=4).toarray()
    monkeypatch.setattr(sparse, "MOST_LOGITS", 1)
    monkeypatch.setattr(sparse, "FEWEST_POSITIONS", 3)  # parts of 3, 3 and 2 tokens
    parts = changed.embed_sparse(TEXTS, batch_size=8).toarray()
    np.testing.assert_allclose(parts, whole, atol=1e-6)
    reduced = np.max if pooling == "max" else np.sum
    expected = reduced(np.log1p(by_hand(model, TEXTS[0])), axis=0)
    np.testing.assert_allclose(whole[0], expected, atol=1e-6)


def test_only_the_highest_weights_are_kept_where_the_model_has_a_limit(model):
    limited = made(model.head, model.tokenizer)
    limited.sparse = SparsePooling(most=3)
    rows, all_rows = limited.embed_sparse(TEXTS), model.embed_sparse(TEXTS).toarray()
    assert rows.getnnz(1).tolist() == [3] * len(TEXTS)
    highest = np.sort(rows.toarray(), axis=1)[:, -3:]
    np.testing.assert_allclose(highest, np.sort(all_rows, axis=1)[:, -3:], atol=1e-6)


def test_settings_and_prompts_are_saved_with_the_model(model, tmp_path):
    changed = made(Pretraining(Bert(TINY)), model.tokenizer)
    changed.sparse = SparsePooling(
        "sum", "log1p_relu", 5, "a ", (("query", "b "),), "dot"
    )
    changed.save(tmp_path / "saved")
    again = load(tmp_path / "saved")
    assert again.sparse == changed.sparse and again.pooling is None
    rows = again.embed_sparse(["c", "d"], prompt="query").toarray()
    same = made(changed.head, model.tokenizer)
    same.sparse = SparsePooling("sum", "log1p_relu", 5)
    expected = same.embed_sparse(["b c", "b d"]).toarray()
    np.testing.assert_allclose(rows, expected, atol=1e-6)
    assert "embed_sparse" in (tmp_path / "saved/README.md").read_text()


def test_no_text_gives_no_row_and_wrong_input_a_sentence(model):
    assert model.embed_sparse([]).shape == (0, len(LETTERS))
    with pytest.raises(ValueError, match="'query' is unknown; this model has no promp"):
        model.embed_sparse(["a"], prompt="query")
    encoder = made(Features(Bert(TINY)), model.tokenizer)
    with pytest.raises(ValueError, match="cannot make sparse vectors: its head is for"):
        encoder.embed_sparse(["a"])
    with pytest.raises(ValueError, match="activation='tanh' of sparse vectors is unkn"):
        SparsePooling(activation="tanh")
