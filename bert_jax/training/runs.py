"""A run, or the same run with several seeds."""

import dataclasses
import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypedDict

import jax
import numpy as np

from bert_jax import files
from bert_jax.training import loop
from bert_jax.training.config import TrainConfig, resolve

Scores = Mapping[str, Mapping[str, float]]


class Statistics(TypedDict):
    """A score over several seeds."""

    mean: float
    deviation: float  # of a sample (n - 1)
    values: list[float]


# By split and name of the score.
Spread = dict[str, dict[str, Statistics]]


@dataclasses.dataclass(frozen=True)
class Runs:
    """The finished runs of a config, one for each seed.

    Attributes:
      best: the run with the best score on "eval".
      workdir: of the whole; its model/ is that of the best run.
      directories: of each run.
      seed: of the best run.
      spread: of each score over the seeds; {} for one seed.
    """

    best: loop.Run
    workdir: Path
    directories: Sequence[Path]
    seed: int
    spread: Spread = dataclasses.field(default_factory=dict)


def train(config: TrainConfig, workdir: str | Path) -> Runs:
    """Trains as `config` describes, for each of its seeds; called again, it resumes.

    With `config.seeds` above 1, each run has its own `workdir/seed_<n>/`. The model of
    the best one is copied to `workdir/model/`, and `workdir/scores.json` holds mean,
    deviation and values of each score. Raises what `loop.train` raises.
    """
    if config.seeds <= 1:
        run = loop.train(config, workdir)
        return Runs(run, run.workdir, [run.workdir], config.seed)
    # Once for all seeds, which then share the files that the task has read.
    config = resolve(config)
    workdir = files.local_path(workdir).absolute()
    seeds = range(config.seed, config.seed + config.seeds)
    directories = [workdir / f"seed_{seed}" for seed in seeds]

    def train_seed(seed: int) -> loop.Run:
        print(f"\nseed {seed}, {seed - seeds[0] + 1} of {config.seeds}")
        one = dataclasses.replace(config, seed=seed, seeds=1)
        is_first = seed == seeds[0]
        return loop.train(one, workdir / f"seed_{seed}", announce=is_first)

    best, best_seed = train_seed(seeds[0]), seeds[0]
    for seed in seeds[1:]:
        run = train_seed(seed)
        if run.score > best.score:  # the first of equals
            best, best_seed = run, seed
    # As written: every number is then the same in a run that was complete before.
    reports = [json.loads((x / "scores.json").read_text()) for x in directories]
    spread = spread_of([report["scores"] for report in reports])
    if jax.process_index() == 0:
        copy_whole(workdir / f"seed_{best_seed}/model", workdir / "model")
        content = {"seeds": [*seeds], "best_seed": best_seed, "scores": spread}
        files.write_json(workdir / "scores.json", content)
    return Runs(best, workdir, directories, best_seed, spread)


def copy_whole(source: Path, target: Path) -> None:
    """Copies a directory, which takes its name when it is whole."""
    unfinished = target.with_name(f".{target.name}")
    shutil.rmtree(unfinished, ignore_errors=True)
    with files.write_errors(target, unfinished):
        try:
            shutil.copytree(source, unfinished)
        except shutil.Error as error:  # a list of (source, target, reason)
            raise OSError(error.args[0][0][2]) from None
        shutil.rmtree(target, ignore_errors=True)
        unfinished.rename(target)


def spread_of(runs: Sequence[Scores]) -> Spread:
    """Mean, sample standard deviation (n - 1) and values of each score by split."""
    spread: Spread = {}
    for split in runs[0]:
        for name in runs[0][split]:
            values = [run[split][name] for run in runs]
            spread.setdefault(split, {})[name] = {
                "mean": float(np.mean(values)),
                "deviation": float(np.std(values, ddof=1)),
                "values": values,
            }
    return spread


def score_table(finished: Runs) -> str:
    """The scores of finished runs as lines for a person."""
    if finished.spread:
        return table(finished.spread)
    run = finished.best
    lines = [f"scores of the model, from step {run.step}"]
    for split, scores in run.scores.items():
        listed = ", ".join(f"{name} {x:.4g}" for name, x in scores.items())
        lines += [f"  {split:10} {listed or 'no labels, predicted only'}"]
    return "\n".join(lines)


def table(spread: Spread) -> str:
    """A spread as lines for a person."""
    lines = [
        f"{split:10} {name:18} {x['mean']:.4f} +- {x['deviation']:.4f}  "
        f"({', '.join(f'{value:.4f}' for value in x['values'])})"
        for split, scores in spread.items()
        for name, x in scores.items()
    ]
    return "\n".join(lines)
