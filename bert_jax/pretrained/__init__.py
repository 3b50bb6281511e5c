"""Published checkpoints, read into and written from a `Checkpoint`."""

import dataclasses
import os
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from flax import linen as nn

from bert_jax import files
from bert_jax.models.config import DType, dtype_name
from bert_jax.pretrained import card, config_json, convert, google, huggingface, run
from bert_jax.pretrained.checkpoint import Checkpoint, Settings, keep_settings
from bert_jax.pretrained.families import family_of
from bert_jax.pretrained.late_interaction import LateInteraction
from bert_jax.pretrained.pooling import Pooling
from bert_jax.pretrained.sparse_pooling import SparsePooling

__all__ = [
    "Checkpoint",
    "LateInteraction",
    "Pooling",
    "Settings",
    "SparsePooling",
    "keep_settings",
    "load",
    "load_settings",
    "new_head",
    "save",
    "save_orbax",
    "save_tf1",
]

Head = TypeVar("Head", bound=nn.Module)


def load(source: str | os.PathLike, dtype: DType = "float32") -> Checkpoint:
    """Opens a published or saved model.

    Args:
      source: a directory of transformers, sentence-transformers or `save`; the work
        directory of a run, of which the newest step is read if it has not finished, or
        one step `checkpoints/<n>` of it; a `bert_model.ckpt` of google-research/bert or
        its directory; or a name on the Hugging Face Hub, which is downloaded unless it
        is in the local cache.
      dtype: the dtype of the compute, as a name or as JAX or NumPy has it; parameters
        are always float32.

    Raises:
      ValueError: for a part that is missing, damaged, unknown or contradictory.

    >>> start = load("start")
    >>> type(start.head).__name__, sorted(start.params), start.tokenizer.vocab_size
    ('MaskedLM', ['encoder', 'mlm'], 31)
    """
    if not isinstance(source, str | os.PathLike):
        raise ValueError(
            f"source={source!r:.60}; give a directory, or a name on the Hub"
        )
    name = dtype_name(dtype)
    with files.readable_errors(source, "fetch it again"):
        checkpoint = _read(os.fspath(source))
        _check_finite(source, checkpoint.params)
        _check_tokenizer(source, checkpoint)
        config = dataclasses.replace(checkpoint.head.encoder.config, dtype=name)
        head = checkpoint.head.clone(encoder=config.build())
        return dataclasses.replace(checkpoint, head=head)


def load_settings(source: str | os.PathLike) -> Settings:
    """The settings that a model declares, without its parameters.

    Those of a run are those of its start. A source that cannot be read any more
    declares none, with a warning: a run may outlive the model it started from.

    >>> load_settings("start").pooling is None
    True
    """
    try:
        with files.readable_errors(source, "fetch it again"):
            name = os.fspath(source)
            is_file = Path(name).exists() or google.checkpoint_prefix(Path(name))
            # Nothing is downloaded: a run has had its start on this machine.
            if not is_file and huggingface.cached(name) is None:
                raise ValueError("it is not there any more")
            read, path = _find(name)
            if read is run.read:
                start = run.start_of(path)
                return load_settings(start) if start else Settings()
            if read is huggingface.read:
                return huggingface.read_settings(path)
            return config_json.settings_of(read(path))
    except ValueError as error:
        warnings.warn(
            f"the pooling and other settings of {source} are lost: {error}",
            stacklevel=2,
        )
        return Settings()


def _read(source: str) -> Checkpoint:
    read, path = _find(source)
    checkpoint = read(path)
    if read is not run.read:
        return checkpoint
    trained = keep_settings(checkpoint, load_settings(path))
    max_length = checkpoint.max_length or trained.max_length
    return dataclasses.replace(trained, max_length=max_length)


def _find(source: str) -> tuple[Callable[[Path], Checkpoint], Path]:
    """The function that reads a source, and the path to give to it."""
    path = files.local_path(source)
    prefix = google.checkpoint_prefix(path)
    if prefix is not None:
        return google.read, prefix
    directory = path if path.exists() else huggingface.fetch(source)
    if not directory.is_dir():
        raise ValueError(f"{directory} is a file; name its directory")
    if (directory / "model/config.json").is_file():  # of a run that has finished
        return huggingface.read, directory / "model"
    step = run.find_step(directory)
    if step is not None:
        return run.read, step
    run.check_has_step(directory)
    return huggingface.read, directory


def _check_tokenizer(source: str | os.PathLike, checkpoint: Checkpoint) -> None:
    """Warns of a tokenizer that is not that of the model's vocabulary.

    A table of embeddings is often rounded up to a few more rows.
    """
    rows = checkpoint.head.encoder.config.vocab_size
    pieces = checkpoint.tokenizer.vocab_size if checkpoint.tokenizer else rows
    if not 0.9 * rows <= pieces <= rows:
        warnings.warn(
            f"{source}: the tokenizer has {pieces:,} pieces, but the model has "
            f"{rows:,}; take both from the same model",
            stacklevel=4,  # the line that called `bert_jax.load`
        )


def _check_finite(source: str | os.PathLike, params: Mapping[str, Any]) -> None:
    """Raises ValueError for a NaN or an infinity, which every result would be, too."""
    for path, value in convert.flatten(params).items():
        finite = np.isfinite(value)
        if not finite.all():
            count = finite.size - finite.sum()
            raise ValueError(
                f"{source}: {count:,} of the {finite.size:,} numbers of {path} are NaN "
                "or infinite; fetch it again"
            )


def save(directory: str | os.PathLike, checkpoint: Checkpoint) -> None:
    """Writes a directory that transformers and `load` read, with a model card.

    Raises ValueError for a head that the family does not publish, and for the name of a
    file.

    >>> save("saved", load("start"))
    >>> sorted(os.listdir("saved"))[:3]
    ['README.md', 'config.json', 'model.safetensors']
    """
    directory = _directory(directory)
    huggingface.write(directory, checkpoint)
    card.write(directory, checkpoint)


# Files of a model or of a tokenizer.
_OURS = ("*config*.json", "tokenizer.json", "vocab.*", "*.model")


def _directory(path: str | os.PathLike) -> Path:
    """A directory to write a model into: new, empty, or with a model or a tokenizer.

    Raises ValueError for others, whose files would be mixed with those of the model.
    """
    files.check_directory_name(path)
    directory = files.local_path(path)
    is_ours = any(any(directory.glob(pattern)) for pattern in _OURS)
    if directory.is_dir() and not is_ours:
        files.check_unused(directory)
    return directory


def save_orbax(directory: str | os.PathLike, checkpoint: Checkpoint) -> None:
    """Writes a directory that `load` and Orbax read: the parameters in `params`.

    Raises ValueError for a head that the family does not publish.

    >>> save_orbax("with_orbax", load("start"))
    >>> load("with_orbax").head.encoder.config.hidden_size
    12
    """
    huggingface.write_orbax(_directory(directory), checkpoint)


def save_tf1(directory: str | os.PathLike, checkpoint: Checkpoint) -> None:
    """Writes a directory that google-research/bert and `load` read.

    Raises ValueError for a model that it cannot compute. Imports TensorFlow.

    >>> save_tf1("google", load("start"))
    >>> sorted(name for name in os.listdir("google") if ".ckpt." in name)
    ['bert_model.ckpt.data-00000-of-00001', 'bert_model.ckpt.index']
    """
    google.write(_directory(directory), checkpoint)


def new_head(
    module: type[Head],
    encoder: nn.Module,
    start: Checkpoint | None = None,
    **fields: Any,
) -> Head:
    """A new head on an encoder, with the settings of the encoder's family.

    Args:
      module: the class of a head in `bert_jax.models`.
      encoder: the encoder.
      start: the model that the encoder is from; its config.json can have settings of
        heads that it does not have, such as `classifier_dropout`.
      fields: fields of the head, such as `num_labels`.

    Raises:
      ValueError: for a head that the family does not publish.

    >>> from bert_jax.models import BertConfig, SequenceClassifier
    >>> electra = BertConfig(model_type="electra").build()
    >>> new_head(SequenceClassifier, electra, num_labels=3).hidden_act
    'gelu'
    """
    family = family_of(encoder.config)
    head = family.heads[family.architecture(module)]
    published = config_json.settings_of(start).extra if start else {}
    own = {
        ours: published[theirs]
        for ours, theirs in head.fields.items()
        if theirs in published and ours not in config_json.ABOUT_LABELS
    }
    return module(encoder, **dict(head.defaults) | own | fields)
