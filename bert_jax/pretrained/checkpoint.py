"""A checkpoint in memory: a head on an encoder, with its parameters and tokenizer."""

import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar, Protocol, TypeVar

from flax import linen as nn

from bert_jax.pretrained.late_interaction import LateInteraction
from bert_jax.pretrained.pooling import Pooling
from bert_jax.pretrained.sparse_pooling import SparsePooling
from bert_jax.tokenizers import Tokenizer


@dataclasses.dataclass(frozen=True)
class Settings:
    """Settings of a model beside its parameters, its tokenizer and its labels.

    A model that is trained from it declares the same.

    Attributes:
      model_type: the family of its encoder.
      pooling, max_length, extra: see `Checkpoint`.

    >>> Settings(model_type="bert", max_length=256).max_length
    256
    """

    model_type: str = ""
    pooling: Pooling | None = None
    max_length: int | None = None
    extra: Mapping[str, Any] = dataclasses.field(default_factory=dict)


class Declares(Protocol):
    """A dataclass with the settings of a model: a `Checkpoint` or a `Model`."""

    __dataclass_fields__: ClassVar[dict[str, dataclasses.Field[Any]]]

    head: nn.Module
    pooling: Pooling | None
    extra: Mapping[str, Any]


Model = TypeVar("Model", bound=Declares)


def keep_settings(model: Model, settings: Settings) -> Model:
    """A trained model with the settings of the model that it started from.

    Fields of config.json are kept only in the same family: others have other names.

    >>> settings = Settings(model_type="bert", max_length=5)
    >>> checkpoint = Checkpoint(classifier.head, classifier.params)
    >>> keep_settings(checkpoint, settings).max_length
    5
    """
    extra = dict(model.extra)
    if model.head.encoder.config.model_type == settings.model_type:
        extra = {**settings.extra, **extra}
    changes: dict[str, Any] = {"pooling": settings.pooling, "extra": extra}
    if settings.max_length:
        changes["max_length"] = settings.max_length
    return dataclasses.replace(model, **changes)


@dataclasses.dataclass
class Checkpoint:
    """The content of a published directory.

    Attributes:
      head: a module on an encoder, which is its field `encoder`.
      params: the parameters, float32 NumPy arrays.
      tokenizer: None where the directory has none.
      labels: names of the classes, where config.json has them.
      pooling: the pooling of sentence vectors, where the directory names one.
      sparse: the settings of sparse vectors, where the directory makes these.
      late: the settings of late interaction, where the directory is made for it.
      max_length: in tokens, where the directory limits rows further than the table of
        positions.
      extra: the other fields of config.json, which are saved again.
      history: of the run that made it: "config", "step" and "scores", for the card.

    >>> checkpoint = Checkpoint(classifier.head, classifier.params, labels=("a", "b"))
    >>> sorted(checkpoint.params), checkpoint.tokenizer is None
    (['classifier', 'encoder', 'pooler'], True)
    """

    head: nn.Module
    params: Mapping[str, Any]
    tokenizer: Tokenizer | None = None
    labels: tuple[str, ...] = ()
    pooling: Pooling | None = None
    sparse: SparsePooling | None = None
    late: LateInteraction | None = None
    max_length: int | None = None
    extra: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    history: Mapping[str, Any] = dataclasses.field(default_factory=dict)
