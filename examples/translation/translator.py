"""Translator: a trained model that translates texts."""

import dataclasses
import functools
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import flax
import jax
import jax.numpy as jnp
import numpy as np
import safetensors.numpy
from flax import linen as nn

from bert_jax import tokenizers
from bert_jax.inference import Attention
from bert_jax.models import TransformerConfig
from bert_jax.tokenizers import Tokenizer
from examples.attention_rnn.model import AttentionRNNConfig
from examples.translation.beam_search import beam_search

# Configs of the models that translate, by the name that a saved model has.
CONFIGS = {x.model_type: x for x in (TransformerConfig, AttentionRNNConfig)}


@dataclasses.dataclass
class Translator:
    """A model that translates texts.

    Attributes:
      model: encoder and decoder, called like `bert_jax.models.Transformer`. For search
        it has `encode`, `start` and `step`; an encoder's memory may be a tree.
      params: their parameters.
      tokenizer: of both languages; a text starts with its [CLS] and ends with [SEP].
      max_length: of a translation in tokens.
      history: "config", "step" and "scores" of the training run; `save` does not write
        them, the files of the run have them.
    """

    model: nn.Module
    params: Mapping[str, Any]
    tokenizer: Tokenizer
    max_length: int = 64
    history: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def translate(
        self, texts: str | Sequence[str], beams: int = 4, alpha: float = 0.6
    ) -> str | list[str]:
        """The most likely translation of one text, or of each of many.

        Args:
          texts: one or many.
          beams: hypotheses of the beam search; 1 is greedy search.
          alpha: a larger one favours longer translations, see `beam_search`.
        """
        if beams < 1:
            raise ValueError(f"beams={beams}; it must be at least 1")
        batch = self.tokenizer(
            [texts] if isinstance(texts, str) else texts,
            max_length=self.model.config.max_length,
        )
        tokens, _ = search(
            self.model,
            SearchConfig(beams, self.max_length, alpha, *token_ids(self.tokenizer)),
            self.params,
            batch["input_ids"],
            batch["attention_mask"],
        )
        translations = [self.tokenizer.decode(row) for row in np.asarray(tokens[:, 0])]
        return translations[0] if isinstance(texts, str) else translations

    def alignment(self, text: str, translation: str | None = None) -> Attention:
        """Attention from a translation to its text; None: from the model's own one.

        Row i of the weights `[layers, H, L, M]` is the attention on each token of the
        text when token i of the translation is written. A notebook shows it as a page.
        """
        for name, value in (("text", text), ("translation", translation or "")):
            if not isinstance(value, str):
                raise ValueError(f"{name}={value!r:.60}; give one string")
        if translation is None:
            translation = self.translate(text)
        source, target = self.tokenizer([text]), self.tokenizer([translation])
        ids = target["input_ids"]
        attention = cross_attention(
            self.model,
            self.params,
            source["input_ids"],
            source["attention_mask"],
            ids[:, :-1],
        )
        arrays = {name: np.asarray(x)[:, 0] for name, x in attention.items()}
        if not arrays:
            raise ValueError(
                "this model has no attention, so it has no alignment; train one with it"
            )
        weights = arrays.pop("weights")
        token = self.tokenizer.id_to_token
        return Attention(
            [token(i) for i in ids[0, 1:]],
            weights,
            **{name: np.moveaxis(x, 1, 2) for name, x in arrays.items()},
            source=[token(i) for i in source["input_ids"][0]],
            specials=(self.tokenizer.specials.cls, self.tokenizer.specials.sep),
        )

    def save(self, directory: str | Path) -> None:
        """Writes config.json, model.safetensors and the tokenizer's files."""
        directory = Path(directory)
        directory.mkdir(parents=True, exist_ok=True)
        config = {**vars(self.model.config), "max_length": self.max_length}
        (directory / "config.json").write_text(json.dumps(config, indent=2) + "\n")
        flat = flax.traverse_util.flatten_dict(self.params, sep="/")
        arrays = {k: np.ascontiguousarray(x) for k, x in flat.items()}
        (directory / "model.safetensors").write_bytes(safetensors.numpy.save(arrays))
        self.tokenizer.save(directory)

    @classmethod
    def load(cls, directory: str | Path) -> "Translator":
        """Opens the result of `save`, or the work directory of a finished run."""
        directory = Path(directory)
        if (directory / "model/config.json").is_file():
            directory = directory / "model"
        try:
            config = json.loads((directory / "config.json").read_text())
            max_length = config.pop("max_length")
            model = CONFIGS[config["model_type"]](**config).build()
            flat = safetensors.numpy.load_file(directory / "model.safetensors")
        except DAMAGE as error:
            raise ValueError(
                f"{directory} is not a translator, or is damaged ({error}); save it "
                "again"
            ) from error
        params = flax.traverse_util.unflatten_dict(flat, sep="/")
        return cls(model, params, tokenizers.load(directory), max_length)


# Errors that missing or damaged files cause.
DAMAGE = OSError, ValueError, KeyError, TypeError, safetensors.SafetensorError


def token_ids(tokenizer: Tokenizer) -> tuple[int, int, int, int]:
    """The ids that start, end and pad a text, and the number of all."""
    x = tokenizer
    return x.cls_id, x.sep_id, x.pad_id, x.vocab_size


class SearchConfig(NamedTuple):
    """The arguments of `beam_search` that are not arrays.

    `vocab_size` is that of the tokenizer; a model's table may have more rows.
    """

    beams: int
    max_length: int
    alpha: float
    start_id: int
    end_id: int
    pad_id: int
    vocab_size: int


@functools.partial(jax.jit, static_argnums=(0, 1))
def search(
    model: nn.Module,
    config: SearchConfig,
    params: Mapping[str, Any],
    input_ids: jax.Array,
    attention_mask: jax.Array,
) -> tuple[jax.Array, jax.Array]:
    """Translations of `[B, M]` tokens, see `beam_search`."""
    settings = config._asdict()
    vocab_size = settings.pop("vocab_size")
    apply = functools.partial(model.apply, {"params": params})
    memory = apply(input_ids, attention_mask, method="encode")
    memory, mask = jax.tree.map(
        lambda x: jnp.repeat(x, config.beams, axis=0), (memory, attention_mask)
    )

    def by_beam(tree):
        shape = len(input_ids), config.beams
        return jax.tree.map(lambda x: x.reshape(*shape, *x.shape[1:]), tree)

    def scores(tokens, t, state):
        tokens, state = jax.tree.map(
            lambda x: x.reshape(-1, *x.shape[2:]), (tokens, state)
        )
        logits, state = apply(tokens, t, state, memory, mask, method="step")
        is_piece = jnp.arange(logits.shape[-1]) < vocab_size
        logits = jnp.where(is_piece, logits, -jnp.inf)
        return by_beam(jax.nn.log_softmax(logits)), by_beam(state)

    state = by_beam(apply(memory, method="start"))
    return beam_search(scores, state, len(input_ids), **settings)


@functools.partial(jax.jit, static_argnums=0)
def cross_attention(
    model: nn.Module,
    params: Mapping[str, Any],
    input_ids: jax.Array,
    attention_mask: jax.Array,
    decoder_input_ids: jax.Array,
) -> dict[str, jax.Array]:
    """Cross attention of every layer, as float32; {} for a model without it.

    `weights` `[layers, B, H, L, M]`. Where they are the softmax of queries times keys,
    also `queries` `[layers, B, L, H, K]` and `keys` `[layers, B, M, H, K]`.
    """
    _, variables = model.apply(
        {"params": params},
        input_ids,
        decoder_input_ids,
        attention_mask,
        mutable=["intermediates"],
    )
    # In the order of the calls, which is that of the layers.
    layers: dict[str, list] = {}
    for path, values in flax.traverse_util.flatten_dict(dict(variables)).items():
        if "cross_attention" in path:
            layers.setdefault(path[-1], []).append(values[0].astype(jnp.float32))
    return {name: jnp.stack(x) for name, x in layers.items()}
