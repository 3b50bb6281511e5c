"""GLUE's tasks (Wang et al., 2018) as data: labels, official metrics, files."""

import dataclasses
from collections.abc import Mapping

from bert_jax.data.columns import Columns


@dataclasses.dataclass(frozen=True)
class Glue:
    """One task.

    Attributes:
      labels: as its files write them, by number; none for regression.
      metrics: official ones; the first chooses the best checkpoint.
      by_width: columns of its files without a header, by how many they have.
    """

    labels: tuple[str, ...]
    metrics: tuple[str, ...] = ("accuracy",)
    by_width: Mapping[int, Columns] = dataclasses.field(default_factory=dict)


_YES = ("0", "1")
_FOLLOWS = ("entailment", "not_entailment")

GLUE = {
    # Source, label, the author's own mark, sentence.
    "cola": Glue(_YES, ("matthews",), {4: Columns(text=3, label=1)}),
    "sst2": Glue(_YES),
    "mrpc": Glue(_YES, ("f1", "accuracy")),
    "qqp": Glue(_YES, ("f1", "accuracy")),
    "stsb": Glue((), ("pearson", "spearman")),
    # Google numbers them contradiction, entailment, neutral; this order is that of the
    # models on the Hub.
    "mnli": Glue(("entailment", "neutral", "contradiction")),
    "qnli": Glue(_FOLLOWS),
    "rte": Glue(_FOLLOWS),
    "wnli": Glue(_YES),
}
