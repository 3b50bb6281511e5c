"""Translator: a trained Transformer with its verbs."""

import dataclasses
import functools
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import flax
import jax
import jax.numpy as jnp
import numpy as np
import safetensors.numpy

from bert_jax import files, tokenizers
from bert_jax.inference.attention import Attention
from bert_jax.inference.checks import check_string
from bert_jax.models import Transformer, TransformerConfig
from bert_jax.models.beam_search import beam_search
from bert_jax.tokenizers import Tokenizer
from bert_jax.tokenizers.text import listed


@dataclasses.dataclass
class Translator:
    """A model that writes one text for another.

    Attributes:
      model: both stacks.
      params: their parameters.
      tokenizer: of both languages; a text starts with its [CLS] and ends with [SEP].
      max_length: of a translation in tokens.
      history: of the run that made it, "config", "step" and "scores"; `save` leaves it
        to the files of the run.
    """

    model: Transformer
    params: Mapping[str, Any]
    tokenizer: Tokenizer
    max_length: int = 64
    history: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def translate(
        self, texts: str | Sequence[str], beams: int = 4, alpha: float = 0.6
    ) -> str | list[str]:
        """The likeliest translation of one text, or of each of many.

        Args:
          texts: one or many.
          beams: how many beginnings are kept; 1 is greedy search.
          alpha: how much longer translations are favoured, see `beam_search`.
        """
        if beams < 1:
            raise ValueError(f"beams={beams}; it must be at least 1")
        many = listed(texts, "texts")
        batch = self.tokenizer(many, max_length=self.model.config.max_length)
        inputs = batch["input_ids"], batch["attention_mask"]
        tokens, _ = searched(
            self.model,
            (beams, self.max_length, alpha, *special(self.tokenizer)),
            self.params,
            *inputs,
        )
        found = [self.tokenizer.decode(row) for row in np.asarray(tokens[:, 0])]
        return found[0] if isinstance(texts, str) else found

    def alignment(self, text: str, translation: str | None = None) -> Attention:
        """What the model looks at while it writes `translation`, or its own.

        Row i of the weights `[layers, H, L, M]` is how much of each token of the text
        it took to write token i. A notebook shows it as a page to look through.
        """
        check_string("text", text)
        check_string("translation", translation or "")
        if translation is None:
            translation = self.translate(text)
        source, target = self.tokenizer([text]), self.tokenizer([translation])
        ids = target["input_ids"]
        sown = looked_at(
            self.model,
            self.params,
            source["input_ids"],
            source["attention_mask"],
            ids[:, :-1],
        )
        name = self.tokenizer.id_to_token
        found = {name: np.asarray(x)[:, 0] for name, x in sown.items()}
        return Attention(
            [name(i) for i in ids[0, 1:]],
            found["weights"],
            queries=np.moveaxis(found["queries"], 1, 2),
            keys=np.moveaxis(found["keys"], 1, 2),
            source=[name(i) for i in source["input_ids"][0]],
        )

    def save(self, directory: str | Path) -> None:
        """Writes config.json, model.safetensors and the tokenizer's files."""
        directory = Path(directory)
        directory.mkdir(parents=True, exist_ok=True)
        said = {**vars(self.model.config), "max_length": self.max_length}
        (directory / "config.json").write_text(json.dumps(said, indent=2) + "\n")
        flat = flax.traverse_util.flatten_dict(self.params, sep="/")
        arrays = {k: np.ascontiguousarray(x) for k, x in flat.items()}
        (directory / "model.safetensors").write_bytes(safetensors.numpy.save(arrays))
        self.tokenizer.save(directory)

    @classmethod
    def load(cls, directory: str | Path) -> "Translator":
        """Opens what `save` wrote, or the work directory of a finished run."""
        directory = Path(directory)
        if (directory / "model/config.json").is_file():
            directory = directory / "model"
        if not (directory / "config.json").is_file():
            raise ValueError(f"{directory} has no config.json; is it a translator's?")
        with files.refused(directory, "save it again"):
            said = json.loads((directory / "config.json").read_text())
            max_length = said.pop("max_length")
            model = TransformerConfig(**said).build()
            try:
                flat = safetensors.numpy.load_file(directory / "model.safetensors")
            except (OSError, safetensors.SafetensorError) as error:
                raise ValueError(
                    f"{directory}/model.safetensors is damaged ({error}); save it again"
                ) from None
            params = flax.traverse_util.unflatten_dict(flat, sep="/")
            return cls(model, params, tokenizers.load(directory), max_length)


def special(tokenizer: Tokenizer) -> tuple[int, int, int]:
    """The ids that start, end and fill a text."""
    return tokenizer.cls_id, tokenizer.sep_id, tokenizer.pad_id


@functools.partial(jax.jit, static_argnums=(0, 1))
def searched(
    model: Transformer,
    how: tuple,
    params: Any,
    input_ids: jax.Array,
    attention_mask: jax.Array,
) -> tuple[jax.Array, jax.Array]:
    """Translations of `[B, M]` tokens, as `beam_search` gives them.

    `how` is `beams, max_length, alpha` and the ids that start, end and fill a text.
    """
    beams, max_length, alpha, start_id, end_id, pad_id = how
    apply = functools.partial(model.apply, {"params": params})
    memory = apply(input_ids, attention_mask, method="encode")
    memory, mask = (jnp.repeat(x, beams, axis=0) for x in (memory, attention_mask))

    def scores(tokens, t):
        rows = tokens.reshape(-1, tokens.shape[-1])
        logits = apply(rows, None, memory, mask, method="decode")
        here = jax.lax.dynamic_index_in_dim(logits, t, axis=1, keepdims=False)
        return jax.nn.log_softmax(here).reshape(*tokens.shape[:2], -1)

    return beam_search(
        scores,
        len(input_ids),
        beams=beams,
        max_length=max_length,
        start_id=start_id,
        end_id=end_id,
        pad_id=pad_id,
        alpha=alpha,
    )


@functools.partial(jax.jit, static_argnums=0)
def looked_at(
    model: Transformer,
    params: Any,
    input_ids: jax.Array,
    attention_mask: jax.Array,
    decoder_input_ids: jax.Array,
) -> dict[str, jax.Array]:
    """Cross attention of every layer, as float32.

    `weights` `[layers, B, H, L, M]`, `queries` `[layers, B, L, H, K]` and `keys`
    `[layers, B, M, H, K]`, of whose products the weights are the softmax.
    """
    _, seen = model.apply(
        {"params": params},
        input_ids,
        decoder_input_ids,
        attention_mask,
        mutable=["intermediates"],
    )
    sown = seen["intermediates"]["decoder"]
    layers = [
        {name: x[0] for name, x in sown[f"layer_{i}"]["cross_attention"].items()}
        for i in range(model.config.num_hidden_layers)
    ]
    return jax.tree.map(lambda *x: jnp.stack(x).astype(jnp.float32), *layers)
