"""Byte-level byte-pair encoding (Radford et al., 2019), as RoBERTa uses it."""

import json
import os
from collections.abc import Iterable

import tokenizers
from tokenizers import AddedToken, decoders, models, pre_tokenizers
from tokenizers.processors import RobertaProcessing
from tokenizers.trainers import BpeTrainer

from bert_jax import files
from bert_jax.tokenizers.base import Tokenizer
from bert_jax.tokenizers.text import read_json, read_text, streamed
from bert_jax.tokenizers.vocabulary import (
    ROBERTA,
    SpecialTokens,
    check_ids,
    check_specials,
    check_trained_size,
)


class ByteLevelBPE(Tokenizer):
    """BPE over bytes: no text is unknown.

    Pieces that start a word begin with `Ġ`, a mark for the space before it.

    >>> trained = ByteLevelBPE.train(["low lower lowest"] * 9, vocab_size=264)
    >>> trained.tokenize("lower ☂"), trained.decode(trained.encode("lower ☂"))
    (['low', 'e', 'r', 'Ġ', 'â', 'ĺ', 'Ĥ'], 'lower ☂')
    """

    model = "BPE"

    @classmethod
    def from_vocab(
        cls,
        vocab: str | os.PathLike,
        merges: str | os.PathLike,
        *,
        add_prefix_space: bool = False,
        specials: SpecialTokens = ROBERTA,
    ) -> "ByteLevelBPE":
        """Opens RoBERTa's `vocab.json` and `merges.txt`.

        Args:
            add_prefix_space: reads the first word as if a space were before it.

        Raises:
            ValueError: for files that are damaged, or not of one model.
        """
        vocabulary = read_json(vocab)
        check_ids(vocabulary, vocab)
        check_specials(specials, vocabulary, vocab)
        try:
            model = models.BPE(vocabulary, _read_merges(merges))
        except Exception as error:  # the library raises no narrower class
            raise ValueError(
                f"{merges} does not fit {vocab} ({error}); take both from one model"
            ) from error
        return cls(_backend(model, specials, add_prefix_space), specials)

    @classmethod
    def train(
        cls,
        texts: Iterable[str],
        vocab_size: int,
        *,
        min_frequency: int = 2,
        add_prefix_space: bool = False,
    ) -> "ByteLevelBPE":
        """Trains a vocabulary on a stream of texts, which is read once.

        The special tokens take RoBERTa's ids 0 to 3, <s> <pad> </s> <unk>, and <mask>
        comes fifth.

        Args:
            min_frequency: the least count of two adjacent pieces that are joined.
            add_prefix_space: reads the first word as if a space were before it.

        Raises:
            ValueError: where the texts support no vocabulary of `vocab_size`.
        """
        learner = tokenizers.Tokenizer(models.BPE())
        learner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space)
        names = ROBERTA
        trainer = BpeTrainer(
            vocab_size=vocab_size,
            min_frequency=min_frequency,
            special_tokens=[names.cls, names.pad, names.sep, names.unk, names.mask],
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        )
        learner.train_from_iterator(streamed(texts), trainer)
        check_trained_size(learner.get_vocab(), vocab_size)
        return cls(_backend(learner.model, ROBERTA, add_prefix_space), ROBERTA)

    def save(
        self, directory: str | os.PathLike, settings: dict[str, object] | None = None
    ) -> None:
        """Writes vocab.json, merges.txt, tokenizer.json and tokenizer_config.json.

        Args:
            settings: further entries of tokenizer_config.json (`model_max_length`).
        """
        directory = files.make_directory(files.local_path(directory))
        # As the library's own `save` writes them, which leaves torn files.
        model = json.loads(self._backend.to_str())["model"]
        vocabulary = json.dumps(
            model["vocab"], ensure_ascii=False, separators=(",", ":")
        )
        merges = "".join(f"{one} {other}\n" for one, other in model["merges"])
        files.write_text(directory / "vocab.json", vocabulary)
        files.write_text(directory / "merges.txt", f"#version: 0.2\n{merges}")
        # Written out because transformers takes its absence for False.
        spaced = "add_prefix_space=True" in repr(self._backend.pre_tokenizer)
        self._save(directory, {"add_prefix_space": spaced} | (settings or {}))

    @classmethod
    def _check_model(cls, backend: tokenizers.Tokenizer, source) -> None:
        super()._check_model(backend, source)
        if "ByteLevel" not in repr(backend.pre_tokenizer):
            raise ValueError(
                f"{source} holds a BPE model that is not byte-level; "
                "only RoBERTa's kind can be opened"
            )

    def _continues(self, piece: str) -> bool:
        return not piece.startswith("Ġ")


def _read_merges(path: str | os.PathLike) -> list[tuple[str, str]]:
    lines = read_text(path).split("\n")
    body = lines[1:] if lines[0].startswith("#version") else lines
    return [(line.split(" ")[0], line.split(" ", 1)[1]) for line in body if line]


def _backend(
    model: models.BPE, specials: SpecialTokens, add_prefix_space: bool
) -> tokenizers.Tokenizer:
    backend = tokenizers.Tokenizer(model)
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=add_prefix_space)
    backend.decoder = decoders.ByteLevel()
    others = [specials.cls, specials.pad, specials.sep, specials.unk]
    backend.add_special_tokens(others)
    # RoBERTa's mask takes the space before it, as a word would.
    backend.add_special_tokens([AddedToken(specials.mask, lstrip=True)])
    ids = backend.get_vocab(with_added_tokens=True)
    backend.post_processor = RobertaProcessing(
        (specials.sep, ids[specials.sep]),
        (specials.cls, ids[specials.cls]),
        trim_offsets=True,
        add_prefix_space=add_prefix_space,
    )
    return backend
