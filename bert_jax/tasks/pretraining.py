"""Pre-training: masked LM and next-sentence (or sentence-order) prediction."""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import linen as nn

from bert_jax import tokenizers
from bert_jax.data import corpus
from bert_jax.data.prepare import Recipe, Statistics, prepare
from bert_jax.data.source import PreparedRows
from bert_jax.masking import Masking, Vocabulary, mask_tokens
from bert_jax.models import heads, layers
from bert_jax.predict import Model, load
from bert_jax.tasks.showcase import closing_words

# The best constant guess, and the histogram it follows from.
GUESSES = {"unigram_accuracy": "mlm_labels", "nsp_constant_accuracy": "nsp_labels"}

PARTS = ("encoder", "mlm", "pooler", "pair")

# What a row of prepared data must hold.
INPUTS = ("input_ids", "attention_mask", "token_type_ids", "position_ids")


def pretraining_loss(
    model: heads.Pretraining,
    params: Any,
    batch: Mapping[str, jax.Array],
    key: jax.Array | None,
    *,
    mask_key: jax.Array,
    masking: Masking,
    vocabulary: Vocabulary,
) -> dict[str, tuple[jax.Array, jax.Array]]:
    """Losses and accuracies of a batch, as (sum, count).

    Args:
      model, params: the model.
      batch: `input_ids, attention_mask, token_type_ids, position_ids` `[B, L]`,
        `cls_positions, pair_labels` `[B, S]` (label -1: no pair), `example` `[B]`, and
        in evaluation `valid` `[B]`, false on rows that only fill the batch.
      key: of dropout; None means evaluation.
      mask_key: of the masks; a row's mask depends on it and on `example` alone.
      masking, vocabulary: how to mask.

    Returns:
      mlm_loss, mlm_accuracy, nsp_loss, nsp_accuracy (natural logarithm; sums in
      float32), tokens and flops; in evaluation also `mlm_labels` `[V]` and `nsp_labels`
      `[2]`: how often each answer was right, which gives the best constant guess.
    """
    hidden = mask_tokens(
        mask_key,
        batch["example"],
        batch["input_ids"],
        batch["attention_mask"],
        masking,
        vocabulary,
    )
    valid = batch.get("valid", jnp.ones(len(batch["input_ids"]), bool))[:, None]
    token_logits, pair_logits = model.apply(
        {"params": params},
        **{name: batch[name] for name in INPUTS[1:]},
        input_ids=hidden["input_ids"],
        positions=hidden["positions"],
        cls_positions=batch["cls_positions"],
        deterministic=key is None,
        rngs=None if key is None else {"dropout": key},
    )
    labels, weights = hidden["labels"], hidden["weights"] * valid
    pairs = jnp.maximum(batch["pair_labels"], 0)
    known = ((batch["pair_labels"] >= 0) & valid).astype(jnp.float32)
    totals = {
        **_scores("mlm", token_logits, labels, weights),
        **_scores("nsp", pair_logits, pairs, known),
        **_work(model.encoder.config, batch["attention_mask"] * valid, weights),
    }
    if key is None:
        V = token_logits.shape[-1]
        totals["mlm_labels"] = _histogram(labels, weights, V), weights.sum()
        totals["nsp_labels"] = _histogram(pairs, known, 2), known.sum()
    return totals


def _work(config, attention_mask, weights):
    """Real tokens, and the FLOPs that count as useful."""
    tokens = jnp.sum(attention_mask > 0, dtype=jnp.float32)
    seen = jnp.sum(layers.visible(attention_mask), dtype=jnp.float32)
    flops = model_flops(config, tokens=tokens, seen=seen, predictions=weights.sum())
    return {"tokens": (tokens, jnp.ones(())), "flops": (flops, jnp.ones(()))}


def model_flops(
    config: Any, *, tokens: jax.Array, seen: jax.Array, predictions: jax.Array
) -> jax.Array:
    """FLOPs of one update, as MFU counts them: products only, backward twice forward.

    Args:
      config: the encoder's.
      tokens, seen, predictions: floats: real tokens, (query, key) pairs that attention
        lets through, and tokens scored over the vocabulary.
    """
    D, F = config.hidden_size, config.intermediate_size
    block = 4 * D * D + 2 * D * F
    blocks = config.num_hidden_layers * (block * tokens + 2 * D * seen)
    return 6.0 * (blocks + predictions * (D * D + D * config.vocab_size))


def _scores(name, logits, labels, weights):
    """Loss and accuracy of `[..., C]` logits."""
    losses = optax.softmax_cross_entropy_with_integer_labels(logits, labels)
    right = logits.argmax(-1) == labels
    count = weights.sum()
    return {
        f"{name}_loss": ((losses * weights).sum(), count),
        f"{name}_accuracy": ((right * weights).sum(), count),
    }


def _histogram(labels, weights, size):
    return jnp.zeros(size).at[labels].add(weights)


def summary(totals: Mapping[str, tuple[np.ndarray, np.ndarray]]) -> dict[str, float]:
    """Averages by their public names.

    After evaluation, `unigram_accuracy` and `nsp_constant_accuracy` are those of the
    best constant guess on the same rows: what a model that has learnt nothing reaches.
    """
    average = {k: np.asarray(s) / max(float(n), 1e-9) for k, (s, n) in totals.items()}
    named = {
        name: float(average[name])
        for name in ("mlm_loss", "mlm_accuracy", "nsp_loss", "nsp_accuracy")
    }
    return {
        "loss": named["mlm_loss"] + named["nsp_loss"],
        **named,
        **{
            guess: float(average[labels].max())
            for guess, labels in GUESSES.items()
            if labels in average
        },
    }


@dataclasses.dataclass
class Pretraining:
    """Pre-training on raw text, as a config says it.

    Attributes:
      paths: files, directories or globs of raw text; none takes the documentation
        installed with Python.
      format: one of `data.corpus.FORMATS`; "auto" looks at each file.
      prepared: directory made by `bert-jax prepare`, instead of `paths`.
      tokenizer: vocab.txt, or a directory with a tokenizer; None trains a WordPiece
        vocabulary of the encoder's `vocab_size` on the text.
      lowercase: for a vocabulary that is trained, or given as vocab.txt.
      recipe: how text becomes rows.
      masking: how tokens are hidden.
    """

    paths: tuple[str, ...] = ()
    format: str = "auto"
    prepared: str | None = None
    tokenizer: str | None = None
    lowercase: bool = True
    recipe: Recipe = dataclasses.field(default_factory=Recipe)
    masking: Masking = dataclasses.field(default_factory=Masking)

    def validate(self, encoder: Any) -> None:
        """Raises ValueError for what can be seen to be wrong before any work."""
        self.recipe.validate()
        self.masking.validate()
        if self.recipe.sequence_length > encoder.max_position_embeddings:
            raise ValueError(
                f"task.recipe.sequence_length={self.recipe.sequence_length} exceeds "
                f"encoder.max_position_embeddings={encoder.max_position_embeddings}; "
                "shorten the rows or raise it"
            )

    def prepare(self, workdir: Path, encoder: Any, seed: int) -> "Prepared":
        """Vocabulary and rows, made under `workdir` or found there."""
        directory = Path(self.prepared or workdir / "data")
        if not self.prepared:
            self.write_rows(directory, workdir / "tokenizer", encoder.vocab_size)
        tokenizer = tokenizers.load(directory / "tokenizer")
        if tokenizer.vocab_size > encoder.vocab_size:
            raise ValueError(
                f"the tokenizer has {tokenizer.vocab_size} ids but encoder.vocab_size="
                f"{encoder.vocab_size}; set it to at least that many"
            )
        return Prepared(directory, tokenizer, self.masking, seed)

    def write_rows(
        self,
        directory: Path,
        cache: Path,
        vocab_size: int,
        processes: int | None = None,
    ) -> Statistics:
        """Prepares the text into `directory`, unless that is done.

        A vocabulary of `vocab_size` is trained, and kept in `cache`, where the task
        names none. `directory/tokenizer` holds what the rows were made with.
        """
        self.recipe.validate()
        needed = 2 if self.recipe.pairs == "next" else 1
        corpus.require(self.paths, self.format, documents=needed)
        tokenizer = self._tokenizer(cache, vocab_size)
        statistics = prepare(
            self.paths,
            directory,
            tokenizer=tokenizer,
            recipe=self.recipe,
            format=self.format,
            processes=processes,
        )
        tokenizer.save(directory / "tokenizer")
        return statistics

    def _tokenizer(self, cache, vocab_size):
        if self.tokenizer:
            return tokenizers.load(self.tokenizer, lowercase=self.lowercase)
        if not (cache / "tokenizer.json").exists():
            texts = training_text(self.paths, self.format, self.recipe.held_out)
            tokenizers.WordPiece.train(texts, vocab_size, self.lowercase).save(cache)
        return tokenizers.load(cache)


def training_text(paths: Sequence[str], format: str, held_out: float) -> Iterator[str]:
    """The text a vocabulary is trained on: no document of the eval split."""
    for document in corpus.read(paths, format):
        if not corpus.is_held_out(document, held_out):
            yield "\n".join(document)


@dataclasses.dataclass(frozen=True)
class Prepared:
    """Pre-training with its tokenizer and rows at hand: what the loop runs."""

    directory: Path
    tokenizer: Any
    masking: Masking
    seed: int

    # The two losses weigh the same (google-research/bert, run_pretraining.py).
    objective = {"mlm_loss": 1.0, "nsp_loss": 1.0}
    # The lower, the better: what keeps a checkpoint beyond the newest ones.
    best = "loss"

    @property
    def fingerprints(self) -> dict[str, Any]:
        """What the data and the tokenizer are; another value is another run."""
        stamp = self.source("train").stamp
        return {"data": stamp, "tokenizer": self.tokenizer.fingerprint}

    @property
    def example(self) -> dict[str, np.ndarray]:
        """The least input that initialises the model."""
        return {"input_ids": np.zeros((1, 2), np.int32)}

    def model(self, encoder: nn.Module) -> heads.Pretraining:
        """The head on `encoder`."""
        return heads.Pretraining(encoder)

    def given(self, init_from: str) -> dict[str, Any]:
        """Parameters of a published or trained model to start from, heads included."""
        params = load(init_from).params
        return {name: params[name] for name in PARTS if name in params}

    def source(self, split: str) -> PreparedRows:
        """Rows of "train" or "eval"."""
        return PreparedRows(self.directory, split)

    def loss(self, model, params, batch, key) -> dict[str, tuple[jax.Array, jax.Array]]:
        """See `pretraining_loss`; evaluation always hides the same tokens."""
        run = jax.random.key(self.seed)
        return pretraining_loss(
            model,
            params,
            batch,
            key,
            mask_key=jax.random.fold_in(run, 0 if key is None else 1),
            masking=self.masking,
            vocabulary=self._vocabulary(),
        )

    def _vocabulary(self):
        t = self.tokenizer
        protected = (t.pad_id, t.cls_id, t.sep_id)
        return Vocabulary(t.vocab_size, t.mask_id, protected, t.is_continuation)

    def summary(self, totals) -> dict[str, float]:
        """See the function of this name."""
        return summary(totals)

    def trained(self, model: heads.Pretraining, params: Any) -> Model:
        """The finished model, with its verbs."""
        return Model.of(model, params, self.tokenizer)

    def closing_words(self, model: Model, workdir: Path) -> str:
        """What to show and say when the run is over."""
        return closing_words(model, self.source("eval"), workdir)
