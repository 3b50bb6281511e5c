"""Pre-training with masked LM, and with next-sentence or sentence-order prediction.

The base of all tasks on prepared rows of raw text.
"""

import contextlib
import dataclasses
import functools
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import jax
import numpy as np
from flax import linen as nn

from bert_jax import files, pretrained, tokenizers
from bert_jax.data import corpus, lock
from bert_jax.data.preparation import Statistics, prepare
from bert_jax.data.prepared_rows import SPLITS, PreparedRows
from bert_jax.data.records import RowConfig
from bert_jax.files import local_path
from bert_jax.inference.model import Model, load
from bert_jax.models import heads
from bert_jax.models.config import EncoderConfig
from bert_jax.objectives.losses import Batch, Params, Totals, summarize
from bert_jax.objectives.masked_lm import masked_lm_loss
from bert_jax.objectives.masking import Masking, Vocabulary
from bert_jax.objectives.replaced_tokens import GeneratorDiscriminator
from bert_jax.pretrained.families import has_head
from bert_jax.tasks.demo import Call, fill_mask_demo, masked_words, next_steps
from bert_jax.tasks.run_config import Run
from bert_jax.tokenizers import Tokenizer, check_vocab_size


@dataclasses.dataclass(frozen=True)
class PretrainingTask:
    """Masked LM on prepared rows, with labelled pairs where the rows have them.

    Attributes:
      directory: of the prepared rows.
      tokenizer: of the rows.
      config: see `PretrainingConfig`.
      seed: of the masks; that of the run.
    """

    directory: Path
    tokenizer: Tokenizer
    config: "PretrainingConfig"
    seed: int

    best_metric: ClassVar[str] = "loss"

    @property
    def constants(self) -> Params:
        """No arrays."""
        return {}

    @property
    def loss_weights(self) -> dict[str, float]:
        """The terms of the objective and their weights.

        Both have the same weight in BERT (google-research/bert, run_pretraining.py).
        """
        pairs = {"nsp_loss": self.config.nsp_weight} if self.predicts_pairs else {}
        return {"mlm_loss": 1.0} | pairs

    @property
    def predicts_pairs(self) -> bool:
        """True if rows have labelled pairs and their weight is not 0."""
        return self.config.nsp_weight > 0 and self.rows["train"].counts.labelled > 0

    @functools.cached_property
    def rows(self) -> dict[str, PreparedRows]:
        """The rows of each split."""
        return {split: PreparedRows(self.directory, split) for split in SPLITS}

    @property
    def fingerprint(self) -> dict[str, Any]:
        """Digests of the data and the tokenizer."""
        data = self.rows["train"].stamp
        return {"data": data, "tokenizer": self.tokenizer.fingerprint}

    @property
    def example_batch(self) -> dict[str, np.ndarray]:
        """The smallest inputs that initialise the model."""
        return {"input_ids": np.zeros((1, 2), np.int32)}

    def build(self, encoder: nn.Module) -> nn.Module | GeneratorDiscriminator:
        """The head on `encoder`: masked LM, with or without pairs.

        Raises ValueError if the encoder's family does not publish such a head.
        """
        head: type[nn.Module] = heads.MaskedLM
        if self.predicts_pairs:
            head = heads.Pretraining
        remedy = "prepare rows with task.recipe.pairs=none, or set task.nsp_weight=0"
        check_head(head, encoder.config, remedy)
        return pretrained.new_head(head, encoder)

    @property
    def pretrained_parts(self) -> tuple[str, ...]:
        """The parts of the model that `pretrained_params` takes from another one."""
        return ("encoder", "mlm", *(("pooler", "pair") if self.predicts_pairs else ()))

    def pretrained_params(self, init_from: str) -> dict[str, Any]:
        """Parameters of a published or trained model to start from, heads included."""
        model = load(init_from)
        self.check_vocabulary(model, f"init_from={init_from!r}", init_from)
        params = model.params
        return {name: params[name] for name in self.pretrained_parts if name in params}

    def check_vocabulary(self, model: Model, name: str, source: str) -> None:
        """Raises ValueError unless a model has the same ids as the rows."""
        ids, other = range(self.tokenizer.vocab_size), model.tokenizer
        tokens = other and [other.id_to_token(i) for i in ids if i < other.vocab_size]
        if tokens != [self.tokenizer.id_to_token(i) for i in ids]:
            raise ValueError(
                f"{name} has another vocabulary than the rows in {self.directory}; "
                f"prepare them with task.tokenizer={source!r}"
            )

    def loss(
        self, model: Any, params: Params, batch: Batch, key: jax.Array | None
    ) -> tuple[Totals, dict[str, jax.Array]]:
        """The totals of a batch; no predictions are kept."""
        return self.totals(model, params, batch, key), {}

    # Each objective has a module of its own type.
    def totals(
        self, model: Any, params: Params, batch: Batch, key: jax.Array | None
    ) -> Totals:
        """See `masked_lm_loss`."""
        return masked_lm_loss(model, params, batch, key, **self.masks(key is None))

    def masks(self, evaluating: bool) -> dict[str, Any]:
        """The `mask_key`, `masking` and `vocabulary` of losses.

        The key of evaluation is another one than that of training.
        """
        run_key = jax.random.key(self.seed)
        masking = self.config.masking
        if evaluating:
            masking = self.config.eval_masking or masking
        return {
            "mask_key": jax.random.fold_in(run_key, 0 if evaluating else 1),
            "masking": masking,
            "vocabulary": self.vocabulary,
        }

    @property
    def vocabulary(self) -> Vocabulary:
        """The properties of the tokenizer that masking needs."""
        t = self.tokenizer
        protected = (t.pad_id, t.cls_id, t.sep_id)
        return Vocabulary(t.vocab_size, t.mask_id, protected, t.is_continuation)

    def report(
        self, split: str, totals: Mapping[str, Any], predictions: Mapping[str, Any]
    ) -> dict[str, float]:
        """Averages by name, see `summarize`."""
        return summarize(totals, self.loss_weights)

    def to_models(
        self, module: Any, params: Params, history: Mapping[str, Any]
    ) -> dict[str, Model]:
        """The finished model, saved to model/."""
        model = Model.of(module, params, self.tokenizer)
        return {"model": with_history(model, history)}

    def write_predictions(
        self, workdir: Path, split: str, predictions: Mapping[str, Any]
    ) -> None:
        """Writes nothing, because there are no predictions."""

    def demo(self, model: Model, workdir: Path) -> str:
        """Masked words in held-out text with the model's guesses."""
        return fill_mask_demo(model, self.rows["eval"])

    def next_steps(self, workdir: Path, shell: bool) -> str:
        """The model's directory and a call to try."""
        mask = self.tokenizer.id_to_token(self.tokenizer.mask_id)
        text = f"the function returns a {mask} ."  # of Python's documentation
        own = self.config.paths or self.config.prepared
        if own:
            masked = masked_words(self.rows["eval"], self.tokenizer, 1)
            text = next((text for text, _ in masked), text)
        steps = next_steps(workdir, Call("fill_mask", (text,), text), shell)
        if not shell:
            return steps
        steps = f"{steps}\n  tensorboard --logdir={workdir}"
        if own:
            return steps
        flags = "--config.task.paths=YOUR_TEXT --workdir=runs/mine"
        return f"{steps}\n  python train.py {flags}"


def with_history(model: Model, history: Mapping[str, Any]) -> Model:
    """A finished model with the run that made it and the settings of its start."""
    start = history.get("config", {}).get("init_from")
    if start:
        model = pretrained.keep_settings(model, pretrained.load_settings(start))
    return dataclasses.replace(model, history=history)


def check_head(head: type[nn.Module], config: EncoderConfig, remedy: str) -> None:
    """Raises ValueError unless the family of an encoder publishes such a head."""
    if not has_head(config, head):
        raise ValueError(
            f"encoder.model_type={config.model_type!r} has no {head.__name__} head; "
            f"{remedy}"
        )


@dataclasses.dataclass
class PretrainingConfig:
    """Pre-training on raw text, as a recipe describes it.

    Attributes:
      paths: files, directories or globs of raw text; none: the documentation installed
        with Python.
      format: one of `data.corpus.FORMATS`; "auto" detects that of each file.
      prepared: a directory made by `bert-jax prepare`, instead of `paths`.
      tokenizer: vocab.txt, or a directory with a tokenizer; None: a vocabulary of the
        encoder's `vocab_size` is trained on the text.
      vocabulary: the kind that is trained: "wordpiece" (BERT), "bpe" (RoBERTa) or
        "unigram" (ALBERT).
      lowercase: of a vocabulary that is trained, or that is a vocab.txt.
      recipe: how text becomes rows.
      masking: the settings of masks.
      eval_masking: the settings in evaluation, so that runs with different `masking`
        can be compared; None: `masking`.
      nsp_weight: the weight of the loss of pairs, if the rows have them; 0 turns their
        prediction off.

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
    task_class: ClassVar[type[PretrainingTask]] = PretrainingTask

    def resolve(self, config: Run) -> Run:
        """The run's config as it is; checks the task."""
        self.validate(config.encoder)
        return config

    def validate(self, encoder: EncoderConfig) -> None:
        """Raises ValueError for a field that cannot be right with this encoder."""
        self.check()
        if not self.prepared and self.recipe.sequence_length > encoder.max_length:
            raise ValueError(
                f"task.recipe.sequence_length={self.recipe.sequence_length} exceeds "
                f"the {encoder.max_length} positions of "
                f"encoder.max_position_embeddings={encoder.max_position_embeddings}; "
                "shorten the rows or raise it"
            )

    def prepare(
        self, workdir: Path, encoder: EncoderConfig, seed: int
    ) -> PretrainingTask:
        """Opens prepared rows; if there are none, makes them below `workdir`."""
        directory, tokenizer = self.open_rows(workdir, encoder)
        return self.task_class(directory, tokenizer, self, seed)

    def open_rows(
        self, workdir: Path, encoder: EncoderConfig
    ) -> tuple[Path, Tokenizer]:
        """The directory of prepared rows, made if it is missing, and its tokenizer.

        Raises ValueError for rows that do not fit the encoder.
        """
        directory = local_path(self.prepared or workdir / "data")
        if not self.prepared:
            cache = workdir / "tokenizer"
            print(self.write_rows(directory, cache, encoder.vocab_size), flush=True)
        tokenizer = tokenizers.load(directory / "tokenizer")
        check_vocab_size(tokenizer.vocab_size, encoder.vocab_size)
        length = PreparedRows(directory, "eval").max_length
        if length > encoder.max_length:
            raise ValueError(
                f"rows of {length} tokens in {directory} exceed the "
                f"{encoder.max_length} positions of the encoder; "
                "raise encoder.max_position_embeddings"
            )
        return directory, tokenizer

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
        """Writes rows to `directory` and their tokenizer to `directory/tokenizer`.

        Complete rows are not written again. If the task has no tokenizer, a vocabulary
        of `vocab_size` is trained and saved in `cache`.
        """
        self.check()
        tokenizer = self.load_tokenizer(cache, vocab_size)
        with contextlib.ExitStack() as stack:
            if tokenizer is None:
                self._check_text()
                # Until the last row is written, so that no second process learns the
                # same vocabulary.
                stack.enter_context(lock.locked(files.make_directory(cache)))
                tokenizer = self._trained_tokenizer(cache, vocab_size)
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

    def load_tokenizer(self, cache: Path, vocab_size: int) -> Tokenizer | None:
        """The tokenizer of the task, or the one in `cache`; None: it is to be trained.

        Raises ValueError for a tokenizer that cannot be read.
        """
        if self.tokenizer:
            return tokenizers.load(self.tokenizer, lowercase=self.lowercase)
        if not (cache / "tokenizer.json").exists():
            return None
        cached = tokenizers.load(cache)
        kind = tokenizers.KINDS[self.vocabulary]
        is_same = isinstance(cached, kind) and cached.vocab_size == vocab_size
        return cached if is_same else None

    def _check_text(self) -> None:
        """Raises ValueError for a text that is too short for a document of rows."""
        needed = 2 if self.recipe.pairs == "next" else 1
        corpus.require(self.paths, self.format, documents=needed)

    def _trained_tokenizer(self, cache: Path, vocab_size: int) -> Tokenizer:
        """A vocabulary that is trained on the text and saved in `cache`."""
        print(f"learns a vocabulary of {vocab_size:,} pieces", flush=True)
        texts = training_text(self.paths, self.format, self.recipe.held_out)
        trained = tokenizers.train(self.vocabulary, texts, vocab_size, self.lowercase)
        trained.save(cache)
        return tokenizers.load(cache)


def training_text(paths: Sequence[str], format: str, held_out: float) -> Iterator[str]:
    """The text that a vocabulary is trained on: all but the eval split."""
    for document in corpus.read(paths, format):
        if not corpus.is_held_out(document, held_out):
            yield "\n".join(document)
