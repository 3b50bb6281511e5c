"""Pre-training: masked LM and next-sentence (or sentence-order) prediction."""

import dataclasses
import functools
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
from flax import linen as nn

from bert_jax import pretrained, tokenizers
from bert_jax.data import corpus
from bert_jax.data.prepare import Recipe, Statistics, prepare
from bert_jax.data.prepared import SPLITS
from bert_jax.data.source import PreparedRows
from bert_jax.masking import Masking, Vocabulary
from bert_jax.models import heads
from bert_jax.predict import Model, load
from bert_jax.tasks.pretraining_loss import pretraining_loss, summary
from bert_jax.tasks.showcase import closing_words

# Parameters that another model can give, and of these the ones that know of pairs.
PARTS, PAIR_PARTS = ("encoder", "mlm"), ("pooler", "pair")


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

    def complete(self, config: Any) -> Any:
        """The run's config with what follows from the data: nothing here."""
        return config

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
            cache = workdir / "tokenizer"
            print(self.write_rows(directory, cache, encoder.vocab_size), flush=True)
        tokenizer = tokenizers.load(directory / "tokenizer")
        if tokenizer.vocab_size > encoder.vocab_size:
            raise ValueError(
                f"the tokenizer has {tokenizer.vocab_size} ids but encoder.vocab_size="
                f"{encoder.vocab_size}; set it to at least that many"
            )
        task = Prepared(directory, tokenizer, self.masking, seed)
        length = task.source("eval").layout.sequence_length
        if length > encoder.max_position_embeddings:
            raise ValueError(
                f"rows of {length} tokens in {directory} exceed encoder."
                f"max_position_embeddings={encoder.max_position_embeddings}; raise it"
            )
        return task

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
        kept = (cache / "tokenizer.json").exists()
        if not kept or tokenizers.load(cache).vocab_size != vocab_size:
            print(f"learns a vocabulary of {vocab_size:,} pieces", flush=True)
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
    splits = ("eval",)  # scored when the run is over

    @functools.cached_property
    def sources(self) -> dict[str, PreparedRows]:
        """The rows of each split."""
        return {split: PreparedRows(self.directory, split) for split in SPLITS}

    @property
    def has_pairs(self) -> bool:
        """Whether the rows were made with pairs of texts."""
        return self.sources["train"].stamp["recipe"]["pairs"] != "none"

    @property
    def max_length(self) -> int:
        """Tokens in a row."""
        return self.sources["train"].layout.sequence_length

    @property
    def sequences_per_row(self) -> int:
        """The most that share a row."""
        return self.sources["train"].layout.sequences_per_row

    @property
    def fingerprints(self) -> dict[str, Any]:
        """What the data and the tokenizer are; another value is another run."""
        stamp = self.sources["train"].stamp
        return {"data": stamp, "tokenizer": self.tokenizer.fingerprint}

    @property
    def example(self) -> dict[str, np.ndarray]:
        """The least input that initialises the model."""
        return {"input_ids": np.zeros((1, 2), np.int32)}

    def model(self, encoder: nn.Module) -> nn.Module:
        """The head on `encoder`: none for pairs where the rows have no pairs."""
        kind = heads.Pretraining if self.has_pairs else heads.MaskedLM
        return pretrained.new_head(kind, encoder)

    def given(self, init_from: str) -> dict[str, Any]:
        """Parameters of a published or trained model to start from, heads included."""
        model = load(init_from)
        ids = range(self.tokenizer.vocab_size)
        theirs = [
            model.tokenizer.id_to_token(i)
            for i in ids
            if i < model.tokenizer.vocab_size
        ]
        if theirs != [self.tokenizer.id_to_token(i) for i in ids]:
            raise ValueError(
                f"init_from={init_from!r} has another vocabulary than the rows in "
                f"{self.directory}; prepare them with task.tokenizer={init_from!r}"
            )
        parts = PARTS + PAIR_PARTS if self.has_pairs else PARTS
        return {name: model.params[name] for name in parts if name in model.params}

    def source(self, split: str) -> PreparedRows:
        """Rows of "train" or "eval"."""
        return self.sources[split]

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

    def evaluate(self, model, params, batch) -> tuple[dict, dict]:
        """Averages without dropout; they say all, so no row's prediction is kept."""
        return self.loss(model, params, batch, None), {}

    def score(self, predictions, source) -> dict[str, float]:
        """No score beside the averages."""
        return {}

    def _vocabulary(self):
        t = self.tokenizer
        protected = (t.pad_id, t.cls_id, t.sep_id)
        return Vocabulary(t.vocab_size, t.mask_id, protected, t.is_continuation)

    def summary(self, totals) -> dict[str, float]:
        """See the function of this name."""
        return summary(totals)

    def trained(self, model: nn.Module, params: Any) -> Model:
        """The finished model, with its verbs."""
        return Model.of(model, params, self.tokenizer)

    def write(self, workdir: Path, split: str, predictions: Mapping) -> None:
        """Nothing: no row's prediction is kept."""

    def closing_words(self, model: Model, workdir: Path) -> str:
        """What to show and say when the run is over."""
        return closing_words(model, self.source("eval"), workdir)
