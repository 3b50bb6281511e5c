"""BERT in JAX and Flax: pre-train, fine-tune, use, look inside, exchange weights.

Shapes are written in these letters everywhere (`[B, L, D]`):

    B  batch                L  length               M  length attended to
    D  hidden size          H  heads                K  head size
    F  MLP size             V  vocabulary           P  predictions
    S  sequences in a row   C  classes

In examples `model` is a tiny masked LM (D, H, V = 12, 3, 31; the ids of a to z begin
with 5), saved in `start`, with `tokenizer`, `encoder` and the `params` of that; `ids`
are `[2, 7]`, `key` is `jax.random.key(0)`, and `config` a run of a few steps.

The names below load on first use, so that `import bert_jax` costs nothing and
neither TensorFlow nor torch is imported where it is not needed.
"""

import importlib

_HOME = {
    "Model": "bert_jax.inference.model",
    "as_function": "bert_jax.inference.export",
    "describe": "bert_jax.inference.describe",
    "export": "bert_jax.inference.export",
    "finetune": "bert_jax.api",
    "load": "bert_jax.inference.model",
    "mine": "bert_jax.inference.mine",
    "pretrain": "bert_jax.api",
    "train": "bert_jax.api",
}
_MODULES = (
    *("data", "inference", "metrics", "models", "objectives", "pretrained", "tasks"),
    *("tokenizers", "training", "views"),
)

__all__ = [*_HOME, *_MODULES]


def __getattr__(name):
    if name in _HOME:
        return getattr(importlib.import_module(_HOME[name]), name)
    if name in _MODULES:
        return importlib.import_module(f"bert_jax.{name}")
    raise AttributeError(f"module 'bert_jax' has no attribute {name!r}")


def __dir__():
    return sorted(__all__)
