"""Translation: a Transformer that learns to write one text for another."""

import dataclasses
from pathlib import Path
from typing import Any

from bert_jax import tokenizers
from bert_jax.data import toy_language
from bert_jax.data.toy_language import Pair
from bert_jax.tasks.translation_run import PairRows, Prepared
from bert_jax.tokenizers import Tokenizer
from bert_jax.tokenizers.vocabulary import refuse_more_ids

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")


@dataclasses.dataclass
class Translation:
    """Pairs of texts, as a config says it.

    Attributes:
      train, dev: files of lines `text<TAB>translation`; none takes sentences of the toy
        language, `sentences` to learn from and `held_out` others.
      tokenizer: vocab.txt or a directory; None learns a WordPiece vocabulary of the
        encoder's `vocab_size` from the files, or takes the words of the toy language.
      max_length: of a row in tokens, on both sides; pairs with more are refused.
      label_smoothing: the share of the probability that goes to all tokens alike.

    >>> train, dev = Translation(sentences=1, held_out=1).pairs(seed=0)
    >>> train
    [('a king follows this happy fox often', 'sov uno falo kesta giva luma seko')]
    """

    train: str | None = None
    dev: str | None = None
    tokenizer: str | None = None
    sentences: int = 4000
    held_out: int = 500
    max_length: int = 16
    label_smoothing: float = 0.1

    def complete(self, config: Any) -> Any:
        """The run's config with what follows from the data: nothing here."""
        return config

    def validate(self, encoder: Any) -> None:
        """Raises ValueError for what can be seen to be wrong before any work."""
        if not 3 < self.max_length <= encoder.longest:
            raise ValueError(
                f"task.max_length={self.max_length} is not between 4 and the "
                f"{encoder.longest} positions of the encoder; change it"
            )
        if (self.train is None) != (self.dev is None):
            raise ValueError(
                f"task.train={self.train!r} and task.dev={self.dev!r}; name both files "
                "or none"
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

    def prepare(self, workdir: Path, encoder: Any, seed: int) -> Prepared:
        """All pairs, cut into tokens."""
        train, dev = self.pairs(seed)
        tokenizer = self._tokenizer(workdir / "data/tokenizer", encoder, train)
        refuse_more_ids(tokenizer.vocab_size, encoder.vocab_size)
        print(f"{len(train):,} pairs to learn from, {len(dev):,} held out", flush=True)
        rows = {
            name: PairRows(pairs, tokenizer, self.max_length)
            for name, pairs in (("train", train), ("eval", dev))
        }
        return Prepared(rows, tokenizer, self.label_smoothing, self.max_length)

    def pairs(self, seed: int) -> tuple[list[Pair], list[Pair]]:
        """Those to learn from and those held out, none of which is among the first."""
        if self.train and self.dev:
            return (
                toy_language.read_pairs(self.train),
                toy_language.read_pairs(self.dev),
            )
        found = toy_language.sentences(self.sentences + self.held_out, seed)
        return found[: self.sentences], found[self.sentences :]

    def _tokenizer(self, cache, encoder, train) -> Tokenizer:
        if self.tokenizer:
            return tokenizers.load(self.tokenizer)
        if (cache / "tokenizer.json").exists():
            return tokenizers.load(cache)
        if self.train:
            texts = [text for pair in train for text in pair]
            made = tokenizers.WordPiece.train(texts, encoder.vocab_size)
        else:
            cache.mkdir(parents=True, exist_ok=True)
            words = [*SPECIAL, *toy_language.words()]
            (cache / "vocab.txt").write_text("\n".join(words) + "\n")
            made = tokenizers.WordPiece.from_vocab(cache / "vocab.txt")
        made.save(cache)
        return made
