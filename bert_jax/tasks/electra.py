"""ELECTRA (Clark et al., 2020): one encoder replaces tokens, another finds them."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import linen as nn

from bert_jax import pretrained
from bert_jax.inference.model import Model, load
from bert_jax.models import heads, ops
from bert_jax.objectives.masked_lm import (
    Totals,
    applied,
    histogram,
    real,
    token_totals,
    work,
)
from bert_jax.objectives.masking import Masking
from bert_jax.tasks import pretraining
from bert_jax.tasks.demo import hidden_words, next_words
from bert_jax.tasks.pretraining import PretrainingConfig

Params = Mapping[str, Any]


@dataclasses.dataclass(frozen=True)
class Pair:
    """A discriminator, and a generator that looks tokens up in its embeddings.

    Parameters are the discriminator's, and under "generator" those of the generator
    that are its own: all but the tables and the norm of the embeddings.
    """

    discriminator: heads.ReplacedTokenDetection
    generator: heads.MaskedLM

    @property
    def encoder(self) -> nn.Module:
        """The discriminator's, which is what is kept in the end."""
        return self.discriminator.encoder

    def init(self, key: jax.Array, **example: Any) -> dict[str, Params]:
        """Both drawn."""
        first, second = jax.random.split(key)
        params = self.discriminator.init(first, **example)["params"]
        generator = self.generator.init(second, **example)["params"]
        table = generator["encoder"].pop("embeddings")
        if "project" in table:
            generator["encoder"]["embeddings"] = {"project": table["project"]}
        return {"params": {**params, "generator": generator}}


def discriminator_params(params: Params) -> Params:
    """Those of the discriminator alone."""
    return {name: x for name, x in params.items() if name != "generator"}


def generator_params(params: Params) -> Params:
    """Those of the generator, with the tables it shares."""
    own, shared = params["generator"], dict(params["encoder"]["embeddings"])
    shared.pop("project", None)
    table = {**shared, **own["encoder"].get("embeddings", {})}
    return {**own, "encoder": {**own["encoder"], "embeddings": table}}


@dataclasses.dataclass(frozen=True)
class ElectraTask(pretraining.PretrainingTask):
    """ELECTRA with its rows at hand."""

    parts = ("encoder", "transform", "replaced")

    @property
    def objective(self) -> dict[str, float]:
        """The two losses by their weights."""
        settings = self.settings
        return {"mlm_loss": settings.gen_weight, "rtd_loss": settings.disc_weight}

    def model(self, encoder: nn.Module) -> Pair:
        """`encoder` as the discriminator, and its generator."""
        small = self.settings.generator(encoder.config)
        return Pair(
            pretrained.new_head(heads.ReplacedTokenDetection, encoder),
            pretrained.new_head(heads.MaskedLM, small.build()),
        )

    def loss(self, model, params, batch, key) -> Totals:
        """`pretraining_loss` of the generator, and the totals of `detection`."""
        hidden = self.hide(batch, key)
        keys = (None, None) if key is None else jax.random.split(key)
        asked = {"positions": hidden["positions"]}
        guess = model.generator, generator_params(params), batch, keys[0]
        logits = applied(*guess, hidden["input_ids"], **asked)
        ids = self.replaced(batch, hidden, logits, evaluates=key is None)
        find = model.discriminator, discriminator_params(params), batch, keys[1]
        found = applied(*find, ids)
        config = model.generator.encoder.config
        totals = work(config, real(batch), hidden["weights"].sum())
        both = work(model.encoder.config, real(batch), jnp.zeros(()))
        return {
            **token_totals(logits, hidden, counts_labels=key is None),
            **detection(found, ids != batch["input_ids"], batch, key is None),
            "tokens": both["tokens"],
            "flops": (totals["flops"][0] + both["flops"][0], jnp.ones(())),
        }

    def replaced(self, batch, hidden, logits, *, evaluates: bool) -> jax.Array:
        """`[B, L]` ids with what the generator draws where tokens were hidden."""
        noise = self.noise(batch, logits.shape[1:], evaluates=evaluates)
        drawn = jnp.argmax(logits + noise, -1).astype(jnp.int32)
        new = jnp.where(hidden["weights"] > 0, drawn, hidden["labels"])
        put = jax.vmap(lambda ids, places, x: ids.at[places].set(x))
        return put(batch["input_ids"], hidden["positions"], new)

    def noise(self, batch, shape: tuple[int, ...], *, evaluates: bool) -> jax.Array:
        """What makes draws of logits, for `[B]` rows of `shape`.

        It belongs to a row and its place in the stream, as masks do.
        """
        key = jax.random.fold_in(self.hiding(evaluates)[0], 1)
        keys = jax.vmap(jax.random.fold_in, (None, 0))(key, batch["example"])
        return jax.vmap(lambda key: gumbel(key, shape))(keys)

    def trained(self, model: Pair, params: Params) -> Model:
        """The discriminator."""
        its = discriminator_params(params)
        return Model.of(model.discriminator, its, self.tokenizer)

    def companions(self, model: Pair, params: Params) -> dict[str, Model]:
        """The generator, whole, in `generator/`."""
        its = generator_params(params)
        return {"generator": Model.of(model.generator, its, self.tokenizer)}

    def closing_words(self, model: Model, workdir: Path) -> str:
        """Words that the generator replaced, and what the discriminator suspects."""
        generator, lines = load(workdir / "generator"), []
        mask = self.tokenizer.id_to_token(self.tokenizer.mask_id)
        for text, word in hidden_words(self.source("eval"), self.tokenizer):
            guesses = [guess.token for guess in generator.fill_mask(text, k=2)[0]]
            wrong = guesses[guesses[0] == word]
            text = text.replace(mask, wrong)
            lines += [
                f"  {text}",
                f"    it was {word}; suspected: {suspects(model, text)}",
            ]
        said = "Words that the generator has replaced in text they have not seen:"
        return "\n".join(["", said, *lines])

    def next_words(self, workdir: Path) -> str:
        """Where the model is, and what to type next."""
        call = next_words(workdir, "embed('a text or many').shape")
        return f"{call}\n  tensorboard --logdir={workdir}"


def gumbel(key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    """Standard Gumbel noise: added to logits, the largest is a draw of the softmax."""
    # The middles of 2^23 intervals, which float32 can hold and of which none is 0 or 1.
    uniform = ((ops.hash_bits(key, shape) >> 9) + 0.5) * 2.0**-23
    return -jnp.log(-jnp.log(uniform))


def detection(
    logits: jax.Array, replaced: jax.Array, batch: Mapping, counts_labels: bool
) -> Totals:
    """rtd_loss, rtd_accuracy, rtd_precision and rtd_recall of `[B, L]` logits.

    All real tokens count, special ones included; a token that the generator drew as it
    was is not replaced.
    """
    weights = (real(batch) > 0).astype(jnp.float32)
    labels, flagged = replaced.astype(jnp.float32), logits > 0
    count, both = weights.sum(), (weights * (flagged & replaced)).sum()
    losses = optax.sigmoid_binary_cross_entropy(logits, labels)
    totals = {
        "rtd_loss": ((losses * weights).sum(), count),
        "rtd_accuracy": (((flagged == replaced) * weights).sum(), count),
        "rtd_precision": (both, (flagged * weights).sum()),
        "rtd_recall": (both, (labels * weights).sum()),
    }
    if counts_labels:
        totals["rtd_labels"] = histogram(replaced.astype(jnp.int32), weights, 2)
    return totals


def suspects(model: Model, text: str, count: int = 3) -> str:
    """The tokens of a text that are the likeliest to have been replaced."""
    batch = model.tokenizer(text)
    shares = np.asarray(jax.nn.sigmoid(model(**batch)[0]))
    shares = np.where(
        np.isin(batch["input_ids"][0], model.tokenizer.special_ids), 0, shares
    )
    best = np.argsort(-shares)[:count]
    words = [model.tokenizer.decode([i]).strip() for i in batch["input_ids"][0, best]]
    return ", ".join(f"{w} {x:.0%}" for w, x in zip(words, shares[best], strict=True))


@dataclasses.dataclass
class ElectraConfig(PretrainingConfig):
    """Replaced-token detection on raw text.

    Fields are named as in configure_pretraining.py of google-research/electra.

    Attributes:
      generator_hidden_size, generator_layers: of the generator, as shares of the
        discriminator's; its MLP is four times as wide and its heads have 64 dimensions.
      gen_weight, disc_weight: of masked LM and of the detection, in the objective.
      masking: of the hidden tokens 85 % become [MASK] and the others stay, as in the
        authors' code (pretrain_helpers.py); none becomes a random one.

    >>> from bert_jax.models import BertConfig
    >>> small = ElectraConfig().generator(BertConfig(model_type="electra"))
    >>> small.hidden_size, small.num_hidden_layers, small.num_attention_heads
    (192, 12, 3)
    """

    masking: Masking = dataclasses.field(
        default_factory=lambda: Masking(mask_share=0.85, random_share=0.0)
    )
    generator_hidden_size: float = 0.25
    generator_layers: float = 1.0
    gen_weight: float = 1.0
    disc_weight: float = 50.0

    run: ClassVar[type] = ElectraTask

    def check(self) -> None:
        """Raises ValueError for a field that cannot be right."""
        super().check()
        for name in ("generator_hidden_size", "generator_layers"):
            if not 0 < getattr(self, name) <= 1:
                raise ValueError(
                    f"task.{name}={getattr(self, name)} is no share of the "
                    "discriminator's; choose one above 0 and up to 1"
                )
        for name in ("gen_weight", "disc_weight"):
            if not getattr(self, name) > 0:
                raise ValueError(f"task.{name}={getattr(self, name)} must be positive")

    def validate(self, encoder: Any) -> None:
        """Raises ValueError for what can be seen to be wrong before any work."""
        super().validate(encoder)
        pretraining.demand_head(
            heads.ReplacedTokenDetection, encoder, "set encoder.model_type=electra"
        )
        self.generator(encoder).validate()

    def generator(self, encoder: Any) -> Any:
        """The config of the generator's encoder (run_pretraining.py of the authors)."""
        width = round(encoder.hidden_size * self.generator_hidden_size)
        table = encoder.embedding_size or encoder.hidden_size
        return dataclasses.replace(
            encoder,
            hidden_size=width,
            num_hidden_layers=round(encoder.num_hidden_layers * self.generator_layers),
            num_attention_heads=max(1, width // 64),
            intermediate_size=4 * width,
            embedding_size=None if table == width else table,
        )
