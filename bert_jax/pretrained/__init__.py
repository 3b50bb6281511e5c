"""Published checkpoints, in and out: every directory is read into a `Checkpoint`."""

import dataclasses
import os
from pathlib import Path
from typing import Any

import numpy as np
from flax import linen as nn

from bert_jax import files
from bert_jax.pretrained import card, convert, google, hub, huggingface, run
from bert_jax.pretrained.checkpoint import Checkpoint
from bert_jax.pretrained.families import FAMILIES
from bert_jax.pretrained.pooling import Pooling

__all__ = [
    "Checkpoint",
    "Pooling",
    "load",
    "new_head",
    "save",
    "save_orbax",
    "save_tf1",
]


def load(source: str | os.PathLike, dtype: str = "float32") -> Checkpoint:
    """Opens a published or saved model.

    Args:
      source: a directory of transformers, sentence-transformers or `save`; the work
        directory of a run, whose newest step is read where it has not finished, or one
        step `checkpoints/<n>` of it; a `bert_model.ckpt` of Google's code or the
        directory that has it; or a name on the Hugging Face Hub, looked for in the
        local cache first.
      dtype: of the compute; parameters are float32 whatever it is.

    Raises:
      ValueError: for anything missing, damaged, unknown or contradictory.

    >>> found = load("start")
    >>> type(found.head).__name__, sorted(found.params), found.tokenizer.vocab_size
    ('MaskedLM', ['encoder', 'mlm'], 31)
    """
    with files.readable_errors(source, "fetch it again"):
        found = _read(os.fspath(source))
        _refuse_what_is_not_finite(source, found.params)
        config = dataclasses.replace(found.head.encoder.config, dtype=dtype)
        head = found.head.clone(encoder=config.build())
        return dataclasses.replace(found, head=head)


def _read(source: str) -> Checkpoint:
    path = Path(source)
    prefix = google.checkpoint_prefix(path)
    if prefix is not None:
        return google.read(prefix)
    directory = path if path.exists() else hub.fetch(source)
    if not directory.is_dir():
        raise ValueError(f"{directory} is a file; give the directory it lies in")
    if (directory / "model/config.json").is_file():  # of a run that has finished
        return huggingface.read(directory / "model")
    step = run.find(directory)
    if step is not None:
        return run.read(step)
    run.refuse_unfinished(directory)
    return huggingface.read(directory)


def _refuse_what_is_not_finite(source: str | os.PathLike, params: Any) -> None:
    """Raises ValueError for a NaN or an infinity: every answer would be one, too."""
    for path, value in convert.flatten(params).items():
        finite = np.isfinite(value)
        if not finite.all():
            wrong = finite.size - finite.sum()
            raise ValueError(
                f"{source}: {wrong:,} of the {finite.size:,} numbers of {path} are NaN "
                "or infinite; fetch it again"
            )


def save(directory: str | os.PathLike, checkpoint: Checkpoint) -> None:
    """Writes a directory that transformers and `load` read, with a model card.

    Raises ValueError for a head that the family does not publish.

    >>> save("saved", load("start"))
    >>> sorted(os.listdir("saved"))[:3]
    ['README.md', 'config.json', 'model.safetensors']
    """
    huggingface.write(Path(directory), checkpoint)
    card.write(Path(directory), checkpoint)


def save_orbax(directory: str | os.PathLike, checkpoint: Checkpoint) -> None:
    """Writes a directory that `load` and Orbax read: the parameters in `params`.

    Raises ValueError for a head that the family does not publish.

    >>> save_orbax("with_orbax", load("start"))
    >>> load("with_orbax").head.encoder.config.hidden_size
    12
    """
    huggingface.write_orbax(Path(directory), checkpoint)


def save_tf1(directory: str | os.PathLike, checkpoint: Checkpoint) -> None:
    """Writes a directory that google-research/bert and `load` read.

    Raises ValueError for what Google's code cannot compute; imports TensorFlow.

    >>> save_tf1("google", load("start"))
    >>> sorted(path.name for path in Path("google").glob("*.ckpt.*"))
    ['bert_model.ckpt.data-00000-of-00001', 'bert_model.ckpt.index']
    """
    google.write(Path(directory), checkpoint)


def new_head(module: type[nn.Module], encoder: nn.Module, **fields: Any) -> nn.Module:
    """A head to train, as the encoder's family has it.

    Args:
      module: one of the heads in `bert_jax.models`.
      encoder: what it is put on.
      fields: of the head, such as `num_labels`.

    Raises:
      ValueError: for a head that the family does not publish.

    >>> from bert_jax.models import BertConfig, SequenceClassifier
    >>> electra = BertConfig(model_type="electra").build()
    >>> new_head(SequenceClassifier, electra, num_labels=3).hidden_act
    'gelu'
    """
    family = FAMILIES[encoder.config.model_type]
    head = family.heads[family.architecture(module)]
    return module(encoder, **head.fixed | fields)
