"""GLUE's tasks (Wang et al., 2018) as data: labels, official metrics, files."""

import dataclasses
import math
from collections.abc import Mapping

from bert_jax.data.tables import Columns


@dataclasses.dataclass(frozen=True)
class Glue:
    """One task.

    Attributes:
      labels: as its files write them, by number; none for regression.
      metrics: official ones; the first chooses the best checkpoint.
      files: what gluebenchmark.com calls its predictions, by the name of its test file.
      between: the least and the largest number that it takes.
      tfds: its train, dev and test splits in TFDS.
      by_width: columns of its files without a header, by how many they have.
    """

    labels: tuple[str, ...]
    metrics: tuple[str, ...] = ("accuracy",)
    files: Mapping[str, str] = dataclasses.field(default_factory=dict)
    between: tuple[float, float] = (-math.inf, math.inf)
    tfds: tuple[str, str, tuple[str, ...]] = ("train", "validation", ("test",))
    by_width: Mapping[int, Columns] = dataclasses.field(default_factory=dict)


_YES = ("0", "1")
_FOLLOWS = ("entailment", "not_entailment")

GLUE = {
    "cola": Glue(
        _YES,
        ("matthews",),
        {"test": "CoLA"},
        # Source, label, the author's own mark, sentence.
        by_width={4: Columns(text=3, label=1)},
    ),
    "sst2": Glue(_YES, files={"test": "SST-2"}),
    "mrpc": Glue(_YES, ("f1", "accuracy"), {"test": "MRPC"}),
    "qqp": Glue(_YES, ("f1", "accuracy"), {"test": "QQP"}),
    "stsb": Glue((), ("pearson", "spearman"), {"test": "STS-B"}, between=(0, 5)),
    "mnli": Glue(
        # Google numbers them contradiction, entailment, neutral; this order is that of
        # the models on the Hub.
        ("entailment", "neutral", "contradiction"),
        # Accuracy is MNLI's own, Matthews' correlation that of its diagnostics (AX).
        ("accuracy", "matthews"),
        {"test_matched": "MNLI-m", "test_mismatched": "MNLI-mm", "diagnostic": "AX"},
        tfds=(
            "train",
            "validation_matched",
            ("validation_mismatched", "test_matched", "test_mismatched"),
        ),
    ),
    "qnli": Glue(_FOLLOWS, files={"test": "QNLI"}),
    "rte": Glue(_FOLLOWS, files={"test": "RTE"}),
    "wnli": Glue(_YES, files={"test": "WNLI"}),
}
