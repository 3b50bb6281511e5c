"""A new encoder is a config and a module, one table, and one recipe; nothing else."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn

import bert_jax
from bert_jax.data import RowConfig
from bert_jax.models import Features, MaskedLM, SequenceClassifier, layers, masks, ops
from bert_jax.models.config import EncoderConfig
from bert_jax.pretrained.families import FAMILIES
from bert_jax.pretrained.family import Family, Head
from bert_jax.tasks import PretrainingConfig
from bert_jax.training import OptimizerConfig, TrainConfig

# The first piece: what would be a file of bert_jax/models.


@dataclasses.dataclass(unsafe_hash=True)
class MeansConfig(EncoderConfig):
    """Fields with other names; properties translate them to those of the base."""

    vocab_size: int = 60
    width: int = 12
    depth: int = 3
    max_position_embeddings: int = 16
    hidden_act: str = "relu"
    hidden_dropout_prob: float = 0.1
    initializer_range: float = 0.2
    layer_norm_eps: float = 1e-6
    pad_token_id: int = 0
    tie_word_embeddings: bool = True
    model_type: str = "means"
    dtype: str = "float32"
    remat: bool = False
    attention: str = "auto"

    hidden_size = property(lambda self: self.width)
    num_hidden_layers = property(lambda self: self.depth)
    num_attention_heads = property(lambda self: 1)
    intermediate_size = property(lambda self: 2 * self.width)
    attention_probs_dropout_prob = property(lambda self: 0.0)
    mlp_kernels = property(lambda self: 1)

    def validate(self):
        self.check_sizes("vocab_size", "width", "depth", "max_position_embeddings")
        self.check_choice("hidden_act", layers.ACTIVATIONS)
        self.check_rates("hidden_dropout_prob")

    def truncated(self):
        return dataclasses.replace(self, depth=1)

    def build(self):
        self.validate()
        return Means(self)


class Means(nn.Module):
    """Adds to each token the mean of the tokens it sees: `[B, L] -> [B, L, D]`."""

    config: MeansConfig

    def setup(self):
        c = self.config
        init = layers.kernel_init(c.initializer_range)
        self.word = self.param("word", init, (c.vocab_size, c.width))
        self.layer = [
            layers.Dense(c.width, c.initializer_range, c.dtype) for _ in range(c.depth)
        ]
        self.norm = layers.LayerNorm(c.layer_norm_eps, c.dtype)
        self.dropout = layers.Dropout(c.hidden_dropout_prob)

    def __call__(
        self,
        input_ids,
        attention_mask=None,
        token_type_ids=None,
        position_ids=None,
        *,
        deterministic=True,
    ):
        c = self.config
        c.check_length(input_ids.shape[1])
        mask = jnp.ones_like(input_ids) if attention_mask is None else attention_mask
        sees = masks.visible(mask)[:, 0].astype(c.dtype)
        share = sees / jnp.maximum(sees.sum(-1, keepdims=True), 1)
        x = ops.lookup(jnp.asarray(self.word, c.dtype), input_ids)
        activation = layers.ACTIVATIONS[c.hidden_act]
        for dense in self.layer:
            self.sow("intermediates", "hidden_states", x)
            y = activation(dense(jnp.einsum("BLM,BMD->BLD", share, x)))
            x = x + self.dropout(y, deterministic)
        x = self.norm(x)
        self.sow("intermediates", "hidden_states", x)
        return x

    def attend(self, x):
        return ops.matmul(x, self.word.T, self.config.dtype)


# The second: a table of bert_jax/pretrained.

MEANS = Family(
    prefix="means.",
    config=MeansConfig,
    fields={"width": "hidden_size", "depth": "n_layers"},
    encoder={"word": "words.weight", "layer_#": "layers.{layer}", "norm": "norm"},
    heads={
        "MeansModel": Head(Features),
        "MeansForMaskedLM": Head(
            MaskedLM,
            {
                "mlm/transform": "head.dense",
                "mlm/norm": "head.norm",
                "mlm/bias": "head.bias",
            },
        ),
        "MeansForSequenceClassification": Head(
            SequenceClassifier, {"pooler": "pooler", "classifier": "classifier"}
        ),
    },
)

WORDS = "a the cat dog tree bird sat ran flew slept on under over by with".split()


# The third: a recipe of configs/.


def get_config(paths):
    return TrainConfig(
        encoder=MeansConfig(),
        task=PretrainingConfig(
            paths=paths,
            recipe=RowConfig(sequence_length=16, held_out=0.3, pairs="none"),
        ),
        optimizer=OptimizerConfig(learning_rate=1e-2, warmup_steps=1),
        batch_size=8,
        num_steps=3,
        checkpoint_every=2,
    )


@pytest.fixture(scope="module")
def listed():
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(FAMILIES, "means", MEANS)
        yield


@pytest.fixture(scope="module")
def workdir(tmp_path_factory, listed):
    """The work directory of a run of three steps, with its steps 2 and 3."""
    folder = tmp_path_factory.mktemp("means")
    draw = np.random.default_rng(0)
    documents = [
        "\n".join(" ".join(draw.choice(WORDS, 7)) + "." for _ in range(6))
        for _ in range(30)
    ]
    (folder / "text.txt").write_text("\n\n".join(documents))
    config = get_config((str(folder / "text.txt"),))
    model = bert_jax.train(config, folder / "run")
    assert isinstance(model.head, MaskedLM) and isinstance(model.encoder, Means)
    return folder / "run"


@pytest.mark.slow
def test_a_trained_model_is_saved_loaded_and_used(workdir, tmp_path):
    model = bert_jax.load(workdir)
    texts = ["a cat sat", "the bird flew over a tree"]
    x = model.embed(texts)
    assert x.shape == (2, 12) and np.isfinite(x).all()
    assert len(model.fill_mask("a [MASK] sat.", k=2)[0]) == 2
    model.save(tmp_path / "again")
    again = bert_jax.load(tmp_path / "again")
    assert again.config == model.config and again.max_length == 16
    jax.tree.map(np.testing.assert_array_equal, again.params, model.params)
    np.testing.assert_array_equal(again.embed(texts), x)


def test_a_step_of_an_unfinished_run_opens(workdir):
    step = bert_jax.load(workdir / "checkpoints/2")
    assert isinstance(step.encoder, Means) and step.config.width == 12
    assert step.embed(["a cat sat"]).shape == (1, 12)


def test_a_config_without_a_part_of_the_contract_cannot_be_made():
    class Incomplete(MeansConfig):
        build = EncoderConfig.build

    with pytest.raises(TypeError, match="abstract method '?build"):
        Incomplete()
