"""What a table of names is: how a family's published checkpoints call what is ours."""

import dataclasses
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from flax import linen as nn

from bert_jax.models.bert import BertConfig

# Our leaves, as PyTorch writes them after a module's name.
TORCH = {"kernel": ".weight", "scale": ".weight", "bias": ".bias"}


def module_of(name: str) -> str:
    """The module of a published tensor: `cls.predictions.bias` -> `cls.predictions`."""
    return re.sub(r"[./][^./]*$", "", name)


@dataclasses.dataclass(frozen=True)
class Head:
    """How a family publishes one of our heads.

    Attributes:
      module: the head.
      names: our parameters beside the encoder's -> theirs.
      fields: fields of the head -> the names config.json gives them.
      fixed: fields of the head that are the family's own: always, or where config.json
        leaves them out.

    >>> from bert_jax.pretrained.families import FAMILIES
    >>> FAMILIES["bert"].heads["BertForMaskedLM"].names["mlm/bias"]
    'cls.predictions.bias'
    """

    module: type[nn.Module]
    names: Mapping[str, str] = dataclasses.field(default_factory=dict)
    fields: Mapping[str, str] = dataclasses.field(default_factory=dict)
    fixed: Mapping[str, Any] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Family:
    """How a family publishes its encoder, its heads and its config.

    In the tables, `#` stands for the number of one of our layers; their names are
    format strings of `layer`, or of `group` and the place `inner` it. A name without a
    leaf is that of a module, whose leaves are in `leaves`. Behind a name, `[i/n]` is
    part i of n of a tensor, cut along its first axis, and `[{heads}]` one whose last
    axis is published as two, heads and their sizes; `^T` before that is one that turns.

    Attributes:
      prefix: stands before the encoder's names when there is a head.
      encoder: our parameters -> theirs, without the prefix.
      heads: architecture, as config.json names it -> head.
      config: of its encoder.
      settings: config.json as it may be -> as `config` and the heads name its fields.
      fields: our config fields -> theirs, where the names differ.
      defaults: fields whose default differs from that of `config`.
      fixed: our fields that config.json does not have.
      derived: our fields that follow from the others.
      demanded: what is refused where config.json says otherwise.

    >>> from bert_jax.pretrained.families import FAMILIES
    >>> bert = FAMILIES["bert"]
    >>> bert.prefix + bert.encoder["layer_#/mlp/up"]
    'bert.encoder.layer.{layer}.intermediate.dense'
    """

    prefix: str
    encoder: Mapping[str, str]
    heads: Mapping[str, Head]
    leaves: Mapping[str, str] = dataclasses.field(default_factory=lambda: TORCH)
    config: type = BertConfig
    settings: Callable[[Mapping[str, Any]], Mapping[str, Any]] = dict
    fields: Mapping[str, str] = dataclasses.field(default_factory=dict)
    defaults: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    fixed: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    derived: Mapping[str, Callable[[Any], Any]] = dataclasses.field(
        default_factory=dict
    )
    demanded: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def names(self, head: Head, paths: Iterable[str], config: Any) -> dict[str, str]:
        """Our parameters -> theirs, for every parameter of a model."""
        table = {f"encoder/{k}": self.prefix + v for k, v in self.encoder.items()}
        table |= head.names
        return {path: self._name(path, table, config) for path in paths}

    def copies(self, head: Head, config: Any) -> dict[str, str]:
        """Tensors that a file may hold a second time -> the one they repeat."""
        if "mlm/decoder" not in head.names:
            return {}
        decoder, bias = head.names["mlm/decoder"], head.names["mlm/bias"]
        word = self.prefix + self.encoder["embeddings/word"]
        if config.tie_word_embeddings:
            copies = {f"{decoder}.weight": word, f"{decoder}.bias": bias}
        else:
            copies = {bias: f"{decoder}.bias"}
        return {name: original for name, original in copies.items() if name != original}

    def elsewhere(self) -> set[str]:
        """The names of all its heads, whichever head a file says it has."""
        return {name for head in self.heads.values() for name in head.names.values()}

    def architecture(self, module: type[nn.Module]) -> str:
        """The name under which the family publishes a head.

        Raises ValueError for one that it does not publish.
        """
        for architecture, head in self.heads.items():
            if head.module is module:
                return architecture
        family = next(iter(self.heads)).removesuffix("Model").lower()
        raise ValueError(
            f"{module.__name__} is published by no {family} "
            f"checkpoint; put one of {', '.join(self.heads)} on the encoder"
        )

    def _name(self, path: str, table: Mapping[str, str], config: Any) -> str:
        layer = re.search(r"layer_(\d+)", path)
        number = int(layer[1]) if layer else 0
        path = re.sub(r"layer_\d+", "layer_#", path)
        parent, _, leaf = path.rpartition("/")
        name = table.get(path)
        if name is None:  # of a module, or else of nothing the family knows
            name = table[parent] + self.leaves[leaf] if parent in table else path
        group, inner = divmod(number, config.inner_group_num)
        heads = config.num_attention_heads
        return name.format(layer=number, group=group, inner=inner, heads=heads)
