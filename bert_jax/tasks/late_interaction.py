"""Training of late interaction on a query and documents (ColBERT)."""

import dataclasses
import string
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn

from bert_jax import pretrained
from bert_jax.data.ragged import ChoiceRows
from bert_jax.data.text_groups import TextGroups
from bert_jax.inference.embed_tokens import maxsim, plain, query_rows, skipped_ids
from bert_jax.inference.model import Model
from bert_jax.models import heads
from bert_jax.models.config import EncoderConfig
from bert_jax.models.late_interaction import TokenVectors
from bert_jax.models.pooling import Dense
from bert_jax.objectives import contrastive
from bert_jax.objectives import late_interaction as objectives
from bert_jax.objectives.contrastive import VectorGroups
from bert_jax.objectives.losses import Batch, Params, Totals, throughput_totals
from bert_jax.pretrained import Checkpoint, LateInteraction, config_json
from bert_jax.pretrained.late_interaction import MARKERS
from bert_jax.tasks import embedding, embedding_rows, text_scores
from bert_jax.tasks.demo import Call, next_steps
from bert_jax.tasks.text_scores import TextScoresConfig, TextScoresTask
from bert_jax.tokenizers import Tokenizer

QUERY = "query_"
ARRAYS = ("input_ids", "attention_mask", "token_type_ids")


def rows_of(
    groups: TextGroups,
    tokenizer: Tokenizer,
    max_length: int,
    late: LateInteraction,
    positions: int,
    distinct: bool,
) -> ChoiceRows:
    """Documents as rows of tokens, and queries, filled up, as columns.

    The columns are the arrays of `ARRAYS` with `QUERY` before their names, and
    `query_counts`, the tokens that count. With `distinct`, no batch has a text twice.
    """
    queries = [row[0] for row in groups.texts]
    documents = dataclasses.replace(groups, texts=[row[1:] for row in groups.texts])
    prompts = [late.document_prompt] * (len(groups.texts[0]) - 1)
    labels = embedding_rows.labels_of(groups, {}, 1.0)
    rows = embedding_rows.rows_of(documents, tokenizer, max_length, prompts, labels)
    if distinct:
        rows.texts = embedding_rows.numbered(groups.texts)
    limit = min(late.query_length or max_length, positions)
    filled = query_rows(late, tokenizer, queries, limit, positions)
    rows.columns |= {QUERY + name: filled.batch[name] for name in ARRAYS}
    rows.columns[f"{QUERY}counts"] = filled.counts
    return rows


@dataclasses.dataclass(frozen=True)
class LateInteractionTask(TextScoresTask):
    """Training of late interaction with its rows.

    Attributes:
      late: its settings; the layer on token vectors is that of `start`, or a new one.
      width: numbers in the vector of a token.
      skipped: ids that documents leave out.
      loss_name, scale, temperature: of the loss.
    """

    late: LateInteraction
    width: int
    skipped: tuple[int, ...]
    loss_name: str
    scale: float
    temperature: float

    head = TokenVectors

    def build(self, encoder: nn.Module) -> TokenVectors:
        """The encoder with a layer on the vectors of its tokens."""
        return TokenVectors(encoder, self.width, self.late.normalize)

    def pretrained_params(self, init_from: str) -> dict[str, Any]:
        """Parameters of the encoder, and of the layer if there is one."""
        params = {"encoder": self.check_start().params["encoder"]}
        for layer in self.late.dense:
            params["projection"] = {"kernel": np.asarray(layer.kernel)}
        return params

    def loss(
        self, model: nn.Module, params: Params, batch: Batch, key: jax.Array | None
    ) -> tuple[Totals, dict[str, jax.Array]]:
        """Totals, and the scores `[B, C - 1]` of each row's documents."""
        B, C, L = batch["input_ids"].shape
        valid = batch.get("valid", jnp.ones(B, bool))
        mask = batch["attention_mask"] * valid[:, None, None]
        flat = {x: batch[x].reshape(B * C, L) for x in ARRAYS}
        keys = (None, None) if key is None else tuple(jax.random.split(key))
        documents = self._encode(model, params, flat, keys[0]).reshape(B, C, L, -1)
        # A kernel may compute no vectors for tokens that no other one attends to.
        reader = model.clone(encoder=plain(model.encoder.config).build())
        inputs = {x: batch[QUERY + x] for x in ARRAYS}
        queries = self._encode(reader, params, inputs, keys[1])
        ids = jnp.asarray(self.skipped, jnp.int32)
        counted = (mask > 0) & ~jnp.isin(batch["input_ids"], ids)
        query_mask = batch[f"{QUERY}counts"] & valid[:, None]
        scores = objectives.all_scores(queries, query_mask, documents, counted)
        exists = jnp.concatenate([valid[:, None], (mask > 0).any(-1)], 1)
        rows = mask.reshape(B * C, L)
        totals = throughput_totals(model.encoder.config, rows, jnp.zeros(()))
        own = text_scores.own(scores)
        if self.has_loss(batch):
            totals["loss"] = self._loss(scores, own, exists, batch.get("labels"))
        totals["in_batch"] = text_scores.found_in_batch(scores, exists)
        return totals, {"scores": own}

    def _loss(self, scores, own, exists, labels):
        if self.loss_name == "multiple_negatives":
            return objectives.in_batch(scores, exists, scale=self.scale)
        groups = VectorGroups(objectives.as_vectors(own), exists, labels)
        settings = {"scale": self.scale}
        if self.loss_name == "kl":
            settings["temperature"] = self.temperature
        return contrastive.LOSSES[self.loss_name].function(groups, **settings)

    def _encode(self, model, params, inputs, key):
        return model.apply(
            {"params": params},
            **inputs,
            deterministic=key is None,
            rngs=None if key is None else {"dropout": key},
        )

    def to_model(self, module: nn.Module, params: Params) -> Model:
        """The encoder, with the settings of late interaction."""
        model = Model.of(
            heads.Features(module.encoder),
            {"encoder": params["encoder"]},
            self.tokenizer,
        )
        settings = config_json.settings_of(self.check_start())
        model = pretrained.keep_settings(model, settings)
        kernel = params["projection"]["kernel"]
        layer = Dense(kernel, np.zeros(self.width, np.float32), "Identity")
        late = dataclasses.replace(self.late, dense=(layer,))
        return dataclasses.replace(
            model, pooling=None, late=late, max_length=self.max_length
        )

    def demo(self, model: Model, workdir: Path) -> str:
        """The first held-out query with the held-out documents that score highest."""
        groups = self.content["eval"]
        query = groups.texts[0][0]
        unique = dict.fromkeys(x for row in groups.texts for x in row[1:] if x)
        documents = list(unique)[: embedding.SHOWN_OF]
        vectors = model.embed_tokens([query], kind="query")
        scores = maxsim(vectors, model.embed_tokens(documents))[0]
        best = np.argsort(-scores, kind="stable")[: embedding.SHOWN]
        lines = [f"  {scores[i]:6.2f}  {documents[i]}" for i in best]
        return "\n".join(["", f"held out: {query!r}, and its nearest:", *lines])

    def next_steps(self, workdir: Path, shell: bool) -> str:
        """The model's directory and a call to try, which only Python has."""
        text = self.content["eval"].texts[0][0]
        return next_steps(workdir, Call("embed_tokens", ([text], "query")), False)


@dataclasses.dataclass
class LateInteractionConfig(TextScoresConfig):
    """Training of late interaction, as a recipe describes it.

    Each token of a query looks for the token of the document that is closest to it
    (ColBERT, Khattab and Zaharia, 2020; Santhanam et al., 2022, arXiv 2112.01488).

    Attributes:
      width: numbers in the vector of a token; None takes that of the model, or 128.
      query_length: tokens that queries are cut and filled up to, the latter with mask
        tokens; None takes that of the model, or 32.
      attends: True if other tokens attend to these mask tokens; None takes what the
        model does, or False.
      query_prompt, document_prompt: text, or markers such as `[unused0] `; None takes
        those of the model, or the markers `[unused0]` and `[unused1]` where the
        vocabulary has them.

    >>> import json
    >>> row = {"anchor": "a b", "positive": "a c"}
    >>> _ = Path("late.jsonl").write_text(json.dumps(row))
    >>> LateInteractionConfig(train="late.jsonl", dev="late.jsonl").count()
    1
    """

    width: int | None = None
    query_length: int | None = None
    attends: bool | None = None

    def check(self) -> None:
        """Raises ValueError for a field that cannot be right."""
        super().check()
        for name in ("width", "query_length"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"task.{name}={value} must be above 0; change it")

    def prepare(
        self, workdir: Path, encoder: EncoderConfig, seed: int
    ) -> LateInteractionTask:
        """Reads all files, checks and tokenizes them."""
        content = self.content
        start, tokenizer = self.start(encoder)
        embedding.describe(content)
        late = self._settings(start, tokenizer)
        tokenizer = tokenizer.with_markers((late.query_prompt, late.document_prompt))
        width = self.width or (late.width(0) if late.dense else WIDTH)
        if len(late.dense) > 1 or (late.dense and width != late.width(0)):
            raise ValueError(
                f"task.width={self.width}, but the model has dense layers of "
                f"{', '.join(str(x.kernel.shape[1]) for x in late.dense)}; only one "
                "layer, of the same width, is trained on: start from the encoder"
            )
        loss = self.loss_of(content["train"])
        in_batch = contrastive.LOSSES[loss].in_batch
        lengths = self.max_length, late, encoder.max_length
        rows = {
            split: rows_of(groups, tokenizer, *lengths, in_batch and split == "train")
            for split, groups in content.items()
        }
        return LateInteractionTask(
            rows=rows,
            labels=(),
            metrics=(),
            tokenizer=tokenizer,
            max_length=self.max_length,
            start=start,
            content=content,
            late=late,
            width=width,
            skipped=tuple(skipped_ids(late, tokenizer).tolist()),
            loss_name=loss,
            scale=self.scale,
            temperature=self.temperature,
        )

    def _settings(
        self, start: Checkpoint | None, tokenizer: Tokenizer
    ) -> LateInteraction:
        """The settings of the start, or new ones, changed by the recipe."""
        late = (start and start.late) or LateInteraction(**_new(tokenizer))
        changes: dict[str, Any] = {
            "query_prompt": self.query_prompt,
            "document_prompt": self.document_prompt,
            "attends": self.attends,
            "query_length": self.query_length,
            "fill_to": self.query_length,
        }
        return dataclasses.replace(
            late, **{k: x for k, x in changes.items() if x is not None}
        )


# Numbers in the vector of a token, where nothing says otherwise.
WIDTH = 128


def _new(tokenizer: Tokenizer) -> Mapping[str, Any]:
    """Settings of late interaction for a model that has none."""
    pieces = {tokenizer.id_to_token(i) for i in range(tokenizer.vocab_size)}
    prompts = [f"{x} " if x in pieces else "" for x in MARKERS]
    return {
        "query_prompt": prompts[0],
        "document_prompt": prompts[1],
        "skipped": tuple(string.punctuation),
    }
