"""Directories of sentence vectors beside sentence-transformers, in both directions."""

import numpy as np
import pytest
from tiny import LETTERS, TINY, made, wordpiece

import bert_jax
from bert_jax.models import Bert, Features
from bert_jax.pretrained import Pooling
from bert_jax.pretrained.dense import Dense

pytestmark = pytest.mark.parity
pytest.importorskip("sentence_transformers")
TEXTS = ["a b", "q", "", "c d e f g", "r s t"]
PROMPTS = (("query", "x y: "), ("document", ""), ("passage", "z "))


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
    tokenizer = wordpiece(tmp_path_factory.mktemp("vocabulary"), LETTERS)
    return made(Features(Bert(TINY), has_pooler=True), tokenizer)


def dense(inputs, outputs, activation, seed=0):
    draw = np.random.default_rng(seed)
    kernel = draw.normal(size=(inputs, outputs)).astype("f4")
    return Dense(kernel, draw.normal(size=outputs).astype("f4"), activation)


MEAN = Pooling(("mean",), prompts=PROMPTS)
POOLINGS = {
    **{mode: Pooling((mode,)) for mode in ("cls", "max", "lasttoken", "weightedmean")},
    "mean_sqrt": Pooling(("mean_sqrt_len_tokens",)),
    "joined": Pooling(("lasttoken", "mean", "weightedmean")),
    "normalized": Pooling(("mean",), normalize=True),
    "dense": Pooling(("cls",), True, dense=(dense(12, 5, "Tanh"),)),
    "two layers": Pooling(dense=(dense(12, 7, "GELU"), dense(7, 9, "Identity", 1))),
    "prompts": MEAN,
    "default prompt": MEAN.replace(prompt="x y: "),
    "unnamed prompt": Pooling(prompt="u v "),
    **{
        f"{mode} without the prompt": Pooling(
            (mode,), prompt="x y: ", prompts=PROMPTS, include_prompt=False
        )
        for mode in ("mean", "cls", "max", "lasttoken", "mean_sqrt_len_tokens")
    },
}


@pytest.mark.parametrize("name", POOLINGS)
def test_vectors_are_those_of_sentence_transformers_in_both_directions(
    name, encoder, tmp_path
):
    from sentence_transformers import SentenceTransformer

    settings = {"pooling": POOLINGS[name], "max_length": 9}
    model = bert_jax.Model(**vars(encoder) | settings)
    model.save(tmp_path / "ours")
    theirs = SentenceTransformer(str(tmp_path / "ours"), device="cpu")
    theirs.save(str(tmp_path / "theirs"))
    again = bert_jax.load(tmp_path / "theirs")
    assert again.max_length == 9
    for prompt in (None, *dict(POOLINGS[name].prompts)):
        expected = theirs.encode(TEXTS, prompt_name=prompt)
        assert np.ptp(expected, axis=0).max() > 1e-3
        for one in (model, again):
            vectors = one.embed(TEXTS, prompt=prompt)
            np.testing.assert_allclose(vectors, expected, atol=1e-5)


def test_a_directory_that_sentence_transformers_made_has_its_vectors(encoder, tmp_path):
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer import modules

    encoder.save(tmp_path / "plain")
    theirs = SentenceTransformer(
        modules=[
            modules.Transformer(str(tmp_path / "plain")),
            modules.Pooling(12, ("lasttoken", "max"), include_prompt=False),
            modules.Dense(24, 6, bias=False),
            modules.Normalize(),
        ],
        prompts={"query": "x y: ", "passage": "z "},
        default_prompt_name="passage",
        similarity_fn_name="dot",
        device="cpu",
    )
    theirs.save(str(tmp_path / "theirs"))
    ours = bert_jax.load(tmp_path / "theirs")
    assert ours.pooling.similarity == "dot" and not ours.pooling.include_prompt
    for prompt in (None, "query", "passage"):
        expected = theirs.encode(TEXTS, prompt_name=prompt)
        np.testing.assert_allclose(
            ours.embed(TEXTS, prompt=prompt), expected, atol=1e-5
        )
