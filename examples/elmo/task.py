"""Pre-training as a task: rows of text, the loss of both directions, perplexity."""

import array
import dataclasses
import hashlib
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn

from bert_jax.data import corpus
from bert_jax.objectives import Totals
from examples.elmo.elmo import Elmo
from examples.elmo.model import ElmoConfig, LanguageModel
from examples.elmo.softmax import full_softmax, sampled_softmax
from examples.elmo.words import BEGIN, END, SPECIAL, UNKNOWN, character_ids, split

DIRECTIONS = ("forward", "backward")


class TextRows:
    """Rows of L words, cut from one stream of sentences with their marks.

    A row begins with the last word of the row before, so that each word is predicted
    from both of its neighbours exactly once.

    Args:
      stream: numbers of words in `words`.
      words: all different words.
      known: how many of these, from the first on, are the vocabulary.
      max_characters: W.
      length: L.
    """

    sequences_per_row = 1

    def __init__(
        self,
        stream: np.ndarray,
        words: Sequence[str],
        known: int,
        max_characters: int,
        length: int,
    ):
        self.stream, self.max_length, self._known = stream, length, known
        self._characters = character_ids(words, max_characters).astype(np.uint16)

    def __len__(self) -> int:
        return -(-(len(self.stream) - 1) // (self.max_length - 1))

    def gather(self, indices: np.ndarray) -> dict[str, np.ndarray]:
        """`characters` `[B, L, W]`, `labels` and `attention_mask` `[B, L]` of rows."""
        starts = np.asarray(indices, np.int64)[:, None] * (self.max_length - 1)
        places = starts + np.arange(self.max_length)
        real = places < len(self.stream)
        words = self.stream[np.where(real, places, 0)]
        characters = self._characters[words] * real[..., None]
        known = words < self._known
        return {
            "characters": characters.astype(np.int32),
            "labels": np.where(known, words, SPECIAL.index(UNKNOWN)).astype(np.int32),
            "attention_mask": real.astype(np.int32),
        }


@dataclasses.dataclass(frozen=True)
class ElmoTask:
    """Language modelling in both directions, with its rows and vocabulary."""

    rows: Mapping[str, TextRows]
    words: tuple[str, ...]
    samples: int

    loss_weights: ClassVar[Mapping[str, float]] = {
        f"{name}_loss": 0.5 for name in DIRECTIONS
    }
    best_metric = "loss"
    constants: ClassVar[Mapping[str, Any]] = {}

    @property
    def fingerprint(self) -> dict[str, Any]:
        """Digests of the text and the vocabulary."""
        streams = b"".join(rows.stream.tobytes() for rows in self.rows.values())
        return {
            "data": {"text": hashlib.sha256(streams).hexdigest()[:16]},
            "tokenizer": hashlib.sha256(repr(self.words).encode()).hexdigest()[:16],
        }

    @property
    def example_batch(self) -> dict[str, np.ndarray]:
        """The smallest inputs that initialise the model."""
        batch = self.rows["train"].gather(np.zeros(1, int))
        return {name: batch[name][:, :1] for name in ("characters", "attention_mask")}

    def build(self, encoder: nn.Module) -> nn.Module:
        """Both directions with the table of words."""
        return LanguageModel(encoder)

    def pretrained_params(self, init_from: str) -> dict[str, Any]:
        """Parameters of another run; those of words if the vocabulary is the same."""
        start = Elmo.load(init_from)
        if start.words == self.words:
            return dict(start.params)
        return {"encoder": start.params["encoder"]}

    def loss(self, model, params, batch, key) -> tuple[Totals, dict]:
        """Totals; in evaluation over the whole vocabulary, without dropout."""
        mask, labels = batch["attention_mask"], batch["labels"]
        dropout, *draws = (None,) * 3 if key is None else jax.random.split(key, 3)
        hidden = model.apply(
            {"params": params},
            batch["characters"],
            mask,
            deterministic=key is None,
            rngs=None if key is None else {"dropout": dropout},
        )
        valid = batch.get("valid", jnp.ones(len(mask), bool))
        # No word predicts one of another sentence.
        inside = (mask[:, 1:] > 0) & (labels[:, 1:] != SPECIAL.index(BEGIN))
        real = (inside & valid[:, None]).astype(jnp.float32)
        pairs = (hidden[0, :, :-1], labels[:, 1:]), (hidden[1, :, 1:], labels[:, :-1])
        totals = {}
        for name, (x, y), draw in zip(DIRECTIONS, pairs, draws, strict=True):
            table = params["word"], params["bias"]
            if key is None or not self.samples:
                losses = full_softmax(x, y, *table)
            else:
                losses = sampled_softmax(x, y, *table, self.samples, draw)
            totals[f"{name}_loss"] = (losses * real).sum(), real.sum()
        tokens = (mask > 0).sum(dtype=jnp.float32)
        config = model.encoder.config
        scored = min(self.samples or config.vocab_size, config.vocab_size)
        products = float(config.kernels) * tokens
        products += 2.0 * config.hidden_size * scored * real.sum()
        one = jnp.ones(())
        return totals | {"tokens": (tokens, one), "flops": (6.0 * products, one)}, {}

    def report(
        self, split: str, totals: Mapping[str, Any], predictions: Mapping[str, Any]
    ) -> dict[str, float]:
        """Losses in nats a word; of held-out text also their perplexity."""
        losses = {
            k: float(totals[k][0]) / float(totals[k][1]) for k in self.loss_weights
        }
        loss = sum(losses.values()) / 2
        report = {"loss": loss, **losses}
        return report if split == "train" else report | {"perplexity": math.exp(loss)}

    def to_models(
        self, module: nn.Module, params: Any, history: Mapping[str, Any]
    ) -> dict[str, Elmo]:
        """The network with its table of words, saved to model/."""
        return {"model": Elmo(module.encoder.config, params, self.words, history)}

    def write_predictions(
        self, workdir: Path, split: str, predictions: Mapping[str, Any]
    ) -> None:
        """There are none to write."""


@dataclasses.dataclass
class ElmoTaskConfig:
    """Text to learn from.

    Attributes:
      train: files of text, see `bert_jax.data.corpus.read`.
      dev: files of held-out text; none takes some documents of `train`.
      held_out: the share of these.
      max_words: reading ends after so many words of a text.
      length: words in a row, which begins with an empty state.
      samples: words drawn for the loss of a batch; 0 takes the whole vocabulary.
    """

    train: tuple[str, ...] = ()
    dev: tuple[str, ...] = ()
    held_out: float = 0.02
    max_words: int = 20_000_000
    length: int = 64
    samples: int = 8192

    def resolve(self, config: Any) -> Any:
        """The run's config, in which nothing depends on the data; checks the task."""
        if not self.train:
            raise ValueError("task.train is empty; set it to files of text")
        if self.length < 2:
            raise ValueError(f"task.length={self.length}; it must be at least 2")
        if self.samples < 0:
            raise ValueError(f"task.samples={self.samples}; it must be at least 0")
        if not self.dev and not 0 < self.held_out < 1:
            raise ValueError(
                f"task.held_out={self.held_out} is not between 0 and 1; change it, or "
                "set task.dev"
            )
        return config

    def prepare(self, workdir: Path, encoder: ElmoConfig, seed: int) -> ElmoTask:
        """Reads the texts; the vocabulary is counted in the one to learn from."""
        share = 0.0 if self.dev else self.held_out
        texts = {
            "train": sentences(self.train, lambda x: not corpus.is_held_out(x, share)),
            "eval": sentences(
                self.dev or self.train,
                lambda x: bool(self.dev) or corpus.is_held_out(x, share),
            ),
        }
        numbers = {word: i for i, word in enumerate(SPECIAL)}
        streams = {k: to_numbers(x, numbers, self.max_words) for k, x in texts.items()}
        for name, stream in streams.items():
            if not len(stream):
                raise ValueError(
                    f"there is no text for {name!r} in task.train={self.train} and "
                    f"task.dev={self.dev}; give more of it, or raise task.held_out"
                )
        words, known = by_frequency(streams, numbers, encoder.vocab_size)
        rows = {
            name: TextRows(stream, words, known, encoder.max_characters, self.length)
            for name, stream in streams.items()
        }
        for name, stream in streams.items():
            share = 100 * float((stream < known).mean())
            print(
                f"{name}: {len(stream):,} words, {share:.1f} % of them in the "
                f"vocabulary of {known:,}",
                flush=True,
            )
        return ElmoTask(rows, tuple(words[:known]), self.samples)


def sentences(
    paths: Sequence[str], keep: Callable[[tuple[str, ...]], bool]
) -> Iterator[list[str]]:
    """The words of each sentence of those documents that `keep` is true of."""
    kind = corpus.resolve(paths)
    for document in corpus.read(paths, kind):
        if keep(document):
            yield from filter(None, map(split, corpus.sentences(document, kind)))


def to_numbers(
    sentences: Iterable[list[str]], numbers: dict[str, int], most: int
) -> np.ndarray:
    """One stream of at most about `most` words, sentences between their marks.

    A word that is not in `numbers` gets the next number.
    """
    stream = array.array("i")
    for words in sentences:
        for word in (BEGIN, *words, END):
            stream.append(numbers.setdefault(word, len(numbers)))
        if len(stream) >= most:
            break
    return np.array(stream, np.int32)


def by_frequency(
    streams: dict[str, np.ndarray], numbers: Mapping[str, int], size: int
) -> tuple[list[str], int]:
    """All words, the marks and then the most frequent first, and how many are known.

    The numbers in `streams` are changed to places in this list. At most `size` words
    are known, and none that the text to learn from lacks.
    """
    words, marks = list(numbers), len(SPECIAL)
    counts = np.bincount(streams["train"], minlength=len(words))
    order = sorted(range(marks, len(words)), key=lambda i: (-counts[i], words[i]))
    order = [*range(marks), *order]
    places = np.empty(len(words), np.int32)
    places[order] = np.arange(len(words))
    for name, stream in streams.items():
        streams[name] = places[stream]
    known = marks + int((counts[marks:] > 0).sum())
    return [words[i] for i in order], min(known, size)
