"""Packages of the extra `train`: imported on first use, with an error that names it."""

import contextlib
import importlib
import importlib.util
import os
from collections.abc import Iterator
from types import ModuleType
from typing import Any

# What training imports sooner or later; a script outside of its environment has none.
PACKAGES = (
    *("jax", "flax", "tensorflow", "array_record", "loky", "tensorboard"),
    *("matplotlib", "ml_collections", "absl"),
)


class MissingExtraError(ImportError, ValueError):
    """A package is needed that `pip install bert_jax` alone does not install."""

    def _render_traceback_(self) -> list[str]:
        """The sentence alone, in a notebook: IPython prints these lines."""
        return [f"{type(self).__name__}: {self}"]


def require(module: str, purpose: str) -> ModuleType:
    """Imports a module of the extra `train`.

    Raises MissingExtraError, in one sentence, where its package is not installed.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        package = module.partition(".")[0]
        if (error.name or "").partition(".")[0] != package:
            raise  # the package is there, and misses something itself
        raise _missing(package, purpose) from None


def check_installed(purpose: str) -> None:
    """Raises MissingExtraError unless the packages that training needs are there."""
    for package in PACKAGES:
        if importlib.util.find_spec(package) is None:
            raise _missing(package, purpose)


def tensorflow() -> Any:
    """The TensorFlow module, kept off the accelerators, which belong to JAX."""
    # It only moves arrays here, so its notes on the CPU's instructions say nothing.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")
    with _keras_left_out():
        tf = require("tensorflow", "feeding batches by tf.data")
    try:
        for kind in ("GPU", "TPU"):
            tf.config.set_visible_devices([], kind)
    except RuntimeError:
        pass  # the caller has used TensorFlow before, and chose its devices
    return tf


def tensorflow_datasets() -> Any:
    """The tensorflow_datasets module, its TensorFlow kept off the accelerators."""
    tensorflow()
    return require("tensorflow_datasets", "reading a TFDS dataset")


@contextlib.contextmanager
def _keras_left_out() -> Iterator[None]:
    """Lets TensorFlow's own import leave Keras out, which takes a third of the time.

    With this switch it looks for Keras 2 instead, which is a package of its own. As the
    switch is gone afterwards, `tf.keras` is Keras 3 on first use, as always.
    """
    switch = "TF_USE_LEGACY_KERAS"
    if switch in os.environ:
        yield
        return
    os.environ[switch] = "1"
    try:
        yield
    finally:
        del os.environ[switch]


def _missing(package: str, purpose: str) -> MissingExtraError:
    return MissingExtraError(
        f"{purpose} needs the package {package}, which is not installed; "
        "activate its environment, or install it with: pip install 'bert_jax[train]'"
    )
