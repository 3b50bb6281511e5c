r"""Loss curves beside PyTorch's: same start, rows, hidden tokens and optimizer.

    python -m benchmarks.loss_curves bert roberta electra albert distilbert xlnet \
        modernbert --out curves

For each objective the small recipe of `configs/` is trained by the functions that
train.py runs, and by transformers and torch.optim.AdamW (`loss_curves_torch`), from the
parameters that bert_jax has drawn and saved. What is hidden, and the noise that makes
draws of ELECTRA's logits, is handed over as arrays, and nothing else after the first
step. Updates amplify rounding. So PyTorch computes in float64, from which both differ
by rounding alone, and once more in float32, which shows how far that goes.

Writes OUT/NAME.png and OUT/table.md. The teacher of distilbert is what bert has learnt
in OUT. Rows are not packed, which transformers has no masks for, and dropout is off.
"""

import argparse
import dataclasses
import functools
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks import loss_curves_torch
from bert_jax.data import pipeline
from bert_jax.objectives.masked_lm import mask_batch
from bert_jax.objectives.permutation import permute_batch
from bert_jax.objectives.replaced_tokens import sampling_noise
from bert_jax.training import sharding
from bert_jax.training.config import TrainConfig, resolve
from bert_jax.training.optimizers import learning_rate
from bert_jax.training.program import Program
from bert_jax.training.resume import start
from configs import albert, distilbert, electra, modernbert, quickstart, roberta, xlnet

SHOWN = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)
LABELS = ("bert_jax", "PyTorch, float64", "PyTorch, float32")
IGNORED = -100  # a label that PyTorch's losses leave out

Batch = dict[str, Any]


def masked(task: Any, batch: Batch) -> Batch:
    """Inputs of masked LM, `[B, L]`, and labels of pairs `[B]`."""
    hidden = mask_batch(batch, **task.masks(evaluating=False))
    labels = jnp.where(hidden["weights"] > 0, hidden["labels"], IGNORED)
    nothing = jnp.full(batch["input_ids"].shape, IGNORED)
    put = jax.vmap(lambda row, places, x: row.at[places].set(x))
    pairs = batch["pair_labels"][:, 0]
    return {
        "input_ids": hidden["input_ids"],
        "attention_mask": batch["attention_mask"],
        "token_type_ids": batch["token_type_ids"],
        "position_ids": batch["position_ids"],
        "labels": put(nothing, hidden["positions"], labels),
        "pair_labels": jnp.where(pairs < 0, IGNORED, pairs),
    }


def replaced(task: Any, batch: Batch) -> Batch:
    """The same, what was there `[B, L]`, and noise `[B, P, V]` at `[B, P]`."""
    positions = mask_batch(batch, **task.masks(evaluating=False))["positions"]
    shape = positions.shape[1], task.tokenizer.vocab_size
    noise = sampling_noise(batch, shape, task.masks(evaluating=False)["mask_key"])
    there = {"original_ids": batch["input_ids"], "positions": positions}
    return masked(task, batch) | there | {"noise": noise}


def permuted(task: Any, batch: Batch) -> Batch:
    """Inputs of XLNet: `[B, L]`, `[B, L, L]`, places `[B, P, L]`, labels `[B, P]`."""
    order_key = task.masks(evaluating=False)["mask_key"]
    drawn = permute_batch(batch, order_key, task.config.permutation, task.vocabulary)
    length = batch["input_ids"].shape[1]
    return {
        "input_ids": batch["input_ids"],
        "attention_mask": batch["attention_mask"],
        "token_type_ids": batch["token_type_ids"],
        "perm_mask": drawn["perm_mask"].astype(jnp.float32),
        "target_mapping": jax.nn.one_hot(drawn["positions"], length),
        "labels": jnp.where(drawn["weights"] > 0, drawn["labels"], IGNORED),
    }


class Objective(NamedTuple):
    """The small recipe, and what of a batch is handed over: `(task, batch) -> arrays`.

    `loss_curves_torch.PEERS` has the other side, by the same names.
    """

    recipe: Callable[[], TrainConfig]
    handed: Callable[[Any, Batch], Batch]


OBJECTIVES = {
    "bert": Objective(quickstart.get_config, masked),
    "roberta": Objective(roberta.get_config, masked),
    "electra": Objective(electra.get_config, replaced),
    "albert": Objective(albert.get_config, masked),
    "distilbert": Objective(distilbert.get_config, masked),
    "xlnet": Objective(xlnet.get_config, permuted),
    "modernbert": Objective(modernbert.get_config, masked),
}


class Curves(NamedTuple):
    """Losses of each step: ours, and PyTorch's in float64 and in float32."""

    ours: np.ndarray
    exact: np.ndarray
    rounded: np.ndarray


def config_of(name: str, args: argparse.Namespace) -> TrainConfig:
    """The recipe of an objective for `args.steps` steps.

    All have AdamW at the same rate: ALBERT's LAMB is not in torch.
    """
    config = OBJECTIVES[name].recipe()
    task = dataclasses.replace(config.task, paths=tuple(args.paths))
    task.recipe.pack = False
    if name == "distilbert":
        task.teacher = str(args.out / "bert/trained")
    optimizer = dataclasses.replace(
        config.optimizer,
        name="adamw",
        learning_rate=2e-3,
        schedule="linear",
        warmup_steps=args.steps // 10,
        decay_steps=0,
    )
    changed = {"batch_size": args.batch_size, "num_steps": args.steps}
    config = dataclasses.replace(config, task=task, optimizer=optimizer, **changed)
    return config


def compare(name: str, args: argparse.Namespace) -> Curves:
    """Trains an objective three times; OUT/NAME has its rows and models."""
    config, folder = config_of(name, args), args.out / name
    config = resolve(config)
    task = config.task.prepare(folder, config.encoder, config.seed)
    program = Program(config, task, sharding.make_mesh(1))
    save(task, program, start(config, program, task), folder / "start")
    ours, last = trained(config, task, program)
    save(task, program, last, folder / "trained")
    handed = jax.jit(functools.partial(OBJECTIVES[name].handed, task))
    rate = jax.jit(learning_rate(config.optimizer, config.num_steps))
    rates = [float(rate(step)) for step in range(config.num_steps)]
    theirs = []
    for bits in (64, 32):
        peer = loss_curves_torch.PEERS[name](folder / "start", config.task, bits)
        batches = map(jax.device_get, map(handed, rows(config, task)))
        losses = loss_curves_torch.losses(peer, batches, config.optimizer, rates)
        theirs.append(np.array(losses))
    return Curves(ours, *theirs)


def rows(config: TrainConfig, task: Any) -> Iterator[Batch]:
    """The batches of a run."""
    return pipeline.batches(
        task.rows["train"],
        batch_size=config.batch_size,
        seed=config.seed,
        stop=config.num_steps * config.batch_size,
    )


def trained(config: TrainConfig, task: Any, program: Program) -> tuple[np.ndarray, Any]:
    """The loss of each step, and the last state."""
    state, losses = start(config, program, task), []
    for batch in rows(config, task):
        state, totals = program.train_step(state, program.place(batch))
        weights = task.loss_weights.items()
        terms = jax.device_get({name: totals[name] for name, _ in weights})
        losses.append(sum(w * np.divide(*terms[name]) for name, w in weights))
    return np.array(losses), state


def save(task: Any, program: Program, state: Any, folder: Path) -> None:
    """Writes the model, and what belongs to it, for transformers."""
    params = program.gather(state.params)
    for name, model in task.to_models(program.model, params, {}).items():
        model.save(folder if name == "model" else folder / name)


def table(curves_by_name: dict[str, Curves], steps: int) -> str:
    """Losses at some steps, and how far they go from float64 at most."""
    shown = [step for step in SHOWN if step <= steps]
    head = ["", "", *map(str, shown), "largest difference to float64"]
    lines = [head, ["---"] * len(head)]
    for name, curves in curves_by_name.items():
        for label, x in zip(LABELS, curves, strict=True):
            apart = np.abs(x - curves.exact).max()
            losses = [f"{x[step - 1]:.4f}" for step in shown]
            lines.append([name, label, *losses, f"{apart:.1g}" if apart else ""])
            name = ""
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def draw(name: str, curves: Curves, path: Path) -> None:
    """Both curves, and below them how far apart they are."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6, 5), layout="constrained")
    above, below = figure.subplots(2, sharex=True, height_ratios=(3, 2))
    steps = np.arange(1, len(curves.ours) + 1)
    above.plot(steps, curves.ours, color="#3b6ea8", lw=3, alpha=0.5, label=LABELS[0])
    above.plot(steps, curves.exact, "--", color="#c8553d", lw=1, label=LABELS[1])
    above.set_title(f"{name}: loss", loc="left", fontsize=10)
    for x, color, label in (
        (curves.ours, "#3b6ea8", LABELS[0]),
        (curves.rounded, "#8b949e", LABELS[2]),
    ):
        apart = np.maximum(np.abs(x - curves.exact), 1e-8)
        below.semilogy(steps, apart, color=color, lw=1, label=label)
    below.set_title("difference to PyTorch in float64", loc="left", fontsize=10)
    below.set_xlabel("step")
    for axes in (above, below):
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(frameon=False, fontsize=8)
    figure.savefig(path, dpi=150)


def main(argv: Sequence[str] | None = None) -> None:
    """Trains what is named, and writes pictures and the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="+", choices=OBJECTIVES)
    parser.add_argument("--out", type=Path, default=Path("curves"))
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--paths", nargs="*", default=(), help="text to train on")
    args = parser.parse_args(argv)
    curves_by_name = {}
    for name in args.names:
        curves_by_name[name] = compare(name, args)
        draw(name, curves_by_name[name], args.out / f"{name}.png")
        print(table({name: curves_by_name[name]}, args.steps), flush=True)
    (args.out / "table.md").write_text(
        table(curves_by_name, args.steps) + "\n", "utf-8"
    )


if __name__ == "__main__":
    main()
