"""Training of sparse vectors on a query and documents (SPLADE)."""

import dataclasses
import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn

from bert_jax import pretrained
from bert_jax.files import counted
from bert_jax.inference import embed_sparse
from bert_jax.inference.model import Model
from bert_jax.models import heads, sparse
from bert_jax.models.config import EncoderConfig
from bert_jax.models.sparse import word_weights
from bert_jax.objectives import contrastive
from bert_jax.objectives.contrastive import VectorGroups
from bert_jax.objectives.gradient_caching import encode_in_chunks
from bert_jax.objectives.losses import Batch, Params, Totals, throughput_totals
from bert_jax.objectives.sparse import SCHEDULES, flops, rising
from bert_jax.pretrained import Checkpoint, SparsePooling, config_json
from bert_jax.tasks import embedding, embedding_rows, fine_tuning, text_scores
from bert_jax.tasks.demo import Call, next_steps
from bert_jax.tasks.run_config import Run
from bert_jax.tasks.text_scores import TextScoresConfig, TextScoresTask

# The loss with its regularisers.
TOTAL = "total_loss"


@dataclasses.dataclass(frozen=True)
class SparseEmbeddingTask(TextScoresTask):
    """Training of sparse vectors with its rows.

    Attributes:
      settings: of the vectors.
      objective: sum and count of a batch of vectors.
      regularizers: the weights of the FLOPS of queries and of documents.
      threshold: see `objectives.sparse.flops`.
      schedule, rising_until: of the regularisers, see `objectives.sparse.rising`;
        counted in examples.
      chunk_size: texts that are encoded at once; 0 for all.
    """

    settings: SparsePooling
    objective: Any
    regularizers: tuple[float, float]
    threshold: int | None
    schedule: str
    rising_until: float
    chunk_size: int

    head = heads.MaskedLM
    measures = ("in_batch", "query_weights", "document_weights")

    @property
    def loss_weights(self) -> dict[str, float]:
        """The terms of the objective and their weights."""
        query, document = self.regularizers
        return {"loss": 1.0, "query_flops": query, "document_flops": document}

    @property
    def best_metric(self) -> str:
        """The score that decides which checkpoint is best: with the regularisers.

        Without them it would be one from before they have risen.
        """
        alike = self.content["eval"].kind == self.content["train"].kind
        return TOTAL if alike else super().best_metric

    def averages(self, totals: Mapping[str, Any]) -> dict[str, float]:
        """Averages by name, and the sum of the terms of the loss."""
        averages = super().averages(totals)
        terms = self.loss_weights.items()
        if "loss" in averages:
            averages[TOTAL] = sum(x * averages[name] for name, x in terms)
        return averages

    def build(self, encoder: nn.Module) -> nn.Module:
        """The masked LM head on the encoder."""
        head = self.check_start().head
        if isinstance(head, heads.MaskedLM):
            return head.clone(encoder=encoder)
        return pretrained.new_head(heads.MaskedLM, encoder, self.start)

    def pretrained_params(self, init_from: str) -> dict[str, Any]:
        """Parameters of the encoder and of the masked LM head."""
        start = self.check_start()
        return {name: start.params[name] for name in ("encoder", "mlm")}

    def loss(
        self, model: nn.Module, params: Params, batch: Batch, key: jax.Array | None
    ) -> tuple[Totals, dict[str, jax.Array]]:
        """Totals, and the scores `[B, C - 1]` of each row's documents."""
        mask = batch["attention_mask"]
        valid = batch.get("valid", jnp.ones(len(mask), bool))
        mask = mask * valid[:, None, None]
        vectors = self.vectors(model, params, batch, key)
        exists = (mask > 0).any(-1)
        flat = mask.reshape(-1, mask.shape[-1])
        scored = (flat > 0).sum().astype(jnp.float32)
        totals = throughput_totals(model.encoder.config, flat, scored)
        if self.has_loss(batch):
            groups = VectorGroups(vectors, exists, batch.get("labels"))
            totals["loss"] = self.objective(groups)
        factor = self.factor(batch) if key is not None else jnp.ones(())
        for name, part in (("query", slice(0, 1)), ("document", slice(1, None))):
            x, there = vectors[:, part], exists[:, part]
            total, count = flops(x, there, self.threshold)
            totals[f"{name}_flops"] = factor * total, count
            active = ((x > 0).sum(-1) * there).sum().astype(jnp.float32)
            totals[f"{name}_weights"] = active, count
        scores = jnp.einsum("BV,NCV->BNC", vectors[:, 0], vectors[:, 1:])
        totals["in_batch"] = text_scores.found_in_batch(scores, exists)
        return totals, {"scores": text_scores.own(scores)}

    def factor(self, batch: Batch) -> jax.Array:
        """The factor of the regularisers for a batch.

        It follows from the mean place of its rows in the stream, as batches of like
        length are drawn from a few that follow each other.
        """
        low, high = batch["example"].astype(jnp.float32).mean(0)
        return rising(low + high * 2.0**32, self.rising_until, self.schedule)

    def vectors(
        self, model: nn.Module, params: Params, batch: Batch, key: jax.Array | None
    ) -> jax.Array:
        """The vectors `[B, C, V]` of a batch, with dropout from `key` unless None."""
        shape = batch["input_ids"].shape
        inputs = {x: batch[x].reshape(-1, shape[-1]) for x in fine_tuning.INPUTS}

        def encode(inputs, key):
            output: Any = model.apply(
                {"params": params},
                **inputs,
                pooling=self.settings.pooling,
                activation=self.settings.activation,
                deterministic=key is None,
                rngs=None if key is None else {"dropout": key},
                method=word_weights,
            )
            return output

        return encode_in_chunks(encode, inputs, key, self.chunk_size).reshape(
            *shape[:-1], -1
        )

    def to_model(self, module: nn.Module, params: Params) -> Model:
        """The masked LM, with the settings of its sparse vectors."""
        model = Model.of(module, params, self.tokenizer)
        settings = config_json.settings_of(self.check_start())
        model = pretrained.keep_settings(model, settings)
        return dataclasses.replace(
            model, pooling=None, sparse=self.settings, max_length=self.max_length
        )

    def demo(self, model: Model, workdir: Path) -> str:
        """The highest weights of the first held-out query."""
        text = self.content["eval"].texts[0][0]
        row = model.embed_sparse(text, prompt=_prompt(self.settings, "query"))
        words = list(embed_sparse.by_word(model, row).items())[:SHOWN]
        shown = [f"{word} {weight:.2f}" for word, weight in words]
        weights = counted(row.nnz, "weight")
        return f"\nheld out: {text!r} has {weights}, the highest\n  {', '.join(shown)}"

    def next_steps(self, workdir: Path, shell: bool) -> str:
        """The model's directory and a call to try."""
        text = self.content["eval"].texts[0][0]
        call = Call("embed_sparse", (text,), text)
        if shell:
            call = Call("embed", (text,), text, flags=("--sparse",))
        return next_steps(workdir, call, shell)


# The names of prompts for the first column, and for the others.
ROLES = ("query", "document")

# Words that a demonstration shows.
SHOWN = 10


def _prompt(settings: SparsePooling, name: str) -> str | None:
    return name if name in dict(settings.prompts) else None


@dataclasses.dataclass
class SparseEmbeddingConfig(TextScoresConfig):
    """Training of sparse vectors, as a recipe describes it.

    Each text gets a weight for every word of the vocabulary from the masked LM head
    (SPLADE, Formal et al., 2021 and 2022, arXiv 2205.04733). Scores are inner products,
    and regularisers keep most weights at 0.

    Attributes:
      query_weight, document_weight: of the regularisers of queries and of documents.
      schedule: the way in which they rise to that: quadratic, linear or constant.
      rise: the share of the examples in which they rise.
      threshold: texts with no more weights than this are not regularised; None: all
        are.
      pooling: max or sum over tokens; None takes that of the model, or max.
      activation: relu or log1p_relu; None takes that of the model, or relu.
      chunk_size: texts that are encoded at once, so that a batch needs the memory of a
        chunk; 0 for all. It changes no result.
      rising_until: set by the run.

    >>> import json
    >>> row = {"anchor": "a b", "positive": "a c"}
    >>> _ = Path("sparse.jsonl").write_text(json.dumps(row))
    >>> SparseEmbeddingConfig(train="sparse.jsonl", dev="sparse.jsonl").count()
    1
    """

    query_weight: float = 5e-5
    document_weight: float = 3e-5
    schedule: str = "quadratic"
    rise: float = 1 / 3
    threshold: int | None = None
    pooling: str | None = None
    activation: str | None = None
    chunk_size: int = 0
    rising_until: float = 0.0

    def check(self) -> None:
        """Raises ValueError for a field that cannot be right."""
        super().check()
        choices = {
            "schedule": SCHEDULES,
            "pooling": (None, *sparse.POOLINGS),
            "activation": (None, *sparse.ACTIVATIONS),
        }
        for name, known in choices.items():
            if getattr(self, name) not in known:
                raise ValueError(
                    f"task.{name}={getattr(self, name)!r} is unknown; choose one of "
                    f"{', '.join(x for x in known if x)}"
                )
        for name in ("query_weight", "document_weight"):
            if not getattr(self, name) >= 0:
                raise ValueError(
                    f"task.{name}={getattr(self, name)} must be at least 0; 3e-5 is "
                    "usual"
                )
        if not 0 < self.rise <= 1:
            raise ValueError(
                f"task.rise={self.rise} must be a share above 0; 0.33 is usual"
            )

    def resolve(self, config: Run) -> Run:
        """The run's config, with the examples in which the regularisers rise."""
        config = super().resolve(config)
        until = self.rise * config.num_steps * config.batch_size
        if config.task.rising_until == until:
            return config
        task = dataclasses.replace(config.task, rising_until=until)
        return dataclasses.replace(config, task=task)

    def prepare(
        self, workdir: Path, encoder: EncoderConfig, seed: int
    ) -> SparseEmbeddingTask:
        """Reads all files, checks and tokenizes them."""
        content = self.content
        start, tokenizer = self.start(encoder)
        if start is None or "mlm" not in start.params:
            raise ValueError(
                f"init_from={self.init_from!r} has no masked LM head, which makes the "
                "weights of words; start from a model that was pre-trained with one"
            )
        embedding.describe(content)
        settings = self._settings(start)
        loss = self.loss_of(content["train"])
        in_batch = contrastive.LOSSES[loss].in_batch
        rows = {
            split: embedding_rows.rows_of(
                groups,
                tokenizer,
                self.max_length,
                embedding_rows.prompts_of(settings, len(groups.texts[0])),
                embedding_rows.labels_of(groups, {}, 1.0),
                distinct=in_batch and split == "train",
            )
            for split, groups in content.items()
        }
        return SparseEmbeddingTask(
            rows=rows,
            labels=(),
            metrics=(),
            tokenizer=tokenizer,
            max_length=self.max_length,
            start=start,
            content=content,
            settings=settings,
            objective=self._objective(loss),
            regularizers=(self.query_weight, self.document_weight),
            threshold=self.threshold,
            schedule=self.schedule,
            rising_until=self.rising_until,
            chunk_size=self.chunk_size,
        )

    def _objective(self, name: str) -> Any:
        """The loss with its settings."""
        settings: dict[str, Any] = {"scale": self.scale}
        if name == "multiple_negatives":
            settings["cosine"] = False
        if name == "kl":
            settings["temperature"] = self.temperature
        return functools.partial(contrastive.LOSSES[name].function, **settings)

    def _settings(self, start: Checkpoint) -> SparsePooling:
        """The settings of the vectors: those of the start, changed by the recipe."""
        declared = start.sparse or SparsePooling()
        prompts = dict(declared.prompts)
        texts = (self.query_prompt, self.document_prompt)
        for name, text in zip(ROLES, texts, strict=True):
            if text is not None:
                prompts[name] = text
        return dataclasses.replace(
            declared,
            pooling=self.pooling or declared.pooling,
            activation=self.activation or declared.activation,
            prompts=tuple(prompts.items()),
            similarity="dot",
        )
