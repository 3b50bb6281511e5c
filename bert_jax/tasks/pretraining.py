"""Pre-training: masked LM and next-sentence (or sentence-order) prediction."""

import dataclasses
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

from bert_jax import tokenizers
from bert_jax.data import corpus
from bert_jax.data.prepare import Recipe, Statistics, prepare
from bert_jax.masking import Masking
from bert_jax.tasks.pretraining_run import Prepared
from bert_jax.tokenizers.vocabulary import refuse_more_ids


@dataclasses.dataclass
class Pretraining:
    """Pre-training on raw text, as a config says it.

    Attributes:
      paths: files, directories or globs of raw text; none takes the documentation
        installed with Python.
      format: one of `data.corpus.FORMATS`; "auto" looks at each file.
      prepared: directory made by `bert-jax prepare`, instead of `paths`.
      tokenizer: vocab.txt, or a directory with a tokenizer; None trains a vocabulary
        of the encoder's `vocab_size` on the text.
      vocabulary: the kind that is trained: "wordpiece" (BERT), "byte_level_bpe"
        (RoBERTa) or "sentencepiece" (ALBERT).
      lowercase: for a vocabulary that is trained, or given as vocab.txt.
      recipe: how text becomes rows.
      masking: how tokens are hidden.
      eval_masking: the same in evaluation, so that several ways to hide can be compared
        on one; None takes `masking`.
      nsp_weight: of the question about each pair in the objective, where rows have
        pairs; with 0 it is not asked.

    >>> Pretraining(paths=("text.txt",)).validate(encoder.config)
    Traceback (most recent call last):
    ValueError: task.recipe.sequence_length=128 exceeds the 20 positions of ...
    """

    paths: tuple[str, ...] = ()
    format: str = "auto"
    prepared: str | None = None
    tokenizer: str | None = None
    vocabulary: str = "wordpiece"
    lowercase: bool = True
    recipe: Recipe = dataclasses.field(default_factory=Recipe)
    masking: Masking = dataclasses.field(default_factory=Masking)
    eval_masking: Masking | None = None
    nsp_weight: float = 1.0

    # What the loop runs; another objective has another.
    run: ClassVar[type] = Prepared

    def complete(self, config: Any) -> Any:
        """The run's config with what follows from the data: nothing here."""
        return config

    def validate(self, encoder: Any) -> None:
        """Raises ValueError for what can be seen to be wrong before any work."""
        self.check()
        if not self.prepared and self.recipe.sequence_length > encoder.longest:
            raise ValueError(
                f"task.recipe.sequence_length={self.recipe.sequence_length} exceeds "
                f"the {encoder.longest} positions of encoder.max_position_embeddings="
                f"{encoder.max_position_embeddings}; shorten the rows or raise it"
            )

    def prepare(self, workdir: Path, encoder: Any, seed: int) -> "Prepared":
        """Vocabulary and rows, made under `workdir` or found there."""
        directory = Path(self.prepared or workdir / "data")
        if not self.prepared:
            cache = workdir / "tokenizer"
            print(self.write_rows(directory, cache, encoder.vocab_size), flush=True)
        tokenizer = tokenizers.load(directory / "tokenizer")
        refuse_more_ids(tokenizer.vocab_size, encoder.vocab_size)
        task = self.run(directory, tokenizer, self, seed)
        length = task.source("eval").layout.sequence_length
        if length > encoder.longest:
            raise ValueError(
                f"rows of {length} tokens in {directory} exceed the {encoder.longest} "
                "positions of the encoder; raise encoder.max_position_embeddings"
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
