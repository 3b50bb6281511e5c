"""Ablations: variants of one run, each with several seeds, in one table."""

import dataclasses
import json
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bert_jax import files
from bert_jax.api import finetune
from bert_jax.tasks.left_to_right import LeftToRightConfig
from bert_jax.training.config import TrainConfig, resolve
from bert_jax.training.runs import train

Values = dict[str, list[float]]


@dataclasses.dataclass
class Ablation:
    """Variants of a pre-training run side by side; `run` does all of it.

    Attributes:
      base: the run, whose `seeds` say how often each variant is trained.
      variants: what each makes of `base`, by name.
      scores: what is shown of the held-out rows at the last step.
      train, dev: labelled files; every model is fine-tuned on them where they are
        given, and its score on `dev` is shown too.
      epochs, learning_rate: of this fine-tuning.

    >>> Ablation(config, {"as it is": lambda base: base}, dev="dev.tsv").run("ablation")
    Traceback (most recent call last):
    ValueError: train and dev go together; give both files or none
    """

    base: TrainConfig
    variants: Mapping[str, Callable[[TrainConfig], TrainConfig]]
    scores: Sequence[str] = ("mlm_loss", "mlm_accuracy")
    train: str | None = None
    dev: str | None = None
    epochs: float = 3.0
    learning_rate: float = 3e-4

    def run(self, workdir: str | Path) -> dict[str, Values]:
        """Trains all; called again, it goes on. Writes table.md and ablation.json.

        Returns:
          For each variant the values of each score, one a seed.

        Raises:
          ValueError: for anything wrong with the fields or the files, before anything
            compiles.
        """
        workdir = Path(workdir).expanduser().absolute()
        configs = {name: vary(self.base) for name, vary in self.variants.items()}
        if bool(self.train) != bool(self.dev):
            raise ValueError("train and dev go together; give both files or none")
        for config in configs.values():
            resolve(config)
            if self.train and isinstance(config.task, LeftToRightConfig):
                raise ValueError(
                    "a left-to-right model cannot be fine-tuned, where every token "
                    "sees every other; leave out train and dev"
                )
        prepared = rows(configs, workdir)
        found = {}
        for name, config in configs.items():
            print(f"\n{name}", flush=True)
            task = dataclasses.replace(config.task, prepared=prepared[name])
            config = dataclasses.replace(config, task=task)
            folder = workdir / re.sub(r"\W+", "_", name)
            train(config, folder)
            found[name] = self._values(config, folder)
        said = table(found)
        (workdir / "table.md").write_text(said)
        files.write_json(workdir / "ablation.json", found)
        print(f"\n{said}")
        return found

    def _values(self, config, folder) -> Values:
        """The scores of every seed of a variant."""
        found: Values = {}
        for seed in range(config.seed, config.seed + config.seeds):
            run = folder / f"seed_{seed}" if config.seeds > 1 else folder
            scores = scored(run)
            shown = {name: scores[name] for name in self.scores if name in scores}
            if self.train:
                shown |= self._fine_tuned(run, seed)
            for name, value in shown.items():
                found.setdefault(name, []).append(value)
        return found

    def _fine_tuned(self, run, seed):
        """The first score on `dev` of the model of a run."""
        finetune(
            run / "model",
            "classify",
            train=self.train,
            dev=self.dev,
            epochs=self.epochs,
            learning_rate=self.learning_rate,
            max_length=min(64, self.base.encoder.max_length),
            seed=seed,
            workdir=run / "fine_tuned",
        )
        scores = scored(run / "fine_tuned")
        name = next(name for name in scores if name != "loss")
        return {f"dev_{name}": scores[name]}


def rows(configs: Mapping[str, TrainConfig], workdir: Path) -> dict[str, str]:
    """Prepared rows for each config: one directory for all that have the same recipe.

    They share a vocabulary, so that their scores can be compared.
    """
    made: list[tuple[Any, str]] = []
    found = {}
    for name, config in configs.items():
        task = config.task
        if task.prepared:
            found[name] = task.prepared
            continue
        known = [directory for recipe, directory in made if recipe == task.recipe]
        if not known:
            directory = workdir / f"rows_{len(made)}"
            size = config.encoder.vocab_size
            print(task.write_rows(directory, workdir / "tokenizer", size), flush=True)
            known = [str(directory)]
            made.append((task.recipe, known[0]))
        found[name] = known[0]
    return found


def scored(run: Path) -> dict[str, float]:
    """The held-out scores of a finished run."""
    return json.loads((run / "scores.json").read_text())["scores"]["eval"]


def table(found: Mapping[str, Values]) -> str:
    """Means and sample deviations over seeds, as Markdown."""
    columns = list(dict.fromkeys(name for values in found.values() for name in values))
    lines = [["", *columns], ["---"] * (len(columns) + 1)]
    for variant, values in found.items():
        cells = [spelt(values[name]) if name in values else "" for name in columns]
        lines.append([variant, *cells])
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def spelt(values: Sequence[float]) -> str:
    """`0.1614 ± 0.0021 (3)`: mean, sample deviation, how many; one value alone."""
    if len(values) == 1:
        return f"{values[0]:.4f}"
    return f"{np.mean(values):.4f} ± {np.std(values, ddof=1):.4f} ({len(values)})"
