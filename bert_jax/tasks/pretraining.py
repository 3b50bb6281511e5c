"""Pre-training: masked LM and next-sentence (or sentence-order) prediction."""

import dataclasses
import functools
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import jax
import numpy as np
from flax import linen as nn

from bert_jax import pretrained, tokenizers
from bert_jax.data import corpus
from bert_jax.data.preparation import Statistics, prepare
from bert_jax.data.prepared_rows import SPLITS, PreparedRows
from bert_jax.data.records import RowConfig
from bert_jax.inference.model import Model, load
from bert_jax.models import heads
from bert_jax.objectives.losses import Totals, summarize
from bert_jax.objectives.masked_lm import mask_batch, masked_lm_loss
from bert_jax.objectives.masking import Masking, Vocabulary
from bert_jax.pretrained.families import has_head
from bert_jax.tasks.demo import closing_words, next_words
from bert_jax.tokenizers.vocabulary import check_vocab_size


@dataclasses.dataclass(frozen=True)
class PretrainingTask:
    """Pre-training with its tokenizer and rows at hand: what the loop runs.

    Attributes:
      directory: of the prepared rows.
      tokenizer: that they were made with.
      settings: the task as the config says it, see `PretrainingConfig`.
      seed: the run's, of the masks.
    """

    directory: Path
    tokenizer: Any
    settings: Any
    seed: int

    # It decides which checkpoint is best.
    best_metric = "loss"
    # Arrays that the loss reads among the parameters and nothing trains.
    constants: ClassVar[Mapping[str, Any]] = {}

    @property
    def loss_weights(self) -> dict[str, float]:
        """The terms of the loss and their weights.

        The two weigh the same in BERT (google-research/bert, run_pretraining.py).
        """
        pairs = {"nsp_loss": self.settings.nsp_weight} if self.asks_pairs else {}
        return {"mlm_loss": 1.0} | pairs

    @property
    def asks_pairs(self) -> bool:
        """Whether rows have labelled pairs, and the model is asked about them."""
        return self.settings.nsp_weight > 0 and self.rows["train"].counts.labelled > 0

    @functools.cached_property
    def rows(self) -> dict[str, PreparedRows]:
        """The rows of each split."""
        return {split: PreparedRows(self.directory, split) for split in SPLITS}

    @property
    def fingerprint(self) -> dict[str, Any]:
        """Digests of the data and the tokenizer."""
        stamp = self.rows["train"].stamp
        return {"data": stamp, "tokenizer": self.tokenizer.fingerprint}

    @property
    def example_batch(self) -> dict[str, np.ndarray]:
        """The least input that initialises the model."""
        return {"input_ids": np.zeros((1, 2), np.int32)}

    def build(self, encoder: nn.Module) -> nn.Module:
        """The head on `encoder`: masked LM, with the question about pairs or without.

        Raises ValueError where the encoder's family publishes no such head.
        """
        head = heads.Pretraining if self.asks_pairs else heads.MaskedLM
        remedy = "prepare rows with task.recipe.pairs=none, or set task.nsp_weight=0"
        demand_head(head, encoder.config, remedy)
        return pretrained.new_head(head, encoder)

    @property
    def parts(self) -> tuple[str, ...]:
        """Parameters that another model of the kind can give."""
        return ("encoder", "mlm", *(("pooler", "pair") if self.asks_pairs else ()))

    def pretrained_params(self, init_from: str) -> dict[str, Any]:
        """Parameters of a published or trained model to start from, heads included."""
        model = load(init_from)
        self.demand_vocabulary(model, f"init_from={init_from!r}", init_from)
        return {name: model.params[name] for name in self.parts if name in model.params}

    def demand_vocabulary(self, model: Model, name: str, source: str) -> None:
        """Raises ValueError unless a model's ids mean what those of the rows do."""
        ids, theirs = range(self.tokenizer.vocab_size), model.tokenizer
        found = theirs and [theirs.id_to_token(i) for i in ids if i < theirs.vocab_size]
        if found != [self.tokenizer.id_to_token(i) for i in ids]:
            raise ValueError(
                f"{name} has another vocabulary than the rows in {self.directory}; "
                f"prepare them with task.tokenizer={source!r}"
            )

    def loss(self, model, params, batch, key) -> tuple[Totals, dict[str, jax.Array]]:
        """The totals of `totals`; no row's prediction is needed."""
        return self.totals(model, params, batch, key), {}

    def totals(self, model, params, batch, key) -> Totals:
        """See `masked_lm_loss`."""
        mask_key, masking, vocabulary = self.hiding(key is None)
        return masked_lm_loss(
            model,
            params,
            batch,
            key,
            mask_key=mask_key,
            masking=masking,
            vocabulary=vocabulary,
        )

    def hiding(self, evaluates: bool) -> tuple[jax.Array, Masking, Vocabulary]:
        """From what key, how and of what tokens are hidden.

        Evaluation always hides the same.
        """
        key = jax.random.fold_in(jax.random.key(self.seed), 0 if evaluates else 1)
        masking = self.settings.masking
        if evaluates:
            masking = self.settings.eval_masking or masking
        return key, masking, self._vocabulary()

    def hide(self, batch, key) -> dict[str, jax.Array]:
        """See `mask_batch`; a `key` of None means evaluation."""
        return mask_batch(batch, *self.hiding(key is None))

    def _vocabulary(self):
        t = self.tokenizer
        protected = (t.pad_id, t.cls_id, t.sep_id)
        return Vocabulary(t.vocab_size, t.mask_id, protected, t.is_continuation)

    def report(
        self, split: str, totals: Mapping[str, Any], predictions: Mapping[str, Any]
    ) -> dict[str, float]:
        """Averages by name, see `summarize`."""
        return summarize(totals, self.loss_weights)

    def to_models(
        self, module: nn.Module, params: Any, history: Mapping[str, Any]
    ) -> dict[str, Model]:
        """The finished model, saved to model/."""
        model = Model.of(module, params, self.tokenizer)
        return {"model": dataclasses.replace(model, history=history)}

    def write_predictions(
        self, workdir: Path, split: str, predictions: Mapping[str, Any]
    ) -> None:
        """Writes nothing, because no row's prediction is kept."""

    def demo(self, model: Model, workdir: Path) -> str:
        """Words hidden in held-out text with the model's guesses."""
        return closing_words(model, self.rows["eval"])

    def next_steps(self, workdir: Path) -> str:
        """The model's directory and commands to try."""
        mask = self.tokenizer.id_to_token(self.tokenizer.mask_id)
        call = f"fill_mask('the function returns a {mask} .')"
        said = f"{next_words(workdir, call)}\n  tensorboard --logdir={workdir}"
        if self.settings.paths or self.settings.prepared:
            return said
        yours = "--config.task.paths=YOUR_TEXT --workdir=runs/mine"
        return f"{said}\n  python train.py {yours}"


def demand_head(head: type[nn.Module], config: Any, remedy: str) -> None:
    """Raises ValueError unless the family of an encoder publishes such a head."""
    if not has_head(config, head):
        raise ValueError(
            f"encoder.model_type={config.model_type!r} has no {head.__name__} head; "
            f"{remedy}"
        )


@dataclasses.dataclass
class PretrainingConfig:
    """Pre-training on raw text, as a config says it.

    Attributes:
      paths: files, directories or globs of raw text; none takes the documentation
        installed with Python.
      format: one of `data.corpus.FORMATS`; "auto" looks at each file.
      prepared: directory made by `bert-jax prepare`, instead of `paths`.
      tokenizer: vocab.txt, or a directory with a tokenizer; None trains a vocabulary
        of the encoder's `vocab_size` on the text.
      vocabulary: the kind that is trained: "wordpiece" (BERT), "bpe"
        (RoBERTa) or "unigram" (ALBERT).
      lowercase: for a vocabulary that is trained, or given as vocab.txt.
      recipe: how text becomes rows.
      masking: how tokens are hidden.
      eval_masking: the same in evaluation, so that several ways to hide can be compared
        on one; None takes `masking`.
      nsp_weight: of the question about each pair in the objective, where rows have
        pairs; with 0 it is not asked.

    >>> PretrainingConfig(paths=("text.txt",)).validate(encoder.config)
    Traceback (most recent call last):
    ValueError: task.recipe.sequence_length=128 exceeds the 20 positions of ...
    """

    paths: tuple[str, ...] = ()
    format: str = "auto"
    prepared: str | None = None
    tokenizer: str | None = None
    vocabulary: str = "wordpiece"
    lowercase: bool = True
    recipe: RowConfig = dataclasses.field(default_factory=RowConfig)
    masking: Masking = dataclasses.field(default_factory=Masking)
    eval_masking: Masking | None = None
    nsp_weight: float = 1.0

    # The task that `prepare` returns; each objective has its own.
    task_class: ClassVar[type] = PretrainingTask

    def resolve(self, config: Any) -> Any:
        """The run's config, in which nothing depends on the data; checks the task."""
        self.validate(config.encoder)
        return config

    def validate(self, encoder: Any) -> None:
        """Raises ValueError for what can be seen to be wrong before any work."""
        self.check()
        if not self.prepared and self.recipe.sequence_length > encoder.max_length:
            raise ValueError(
                f"task.recipe.sequence_length={self.recipe.sequence_length} exceeds "
                f"the {encoder.max_length} positions of "
                f"encoder.max_position_embeddings={encoder.max_position_embeddings}; "
                "shorten the rows or raise it"
            )

    def prepare(self, workdir: Path, encoder: Any, seed: int) -> "PretrainingTask":
        """Vocabulary and rows, made under `workdir` or found there."""
        directory = Path(self.prepared or workdir / "data")
        if not self.prepared:
            cache = workdir / "tokenizer"
            print(self.write_rows(directory, cache, encoder.vocab_size), flush=True)
        tokenizer = tokenizers.load(directory / "tokenizer")
        check_vocab_size(tokenizer.vocab_size, encoder.vocab_size)
        task = self.task_class(directory, tokenizer, self, seed)
        length = task.rows["eval"].max_length
        if length > encoder.max_length:
            raise ValueError(
                f"rows of {length} tokens in {directory} exceed the "
                f"{encoder.max_length} positions of the encoder; "
                "raise encoder.max_position_embeddings"
            )
        return task

    def check(self) -> None:
        """Raises ValueError for a field that cannot be right."""
        self.recipe.validate()
        self.masking.validate()
        if self.eval_masking:
            self.eval_masking.validate()
        tokenizers.check(self.vocabulary, self.lowercase)
        if not 0 <= self.nsp_weight < math.inf:
            raise ValueError(
                f"task.nsp_weight={self.nsp_weight} must be 0 or a positive number; "
                "BERT uses 1"
            )

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
        self.check()
        tokenizer = self.vocabulary_of(cache, vocab_size)
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

    def vocabulary_of(self, cache: Path, vocab_size: int) -> tokenizers.Tokenizer:
        """The tokenizer that the task names, or one that is trained into `cache`."""
        if self.tokenizer:
            return tokenizers.load(self.tokenizer, lowercase=self.lowercase)
        kept = (cache / "tokenizer.json").exists() and tokenizers.load(cache)
        kind = tokenizers.KINDS[self.vocabulary]
        if not isinstance(kept, kind) or kept.vocab_size != vocab_size:
            needed = 2 if self.recipe.pairs == "next" else 1
            corpus.require(self.paths, self.format, documents=needed)
            print(f"learns a vocabulary of {vocab_size:,} pieces", flush=True)
            texts = training_text(self.paths, self.format, self.recipe.held_out)
            trained = tokenizers.train(
                self.vocabulary, texts, vocab_size, self.lowercase
            )
            trained.save(cache)
        return tokenizers.load(cache)


def training_text(paths: Sequence[str], format: str, held_out: float) -> Iterator[str]:
    """The text a vocabulary is trained on: no document of the eval split."""
    for document in corpus.read(paths, format):
        if not corpus.is_held_out(document, held_out):
            yield "\n".join(document)
