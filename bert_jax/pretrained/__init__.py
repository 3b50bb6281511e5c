"""Published checkpoints, in and out: every directory is read into a `Checkpoint`."""

import os
from pathlib import Path

from bert_jax.pretrained import google, hub, huggingface
from bert_jax.pretrained.checkpoint import Checkpoint
from bert_jax.pretrained.pooling import Pooling

__all__ = ["Checkpoint", "Pooling", "load", "save", "save_tf1"]


def load(source: str | os.PathLike) -> Checkpoint:
    """Opens a published or saved model.

    Args:
      source: a directory of transformers, sentence-transformers or `save`; a
        `bert_model.ckpt` of Google's code or the directory that has it; or a name on
        the Hugging Face Hub, looked for in the local cache first.

    Raises:
      ValueError: for anything missing, damaged, unknown or contradictory.
    """
    path = Path(source)
    prefix = google.checkpoint_prefix(path)
    if prefix is not None:
        return google.read(prefix)
    directory = path if path.exists() else hub.fetch(os.fspath(source))
    if not directory.is_dir():
        raise ValueError(f"{directory} is a file; give the directory it lies in")
    return huggingface.read(directory)


def save(directory: str | os.PathLike, checkpoint: Checkpoint) -> None:
    """Writes a directory that transformers and `load` read."""
    huggingface.write(Path(directory), checkpoint)


def save_tf1(directory: str | os.PathLike, checkpoint: Checkpoint) -> None:
    """Writes a directory that google-research/bert and `load` read."""
    google.write(Path(directory), checkpoint)
