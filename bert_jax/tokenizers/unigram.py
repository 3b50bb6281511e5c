"""SentencePiece's unigram model (Kudo, 2018), as ALBERT and XLNet use it."""

import dataclasses
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from typing import Any

import tokenizers
from tokenizers import AddedToken, decoders, models, normalizers, pre_tokenizers
from tokenizers.processors import TemplateProcessing

from bert_jax import files
from bert_jax.tokenizers.base import Tokenizer
from bert_jax.tokenizers.counting import word_counts
from bert_jax.tokenizers.text import streamed
from bert_jax.tokenizers.vocabulary import (
    ALBERT,
    XLNET,
    SpecialTokens,
    check_specials,
    special_tokens,
)


@dataclasses.dataclass(frozen=True)
class UnigramModel:
    """A `.model` file: scored pieces in the order of their ids, and the table of its
    own normalization (empty for none)."""

    pieces: list[tuple[str, float]]
    unknown_id: int
    control: list[str]
    charsmap: bytes
    proto: bytes

    @property
    def names(self) -> list[str]:
        """The pieces without their scores."""
        return [piece for piece, _ in self.pieces]


class SentencePiece(Tokenizer):
    """A unigram model over words; pieces that start a word begin with `▁`.

    A `.model` is run by the `tokenizers` library, as in transformers: plain quotes,
    compatibility forms decomposed, accents dropped, letters lowered, then the model's
    own normalization. Not taken over is the second look that Google's code for ALBERT
    and XLNet takes at pieces ending in a digit and a comma.

    >>> trained = SentencePiece.train(["low lower lowest"] * 9, vocab_size=14)
    >>> trained.tokenize("Lower lows")
    ['▁low', 'e', 'r', '▁low', 's']
    """

    model = "Unigram"

    def __init__(
        self,
        backend: tokenizers.Tokenizer,
        specials: SpecialTokens,
        proto: bytes | None = None,
    ):
        super().__init__(backend, specials)
        self._proto = proto

    @classmethod
    def from_backend(cls, backend, path, specials=None) -> "SentencePiece":
        """The tokenizer of a backend; `save` copies a `spiece.model` beside `path`."""
        opened = super().from_backend(backend, path, specials)
        model = pathlib.Path(path).with_name("spiece.model")
        if model.is_file():
            opened._proto = model.read_bytes()
        return opened

    @classmethod
    def from_vocab(
        cls,
        path: str | os.PathLike,
        lowercase: bool | None = None,
        *,
        keep_accents: bool = False,
        specials: SpecialTokens | None = None,
    ) -> "SentencePiece":
        """Opens a `spiece.model`.

        Args:
            lowercase: by default True, as ALBERT's, but False with XLNet's tokens.

        Raises:
            ValueError: for another kind of model, and special tokens that it lacks.
        """
        model = read(path)
        specials = specials or special_tokens(model.names, {})
        check_specials(specials, model.names, path)
        lowercase = specials != XLNET if lowercase is None else lowercase
        backend = _backend(model, specials, lowercase, keep_accents)
        return cls(backend, specials, model.proto)

    @classmethod
    def train(
        cls,
        texts: Iterable[str],
        vocab_size: int,
        lowercase: bool = True,
        specials: SpecialTokens = ALBERT,
    ) -> "SentencePiece":
        """Trains a vocabulary on a stream of texts, which is read once.

        The special tokens take ALBERT's ids 0 to 4: <pad> <unk> [CLS] [SEP] [MASK], or
        are others in this order, such as `special.XLNET`. Raises ValueError where the
        texts support no vocabulary of `vocab_size`.
        """
        normalizer = normalizers.Sequence(_normalizers(lowercase, keep_accents=False))
        splitter = pre_tokenizers.WhitespaceSplit()
        counts = word_counts(streamed(texts), normalizer, splitter)
        model = learn(counts, vocab_size, specials)
        backend = _backend(model, specials, lowercase, keep_accents=False)
        return cls(backend, specials, model.proto)

    def save(
        self, directory: str | os.PathLike, settings: dict[str, object] | None = None
    ) -> None:
        """Writes tokenizer.json and tokenizer_config.json, and spiece.model where this
        tokenizer was opened from one or trained.

        Args:
            settings: further entries of tokenizer_config.json (`model_max_length`).
        """
        directory = files.make_directory(files.local_path(directory))
        if self._proto is not None:
            files.write_bytes(directory / "spiece.model", self._proto)
        self._save(directory, settings or {})

    def __reduce__(self):
        return _rebuilt, (self._backend.to_str(), self.specials, self._proto)

    def _continues(self, piece: str) -> bool:
        return not piece.startswith("▁")

    def _for_raw_text(self) -> tokenizers.Tokenizer:
        """The special pieces of a unigram vocabulary match text like any other piece.
        A newline, which splitting at whitespace leaves in no word, prevents it."""
        settings = json.loads(self._backend.to_str())
        special = {self.pad_id, self.cls_id, self.sep_id, self.mask_id}
        for token in settings["added_tokens"]:
            if token["special"]:
                special.add(token["id"])
        for i, (piece, score) in enumerate(settings["model"]["vocab"]):
            if i in special:
                settings["model"]["vocab"][i] = [f"{piece}\n", score]
        settings["added_tokens"] = []
        settings["post_processor"] = None
        return tokenizers.Tokenizer.from_str(json.dumps(settings))


def _rebuilt(backend: str, specials: SpecialTokens, proto: bytes | None):
    return SentencePiece(tokenizers.Tokenizer.from_str(backend), specials, proto)


def _normalizers(lowercase: bool, keep_accents: bool) -> list[normalizers.Normalizer]:
    steps: list[normalizers.Normalizer] = [
        normalizers.Replace("``", '"'),
        normalizers.Replace("''", '"'),
    ]
    if not keep_accents:
        steps += [normalizers.NFKD(), normalizers.StripAccents()]
    if lowercase:
        steps.append(normalizers.Lowercase())
    return steps


def _backend(
    model: UnigramModel,
    specials: SpecialTokens,
    lowercase: bool,
    keep_accents: bool,
) -> tokenizers.Tokenizer:
    unigram = models.Unigram(model.pieces, model.unknown_id, byte_fallback=False)
    backend = tokenizers.Tokenizer(unigram)
    steps = _normalizers(lowercase, keep_accents)
    if model.charsmap:
        steps.append(normalizers.Precompiled(model.charsmap))
    backend.normalizer = normalizers.Sequence(steps)
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()]
    )
    backend.decoder = decoders.Metaspace()
    others = [*model.control, specials.pad, specials.unk, specials.cls, specials.sep]
    backend.add_special_tokens([name for name in others if name != specials.mask])
    # The mask takes the space before it, as a word would.
    backend.add_special_tokens([AddedToken(specials.mask, lstrip=True)])
    backend.post_processor = _post_processor(backend, specials)
    return backend


def _post_processor(
    backend: tokenizers.Tokenizer, specials: SpecialTokens
) -> TemplateProcessing:
    """ALBERT's rows, or XLNet's, whose <cls> ends the row and has a type of its own."""
    cls, sep = specials.cls, specials.sep
    single, pair = f"{cls} $A {sep}", f"{cls} $A {sep} $B:1 {sep}:1"
    if specials.pads_left:
        single, pair = f"$A {sep} {cls}:2", f"$A {sep} $B:1 {sep}:1 {cls}:2"
    return TemplateProcessing(
        single=single,
        pair=pair,
        special_tokens=[(name, backend.token_to_id(name)) for name in (cls, sep)],
    )


_UNKNOWN, _CONTROL, _UNIGRAM = 2, 3, 1  # of sentencepiece_model.proto

# TensorFlow and SentencePiece each bring their own protobuf, and training in a process
# that holds both can crash; a fresh interpreter holds one.
_PROGRAM = """
import json, sys, sentencepiece
sentencepiece.SentencePieceTrainer.train(**json.load(sys.stdin))
"""


def read(path: str | os.PathLike) -> UnigramModel:
    """Reads a `.model` file."""
    path = files.local_path(path)
    if not path.is_file():
        raise ValueError(f"there is no file {path}; check the path")
    return parse(path.read_bytes(), path)


def parse(proto: bytes, source: str | os.PathLike) -> UnigramModel:
    """Reads the bytes of a `.model`; ValueError unless it is a unigram model."""
    from google.protobuf.message import DecodeError
    from sentencepiece import sentencepiece_model_pb2

    message: Any = sentencepiece_model_pb2.ModelProto()  # type: ignore[attr-defined]
    try:
        message.ParseFromString(proto)
    except DecodeError as error:
        raise ValueError(
            f"{source} is not a SentencePiece model ({error}); fetch it again"
        ) from error
    unknown = [i for i, piece in enumerate(message.pieces) if piece.type == _UNKNOWN]
    if message.trainer_spec.model_type != _UNIGRAM or len(unknown) != 1:
        raise ValueError(
            f"{source} is not a unigram model with one unknown piece; only ALBERT's "
            "and XLNet's kind can be opened"
        )
    return UnigramModel(
        pieces=[(piece.piece, piece.score) for piece in message.pieces],
        unknown_id=unknown[0],
        control=[piece.piece for piece in message.pieces if piece.type == _CONTROL],
        charsmap=message.normalizer_spec.precompiled_charsmap,
        proto=proto,
    )


def learn(
    counts: dict[str, int], vocab_size: int, specials: SpecialTokens
) -> UnigramModel:
    """A model whose first five ids are pad, unk, cls, sep and mask."""
    with tempfile.TemporaryDirectory() as directory:
        words = pathlib.Path(directory) / "words.tsv"
        lines = (f"{word}\t{count}\n" for word, count in sorted(counts.items()))
        words.write_text("".join(lines), "utf-8", newline="\n")
        prefix = f"{directory}/spiece"
        options = _options(vocab_size, specials)
        options |= {"input": str(words), "model_prefix": prefix}
        run = subprocess.run(
            [sys.executable, "-c", _PROGRAM],
            input=json.dumps(options),
            capture_output=True,
            text=True,
        )
        if run.returncode:
            raise ValueError(_training_error(run.stderr, vocab_size))
        return read(f"{prefix}.model")


def _options(vocab_size: int, specials: SpecialTokens) -> dict[str, object]:
    """Options of the trainer; its begin and end of text are cls and sep here."""
    return {
        "input_format": "tsv",
        "vocab_size": vocab_size,
        "pad_id": 0,
        "unk_id": 1,
        "bos_id": 2,
        "eos_id": 3,
        "pad_piece": specials.pad,
        "unk_piece": specials.unk,
        "bos_piece": specials.cls,
        "eos_piece": specials.sep,
        "control_symbols": [specials.mask],
        # The sums of several threads depend on their number, so it is fixed.
        "num_threads": 8,
        "minloglevel": 2,
    }


def _training_error(stderr: str, vocab_size: int) -> str:
    if match := re.search(r"too high .*<= (\d+)", stderr):
        return (
            f"vocab_size={vocab_size}, but the texts support only {match[1]} pieces; "
            f"set vocab_size={match[1]} or give more text"
        )
    if match := re.search(r"required_chars. \d+ vs (\d+)", stderr):
        return (
            f"vocab_size={vocab_size} does not hold the {match[1]} special tokens and "
            f"characters of the texts; set more than vocab_size={match[1]}"
        )
    return f"SentencePiece could not learn a vocabulary: {stderr.strip()[-200:]}"
