"""The tables that say how a family of models is published.

A table maps our parameters to the tensors of a published checkpoint, and our fields to
those of its config.json. Each of `bert.py`, `modernbert.py` and `xlnet.py` holds the
tables of one encoder; `families.FAMILIES` lists them.
"""

import dataclasses
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from flax import linen as nn

from bert_jax.models.bert import BertConfig
from bert_jax.models.config import EncoderConfig

# Our parameters' last names -> their ends in the names of PyTorch.
TORCH = {"kernel": ".weight", "scale": ".weight", "bias": ".bias"}


@dataclasses.dataclass(frozen=True)
class Head:
    """The published form of one of our heads.

    Attributes:
      module: the class of the head.
      names: our parameters except the encoder's -> published names.
      fields: fields of the head -> fields of config.json.
      defaults: fields of the head as the family has them, where config.json has no
        field for them or leaves it out.

    >>> from bert_jax.pretrained.families import FAMILIES
    >>> FAMILIES["bert"].heads["BertForMaskedLM"].names["mlm/bias"]
    'cls.predictions.bias'
    """

    module: type[nn.Module]
    names: Mapping[str, str] = dataclasses.field(default_factory=dict)
    fields: Mapping[str, str] = dataclasses.field(default_factory=dict)
    defaults: Mapping[str, Any] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Family:
    """The published form of an encoder, its heads and its config.

    In the tables of names, `#` stands for the number of one of our layers. A published
    name is a format string of `layer`, or of `group` and `inner`, the layer's place in
    it. A name without the last part is that of a module; `leaves` has the ends. After a
    name, `[i/n]` means part i of n of a tensor, split along its first axis, and
    `[{heads}]` a tensor whose last axis is published as two, heads and their sizes;
    `^T` before that means transposed.

    Attributes:
      prefix: comes before the encoder's names in a model with a head.
      encoder: our parameters -> published names, without the prefix.
      heads: architecture, as in config.json -> head.
      read_as: other architectures that can be read -> the head they are read as, under
        whose own name they are saved.
      leaves: the last names of our parameters -> the ends of published names.
      config: the class of the encoder's config.
      pairs: the order of the text pairs that it was pre-trained with: "next" (next
        sentence prediction), "order" (sentence order prediction) or "none".
      normalize: brings a config.json, of whatever version, to the field names of
        `config` and of the heads.
      fields: fields of our config -> fields of config.json, where the names differ.
      defaults: defaults of fields, where they differ from those of `config`.
      fixed: fields of our config that config.json does not have.
      derived: fields of our config that follow from the others.
      required: the only value of a field of config.json that is supported.
      special_ids: fields of config.json for special tokens -> their attributes in our
        tokenizers.

    >>> from bert_jax.pretrained.families import FAMILIES
    >>> bert = FAMILIES["bert"]
    >>> bert.prefix + bert.encoder["layer_#/mlp/up"]
    'bert.encoder.layer.{layer}.intermediate.dense'
    """

    prefix: str
    encoder: Mapping[str, str]
    heads: Mapping[str, Head]
    read_as: Mapping[str, Head] = dataclasses.field(default_factory=dict)
    leaves: Mapping[str, str] = dataclasses.field(default_factory=lambda: TORCH)
    config: type[EncoderConfig] = BertConfig
    pairs: str = "none"
    normalize: Callable[[Mapping[str, Any]], Mapping[str, Any]] = dict
    fields: Mapping[str, str] = dataclasses.field(default_factory=dict)
    defaults: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    fixed: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    derived: Mapping[str, Callable[[Any], Any]] = dataclasses.field(
        default_factory=dict
    )
    required: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    special_ids: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def architecture(self, module: type[nn.Module]) -> str:
        """The name under which the family publishes a head.

        Raises ValueError for a head that it does not publish.
        """
        for architecture, head in self.heads.items():
            if head.module is module:
                return architecture
        family = next(iter(self.heads)).removesuffix("Model").lower()
        raise ValueError(
            f"{module.__name__} is published by no {family} "
            f"checkpoint; put one of {', '.join(self.heads)} on the encoder"
        )

    def names(
        self, head: Head, paths: Iterable[str], config: EncoderConfig
    ) -> dict[str, str]:
        """Published names by path, for every parameter of a model."""
        table = {f"encoder/{k}": self.prefix + v for k, v in self.encoder.items()}
        table |= head.names
        return {path: self._name(path, table, config) for path in paths}

    def copies(self, head: Head, config: EncoderConfig) -> dict[str, str]:
        """Names of tensors that a file may repeat -> names of the originals."""
        if "mlm/decoder" not in head.names:
            return {}
        decoder, bias = head.names["mlm/decoder"], head.names["mlm/bias"]
        word = self.prefix + self.encoder["embeddings/word"]
        if config.tie_word_embeddings:
            copies = {f"{decoder}.weight": word, f"{decoder}.bias": bias}
        else:
            copies = {bias: f"{decoder}.bias"}
        return {name: original for name, original in copies.items() if name != original}

    def head_names(self) -> set[str]:
        """The published names of all heads, whichever head a file has."""
        return {name for head in self.heads.values() for name in head.names.values()}

    def _name(self, path: str, table: Mapping[str, str], config: EncoderConfig) -> str:
        layer = re.search(r"layer_(\d+)", path)
        number = int(layer[1]) if layer else 0
        path = re.sub(r"layer_\d+", "layer_#", path)
        parent, _, leaf = path.rpartition("/")
        name = table.get(path)
        if name is None:  # a module's name is listed, or the parameter is not known
            name = table[parent] + self.leaves[leaf] if parent in table else path
        group, inner = divmod(number, config.inner_group_num)
        heads = config.num_attention_heads
        return name.format(layer=number, group=group, inner=inner, heads=heads)


def module_of(name: str) -> str:
    """The module of a published tensor: `cls.predictions.bias` -> `cls.predictions`."""
    return re.sub(r"[./][^./]*$", "", name)
