"""Makes the golden of the Flax models that transformers had up to version 4.

    python tests/goldens/make_flax.py

writes `flax/` beside itself: a directory as `save_pretrained` left it, and what its
model computes. It needs transformers 4 with Flax, in an environment of its own.
"""

import pathlib

import jax
import numpy as np
import transformers
from safetensors.numpy import save_file

CONFIG = {
    "vocab_size": 31,
    "hidden_size": 12,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "intermediate_size": 20,
    "max_position_embeddings": 16,
}


def main() -> None:
    """Writes the directory."""
    model = transformers.FlaxBertForPreTraining(transformers.BertConfig(**CONFIG))
    draw = np.random.default_rng(0)
    model.params = jax.tree.map(
        lambda x: draw.normal(0.5 * (x.ndim == 1), 0.3, x.shape).astype(np.float32),
        model.params,
    )
    ids = draw.integers(5, 31, (2, 9))
    mask = np.ones_like(ids)
    mask[1, 6:] = 0
    outputs = model(ids, mask)
    directory = pathlib.Path(__file__).with_name("flax")
    model.save_pretrained(directory)
    arrays = {
        "input_ids": ids,
        "attention_mask": mask,
        "tokens": np.asarray(outputs.prediction_logits),
        "pairs": np.asarray(outputs.seq_relationship_logits),
    }
    save_file(arrays, directory / "outputs.safetensors")


if __name__ == "__main__":
    main()
