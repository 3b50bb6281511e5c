"""Makes the golden of XLNet's two streams and memory, from transformers' own.

    python tests/goldens/make_xlnet.py

writes `xlnet_streams.safetensors` beside itself; it needs the extra "parity". The
parameters are those of `XLNetLMHeadModel` in `xlnet.safetensors`. Two rows in a row of
texts are read, the second with the memory of the first: `1/in` and `1/out`, `2/in` and
`2/out`. Rows are padded on the left, and predictions are at `positions`.
"""

import pathlib

import numpy as np
import torch
from make import random_batch, random_model
from safetensors.numpy import save_file

P = 4


def orders(batch: dict[str, np.ndarray], seed: int) -> dict[str, np.ndarray]:
    """A perm_mask `[B, L, L]` of random orders, and P positions of each row."""
    draw = np.random.default_rng(seed)
    rank = np.argsort(draw.random(batch["input_ids"].shape), axis=1)
    hidden = (rank[:, :, None] <= rank[:, None]).astype(np.float32)
    # Of what is not padding.
    real = np.where(batch["attention_mask"] > 0, draw.random(rank.shape), 2)
    # safetensors writes the bytes of a view in the wrong order.
    places = np.ascontiguousarray(np.argsort(real, axis=1)[:, :P])
    return {"perm_mask": hidden, "positions": places}


def golden() -> dict[str, np.ndarray]:
    """The arrays of the file."""
    model, arrays, mems = random_model("XLNetLMHeadModel"), {}, None
    for number in (1, 2):
        batch = random_batch(model, seed=number)
        batch |= orders(batch, seed=number)
        arrays |= {f"{number}/in/{name}": x for name, x in batch.items()}
        length = batch["input_ids"].shape[1]
        batch["target_mapping"] = np.eye(length, dtype="float32")[batch["positions"]]
        del batch["positions"]
        tensors = {name: torch.tensor(x) for name, x in batch.items()}
        options = {"mems": mems, "use_mems": True, "output_hidden_states": True}
        with torch.no_grad():
            outputs = model(**tensors, **options)
        arrays[f"{number}/out/logits"] = outputs.logits.numpy()
        arrays[f"{number}/out/content"] = outputs.hidden_states[-2].numpy()
        mems = outputs.mems
        for i, x in enumerate(mems):
            arrays[f"{number}/out/memory_{i}"] = x.numpy().swapaxes(0, 1).copy()
    return arrays


if __name__ == "__main__":
    path = pathlib.Path(__file__).with_name("xlnet_streams.safetensors")
    save_file(golden(), path)
    print(path.name, path.stat().st_size)
