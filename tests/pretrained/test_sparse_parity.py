"""Sparse encoders of sentence-transformers compute the same vectors, both ways."""

import numpy as np
import pytest
from tiny import LETTERS, TINY, made, wordpiece

from bert_jax.inference.model import load
from bert_jax.models import Bert, MaskedLM
from bert_jax.pretrained import SparsePooling

pytestmark = pytest.mark.parity

TEXTS = ["a b c", "q", "d e f g a a a z", "b", "k l m n o p"]
SETTINGS = [
    SparsePooling(),
    SparsePooling("sum", "log1p_relu"),
    SparsePooling(most=4, prompt="a ", prompts=(("query", "b "),)),
]


def encoded(directory, prompt=None):
    """The vectors of `TEXTS` there."""
    from sentence_transformers import SparseEncoder

    model = SparseEncoder(str(directory), device="cpu")
    return model, model.encode(TEXTS, prompt_name=prompt).to_dense().numpy()


@pytest.mark.parametrize("settings", SETTINGS)
def test_a_saved_model_has_the_same_vectors_there_and_comes_back(settings, tmp_path):
    model = made(MaskedLM(Bert(TINY)), wordpiece(tmp_path, LETTERS))
    model.sparse = settings
    model.save(tmp_path / "ours")
    theirs, vectors = encoded(tmp_path / "ours")
    ours = model.embed_sparse(TEXTS).toarray()
    np.testing.assert_allclose(ours, vectors, atol=1e-5)
    if settings.prompts:
        _, vectors = encoded(tmp_path / "ours", "query")
        ours = model.embed_sparse(TEXTS, "query").toarray()
        np.testing.assert_allclose(ours, vectors, atol=1e-5)
    theirs.save(str(tmp_path / "theirs"))
    again = load(tmp_path / "theirs")
    assert again.sparse.pooling == settings.pooling
    assert again.sparse.most == settings.most
    np.testing.assert_allclose(
        again.embed_sparse(TEXTS).toarray(),
        model.embed_sparse(TEXTS).toarray(),
        atol=1e-6,
    )


def test_a_masked_lm_is_opened_there_and_here_as_the_same_sparse_encoder(tmp_path):
    model = made(MaskedLM(Bert(TINY)), wordpiece(tmp_path, LETTERS))
    model.save(tmp_path / "plain")
    _, vectors = encoded(tmp_path / "plain")
    np.testing.assert_allclose(model.embed_sparse(TEXTS).toarray(), vectors, atol=1e-5)
