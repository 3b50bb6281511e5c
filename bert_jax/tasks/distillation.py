"""Distillation (Sanh et al., 2019): a student learns what a larger model predicts."""

import dataclasses
import functools
import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import jax
from flax import traverse_util

from bert_jax.inference.model import Model, load
from bert_jax.objectives.distillation import distillation_loss
from bert_jax.objectives.losses import Totals
from bert_jax.tasks import pretraining, teaching
from bert_jax.tasks.pretraining import PretrainingConfig
from bert_jax.tokenizers import Tokenizer


@dataclasses.dataclass(frozen=True)
class DistillationTask(pretraining.PretrainingTask):
    """Distillation with its rows at hand; `encoder` is the student's config."""

    encoder: Any = None

    @functools.cached_property
    def teacher(self) -> Model:
        """What the student learns from."""
        return load(self.settings.teacher)

    @property
    def constants(self) -> dict[str, Any]:
        """The teacher's parameters."""
        its = self.teacher.params
        return {"teacher": {name: its[name] for name in ("encoder", "mlm")}}

    @functools.cached_property
    def fingerprint(self) -> dict[str, Any]:
        """What the data, the tokenizer and the teacher are."""
        return {**super().fingerprint, "teacher": teaching.digest(self.constants)}

    @property
    def loss_weights(self) -> dict[str, float]:
        """The three losses by their weights."""
        its = self.settings
        terms = {"ce_loss": its.alpha_ce, "mlm_loss": its.alpha_mlm}
        return terms | {"cos_loss": its.alpha_cos}

    @property
    def asks_pairs(self) -> bool:
        """Never: neither DistilBERT nor its teacher's loss has pairs."""
        return False

    def totals(self, model, params, batch, key) -> Totals:
        """See `distillation_loss`."""
        mask_key, masking, vocabulary = self.hiding(key is None)
        dtype = model.encoder.config.dtype
        return distillation_loss(
            model,
            params,
            batch,
            key,
            teacher=teaching.computed_in(self.teacher.head, dtype),
            mask_key=mask_key,
            masking=masking,
            vocabulary=vocabulary,
            temperature=self.settings.temperature,
            masked_only=self.settings.restrict_ce_to_mask,
        )

    def pretrained_params(self, init_from: str) -> dict[str, Any]:
        """Layers of `init_from`, evenly spaced where it has more, and its MLM head."""
        start = load(init_from)
        self.demand_vocabulary(start, f"init_from={init_from!r}", init_from)
        head = self.build(self.encoder.build())
        shapes = jax.eval_shape(head.init, jax.random.key(0), **self.example_batch)
        return taken_over(start.params, shapes["params"], init_from)


def taken_over(
    theirs: Mapping[str, Any], shapes: Mapping[str, Any], origin: str
) -> dict[str, Any]:
    """Parameters for `shapes` from those of a model with as many layers or more.

    Layer i of n is layer round(i (m - 1) / (n - 1)) of m: for 6 of 12 layers 0, 2, 4,
    7, 9, 11, as DistilBERT took them (scripts/extract_distilbert.py).
    """
    theirs = traverse_util.flatten_dict(theirs, sep="/")
    ours = traverse_util.flatten_dict(shapes, sep="/")
    spacing = (depth(theirs) - 1) / max(depth(ours) - 1, 1)

    def source(path):
        return re.sub(
            r"layer_(\d+)", lambda x: f"layer_{round(int(x[1]) * spacing)}", path
        )

    found = {path: theirs.get(source(path)) for path in ours}
    for path, x in found.items():
        if x is None or x.shape != ours[path].shape:
            raise ValueError(
                f"init_from={origin!r} does not fit the student: {path} is "
                f"{x if x is None else x.shape} there, {ours[path].shape} here;\n"
                "give the encoder its sizes, or set task.from_teacher=false"
            )
    return traverse_util.unflatten_dict(found, sep="/")


def depth(params: Mapping[str, Any]) -> int:
    """How many layers of their own parameters have, by path."""
    numbers = (re.search(r"layer_(\d+)/", path) for path in params)
    return len({found[1] for found in numbers if found})


@dataclasses.dataclass
class DistillationConfig(PretrainingConfig):
    """Distillation of a masked LM on raw text.

    Fields are named as in train.py of transformers' distillation project.

    Attributes:
      teacher: directory or Hub name of a model with a masked LM head. Its vocabulary is
        that of the rows.
      temperature: at which predictions are compared.
      alpha_ce, alpha_mlm, alpha_cos: weights of the divergence from the teacher's
        predictions, of masked LM, and of the angle between the last hidden states.
      restrict_ce_to_mask: compares predictions of hidden tokens only, not of all.
      from_teacher: starts from layers of the teacher, unless `init_from` is given.

    >>> task = DistillationConfig(prepared="rows128", teacher="start")
    >>> task.resolve(dataclasses.replace(config, encoder=encoder.config)).init_from
    'start'
    """

    teacher: str | None = None
    temperature: float = 2.0
    alpha_ce: float = 5.0
    alpha_mlm: float = 2.0
    alpha_cos: float = 1.0
    restrict_ce_to_mask: bool = False
    from_teacher: bool = True

    task_class: ClassVar[type] = DistillationTask

    def resolve(self, config: Any) -> Any:
        """The run's config with the model it starts from; checks the task."""
        config = super().resolve(config)
        if config.init_from or not self.from_teacher:
            return config
        return dataclasses.replace(config, init_from=self.teacher)

    def check(self) -> None:
        """Raises ValueError for a field that cannot be right."""
        super().check()
        if not self.teacher:
            raise ValueError("task.teacher names no model; give a directory or a name")
        weights = self.alpha_ce, self.alpha_mlm, self.alpha_cos
        if not all(0 <= x < math.inf for x in weights) or not sum(weights):
            raise ValueError(
                f"task.alpha_ce, alpha_mlm, alpha_cos={weights} are not weights; "
                "DistilBERT has 5, 2, 1"
            )
        if not 0 < self.temperature < math.inf:
            raise ValueError(
                f"task.temperature={self.temperature} must be positive: "
                "DistilBERT has 2"
            )

    def prepare(self, workdir: Path, encoder: Any, seed: int) -> DistillationTask:
        """Rows in the teacher's vocabulary, made under `workdir` or found there."""
        task = super().prepare(workdir, encoder, seed)
        task = dataclasses.replace(task, encoder=encoder)
        self._demand_likeness(task.teacher, encoder)
        task.demand_vocabulary(
            task.teacher, f"teacher={self.teacher!r}", str(self.teacher)
        )
        return task

    def vocabulary_of(self, cache: Path, vocab_size: int) -> Tokenizer:
        """The teacher's, unless the task names another."""
        if self.tokenizer:
            return super().vocabulary_of(cache, vocab_size)
        found = load(self.teacher).tokenizer
        if found is None:
            raise ValueError(
                f"teacher={self.teacher!r} has no tokenizer; name it by task.tokenizer"
            )
        return found

    def _demand_likeness(self, teacher, encoder):
        """Raises ValueError unless what both compute can be compared."""
        if "mlm" not in teacher.params:
            raise ValueError(
                f"teacher={self.teacher!r} has no masked LM head but a "
                f"{type(teacher.head).__name__}; name one that was pre-trained with it"
            )
        needed = ["vocab_size"] + ["hidden_size"] * (self.alpha_cos > 0)
        for name in needed:
            its, own = getattr(teacher.config, name), getattr(encoder, name)
            if its != own:
                raise ValueError(
                    f"the teacher has {name}={its} and the student {own}; make them "
                    "equal (with task.alpha_cos=0 only vocab_size has to be)"
                )
