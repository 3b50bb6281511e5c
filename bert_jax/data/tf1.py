"""TensorFlow 1 checkpoints as plain arrays; TensorFlow is imported at first use."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from bert_jax.data.pipeline import tensorflow


def read_checkpoint(prefix: Path) -> dict[str, np.ndarray]:
    """The variables of `<prefix>.index` and `<prefix>.data-*`, by name."""
    tf = tensorflow()
    try:
        reader = tf.train.load_checkpoint(str(prefix))
        names = reader.get_variable_to_shape_map()
        return {name: reader.get_tensor(name) for name in names}
    except Exception as error:  # of many kinds, IndexError among them
        reason = str(error).splitlines()[0][:200]
        raise ValueError(f"{prefix} is damaged ({reason}); fetch it again") from error


def write_checkpoint(prefix: Path, variables: Mapping[str, np.ndarray]) -> None:
    """Writes `<prefix>.index` and `<prefix>.data-00000-of-00001`."""
    tf = tensorflow()
    names = sorted(variables)
    tf.raw_ops.SaveV2(
        prefix=str(prefix),
        tensor_names=names,
        shape_and_slices=[""] * len(names),
        tensors=[tf.constant(variables[name]) for name in names],
    )
