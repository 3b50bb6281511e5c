"""A run, or the same run with several seeds."""

import dataclasses
import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from bert_jax import files
from bert_jax.training import loop
from bert_jax.training.config import TrainConfig

Scores = Mapping[str, Mapping[str, float]]


def train(config: TrainConfig, workdir: str | Path, *, kept: bool = True) -> Any:
    """Trains as `config` says and returns a `Model`; called again, it resumes.

    It ends by saying what to do with `workdir`, unless that is not `kept`.

    With `config.seeds` above 1, each run has its own `workdir/seed_<n>/`. The best one
    by the held-out score comes back and is copied to `workdir/model/`, and
    `workdir/scores.json` holds each score's mean, deviation and values.

    Raises:
      ValueError: for anything wrong with the config, the data or the directory, before
        anything compiles.
      SystemExit: after SIGTERM or Ctrl-C, when the state is saved.

    >>> trained = train(config, "run")
    >>> trained.labels
    ('no', 'yes')
    """
    if config.seeds <= 1:
        return loop.train(config, workdir, kept=kept)
    workdir = Path(workdir).expanduser().absolute()
    best, best_seed, runs = None, config.seed, []
    for seed in range(config.seed, config.seed + config.seeds):
        directory = workdir / f"seed_{seed}"
        one = dataclasses.replace(config, seed=seed, seeds=1)
        print(f"\nseed {seed}, {len(runs) + 1} of {config.seeds}")
        model = loop.train(one, directory, kept=kept)
        runs.append(json.loads((directory / "scores.json").read_text()))
        # The first of equals.
        if all(runs[-1]["goodness"] > run["goodness"] for run in runs[:-1]):
            best, best_seed = model, seed
    if jax.process_index() == 0:
        found = spread([run["scores"] for run in runs])
        finished = workdir / f"seed_{best_seed}/model"
        shutil.copytree(finished, workdir / "model", dirs_exist_ok=True)
        seeds = [run["seed"] for run in runs]
        content = {"seeds": seeds, "best_seed": best_seed, "scores": found}
        files.write_json(workdir / "scores.json", content)
        named = f"{workdir}/model" if kept else "the model"
        print(f"\n{table(found)}\n{named} is that of seed {best_seed}")
    return best


def spread(runs: Sequence[Scores]) -> dict[str, dict[str, dict[str, Any]]]:
    """Mean, sample standard deviation (n - 1) and values of each score by split."""
    found: dict[str, dict] = {}
    for split in runs[0]:
        for name in runs[0][split]:
            values = [run[split][name] for run in runs]
            found.setdefault(split, {})[name] = {
                "mean": float(np.mean(values)),
                "deviation": float(np.std(values, ddof=1)),
                "values": values,
            }
    return found


def table(found: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> str:
    """`spread` as lines for a person."""
    lines = [
        f"{split:10} {name:18} {x['mean']:.4f} +- {x['deviation']:.4f}  "
        f"({', '.join(f'{value:.4f}' for value in x['values'])})"
        for split, scores in found.items()
        for name, x in scores.items()
    ]
    return "\n".join(lines)
