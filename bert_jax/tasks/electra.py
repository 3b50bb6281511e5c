"""Replaced-token detection on raw text (ELECTRA, Clark et al., 2020)."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, cast

import jax
import numpy as np
from flax import linen as nn

from bert_jax import pretrained
from bert_jax.inference.fill_mask import Guesses
from bert_jax.inference.model import Model, load
from bert_jax.models import heads
from bert_jax.models.config import EncoderConfig
from bert_jax.objectives.losses import Batch, Params, Totals
from bert_jax.objectives.masking import Masking
from bert_jax.objectives.replaced_tokens import (
    GeneratorDiscriminator,
    discriminator_params,
    generator_params,
    replaced_token_loss,
)
from bert_jax.tasks import pretraining
from bert_jax.tasks.demo import Call, masked_words, next_steps
from bert_jax.tasks.pretraining import PretrainingConfig


@dataclasses.dataclass(frozen=True)
class ElectraTask(pretraining.PretrainingTask):
    """Replaced-token detection on prepared rows."""

    config: "ElectraConfig"

    pretrained_parts = ("encoder", "transform", "replaced")

    @property
    def loss_weights(self) -> dict[str, float]:
        """The terms of the objective and their weights."""
        config = self.config
        return {"mlm_loss": config.gen_weight, "rtd_loss": config.disc_weight}

    def build(self, encoder: nn.Module) -> GeneratorDiscriminator:
        """`encoder` as the discriminator, and a generator."""
        small = self.config.generator(encoder.config)
        return GeneratorDiscriminator(
            pretrained.new_head(heads.ReplacedTokenDetection, encoder),
            pretrained.new_head(heads.MaskedLM, small.build()),
        )

    def totals(
        self,
        model: GeneratorDiscriminator,
        params: Params,
        batch: Batch,
        key: jax.Array | None,
    ) -> Totals:
        """See `replaced_token_loss`."""
        return replaced_token_loss(model, params, batch, key, **self.masks(key is None))

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
            "model": pretraining.with_history(model, history),
            "generator": Model.of(module.generator, other, self.tokenizer),
        }

    def demo(self, model: Model, workdir: Path) -> str:
        """Held-out texts with a replaced word, and the discriminator's suspicions."""
        generator, lines = load(workdir / "generator"), []
        mask = self.tokenizer.id_to_token(self.tokenizer.mask_id)
        for text, word in masked_words(self.rows["eval"], self.tokenizer):
            # One text has one list for each mask.
            (best,) = cast(Guesses, generator.fill_mask(text, k=2))
            guesses = [guess.token for guess in best]
            wrong = guesses[guesses[0] == word]
            text = text.replace(mask, wrong)
            flagged = most_suspicious(model, text)
            lines += [f"  {text}", f"    it was {word}; suspected: {flagged}"]
        title = "Words that the generator has replaced in text they have not seen:"
        return "\n".join(["", title, *lines])

    def next_steps(self, workdir: Path, shell: bool) -> str:
        """The model's directory and a call to try."""
        text = "a text or many"
        steps = next_steps(workdir, Call("embed", (text,), text), shell)
        return f"{steps}\n  tensorboard --logdir={workdir}" if shell else steps


def most_suspicious(model: Model, text: str, count: int = 3) -> str:
    """The tokens of a text with the highest probabilities of being replaced."""
    tokenizer = model.check_tokenizer()
    batch = tokenizer(text)
    shares = np.asarray(jax.nn.sigmoid(model(**batch)[0]))
    is_special = np.isin(batch["input_ids"][0], tokenizer.special_ids)
    shares = np.where(is_special, 0, shares)
    best = np.argsort(-shares)[:count]
    words = [tokenizer.decode([i]).strip() for i in batch["input_ids"][0, best]]
    return ", ".join(f"{w} {x:.0%}" for w, x in zip(words, shares[best], strict=True))


@dataclasses.dataclass
class ElectraConfig(PretrainingConfig):
    """Replaced-token detection on raw text.

    Fields are named as in configure_pretraining.py of google-research/electra.

    Attributes:
      generator_hidden_size, generator_layers: the generator's sizes as shares of the
        discriminator's; its MLP is four times as wide and its heads have 64 dimensions.
      gen_weight, disc_weight: the weights of masked LM and of the detection.
      masking: 85 % of the chosen tokens become [MASK] and the others stay, as in the
        authors' code (pretrain_helpers.py); none becomes a random token.

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

    task_class: ClassVar[type[pretraining.PretrainingTask]] = ElectraTask

    def check(self) -> None:
        """Raises ValueError for a field that cannot be right."""
        super().check()
        for name in ("generator_hidden_size", "generator_layers"):
            if not 0 < getattr(self, name) <= 1:
                raise ValueError(
                    f"task.{name}={getattr(self, name)} is not a share of the "
                    "discriminator's; set it above 0 and up to 1"
                )
        for name in ("gen_weight", "disc_weight"):
            if not getattr(self, name) > 0:
                raise ValueError(f"task.{name}={getattr(self, name)} must be positive")

    def validate(self, encoder: EncoderConfig) -> None:
        """Raises ValueError for a field that cannot be right with this encoder."""
        super().validate(encoder)
        pretraining.check_head(
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
