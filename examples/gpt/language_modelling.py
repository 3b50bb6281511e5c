"""Language modelling as a task: a text, its tokenizer, the loss of each next token."""

import dataclasses
import functools
import hashlib
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import linen as nn

from bert_jax import tokenizers
from bert_jax.objectives import Totals, throughput_totals
from bert_jax.tokenizers import ByteLevelBPE, Tokenizer, check_vocab_size
from examples.gpt.language_model import Characters, LanguageModel


class TextRows:
    """Windows of a text, one every `stride` tokens, each with the tokens that follow.

    >>> TextRows(np.arange(7), max_length=3, stride=2).gather(np.array([1]))
    {'input_ids': array([[2, 3, 4]]), 'labels': array([[3, 4, 5]])}
    """

    sequences_per_row = 1

    def __init__(self, ids: np.ndarray, max_length: int, stride: int):
        self.ids, self.max_length, self.stride = ids, max_length, stride

    def __len__(self) -> int:
        return max(0, len(self.ids) - 1 - self.max_length + self.stride) // self.stride

    def gather(self, indices: np.ndarray) -> dict[str, np.ndarray]:
        """The rows with numbers `indices` `[B]`: `input_ids` and `labels` `[B, L]`."""
        starts = np.asarray(indices)[:, None] * self.stride
        windows = self.ids[starts + np.arange(self.max_length + 1)]
        return {"input_ids": windows[:, :-1], "labels": windows[:, 1:]}


def cross_entropy(
    logits: jax.Array, labels: jax.Array, weights: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Sum and count over `[..., C]` logits; weights `[...]` are 0 where none counts."""
    losses = optax.softmax_cross_entropy_with_integer_labels(logits, labels)
    return (losses * weights).sum(), weights.sum()


@dataclasses.dataclass(frozen=True)
class LanguageModelling:
    """Language modelling with its rows and tokenizer."""

    rows: Mapping[str, TextRows]
    tokenizer: Characters | Tokenizer

    loss_weights: ClassVar[Mapping[str, float]] = {"loss": 1.0}
    best_metric = "loss"
    constants: ClassVar[Mapping[str, Any]] = {}

    @functools.cached_property
    def fingerprint(self) -> dict[str, Any]:
        """Digests of the text and the tokenizer."""
        texts = {
            k: hashlib.sha256(x.ids).hexdigest()[:16] for k, x in self.rows.items()
        }
        return {"data": texts, "tokenizer": self.tokenizer.fingerprint}

    @property
    def example_batch(self) -> dict[str, np.ndarray]:
        """The smallest inputs that initialise the model."""
        return {"input_ids": np.zeros((1, 2), np.int32)}

    def build(self, encoder: nn.Module) -> nn.Module:
        """The GPT itself, whose word embeddings are its head."""
        return encoder

    def pretrained_params(self, init_from: str) -> dict[str, Any]:
        """Parameters of a GPT with the same tokenizer."""
        start = LanguageModel.load(init_from)
        if getattr(start.tokenizer, "fingerprint", None) != self.tokenizer.fingerprint:
            raise ValueError(
                f"init_from={init_from!r} has another tokenizer; set task.tokenizer to "
                "the same directory"
            )
        return dict(start.params)

    def loss(self, model, params, batch, key) -> tuple[Totals, dict]:
        """The cross-entropy of each token given those before it."""
        ids = batch["input_ids"]
        valid = batch.get("valid", jnp.ones(len(ids), bool))
        real = jnp.ones_like(ids) * valid[:, None].astype(jnp.int32)
        logits = model.apply(
            {"params": params},
            ids,
            deterministic=key is None,
            rngs=None if key is None else {"dropout": key},
            method="logits",
        )
        total, count = cross_entropy(logits, batch["labels"], real.astype(jnp.float32))
        throughput = throughput_totals(model.config, real, count)
        return {"loss": (total, count), **throughput}, {}

    def report(
        self, split: str, totals: Mapping[str, Any], predictions: Mapping[str, Any]
    ) -> dict[str, float]:
        """The loss of a token, and its exponential."""
        total, count = totals["loss"]
        loss = float(total) / max(float(count), 1e-9)
        return {"loss": loss, "perplexity": float(np.exp(min(loss, 99.0)))}

    def to_models(
        self, module: nn.Module, params: Any, history: Mapping[str, Any]
    ) -> dict[str, LanguageModel]:
        """The language model, saved to model/."""
        return {"model": LanguageModel(module, params, self.tokenizer, history)}

    def write_predictions(
        self, workdir: Path, split: str, predictions: Mapping[str, Any]
    ) -> None:
        """Writes nothing: a text has no labels."""

    def demo(self, model: LanguageModel, workdir: Path) -> str:
        """A continuation of the first tokens that were held out."""
        prompt = self.tokenizer.decode(self.rows["eval"].ids[: self._few])
        return f"\n{prompt}\n  goes on: {model.continue_text(prompt, 4 * self._few)!r}"

    def next_steps(self, workdir: Path, shell: bool) -> str:
        """The model's directory and a call to try."""
        prompt = self.tokenizer.decode(self.rows["eval"].ids[: self._few])
        command = f"python -m examples.gpt --model={workdir} --prompt="
        lines = [
            "from examples.gpt.language_model import LanguageModel",
            f"model = LanguageModel.load({str(workdir / 'model')!r})",
            f"print(model.continue_text({prompt!r}, temperature=0.8))",
        ]
        if shell:
            lines = [command + shlex.quote(prompt)]
        return "\n  ".join([f"\nThe model is in {workdir}/model. Next:", *lines])

    @property
    def _few(self) -> int:
        return self.rows["eval"].max_length // 4


@dataclasses.dataclass
class LanguageModellingConfig:
    """Language modelling, as a recipe describes it.

    Attributes:
      text: a file of plain text.
      held_out: the share of the text, at its end, to evaluate on.
      tokenizer: "characters"; "bpe" for a vocabulary of the encoder's `vocab_size` that
        is trained on the text; or the directory of a tokenizer or a GPT.

    Rows are as long as the context of the encoder. Training reads them from every place
    in the text, evaluation one after the other.
    """

    text: str | None = None
    held_out: float = 0.1
    tokenizer: str = "characters"

    @functools.cached_property
    def content(self) -> str:
        """The text, read once. Raises ValueError for a file without one."""
        if not self.text:
            raise ValueError("task.text names no file; give one of plain text")
        try:
            text = Path(self.text).read_text("utf-8-sig")
        except (OSError, UnicodeError) as error:
            raise ValueError(
                f"task.text={self.text!r} cannot be read ({error}); check the path"
            ) from None
        if not text.strip():
            raise ValueError(f"task.text={self.text!r} is empty; give it some text")
        return text

    def resolve(self, config: Any) -> Any:
        """The run's config, with as many words as there are characters."""
        if not 0 < self.held_out < 1:
            raise ValueError(
                f"task.held_out={self.held_out} is not a share between 0 and 1; 0.1 is "
                "usual"
            )
        if self.tokenizer != "characters":
            return config
        size = Characters(self.content).vocab_size
        encoder = dataclasses.replace(config.encoder, vocab_size=size)
        return dataclasses.replace(config, encoder=encoder)

    def prepare(self, workdir: Path, encoder: Any, seed: int) -> LanguageModelling:
        """Reads and tokenizes the text."""
        tokenizer = self._tokenizer(workdir / "data/tokenizer", encoder)
        check_vocab_size(tokenizer.vocab_size, encoder.vocab_size)
        text, context = self.content, encoder.max_length
        split = int(len(text) * (1 - self.held_out))
        parts = {"train": (text[:split], 1), "eval": (text[split:], context)}
        rows = {
            name: TextRows(encode(tokenizer, part), context, stride)
            for name, (part, stride) in parts.items()
        }
        sizes = {name: len(x.ids) for name, x in rows.items()}
        if min(sizes.values()) <= context:
            raise ValueError(
                f"task.text={self.text!r} has {sizes['train']} tokens to train on and "
                f"{sizes['eval']} held out; both must be more than the context of "
                f"{context}"
            )
        print(
            f"{sizes['train']:,} tokens to train on, {sizes['eval']:,} held out",
            flush=True,
        )
        return LanguageModelling(rows, tokenizer)

    def _tokenizer(self, cache: Path, encoder: Any) -> Characters | Tokenizer:
        if self.tokenizer == "characters":
            return Characters(self.content)
        if self.tokenizer != "bpe":
            return tokenizers.load(self.tokenizer)
        if (cache / "tokenizer.json").exists():
            return tokenizers.load(cache)
        lines = self.content.splitlines(keepends=True)
        tokenizer = ByteLevelBPE.train(lines, encoder.vocab_size)
        tokenizer.save(cache)
        return tokenizer


def encode(tokenizer: Characters | Tokenizer, text: str) -> np.ndarray:
    """The ids of a text, int32 `[N]`, tokenized line by line."""
    lines = text.splitlines(keepends=True)
    return np.concatenate([np.array(tokenizer.encode(x), np.int32) for x in lines])
