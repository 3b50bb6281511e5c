"""Distillation of a masked LM on raw text (DistilBERT, Sanh et al., 2019)."""

import dataclasses
import functools
import math
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, ClassVar, cast

import jax
from flax import traverse_util

from bert_jax.inference.model import Model, load
from bert_jax.models.config import EncoderConfig
from bert_jax.models.heads import MaskedLM, Pretraining
from bert_jax.objectives.distillation import distillation_loss
from bert_jax.objectives.losses import Batch, Params, Totals
from bert_jax.tasks.pretraining import PretrainingConfig, PretrainingTask
from bert_jax.tasks.run_config import Run
from bert_jax.tasks.teacher import params_digest, with_dtype
from bert_jax.tokenizers import Tokenizer


@dataclasses.dataclass(frozen=True)
class DistillationTask(PretrainingTask):
    """Distillation on prepared rows; `encoder` is the student's config."""

    config: "DistillationConfig"
    encoder: EncoderConfig

    @functools.cached_property
    def teacher(self) -> Model:
        """The teacher's model."""
        return load(self.config.check_teacher_name())

    @property
    def constants(self) -> dict[str, Any]:
        """The teacher's parameters."""
        params = self.teacher.params
        return {"teacher": {name: params[name] for name in ("encoder", "mlm")}}

    @functools.cached_property
    def fingerprint(self) -> dict[str, Any]:
        """Digests of the data, the tokenizer and the teacher."""
        return {**super().fingerprint, "teacher": params_digest(self.constants)}

    @property
    def loss_weights(self) -> dict[str, float]:
        """The terms of the objective and their weights."""
        return {
            "ce_loss": self.config.alpha_ce,
            "mlm_loss": self.config.alpha_mlm,
            "cos_loss": self.config.alpha_cos,
        }

    @property
    def predicts_pairs(self) -> bool:
        """False: DistilBERT has no head for pairs."""
        return False

    def totals(
        self, model: MaskedLM, params: Params, batch: Batch, key: jax.Array | None
    ) -> Totals:
        """See `distillation_loss`."""
        teacher = with_dtype(self.teacher.head, model.encoder.config.dtype)
        return distillation_loss(
            model,
            params,
            batch,
            key,
            # `check_teacher` has made sure that it has a masked LM head.
            teacher=cast(MaskedLM | Pretraining, teacher),
            temperature=self.config.temperature,
            masked_only=self.config.restrict_ce_to_mask,
            **self.masks(key is None),
        )

    def pretrained_params(self, init_from: str) -> dict[str, Any]:
        """The masked LM head of `init_from`, and evenly spaced layers of it."""
        start = load(init_from)
        self.check_vocabulary(start, f"init_from={init_from!r}", init_from)
        head = self.build(self.encoder.build())
        shapes = jax.eval_shape(head.init, jax.random.key(0), **self.example_batch)
        return select_layers(start.params, shapes["params"], init_from)


def select_layers(
    params: Mapping[str, Any], shapes: Mapping[str, Any], origin: str
) -> dict[str, Any]:
    """Parameters with `shapes` from those of a model with as many layers or more.

    Layer i of n is layer round(i (m - 1) / (n - 1)) of m: for 6 of 12 layers 0, 2, 4,
    7, 9, 11, as in DistilBERT (scripts/extract_distilbert.py). `origin` is the name of
    the model in errors.
    """
    available = traverse_util.flatten_dict(params, sep="/")
    needed = traverse_util.flatten_dict(shapes, sep="/")
    spacing = (count_layers(available) - 1) / max(count_layers(needed) - 1, 1)

    def source(path):
        return re.sub(
            r"layer_(\d+)", lambda x: f"layer_{round(int(x[1]) * spacing)}", path
        )

    selected = {path: available.get(source(path)) for path in needed}
    for path, x in selected.items():
        if x is None or x.shape != needed[path].shape:
            raise ValueError(
                f"init_from={origin!r} does not fit the student: {path} is "
                f"{x if x is None else x.shape} there, {needed[path].shape} here;\n"
                "give the encoder its sizes, or set task.from_teacher=false"
            )
    return traverse_util.unflatten_dict(selected, sep="/")


def count_layers(paths: Iterable[str]) -> int:
    """The number of layers with parameters of their own, from paths of parameters."""
    matches = (re.search(r"layer_(\d+)/", path) for path in paths)
    return len({match[1] for match in matches if match})


@dataclasses.dataclass
class DistillationConfig(PretrainingConfig):
    """Distillation of a masked LM on raw text.

    Fields are named as in train.py of transformers' distillation project.

    Attributes:
      teacher: directory or Hub name of a model with a masked LM head and with the
        vocabulary of the rows.
      temperature: at which predictions are compared.
      alpha_ce, alpha_mlm, alpha_cos: weights of the divergence from the teacher's
        predictions, of masked LM, and of the angle between the last hidden states.
      restrict_ce_to_mask: compare predictions of masked tokens only, not of all tokens.
      from_teacher: start from layers of the teacher, unless `init_from` is set.

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

    task_class: ClassVar[type[PretrainingTask]] = DistillationTask

    def resolve(self, config: Run) -> Run:
        """The run's config, which starts from the teacher; checks the task."""
        config = super().resolve(config)
        if config.init_from or not self.from_teacher:
            return config
        return dataclasses.replace(config, init_from=self.teacher)

    def check(self) -> None:
        """Raises ValueError for a field that cannot be right."""
        super().check()
        self.check_teacher_name()
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

    def check_teacher_name(self) -> str:
        """The field `teacher`. Raises ValueError if it is empty."""
        if not self.teacher:
            raise ValueError("task.teacher names no model; give a directory or a name")
        return self.teacher

    def prepare(
        self, workdir: Path, encoder: EncoderConfig, seed: int
    ) -> DistillationTask:
        """Opens rows with the teacher's vocabulary, or makes them below `workdir`."""
        directory, tokenizer = self.open_rows(workdir, encoder)
        task = DistillationTask(directory, tokenizer, self, seed, encoder)
        self.check_teacher(task.teacher, encoder)
        task.check_vocabulary(
            task.teacher, f"teacher={self.teacher!r}", str(self.teacher)
        )
        return task

    def load_tokenizer(self, cache: Path, vocab_size: int) -> Tokenizer | None:
        """The tokenizer of the task, or that of the teacher."""
        if self.tokenizer:
            return super().load_tokenizer(cache, vocab_size)
        tokenizer = load(self.check_teacher_name()).tokenizer
        if tokenizer is None:
            raise ValueError(
                f"teacher={self.teacher!r} has no tokenizer; set task.tokenizer"
            )
        return tokenizer

    def check_teacher(self, teacher: Model, encoder: EncoderConfig) -> None:
        """Raises ValueError unless the outputs of both models can be compared."""
        if "mlm" not in teacher.params:
            raise ValueError(
                f"teacher={self.teacher!r} has no masked LM head but a "
                f"{type(teacher.head).__name__}; name one that was pre-trained with it"
            )
        needed = ["vocab_size"] + ["hidden_size"] * (self.alpha_cos > 0)
        for name in needed:
            size, own_size = getattr(teacher.config, name), getattr(encoder, name)
            if size != own_size:
                raise ValueError(
                    f"the teacher has {name}={size} and the student {own_size}; make "
                    "them equal (with task.alpha_cos=0 only vocab_size has to be)"
                )
