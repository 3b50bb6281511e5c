"""The examples of docs/models.md run in order on a tiny model."""

import pathlib
import re

import jax
import numpy as np
import pytest

import bert_jax
from bert_jax import tokenizers
from bert_jax.models import BertConfig, Pretraining

PAGE = pathlib.Path(__file__).parents[2] / "docs/models.md"
WORDS = "[PAD] [UNK] [CLS] [SEP] [MASK] a cat sat dogs bark it slept .".split()


@pytest.fixture
def my_model(tmp_path, monkeypatch):
    (tmp_path / "vocab.txt").write_text("\n".join(WORDS))
    config = BertConfig(len(WORDS), 8, 1, 2, 12, max_position_embeddings=48)
    head = Pretraining(config.build())
    ids = jax.ShapeDtypeStruct((1, 2), np.int32)
    shapes = jax.eval_shape(head.init, jax.random.key(0), ids)["params"]
    draw = np.random.default_rng(0)
    params = jax.tree.map(lambda x: draw.normal(size=x.shape).astype("f4"), shapes)
    tokenizer = tokenizers.WordPiece.from_vocab(tmp_path / "vocab.txt")
    bert_jax.Model.of(head, params, tokenizer).save(tmp_path / "my_model")
    monkeypatch.chdir(tmp_path)


@pytest.mark.slow
def test_the_encoder_is_the_same_wherever_it_is_used(my_model):
    names = {}
    for block in re.findall(r"```python\n(.*?)```", PAGE.read_text("utf-8"), re.S):
        exec(compile(block, PAGE.name, "exec"), names)
    model, batch = names["model"], names["batch"]
    expected = np.asarray(model.hidden_states(**batch))[-1]
    plain = names["first_vectors"](model.params["encoder"], batch)
    np.testing.assert_allclose(plain, expected[:, 0], atol=1e-5)
    np.testing.assert_allclose(names["encoder"](**batch), expected, atol=1e-5)
    kernel = names["params"]["Dense_0"]["kernel"]
    x = expected.mean(1) @ kernel
    similarity = names["similarity"].apply({"params": names["params"]}, batch, batch)
    np.testing.assert_allclose(similarity, (x * x).sum(-1), rtol=1e-4)
