"""Seconds of one pre-training step (masked LM + NSP) on synthetic rows.

    python -m benchmarks.train_step --layers=12 --hidden=768 --batch=16 --length=128
    python -m benchmarks.train_step --profile

Every row is full, 15 % of its tokens are predicted, dropout is on, gradients are
clipped; batch and masks change from step to step as in a real run. Memory and dispatch
are those of train.py.
"""

import argparse
import time

from bert_jax.training import malloc

if __name__ == "__main__":
    malloc.keep()

import jax
import numpy as np

from benchmarks import kernels
from bert_jax.models import Bert, Pretraining, sized
from bert_jax.objectives.masked_lm import masked_lm_loss
from bert_jax.objectives.masking import Masking, Vocabulary
from bert_jax.training import step as steps
from bert_jax.training.optimizers import OptimizerConfig, make_optimizer


def rows(batch: int, length: int, vocab_size: int) -> dict[str, np.ndarray]:
    """A batch as the input pipeline gives it: `[CLS]` and random words."""
    draw = np.random.default_rng(0)
    input_ids = draw.integers(1000, vocab_size, (batch, length), dtype=np.int32)
    input_ids[:, 0] = 101
    halves = (np.arange(length) >= length // 2).astype(np.int32)
    return {
        "input_ids": input_ids,
        "attention_mask": np.ones_like(input_ids),
        "token_type_ids": np.tile(halves, (batch, 1)),
        "position_ids": np.tile(np.arange(length, dtype=np.int32), (batch, 1)),
        "cls_positions": np.zeros((batch, 1), np.int32),
        "pair_labels": draw.integers(0, 2, (batch, 1), dtype=np.int32),
        "example": np.arange(batch, dtype=np.uint32),
    }


def main() -> None:
    """Prints one line: first call, median step, sequences and tokens a second.

    With `--profile` it also says what the kernels of one more step took.
    """
    parser = argparse.ArgumentParser(description=__doc__)
    for name, default in (
        ("layers", 12),
        ("hidden", 768),
        ("batch", 16),
        ("length", 128),
        ("predictions", 20),
        ("steps", 6),
    ):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--optimizer", default="adamw")
    parser.add_argument("--dropout", type=float, default=0.1)
    parser.add_argument("--profile", action="store_true")
    args = parser.parse_args()
    jax.config.update("jax_cpu_enable_async_dispatch", False)

    config = sized(
        args.layers,
        args.hidden,
        dtype=args.dtype,
        hidden_dropout_prob=args.dropout,
        attention_probs_dropout_prob=args.dropout,
    )
    model = Pretraining(Bert(config))
    masking = Masking(max_predictions=args.predictions)
    vocabulary = Vocabulary(config.vocab_size, 103, (0, 101, 102))
    batch = rows(args.batch, args.length, config.vocab_size)
    key = jax.random.key(0)

    def loss(params, batch, key):
        return masked_lm_loss(
            model,
            params,
            batch,
            key,
            mask_key=jax.random.key(1),
            masking=masking,
            vocabulary=vocabulary,
        )

    optimizer = make_optimizer(OptimizerConfig(name=args.optimizer), 10_000)
    objective = {"mlm_loss": 1.0, "nsp_loss": 1.0}
    update = jax.jit(
        steps.make_train_step(loss, objective, optimizer), donate_argnums=0
    )
    init = steps.make_init(lambda key: model.init(key, batch["input_ids"]), optimizer)
    state = jax.jit(init)(key, {})
    seconds = []
    for _ in range(args.steps + 2):
        batch["example"] = batch["example"] + args.batch
        begin = time.perf_counter()
        state, totals = update(state, batch, key)
        value = float(totals["mlm_loss"][0] / totals["mlm_loss"][1])
        seconds.append(time.perf_counter() - begin)
    median = float(np.median(seconds[2:]))
    print(
        f"bert_jax {args.dtype} L{args.layers} D{args.hidden} {args.batch} x "
        f"{args.length}: first {seconds[0]:.1f} s, step {median:.3f} s, "
        f"{args.batch / median:.2f} sequences/s, "
        f"{args.batch * args.length / median:.0f} tokens/s, loss {value:.3f}"
    )
    if args.profile:
        print(kernels.table(lambda: update(state, batch, key)))


if __name__ == "__main__":
    main()
