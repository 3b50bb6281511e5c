"""Ablations: variants of one run, each with several seeds, in one table."""

import dataclasses
import json
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np

from bert_jax import finetune, train
from bert_jax.data import RowConfig
from bert_jax.tasks import LeftToRightConfig
from bert_jax.training import TrainConfig, resolve

# Values by the name of the score, one for each seed.
Scores = dict[str, list[float]]


@dataclasses.dataclass
class Ablation:
    """Variants of a pre-training run, to be compared.

    Attributes:
      base: the run; each variant is trained with each of its `seeds`.
      variants: functions that turn `base` into a variant, by name.
      scores: the scores to show, of the held-out rows at the last step.
      train, dev: labelled files. If they are set, every model is fine-tuned on them,
        and its score on `dev` is shown too.
      epochs, learning_rate: of this fine-tuning.

    >>> ablation = Ablation(config, {"base": lambda base: base}, dev="dev.tsv")
    >>> ablation.run("ablation")
    Traceback (most recent call last):
    ValueError: train and dev go together; set both files or none
    """

    base: TrainConfig
    variants: Mapping[str, Callable[[TrainConfig], TrainConfig]]
    scores: Sequence[str] = ("mlm_loss", "mlm_accuracy")
    train: str | None = None
    dev: str | None = None
    epochs: float = 3.0
    learning_rate: float = 3e-4

    def run(self, workdir: str | Path) -> dict[str, Scores]:
        """Trains all variants, and writes table.md and ablation.json.

        A second call with the same `workdir` resumes.

        Returns:
          The values of each score for each variant, one for each seed.

        Raises:
          ValueError: for anything wrong with the fields or the files, before anything
            compiles.
        """
        workdir = Path(workdir).expanduser().absolute()
        configs = {name: vary(self.base) for name, vary in self.variants.items()}
        self.check(configs)
        directories = prepare_rows(configs, workdir)
        results = {}
        for name, config in configs.items():
            print(f"\n{name}", flush=True)
            task = dataclasses.replace(config.task, prepared=directories[name])
            config = dataclasses.replace(config, task=task)
            folder = workdir / re.sub(r"\W+", "_", name)
            train(config, folder)
            results[name] = self.collect_scores(config, folder)
        table = format_table(results)
        (workdir / "table.md").write_text(table)
        (workdir / "ablation.json").write_text(json.dumps(results, indent=2) + "\n")
        print(f"\n{table}")
        return results

    def check(self, configs: Mapping[str, TrainConfig]) -> None:
        """Raises ValueError for anything wrong with the fields or a variant."""
        if bool(self.train) != bool(self.dev):
            raise ValueError("train and dev go together; set both files or none")
        for config in configs.values():
            resolve(config)
            if self.train and isinstance(config.task, LeftToRightConfig):
                raise ValueError(
                    "a left-to-right model cannot be fine-tuned, because tokens see "
                    "all others there; leave out train and dev"
                )

    def collect_scores(self, config: TrainConfig, folder: Path) -> Scores:
        """The scores of all seeds of a variant."""
        values: Scores = {}
        for seed in range(config.seed, config.seed + config.seeds):
            run = folder / f"seed_{seed}" if config.seeds > 1 else folder
            scores = read_scores(run)
            shown = {name: scores[name] for name in self.scores if name in scores}
            if self.train:
                shown |= self.fine_tune(run, seed)
            for name, value in shown.items():
                values.setdefault(name, []).append(value)
        return values

    def fine_tune(self, run: Path, seed: int) -> dict[str, float]:
        """Fine-tunes the model of a run; returns its first score on `dev`."""
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
        scores = read_scores(run / "fine_tuned")
        name = next(name for name in scores if name != "loss")
        return {f"dev_{name}": scores[name]}


def prepare_rows(configs: Mapping[str, TrainConfig], workdir: Path) -> dict[str, str]:
    """Directories of prepared rows by config; equal row configs share one.

    All have the same vocabulary, so that their scores can be compared.
    """
    prepared: list[tuple[RowConfig, str]] = []
    directories = {}
    for name, config in configs.items():
        task = config.task
        if task.prepared:
            directories[name] = task.prepared
            continue
        same = [directory for recipe, directory in prepared if recipe == task.recipe]
        if not same:
            directory = workdir / f"rows_{len(prepared)}"
            size = config.encoder.vocab_size
            print(task.write_rows(directory, workdir / "tokenizer", size), flush=True)
            same = [str(directory)]
            prepared.append((task.recipe, same[0]))
        directories[name] = same[0]
    return directories


def read_scores(run: Path) -> dict[str, float]:
    """The held-out scores of a finished run."""
    return json.loads((run / "scores.json").read_text())["scores"]["eval"]


def format_table(results: Mapping[str, Scores]) -> str:
    """Means and sample deviations over seeds, as Markdown."""
    columns = list(dict.fromkeys(name for x in results.values() for name in x))
    lines = [["", *columns], ["---"] * (len(columns) + 1)]
    for variant, values in results.items():
        cells = [format_values(values[x]) if x in values else "" for x in columns]
        lines.append([variant, *cells])
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def format_values(values: Sequence[float]) -> str:
    """`0.1614 ± 0.0021 (3)`: mean, sample deviation, count; a single value alone."""
    if len(values) == 1:
        return f"{values[0]:.4f}"
    return f"{np.mean(values):.4f} ± {np.std(values, ddof=1):.4f} ({len(values)})"
