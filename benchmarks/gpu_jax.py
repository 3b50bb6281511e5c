"""Our half of `benchmarks.gpu`: reads a case, prints a line of JSON for each way.

With `"steps": 0` it compares the kernels with the plain path instead, on rows of the
case, forward and backward.
"""

import json
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.models import Bert, BertConfig, Pretraining, layers, sized
from bert_jax.models.kernels import select
from bert_jax.models.masks import Mask
from bert_jax.objectives.losses import INPUTS
from bert_jax.objectives.masked_lm import masked_lm_loss
from bert_jax.objectives.masking import Masking, Vocabulary
from bert_jax.pretrained import Pooling
from bert_jax.training import step as steps
from bert_jax.training.optimizers import OptimizerConfig, make_optimizer

# bfloat16 has 8 bits: what is of order 1 may differ by some units of the last one.
TOLERANCE = 0.04


def main() -> None:
    """Prints what was measured, or compared."""
    folder = Path(sys.argv[1])
    case = json.loads((folder / "case.json").read_text())
    rows = dict(np.load(folder / "rows.npz"))
    device = jax.devices()[0]
    for result in measured(case, rows) if case["steps"] else compared(case, rows):
        print(json.dumps({"device": device.device_kind} | result), flush=True)


def config_of(case: dict[str, Any]) -> BertConfig:
    """The encoder's config, with the kernel that a run on this device takes."""
    device = jax.devices()[0]
    gpu = device.platform == "gpu"
    config = sized(
        case["layers"],
        case["hidden"],
        vocab_size=case["vocab_size"],
        dtype="bfloat16",
        attention_probs_dropout_prob=case["rate"],
    )
    capability = float(device.compute_capability) if gpu else 0.0
    return config.for_device(
        device.platform, capability, case["length"], case["sequences"]
    )


def measured(case: dict, rows: dict[str, np.ndarray]) -> Iterator[dict[str, Any]]:
    """Seconds of a step, and of the first one with its compilation."""
    config = config_of(case)
    made = training if case["predictions"] else inference
    batches = [
        jax.device_put({k: x[i] for k, x in rows.items() if k != "labels"})
        for i in range(case["batches"])
    ]
    begin = time.perf_counter()
    step = made(case, config, batches[0])
    jax.block_until_ready(step(batches[0]))
    first = time.perf_counter() - begin
    seconds = timed(step, batches, case["steps"])
    yield {"how": config.attention, "seconds": seconds, "first": first}


def timed(step: Callable, batches: list, count: int) -> float:
    """Seconds of a step: the median of three rounds, none of which waits within."""
    rounds = []
    for _ in range(4):
        begin = time.perf_counter()
        for i in range(count):
            out = step(batches[i % len(batches)])
        jax.block_until_ready(out)
        rounds.append((time.perf_counter() - begin) / count)
    return float(np.median(rounds[1:]))


def training(case: dict, config: BertConfig, batch: dict) -> Callable[[dict], Any]:
    """A whole update: masking, dropout, both losses, clipping and AdamW."""
    model, key = Pretraining(Bert(config)), jax.random.key(0)
    masking = Masking(max_predictions=case["predictions"])
    vocabulary = Vocabulary(config.vocab_size, 103, (0, 101, 102))

    def loss(params, batch, key):
        how = {"masking": masking, "vocabulary": vocabulary}
        return masked_lm_loss(model, params, batch, key, mask_key=key, **how)

    optimizer = make_optimizer(OptimizerConfig(name="adamw"), 10_000)
    objective = {"mlm_loss": 1.0, "nsp_loss": 1.0}
    update = jax.jit(
        steps.make_train_step(loss, objective, optimizer), donate_argnums=0
    )
    init = steps.make_init(lambda key: model.init(key, batch["input_ids"]), optimizer)
    state = jax.jit(init)(key, {})

    def step(batch):
        nonlocal state
        state, totals = update(state, batch, key)
        return totals

    return step


def inference(case: dict, config: BertConfig, batch: dict) -> Callable[[dict], Any]:
    """Mean vectors of rows `[B, D]`."""
    model = Bert(config)
    params = jax.jit(model.init)(jax.random.key(0), batch["input_ids"])

    @jax.jit
    def vectors(params, batch):
        x = model.apply(params, **{name: batch[name] for name in INPUTS})
        return Pooling(("mean",))(x.astype(jnp.float32), batch["attention_mask"])

    return lambda batch: vectors(params, batch)


def compared(case: dict, rows: dict[str, np.ndarray]) -> Iterator[dict[str, Any]]:
    """Distance of each kernel for this device from the plain path, as text."""
    kernel = config_of(case).attention
    packed = jnp.array(rows["attention_mask"][0])
    plain = (packed > 0).astype(jnp.int32)
    masks = {kernel: packed}
    if kernel == "cudnn_packed":
        masks["cudnn"] = plain
    masks.pop("plain", None)
    differences = {name: difference(name, mask, case) for name, mask in masks.items()}
    yield {
        "how": "check",
        "kernels": {
            name: f"{'equal to' if far <= TOLERANCE else 'NOT EQUAL to'} the plain "
            f"path: {far:.4f} apart at most, {TOLERANCE} allowed"
            for name, far in differences.items()
        },
    }


def difference(kernel: str, mask: jax.Array, case: dict) -> float:
    """The largest one of output and gradients, on what is not padding."""
    shape = (*mask.shape, case["hidden"] // 64, 64)
    keys = jax.random.split(jax.random.key(0), 4)
    *inputs, gradient = (jax.random.normal(k, shape, jnp.bfloat16) for k in keys)
    real = (mask > 0)[:, :, None, None]

    @jax.jit
    def far(query, key, value, gradient):
        def pulled_back(name):
            y, back = jax.vjp(
                lambda *x: layers.attend(*x, mask, kernel=name), query, key, value
            )
            return y, *back(jnp.where(real, gradient, 0))

        pairs = zip(pulled_back(kernel), pulled_back("plain"), strict=True)
        apart = (jnp.abs(a - b).astype(jnp.float32) for a, b in pairs)
        return jnp.stack([jnp.where(real, x, 0).max() for x in apart]).max()

    assert select.takes(kernel, inputs[0], Mask(mask)), kernel
    return float(far(*inputs, gradient))


if __name__ == "__main__":
    main()
