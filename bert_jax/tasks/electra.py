"""ELECTRA (Clark et al., 2020): one encoder replaces tokens, another finds them."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import jax
import numpy as np
from flax import linen as nn

from bert_jax import pretrained
from bert_jax.inference.model import Model, load
from bert_jax.models import heads
from bert_jax.objectives.losses import Params, Totals
from bert_jax.objectives.masking import Masking
from bert_jax.objectives.replaced_tokens import (
    GeneratorDiscriminator,
    discriminator_params,
    generator_params,
    replaced_token_loss,
)
from bert_jax.tasks import pretraining
from bert_jax.tasks.demo import hidden_words, next_words
from bert_jax.tasks.pretraining import PretrainingConfig


@dataclasses.dataclass(frozen=True)
class ElectraTask(pretraining.PretrainingTask):
    """ELECTRA with its rows at hand."""

    parts = ("encoder", "transform", "replaced")

    @property
    def loss_weights(self) -> dict[str, float]:
        """The two losses by their weights."""
        settings = self.settings
        return {"mlm_loss": settings.gen_weight, "rtd_loss": settings.disc_weight}

    def build(self, encoder: nn.Module) -> GeneratorDiscriminator:
        """`encoder` as the discriminator, and its generator."""
        small = self.settings.generator(encoder.config)
        return GeneratorDiscriminator(
            pretrained.new_head(heads.ReplacedTokenDetection, encoder),
            pretrained.new_head(heads.MaskedLM, small.build()),
        )

    def totals(self, model, params, batch, key) -> Totals:
        """See `replaced_token_loss`."""
        mask_key, masking, vocabulary = self.hiding(key is None)
        return replaced_token_loss(
            model,
            params,
            batch,
            key,
            mask_key=mask_key,
            masking=masking,
            vocabulary=vocabulary,
        )

    def to_models(
        self,
        module: GeneratorDiscriminator,
        params: Params,
        history: Mapping[str, Any],
    ) -> dict[str, Model]:
        """The discriminator in model/, and the whole generator in generator/."""
        own, other = discriminator_params(params), generator_params(params)
        model = Model.of(module.discriminator, own, self.tokenizer)
        return {
            "model": dataclasses.replace(model, history=history),
            "generator": Model.of(module.generator, other, self.tokenizer),
        }

    def demo(self, model: Model, workdir: Path) -> str:
        """Words that the generator replaced, and what the discriminator suspects."""
        generator, lines = load(workdir / "generator"), []
        mask = self.tokenizer.id_to_token(self.tokenizer.mask_id)
        for text, word in hidden_words(self.rows["eval"], self.tokenizer):
            guesses = [guess.token for guess in generator.fill_mask(text, k=2)[0]]
            wrong = guesses[guesses[0] == word]
            text = text.replace(mask, wrong)
            lines += [
                f"  {text}",
                f"    it was {word}; suspected: {suspects(model, text)}",
            ]
        said = "Words that the generator has replaced in text they have not seen:"
        return "\n".join(["", said, *lines])

    def next_steps(self, workdir: Path) -> str:
        """The model's directory and a command to try."""
        call = next_words(workdir, "embed('a text or many').shape")
        return f"{call}\n  tensorboard --logdir={workdir}"


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

    task_class: ClassVar[type] = ElectraTask

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
