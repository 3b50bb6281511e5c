"""What the loop runs to classify: rows, loss and scores."""

import dataclasses
import functools
import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import linen as nn

from bert_jax import metrics, pretrained
from bert_jax.data.ragged import RaggedRows
from bert_jax.data.tables import Table
from bert_jax.models import heads
from bert_jax.predict import Model
from bert_jax.pretrained import Checkpoint
from bert_jax.pretrained.families import FAMILIES
from bert_jax.tasks.pretraining_loss import work
from bert_jax.tokenizers import Tokenizer

METRICS = {
    "accuracy": metrics.accuracy,
    "f1": metrics.f1,
    "matthews": metrics.matthews,
    "pearson": metrics.pearson,
    "spearman": metrics.spearman,
}

INPUTS = ("input_ids", "attention_mask", "token_type_ids")
# So many rows are tokenized together.
CHUNK = 1024


def rows_of(
    table: Table, targets: Sequence[float], tokenizer: Tokenizer, max_length: int
) -> RaggedRows:
    """A table as tokens, with `labels` `[N]`: int32 classes or float32 numbers."""
    ids, types = [], []
    for start in range(0, len(table), CHUNK):
        part = slice(start, start + CHUNK)
        pairs = table.pairs and table.pairs[part]
        batch = tokenizer(table.texts[part], pairs, max_length=max_length)
        for row, real in enumerate(batch["attention_mask"] > 0):
            ids.append(batch["input_ids"][row, real])
            types.append(batch["token_type_ids"][row, real])
    labels = np.asarray(targets)
    kind = np.int32 if labels.dtype.kind == "i" else np.float32
    return RaggedRows(
        {"input_ids": ids, "token_type_ids": types},
        fill={"input_ids": tokenizer.pad_id, "token_type_ids": 0},
        columns={"labels": labels.astype(kind)},
        longest=max_length,
    )


@dataclasses.dataclass(frozen=True)
class Prepared:
    """Classification with its rows at hand: what the loop runs.

    `labels` is empty for regression, `start` what the parameters come from, `files`
    hold the rows, and `first` is the first held-out text and its pair.
    """

    sources: Mapping[str, RaggedRows]
    labels: tuple[str, ...]
    metrics: tuple[str, ...]
    tokenizer: Tokenizer
    max_length: int
    start: Checkpoint | None
    files: tuple[str, str]
    first: tuple[str, str | None]

    objective = {"loss": 1.0}

    @property
    def best(self) -> str:
        """The score that keeps a checkpoint beyond the newest ones."""
        return self.metrics[0]

    @functools.cached_property
    def fingerprints(self) -> dict[str, Any]:
        """What the data and the tokenizer are; another value is another run."""
        content = [hashlib.sha256(Path(file).read_bytes()) for file in self.files]
        return {
            "data": {
                "files": [digest.hexdigest()[:16] for digest in content],
                "labels": list(self.labels),
            },
            "tokenizer": self.tokenizer.fingerprint,
        }

    @property
    def example(self) -> dict[str, np.ndarray]:
        """The least input that initialises the model."""
        return {"input_ids": np.zeros((1, 2), np.int32)}

    def model(self, encoder: nn.Module) -> heads.SequenceClassifier:
        """The head on `encoder`, with one output for regression."""
        return pretrained.new_head(
            heads.SequenceClassifier, encoder, num_labels=max(1, len(self.labels))
        )

    def given(self, init_from: str) -> dict[str, Any]:
        """Parameters to start from: the encoder's, and what the head can take over."""
        start = self.start
        names = {"encoder"}
        family = FAMILIES[start.head.encoder.config.model_type]
        ours = family.heads[family.architecture(heads.SequenceClassifier)].names
        theirs = family.heads[family.architecture(type(start.head))].names
        # Some families publish two layers that both are a pooler here.
        if ours["pooler"] == theirs.get("pooler"):
            names.add("pooler")
        classifies = isinstance(start.head, heads.SequenceClassifier)
        if classifies and self.labels and start.labels == self.labels:
            names.add("classifier")
        return {name: start.params[name] for name in names if name in start.params}

    def source(self, split: str) -> RaggedRows:
        """Rows of "train" or "eval"."""
        return self.sources[split]

    def loss(self, model, params, batch, key) -> dict[str, tuple[jax.Array, jax.Array]]:
        """See `totals_of`."""
        return totals_of(model, batch, logits_of(model, params, batch, key))

    def evaluate(self, model, params, batch) -> tuple[dict, dict]:
        """Totals, and `logits` `[B, C]`."""
        logits = logits_of(model, params, batch, None)
        return totals_of(model, batch, logits), {"logits": logits}

    def summary(self, totals) -> dict[str, float]:
        """Averages by name."""
        named = {k: totals[k] for k in ("loss", "accuracy") if k in totals}
        return {k: float(s) / max(float(n), 1e-9) for k, (s, n) in named.items()}

    def score(self, predictions, source: RaggedRows) -> dict[str, float]:
        """The task's scores over all held-out rows."""
        logits, labels = predictions["logits"], source.columns["labels"]
        found = logits.argmax(1) if self.labels else logits[:, 0]
        return {name: float(METRICS[name](labels, found)) for name in self.metrics}

    def trained(self, model: nn.Module, params: Any) -> Model:
        """The finished model, with its verbs."""
        made = Model.of(model, params, self.tokenizer, self.labels)
        return dataclasses.replace(made, max_length=self.max_length)

    def closing_words(self, model: Model, workdir: Path) -> str:
        """What to show and say when the run is over."""
        text, pair = self.first
        asked = text if pair is None else (text, pair)
        return (
            f"\nheld out: {asked!r}\n  {model.classify(asked)}\n"
            f"\nThe model is in {workdir}/model. Next:\n"
            f"  python -c \"import bert_jax; m = bert_jax.load('{workdir}/model'); "
            f'print(m.classify({asked!r}))"'
        )


def logits_of(model: nn.Module, params: Any, batch: Mapping, key: Any) -> jax.Array:
    """`[B, C]`, with dropout from `key` unless it is None."""
    return model.apply(
        {"params": params},
        **{name: batch[name] for name in INPUTS},
        deterministic=key is None,
        rngs=None if key is None else {"dropout": key},
    )


def totals_of(
    model: nn.Module, batch: Mapping[str, jax.Array], logits: jax.Array
) -> dict[str, tuple[jax.Array, jax.Array]]:
    """Sums and counts: loss, for classes accuracy, tokens and flops.

    The loss is cross-entropy, or for one output (regression) the squared error, on the
    labels as they are.
    """
    labels = batch["labels"]
    weights = batch.get("valid", jnp.ones(len(labels), bool)).astype(jnp.float32)
    count, totals = weights.sum(), {}
    if model.num_labels == 1:
        losses = jnp.square(logits[:, 0] - labels)
    else:
        losses = optax.softmax_cross_entropy_with_integer_labels(logits, labels)
        right = logits.argmax(-1) == labels
        totals["accuracy"] = (right * weights).sum(), count
    mask = batch["attention_mask"] * (weights > 0)[:, None]
    return {
        "loss": ((losses * weights).sum(), count),
        **totals,
        **work(model.encoder.config, mask, jnp.zeros(())),
    }
