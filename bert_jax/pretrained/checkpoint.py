"""A checkpoint in memory: a head on an encoder, its parameters, and what goes along."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np
from flax import linen as nn

from bert_jax.models import heads, layers
from bert_jax.pretrained import convert
from bert_jax.pretrained.names import Family, Head
from bert_jax.pretrained.pooling import Pooling
from bert_jax.tokenizers import Tokenizer


@dataclasses.dataclass
class Checkpoint:
    """What a published directory holds.

    Attributes:
      head: a module on an encoder, its field `encoder`.
      params: its parameters, float32 NumPy arrays.
      tokenizer: None where the directory has none.
      labels: names of the classes, where config.json has some.
      pooling: how sentence vectors are made, where the directory says it.
      max_length: in tokens, where the directory says less than the position table.
      extra: what config.json says beside all that, kept for saving.
      history: of the run that made it, "config", "step" and "scores", for the card.

    >>> found = Checkpoint(classifier.head, classifier.params, labels=("no", "yes"))
    >>> sorted(found.params), found.tokenizer is None
    (['classifier', 'encoder', 'pooler'], True)
    """

    head: nn.Module
    params: Mapping[str, Any]
    tokenizer: Tokenizer | None = None
    labels: tuple[str, ...] = ()
    pooling: Pooling | None = None
    max_length: int | None = None
    extra: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    history: Mapping[str, Any] = dataclasses.field(default_factory=dict)


def read_params(
    module: nn.Module, family: Family, head: Head, tensors: Mapping[str, np.ndarray]
) -> dict[str, Any]:
    """The parameters of `module` from a published checkpoint's tensors."""
    config = module.encoder.config
    shapes, copies = parameter_shapes(module), family.copies(head, config)
    if not config.tie_word_embeddings:
        # What would be the tied bias is there, but nothing reads it.
        tensors, copies = {k: x for k, x in tensors.items() if k not in copies}, {}
    return convert.to_params(
        tensors,
        shapes,
        names=family.names(head, shapes, config),
        copies=copies,
        elsewhere=family.elsewhere(),
    )


def fixed_tensors(family: Family, config: Any) -> dict[str, np.ndarray]:
    """What a published file holds although it is no parameter: a table of sinusoids."""
    if not config.sinusoidal_pos_embds:
        return {}
    width = config.embedding_size or config.hidden_size
    table = layers.sinusoids(config.max_position_embeddings, width)
    return {family.prefix + family.encoder["embeddings/position"]: table}


def without_fixed(
    tensors: Mapping[str, np.ndarray], family: Family, config: Any
) -> tuple[dict[str, np.ndarray], Any]:
    """The parameters among a file's tensors, and the config they are of.

    In transformers `sinusoidal_pos_embds` only says how a table began, and at another
    size: a table that is not ours is a parameter like any other.
    """
    tensors = dict(tensors)
    for name, table in fixed_tensors(family, config).items():
        found = tensors.get(name, table)
        # Another library's sine may round the last bit otherwise.
        if found.shape != table.shape or abs(found - table).max() > 1e-6:
            return tensors, dataclasses.replace(config, sinusoidal_pos_embds=False)
        tensors.pop(name, None)
    return tensors, config


def parameter_shapes(module: nn.Module) -> dict[str, tuple[int, ...]]:
    """The shape of every parameter by path; nothing is computed.

    Few layers are traced, for most are alike and tracing 24 takes a second.
    """
    config = module.encoder.config
    few = config.truncated()
    shape = (1, 2, 2) if isinstance(module, heads.MultipleChoice) else (1, 2)
    ids = jax.ShapeDtypeStruct(shape, np.int32)
    init = module.clone(encoder=few.build()).init
    tree = jax.eval_shape(lambda ids: init(jax.random.key(0), ids)["params"], ids)
    shapes = {path: x.shape for path, x in convert.flatten(tree).items()}
    last = few.num_hidden_layers - 1
    of_last = [path for path in shapes if path.startswith(f"encoder/layer_{last}/")]
    for i in set(config.layer_order) - set(range(last)):
        for path in of_last:
            shapes[path.replace(f"layer_{last}", f"layer_{i}")] = shapes[path]
    return shapes
