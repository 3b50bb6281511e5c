"""Training of sentence vectors on pairs, triplets, scored pairs, classes or texts."""

import dataclasses
import functools
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn

from bert_jax import files, pretrained
from bert_jax.data import text_groups
from bert_jax.data.distinct_texts import NONE
from bert_jax.data.labelled_files import Problems
from bert_jax.data.ragged import ChoiceRows
from bert_jax.data.text_groups import (
    LABELLED,
    PAIRS,
    SCORED,
    TEXTS,
    TRIPLETS,
    GroupColumns,
    TextGroups,
)
from bert_jax.files import counted
from bert_jax.inference.model import Model, load
from bert_jax.models import heads
from bert_jax.models.config import EncoderConfig
from bert_jax.models.pooling import ACTIVATIONS, MODES, Dense, without_first
from bert_jax.objectives.contrastive import (
    LOSSES,
    Loss,
    VectorGroups,
    cosine_mse,
    kl,
    margin_mse,
    matryoshka,
)
from bert_jax.objectives.distillation import Total
from bert_jax.objectives.gradient_caching import encode_in_chunks
from bert_jax.objectives.losses import Batch, Params, Totals, throughput_totals
from bert_jax.pretrained import Checkpoint, Pooling, config_json
from bert_jax.tasks import embedding_rows, embedding_scores, fine_tuning
from bert_jax.tasks.demo import Call, next_steps
from bert_jax.tasks.fine_tuning import FineTuningConfig
from bert_jax.tasks.run_config import Run
from bert_jax.tasks.teacher import params_digest

# The loss of each kind of rows, where none is set.
USUAL = {
    PAIRS: "multiple_negatives",
    TRIPLETS: "multiple_negatives",
    SCORED: "cosent",
    LABELLED: "supervised_contrastive",
    TEXTS: "simcse",
}

# The kinds of rows that a loss of each kind of data reads; one of texts reads all.
READ_BY = {"pairs": (PAIRS, TRIPLETS), "scored": (SCORED,), "labelled": (LABELLED,)}


@dataclasses.dataclass(frozen=True)
class EmbeddingTask(fine_tuning.FineTuningTask[ChoiceRows]):
    """Training of sentence vectors with its rows.

    Attributes:
      content: the texts of each file.
      vectors_from: the pooling that training starts from.
      dense: the width and the activation of each dense layer; the first ones start as
        those of `vectors_from`.
      objective: sum and count of a batch of vectors.
      copies: how often the objective reads each text, with other dropout each time.
      chunk_size: texts that are encoded at once; 0 for all.
    """

    vectors_from: Pooling
    dense: tuple[tuple[int, str], ...]
    objective: Callable[[VectorGroups], Total]
    copies: int
    chunk_size: int

    head = heads.SentenceEncoder

    def build(self, encoder: nn.Module) -> heads.SentenceEncoder:
        """The encoder with its pooling."""
        pooling = self.vectors_from
        return heads.SentenceEncoder(
            encoder, pooling.modes, self.dense, pooling.normalize
        )

    def pretrained_params(self, init_from: str) -> dict[str, Any]:
        """Parameters of the encoder, and of the dense layers on its vectors."""
        params = {"encoder": self.check_start().params["encoder"]}
        for i, layer in enumerate(self.vectors_from.dense):
            arrays = {"kernel": layer.kernel, "bias": layer.bias}
            params[f"dense_{i}"] = jax.tree.map(np.asarray, arrays)
        return params

    def loss(
        self, model: nn.Module, params: Params, batch: Batch, key: jax.Array | None
    ) -> tuple[Totals, dict[str, jax.Array]]:
        """Totals, and in evaluation the vectors `[B, C, E]`.

        A held-out file of another kind than the training file has no loss.
        """
        has_loss = key is not None or self._is_like_train(batch)
        if has_loss and self.copies > 1:
            names = (*fine_tuning.INPUTS,)
            copied = {x: jnp.repeat(batch[x], self.copies, axis=1) for x in names}
            batch = {**batch, **copied}
        mask = batch["attention_mask"]
        valid = batch.get("valid", jnp.ones(len(mask), bool))
        mask = mask * valid[:, None, None]
        vectors = self.vectors(model, params, batch, key)
        flat = mask.reshape(-1, mask.shape[-1])
        totals = throughput_totals(model.encoder.config, flat, jnp.zeros(()))
        if has_loss:
            exists = (mask > 0).any(-1)
            groups = VectorGroups(
                vectors, exists, *(batch.get(x) for x in ("labels", *OTHERS))
            )
            totals["loss"] = self.objective(groups)
        return totals, {"vectors": vectors}

    def vectors(
        self, model: nn.Module, params: Params, batch: Batch, key: jax.Array | None
    ) -> jax.Array:
        """The vectors `[B, C, E]` of a batch, with dropout from `key` unless None."""
        shape = batch["input_ids"].shape
        inputs = {x: batch[x].reshape(-1, shape[-1]) for x in fine_tuning.INPUTS}
        skipped = self._skipped(shape[1])
        if any(skipped):
            counts = jnp.tile(jnp.asarray(skipped), shape[0])[:, None]
            inputs["pooling_mask"] = without_first(inputs["attention_mask"], counts)

        def encode(inputs, key):
            output: Any = model.apply(
                {"params": params},
                **inputs,
                deterministic=key is None,
                rngs=None if key is None else {"dropout": key},
            )
            return output

        return encode_in_chunks(encode, inputs, key, self.chunk_size).reshape(
            *shape[:-1], -1
        )

    def _skipped(self, columns: int) -> list[int]:
        """The tokens of prompts in front of each column that are not pooled."""
        copies = self.copies if columns == self.copies else 1
        prompts = embedding_rows.prompts_of(self.vectors_from, columns // copies)
        tokens = [self.vectors_from.skipped(x, self.tokenizer) for x in prompts]
        return tokens * copies

    @property
    def fingerprint(self) -> dict[str, Any]:
        """Digests of data and tokenizer, and of another model's vectors of the data."""
        columns = {
            f"{split}/{name}": rows.columns[name]
            for split, rows in self.rows.items()
            for name in OTHERS
            if name in rows.columns
        }
        others = {"others": params_digest(columns)} if columns else {}
        return {**super().fingerprint, **others}

    def _is_like_train(self, batch: Batch) -> bool:
        """True for a batch with the columns and the labels of the training file."""
        train = self.rows["train"].gather(np.arange(1))
        names = {"input_ids", "labels", *OTHERS} & train.keys()
        return names == {"input_ids", "labels", *OTHERS} & batch.keys() and all(
            train[x].dtype == batch[x].dtype
            and train[x].shape[1:2] == batch[x].shape[1:2]
            for x in names
        )

    @property
    def best_metric(self) -> str:
        """The score that decides which checkpoint is best."""
        return embedding_scores.SCORES.get(self.content["eval"].kind, ("loss",))[0]

    def score(self, split: str, predictions: Mapping[str, Any]) -> dict[str, float]:
        """See `embedding_scores.score`."""
        return embedding_scores.score(self.content[split], predictions["vectors"])

    def constant_score(self, split: str) -> float:
        """See `embedding_scores.constant_score`."""
        return embedding_scores.constant_score(self.content[split])

    def to_model(self, module: nn.Module, params: Params) -> Model:
        """The encoder, with the pooling that was trained."""
        start = self.start
        head, trained = heads.Features(module.encoder), {"encoder": params["encoder"]}
        if start and isinstance(start.head, heads.Features) and start.head.has_pooler:
            head = heads.Features(module.encoder, has_pooler=True)
            trained["pooler"] = start.params["pooler"]
        model = Model.of(head, trained, self.tokenizer)
        if start:
            model = pretrained.keep_settings(model, config_json.settings_of(start))
        dense = tuple(
            Dense(**params[f"dense_{i}"], activation=activation)
            for i, (_, activation) in enumerate(self.dense)
        )
        pooling = dataclasses.replace(self.vectors_from, dense=dense)
        return dataclasses.replace(model, pooling=pooling, max_length=self.max_length)

    def write_predictions(
        self, workdir: Path, split: str, predictions: Mapping[str, Any]
    ) -> None:
        """Writes predictions/<split>.tsv: cosines, or ranks, of the rows of a file."""
        columns = embedding_scores.columns(self.content[split], predictions["vectors"])
        if not columns:
            return
        table = {"index": range(len(self.content[split])), **columns}
        rows = [table, *zip(*table.values(), strict=True)]
        file = workdir / f"predictions/{split}.tsv"
        files.make_directory(file.parent)
        files.write_text(file, "".join("\t".join(map(str, x)) + "\n" for x in rows))

    def demo(self, model: Model, workdir: Path) -> str:
        """The first held-out text with the held-out texts that are closest to it."""
        groups = self.content["eval"]
        first, *others = dict.fromkeys(text for row in groups.texts for text in row)
        others = [text for text in others if text][:SHOWN_OF]
        if not others:
            return ""
        vectors = embedding_scores.unit(np.asarray(model.embed([first, *others])))
        scores = vectors[1:] @ vectors[0]
        best = np.argsort(-scores, kind="stable")[:SHOWN]
        lines = [f"  {scores[i]:5.2f}  {others[i]}" for i in best]
        return "\n".join(["", f"held out: {first!r}, and its nearest:", *lines])

    def next_steps(self, workdir: Path, shell: bool) -> str:
        """The model's directory and a call to try."""
        text = self.content["eval"].texts[0][0]
        return next_steps(workdir, Call("embed", (text,), text), shell)


# The fields of `VectorGroups` that other models fill.
OTHERS = ("teacher", "guide")

# Texts that a demonstration shows, and texts that it chooses them from.
SHOWN, SHOWN_OF = 3, 200


@dataclasses.dataclass
class EmbeddingConfig(FineTuningConfig[TextGroups]):
    """Training of sentence vectors, as a recipe describes it.

    The columns of a file decide what is learnt. Two texts are a pair that belongs
    together, further ones are texts that do not belong to the first. Two texts with a
    number are as similar as the number says. One text with a label belongs to others of
    that label.

    Attributes:
      train, dev: .tsv, .csv, .jsonl or .parquet files; `dev` may be of another kind
        than `train`.
      texts: columns of texts, by name or position from 0: the anchor, its positive, its
        negatives. Empty finds them.
      label: the column of scores or labels; None finds it, "" means that there is none.
      loss: multiple_negatives (the default for pairs and triplets), gist, simcse (for
        single texts), cosent (for scored texts), angle, cosine_mse, triplet,
        supervised_contrastive (for labelled texts), margin_mse, kl or embedding_mse.
      scale: the factor of cosines, one over a temperature; None takes that of the loss,
        and so do the settings below.
      directions: the sides that multiple_negatives compares: query_to_doc, doc_to_query
        (symmetric), query_to_query, doc_to_doc.
      joint: True for one softmax over all directions, False for one each.
      hardness: of multiple_negatives; a negative's logit gains so much for each unit of
        its cosine.
      hardness_on: the negatives that this is for: in_batch, hard or all.
      margin: of triplet, or of the guide of gist.
      relative_margin: True makes the margin of gist a share of the positive's cosine.
      distance: of triplet, euclidean or cosine.
      temperature: at which the loss kl compares the model and its teacher.
      dims: widths at which vectors are trained when cut (Matryoshka); the whole width
        is always trained, too.
      pooling: modes joined by +, see `ClassificationConfig`; None takes the pooling
        that the model declares, or else the mean.
      normalize: True scales vectors to length 1; None does as the model declares.
      dense: the width of a dense layer on the pooled vector; 0 adds none.
      activation: of that layer, by its name in PyTorch.
      prompt: text before every text; None takes that of the model.
      query_prompt: text before those of the first column; None takes the prompt that
        the model declares for queries.
      document_prompt: text before those of the other columns; None takes the prompt
        that the model declares for documents.
      include_prompt: False leaves the tokens of prompts out of the pooling; None does
        as the model declares.
      max_score: the score of two texts that mean the same; scores are divided by it.
      teacher: a model to learn from: for embedding_mse one of sentence vectors, for
        margin_mse and kl a classifier of pairs with one number, which then scores the
        texts in place of `label`.
      guide: a model of sentence vectors that finds the false negatives of gist.
      chunk_size: texts that are encoded at once, so that a batch needs the memory of a
        chunk; 0 for all. It changes no result.

    >>> import json
    >>> row = {"anchor": "a b", "positive": "a c"}
    >>> _ = Path("pairs.jsonl").write_text(json.dumps(row))
    >>> EmbeddingConfig(train="pairs.jsonl", dev="pairs.jsonl").count()
    1
    """

    texts: tuple[str, ...] = ()
    label: str | None = None
    loss: str | None = None
    scale: float | None = None
    directions: tuple[str, ...] = ()
    joint: bool | None = None
    hardness: float | None = None
    hardness_on: str | None = None
    margin: float | None = None
    relative_margin: bool | None = None
    distance: str | None = None
    dims: tuple[int, ...] = ()
    pooling: str | None = None
    normalize: bool | None = None
    dense: int = 0
    activation: str = "Identity"
    prompt: str | None = None
    query_prompt: str | None = None
    document_prompt: str | None = None
    include_prompt: bool | None = None
    max_score: float = 1.0
    guide: str | None = None
    chunk_size: int = 0

    def read(
        self, path: str, like: TextGroups | None = None, labelled: bool = True
    ) -> TextGroups:
        """The rows of a file; one of another kind than `train` has its own columns."""
        columns = GroupColumns(self.texts, self.label)
        if like is None:
            return text_groups.read(path, columns)
        try:
            return text_groups.read(path, like.columns, labelled)
        except text_groups.OtherColumnsError:
            return text_groups.read(path, labelled=labelled)

    def check(self) -> None:
        """Raises ValueError for a field that cannot be right."""
        super().check()
        if self.pooling is not None and not set(self.pooling.split("+")) <= {*MODES}:
            raise ValueError(
                f"task.pooling={self.pooling!r} is unknown; choose one of "
                f"{', '.join(MODES)}, or several joined by +"
            )
        if self.activation not in ACTIVATIONS:
            raise ValueError(
                f"task.activation={self.activation!r} is unknown; choose one of "
                f"{', '.join(ACTIVATIONS)}"
            )
        if not self.max_score > 0 or min(self.dense, self.chunk_size) < 0:
            raise ValueError(
                f"task.max_score={self.max_score} must be above 0, and "
                f"task.dense={self.dense} and task.chunk_size={self.chunk_size} at "
                "least 0; change them"
            )
        if self.loss is not None and self.loss not in LOSSES:
            raise ValueError(
                f"task.loss={self.loss!r} is unknown; choose one of {', '.join(LOSSES)}"
            )

    def resolve(self, config: Run) -> Run:
        """The shared defaults; checks the loss, and that rows differ."""
        config = super().resolve(config)
        train = config.task.train_content
        if config.task._loss(train).in_batch:
            check_distinct(train)
        return config

    def prepare(
        self, workdir: Path, encoder: EncoderConfig, seed: int
    ) -> EmbeddingTask:
        """Reads all files, checks and tokenizes them."""
        content = self.content
        train = content["train"]
        start, tokenizer = self.start(encoder)
        describe(content)
        classes = _numbers(train)
        loss = self._loss(train)
        copies = loss.columns if loss.data == "texts" else 1
        if copies > 1:
            _warn_of_no_dropout(encoder)
        pooling = self._pooling(start)
        dense = tuple((x.kernel.shape[1], x.activation) for x in pooling.dense)
        dense += ((self.dense, self.activation),) if self.dense else ()
        width = dense[-1][0] if dense else pooling.width(encoder.hidden_size)
        rows = {
            split: embedding_rows.rows_of(
                groups,
                tokenizer,
                self.max_length,
                embedding_rows.prompts_of(pooling, len(groups.texts[0])),
                embedding_rows.labels_of(groups, classes, self.max_score)
                | self._of_others(loss, groups),
                distinct=loss.in_batch and split == "train",
            )
            for split, groups in content.items()
        }
        return EmbeddingTask(
            rows=rows,
            labels=(),
            metrics=(),
            tokenizer=tokenizer,
            max_length=self.max_length,
            start=start,
            content=content,
            vectors_from=pooling,
            dense=dense,
            objective=self._objective(loss, width),
            copies=copies,
            chunk_size=self.chunk_size,
        )

    def _loss(self, train: TextGroups) -> Loss:
        """The loss, checked against the rows that it is to read."""
        name = self.loss or USUAL[train.kind]
        loss = LOSSES[name]
        kinds = READ_BY.get(loss.data, (TEXTS,))
        if loss.beside == "teacher":
            kinds = tuple(USUAL)
        if self._is_scored_by_teacher(loss):
            kinds = (TRIPLETS, SCORED)
        fits = train.kind in kinds
        if not fits or (loss.data != "texts" and len(train.texts[0]) < loss.columns):
            raise ValueError(
                f"task.loss={name} reads {NEEDED[loss.data].format(loss.columns)}, but "
                f"{train.path} has {train.describe()}; choose another loss, or columns "
                "with task.texts and task.label"
            )
        if loss.beside and not getattr(self, loss.beside):
            raise ValueError(
                f"task.loss={name} needs another model; name one with "
                f"task.{loss.beside}"
            )
        if loss.function is cosine_mse:
            _check_range(train, self.max_score)
        return loss

    def _of_others(self, loss: Loss, groups: TextGroups) -> dict[str, np.ndarray]:
        """Arrays of a teacher or a guide, as the loss reads them."""
        if loss.beside is not None:
            model = self._other_models[loss.beside]
            return {loss.beside: embedding_rows.vectors_of(model, groups)}
        if self._is_scored_by_teacher(loss) and len(groups.texts[0]) > 2:
            model = self._other_models["teacher"]
            return {"labels": embedding_rows.scores_of(model, groups)}
        return {}

    def _is_scored_by_teacher(self, loss: Loss) -> bool:
        return bool(self.teacher) and loss.function in (margin_mse, kl)

    @functools.cached_property
    def _other_models(self) -> dict[str, Model]:
        """The teacher and the guide, loaded once."""
        sources = {"teacher": self.teacher, "guide": self.guide}
        return {name: load(source) for name, source in sources.items() if source}

    def _objective(self, loss: Loss, width: int) -> Callable[[VectorGroups], Total]:
        """The loss with its settings."""
        settings = {
            name: value
            for name in SETTINGS
            if (value := getattr(self, name)) not in (None, ())
        }
        for name, value in settings.items():
            if name not in loss.settings:
                raise ValueError(
                    f"task.{name}={value} is no setting of this loss, which has "
                    f"{', '.join(loss.settings) or 'none'}; leave it out"
                )
        settings = {**loss.settings, **settings}
        if "temperature" in loss.settings:
            settings["temperature"] = self.temperature
        function = loss.function
        wrong = [dim for dim in self.dims if not 0 < dim <= width]
        if wrong:
            raise ValueError(
                f"task.dims={wrong[0]} is not between 1 and the width {width} of "
                "vectors; change it"
            )
        if self.dims:
            function = matryoshka(function, tuple(sorted({*self.dims, width})[::-1]))
        return functools.partial(function, **settings)

    def _pooling(self, start: Checkpoint | None) -> Pooling:
        """The pooling that training starts from."""
        declared = (start and start.pooling) or Pooling(normalize=True)
        modes = tuple(self.pooling.split("+")) if self.pooling else declared.modes
        dense = declared.dense if modes == declared.modes else ()
        normalize = declared.normalize if self.normalize is None else self.normalize
        prompts = dict(declared.prompts)
        new = {"query": self.query_prompt, "document": self.document_prompt}
        prompts |= {name: text for name, text in new.items() if text is not None}
        return Pooling(
            modes,
            normalize,
            declared.prompt if self.prompt is None else self.prompt,
            tuple(prompts.items()),
            "cosine",
            dense,
            declared.include_prompt
            if self.include_prompt is None
            else self.include_prompt,
        )


# Settings of losses that are fields of the task.
SETTINGS = (
    *("scale", "directions", "joint", "hardness", "hardness_on"),
    *("margin", "relative_margin", "distance"),
)

# The rows of each kind of data, for errors.
NEEDED = {
    "pairs": "rows of {} texts or more",
    "scored": "rows of {} texts with scores",
    "labelled": "single texts with labels",
    "texts": "single texts",
}


def _warn_of_no_dropout(encoder: EncoderConfig) -> None:
    """Warns of a model that gives all copies of a text one vector."""
    if not (encoder.hidden_dropout_prob or encoder.attention_probs_dropout_prob):
        warnings.warn(
            "the model has no dropout, so that both copies of a text get one vector "
            "and little is learnt; set hidden_dropout_prob to 0.1 in its config.json",
            stacklevel=2,
        )


def _numbers(train: TextGroups) -> dict[str, int]:
    """The numbers of the labels of single texts."""
    if train.kind != LABELLED:
        return {}
    names = sorted(set(map(str, train.labels or ())))
    return {name: i for i, name in enumerate(names)}


def check_distinct(train: TextGroups) -> None:
    """Raises ValueError for a text that is in most rows."""
    numbers = embedding_rows.numbered(train.texts)
    unique, counts = np.unique(numbers[numbers != NONE], return_counts=True)
    count = int(counts.max())
    row, column = np.argwhere(numbers == unique[counts.argmax()])[0]
    text = train.texts[row][column]
    if 2 * count > len(train) > 1:
        raise ValueError(
            f"{train.path}: {text[:40]!r} is in {count:,} of {len(train):,} rows, and "
            "the rows of a batch are negatives of each other; delete repeated rows, or "
            "choose a task.loss that reads each row alone"
        )


def _check_range(train: TextGroups, max_score: float) -> None:
    """Raises ValueError for scores that no cosine can reach."""
    problems = Problems(train.path)
    for line, scores in zip(train.lines, train.labels or (), strict=True):
        if wrong := [x for x in scores if abs(float(str(x))) > max_score]:
            remedy = f"is beyond {max_score:g}; set task.max_score to the largest score"
            problems.add(line, "score", str(wrong[0]), remedy)
    problems.raise_any()


def describe(content: Mapping[str, TextGroups]) -> None:
    """Prints the size of the data; warns of held-out rows that are in `train`, too."""
    train, dev = content["train"], content["eval"]
    same = text_groups.overlap(train, dev)
    rows = f"{counted(len(dev), 'row')} of {dev.path}"
    fine_tuning.warn_of_overlap(same, rows, train.path)
    print(f"to train on: {train.describe()}")
    print(f"held out: {dev.describe()}")
