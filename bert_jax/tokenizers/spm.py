"""SentencePiece's `.model` files: read, and learned in a process of their own."""

import dataclasses
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

from bert_jax.tokenizers.special import SpecialTokens

_UNKNOWN, _CONTROL, _UNIGRAM = 2, 3, 1  # of sentencepiece_model.proto

# TensorFlow and SentencePiece each bring their own protobuf, and training in a process
# that holds both can crash; a fresh interpreter holds one.
_PROGRAM = """
import json, sys, sentencepiece
sentencepiece.SentencePieceTrainer.train(**json.load(sys.stdin))
"""


@dataclasses.dataclass(frozen=True)
class UnigramModel:
    """What a `.model` says: scored pieces in the order of their ids, and the table of
    its own normalization (empty for none)."""

    pieces: list[tuple[str, float]]
    unknown_id: int
    control: list[str]
    charsmap: bytes
    proto: bytes

    @property
    def names(self) -> list[str]:
        """The pieces without their scores."""
        return [piece for piece, _ in self.pieces]


def read(path: str | os.PathLike) -> UnigramModel:
    """Reads a `.model` file."""
    if not pathlib.Path(path).is_file():
        raise ValueError(f"there is no file {path}; check the path")
    return parse(pathlib.Path(path).read_bytes(), path)


def parse(proto: bytes, source: str | os.PathLike) -> UnigramModel:
    """Reads the bytes of a `.model`; other than unigram models are refused."""
    from google.protobuf.message import DecodeError
    from sentencepiece import sentencepiece_model_pb2

    message = sentencepiece_model_pb2.ModelProto()
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
        options = {"input": str(words), "model_prefix": prefix}
        options |= _options(vocab_size, specials)
        run = subprocess.run(
            [sys.executable, "-c", _PROGRAM],
            input=json.dumps(options),
            capture_output=True,
            text=True,
        )
        if run.returncode:
            raise ValueError(_complaint(run.stderr, vocab_size))
        return read(f"{prefix}.model")


def _options(vocab_size: int, specials: SpecialTokens) -> dict[str, object]:
    """What the trainer is told; its begin and end of text are cls and sep here."""
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


def _complaint(stderr: str, vocab_size: int) -> str:
    if found := re.search(r"too high .*<= (\d+)", stderr):
        return (
            f"vocab_size={vocab_size}, but the texts support only {found[1]} pieces; "
            f"set vocab_size={found[1]} or give more text"
        )
    if found := re.search(r"required_chars. \d+ vs (\d+)", stderr):
        return (
            f"vocab_size={vocab_size} does not hold the {found[1]} special tokens and "
            f"characters of the texts; set more than vocab_size={found[1]}"
        )
    return f"SentencePiece could not learn a vocabulary: {stderr.strip()[-200:]}"
