"""Translation as a task: pairs of texts, loss, scores and written predictions."""

import dataclasses
import functools
import hashlib
import math
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import flax
import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn

from bert_jax import tokenizers
from bert_jax.data import RaggedRows
from bert_jax.objectives import Totals
from bert_jax.tokenizers import Tokenizer, check_vocab_size
from examples.translation import toy_language
from examples.translation.pair_files import Pair, frequent_words, read_pairs
from examples.translation.translator import (
    SearchConfig,
    Translator,
    search,
    token_ids,
)


class PairRows(RaggedRows):
    """Pairs of texts as rows of tokens; a batch has pairs of like length.

    A row is as long as the longer one of its texts.
    """

    def __init__(self, pairs: Sequence[Pair], tokenizer: Tokenizer, max_length: int):
        self.pairs, self.max_length = list(pairs), max_length
        self._source, self._target = (
            _rows([pair[side] for pair in pairs], tokenizer, max_length)
            for side in (0, 1)
        )
        self.lengths = np.maximum(self._source.lengths, self._target.lengths)

    def gather(
        self, indices: np.ndarray, length: int | None = None
    ) -> dict[str, np.ndarray]:
        """The rows with numbers `indices` `[B]`, padded to `length` tokens.

        int32 `[B, M]` `input_ids` and `attention_mask`, and `[B, L]`, where L = M - 1,
        `decoder_input_ids`, `labels` and `decoder_attention_mask`.
        """
        length = length or self.padded_length(indices)
        target = self._target.gather(indices, length)
        ids, real = target["input_ids"], target["attention_mask"]
        return self._source.gather(indices, length) | {
            "decoder_input_ids": ids[:, :-1],
            "labels": ids[:, 1:],
            "decoder_attention_mask": real[:, 1:],
        }


def _rows(texts, tokenizer, max_length):
    rows = tokenizer(texts)
    lengths = rows["attention_mask"].sum(1)
    longest = int(lengths.argmax())
    if lengths[longest] > max_length:
        raise ValueError(
            f"{texts[longest]!r:.80} has {lengths[longest]} tokens, more than "
            f"task.max_length={max_length}; raise it or leave the pair out"
        )
    ids = [x[:n] for x, n in zip(rows["input_ids"], lengths, strict=True)]
    fill = {"input_ids": tokenizer.pad_id}
    return RaggedRows({"input_ids": ids}, fill, {}, max_length)


@dataclasses.dataclass(frozen=True)
class TranslationTask:
    """Translation with its rows and tokenizer."""

    rows: Mapping[str, PairRows]
    tokenizer: Tokenizer
    label_smoothing: float
    max_length: int

    loss_weights: ClassVar[Mapping[str, float]] = {"loss": 1.0}
    best_metric = "loss"
    constants: ClassVar[Mapping[str, Any]] = {}

    @functools.cached_property
    def fingerprint(self) -> dict[str, Any]:
        """Digests of the data and the tokenizer."""
        pairs = [pair for rows in self.rows.values() for pair in rows.pairs]
        digest = hashlib.sha256(repr(pairs).encode()).hexdigest()[:16]
        return {"data": {"pairs": digest}, "tokenizer": self.tokenizer.fingerprint}

    @property
    def example_batch(self) -> dict[str, np.ndarray]:
        """The smallest inputs that initialise the model."""
        ids = np.zeros((1, 2), np.int32)
        return {"input_ids": ids, "decoder_input_ids": ids}

    def build(self, encoder: nn.Module) -> nn.Module:
        """The model itself, whose decoder is its head."""
        return encoder

    def pretrained_params(self, init_from: str) -> dict[str, Any]:
        """Parameters of a translator with the same vocabulary."""
        start = Translator.load(init_from)
        if start.tokenizer.fingerprint != self.tokenizer.fingerprint:
            raise ValueError(
                f"init_from={init_from!r} has another tokenizer; set task.tokenizer to "
                "the same directory"
            )
        return dict(start.params)

    def loss(self, model, params, batch, key) -> tuple[Totals, dict]:
        """Totals, and in evaluation the tokens `[B, L]` of greedy search."""
        totals = self.totals(model, params, batch, key)
        if key is not None:
            return totals, {}
        greedy = SearchConfig(1, self.max_length - 1, 0.0, *token_ids(self.tokenizer))
        inputs = batch["input_ids"], batch["attention_mask"]
        tokens, _ = search(model, greedy, params, *inputs)
        return totals, {"tokens": tokens[:, 0]}

    def totals(self, model, params, batch, key) -> Totals:
        """Cross-entropy with smoothed labels (section 5.4), and accuracy of tokens."""
        real = batch["decoder_attention_mask"]
        valid = batch.get("valid", jnp.ones(len(real), bool))
        logits = model.apply(
            {"params": params},
            batch["input_ids"],
            batch["decoder_input_ids"],
            batch["attention_mask"],
            real,
            deterministic=key is None,
            rngs=None if key is None else {"dropout": key},
        )
        rate = self.label_smoothing if key is not None else 0.0
        label = jnp.take_along_axis(logits, batch["labels"][..., None], -1)[..., 0]
        # Cross-entropy with smooth labels, without an array of these.
        target = (1 - rate) * label + rate * logits.mean(-1)
        losses = jax.nn.logsumexp(logits, axis=-1) - target
        weights = (real * valid[:, None]).astype(jnp.float32)
        right = label == logits.max(-1)
        mask = batch["attention_mask"] * valid[:, None]
        return {
            "loss": ((losses * weights).sum(), weights.sum()),
            "accuracy": ((right * weights).sum(), weights.sum()),
            **throughput_totals(params, mask.sum(), weights.sum()),
        }

    def report(
        self, split: str, totals: Mapping[str, Any], predictions: Mapping[str, Any]
    ) -> dict[str, float]:
        """Averages; in evaluation also the perplexity, and the share of texts that are
        translated without a fault."""
        named = {name: totals[name] for name in ("loss", "accuracy")}
        averages = {k: float(s) / max(float(n), 1e-9) for k, (s, n) in named.items()}
        if split == "train":
            return averages
        rows = self.rows[split]
        labels = rows.gather(np.arange(len(rows)), self.max_length)["labels"]
        right = (predictions["tokens"] == labels).all(1)
        scores = {"perplexity": math.exp(averages["loss"]), "exact_match": right.mean()}
        return averages | {name: float(x) for name, x in scores.items()}

    def to_models(
        self, module: nn.Module, params: Any, history: Mapping[str, Any]
    ) -> dict[str, Translator]:
        """The translator, saved to model/."""
        length = self.max_length - 1
        model = Translator(module, params, self.tokenizer, length, history)
        return {"model": model}

    def write_predictions(
        self, workdir: Path, split: str, predictions: Mapping[str, Any]
    ) -> None:
        """Writes a line for each text: the text, its translation, and the model's."""
        lines = [
            f"{text}\t{translation}\t{self.tokenizer.decode(row)}\n"
            for (text, translation), row in zip(
                self.rows[split].pairs, predictions["tokens"], strict=True
            )
        ]
        (workdir / "predictions").mkdir(exist_ok=True)
        (workdir / f"predictions/{split}.tsv").write_text("".join(lines), "utf-8")

    def demo(self, model: Translator, workdir: Path) -> str:
        """The first held-out text with its translation."""
        text, translation = self.rows["eval"].pairs[0]
        return (
            f"\nheld out: {text}\n  translated: {model.translate(text)}\n"
            f"  it should be: {translation}"
        )

    def next_steps(self, workdir: Path, shell: bool) -> str:
        """The model's directory and a call to try."""
        text, _ = self.rows["eval"].pairs[0]
        lines = [
            "from examples.translation.translator import Translator",
            f"t = Translator.load({str(workdir / 'model')!r})",
            f"print(t.translate({text!r}))",
        ]
        if shell:
            lines = [f"python -c {shlex.quote('; '.join(lines))}"]
        return "\n  ".join([f"\nThe model is in {workdir}/model. Next:", *lines])


def throughput_totals(params: Any, source: jax.Array, target: jax.Array) -> Totals:
    """`tokens` and `flops` of `source` and `target` real tokens.

    FLOPs are those of the products with kernels: six for each number of a kernel and
    token that it reads. The keys and values of cross attention read the source, and the
    table of words scores the target.
    """
    flops = jnp.zeros(())
    for path, x in flax.traverse_util.flatten_dict(params).items():
        if x.ndim > 1:
            of_memory = "cross_attention" in path and {"key", "value"} & {*path}
            count = source if path[0] == "encoder" or of_memory else target
            flops += 6.0 * x.size * count
    return {"tokens": (source + target, jnp.ones(())), "flops": (flops, jnp.ones(()))}


SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")


@dataclasses.dataclass
class TranslationConfig:
    """Translation, as a recipe describes it.

    Attributes:
      train, dev: files of lines `text<TAB>translation`. None: sentences of the toy
        language, `sentences` to train on and `held_out` others.
      text, translation: the names of these two columns in the first line of the files;
        None: every line is a pair.
      tokenizer: vocab.txt or a directory. None: a WordPiece vocabulary of the encoder's
        `vocab_size` that is trained on the files, or the words of the toy language.
      min_count: above 0 the vocabulary trained on the files has whole words instead,
        those that a side of the pairs has so many times; others are unknown.
      max_length: the limit of both texts in tokens; longer pairs are an error.
      label_smoothing: the share of the probability that is spread over all tokens.

    >>> train, dev = TranslationConfig(sentences=1, held_out=1).pairs(seed=0)
    >>> train
    [('a king follows this happy fox often', 'sov uno falo kesta giva luma seko')]
    """

    train: str | None = None
    dev: str | None = None
    text: str | None = None
    translation: str | None = None
    tokenizer: str | None = None
    min_count: int = 0
    sentences: int = 4000
    held_out: int = 500
    max_length: int = 16
    label_smoothing: float = 0.1

    def resolve(self, config: Any) -> Any:
        """The run's config, in which nothing depends on the data; checks the task."""
        self.validate(config.encoder)
        return config

    def validate(self, encoder: Any) -> None:
        """Raises ValueError for a field that cannot be right."""
        if not 3 < self.max_length <= encoder.max_length:
            raise ValueError(
                f"task.max_length={self.max_length} is not between 4 and the "
                f"{encoder.max_length} positions of the encoder; change it"
            )
        if (self.train is None) != (self.dev is None):
            raise ValueError(
                f"task.train={self.train!r} and task.dev={self.dev!r}; set both files "
                "or none"
            )
        if (self.text is None) != (self.translation is None):
            raise ValueError(
                f"task.text={self.text!r} and task.translation={self.translation!r}; "
                "name both columns or none"
            )
        for name in ("sentences", "held_out"):
            if not 1 <= getattr(self, name) <= 100_000:
                raise ValueError(
                    f"task.{name}={getattr(self, name)} is not between 1 and 100000; "
                    "change it"
                )
        if not 0 <= self.label_smoothing < 1:
            raise ValueError(
                f"task.label_smoothing={self.label_smoothing} is not in [0, 1); the "
                "paper has 0.1"
            )

    def prepare(self, workdir: Path, encoder: Any, seed: int) -> TranslationTask:
        """Reads or makes the pairs, and tokenizes them."""
        train, dev = self.pairs(seed)
        tokenizer = self._tokenizer(workdir / "data/tokenizer", encoder, train)
        check_vocab_size(tokenizer.vocab_size, encoder.vocab_size)
        print(f"{len(train):,} pairs to learn from, {len(dev):,} held out", flush=True)
        rows = {
            name: PairRows(pairs, tokenizer, self.max_length)
            for name, pairs in (("train", train), ("eval", dev))
        }
        return TranslationTask(rows, tokenizer, self.label_smoothing, self.max_length)

    def pairs(self, seed: int) -> tuple[list[Pair], list[Pair]]:
        """Pairs to train on, and held-out pairs with other sentences."""
        if self.train and self.dev:
            columns = self.text, self.translation
            return read_pairs(self.train, *columns), read_pairs(self.dev, *columns)
        pairs = toy_language.sentences(self.sentences + self.held_out, seed)
        return pairs[: self.sentences], pairs[self.sentences :]

    def _tokenizer(self, cache, encoder, train) -> Tokenizer:
        if self.tokenizer:
            return tokenizers.load(self.tokenizer)
        if (cache / "tokenizer.json").exists():
            return tokenizers.load(cache)
        if self.train and not self.min_count:
            texts = [text for pair in train for text in pair]
            tokenizer = tokenizers.WordPiece.train(texts, encoder.vocab_size)
        else:
            words = toy_language.words()
            if self.train:
                words = frequent_words(train, self.min_count)
            tokenizer = word_tokenizer(words, cache)
        tokenizer.save(cache)
        return tokenizer


def word_tokenizer(words: Sequence[str], folder: Path) -> Tokenizer:
    """A tokenizer of whole words; writes its vocabulary to a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    content = "".join(f"{word}\n" for word in (*SPECIAL, *words))
    (folder / "vocab.txt").write_text(content, "utf-8")
    return tokenizers.WordPiece.from_vocab(folder / "vocab.txt", strip_accents=False)
