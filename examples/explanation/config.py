r"""Is attention an explanation? Tests of a classifier, and training without weights.

    python -m examples.explanation --config=examples/explanation/config.py:changed \
        --config.model=runs/sst2 --config.data=dev.tsv --workdir=runs/changed
    python -m examples.explanation --config=examples/explanation/config.py:uniform \
        --config.init_from=DIR --config.train=train.tsv --config.dev=dev.tsv \
        --workdir=runs/uniform

- changed: a finished classifier with other attention weights, in each layer alone and
  in all of them. Permuted weights: the total variation distance between the outputs
  before and after, against the largest weights (Jain and Wallace, 2019, section 4.2.1).
  If weights explain a prediction, texts with peaked attention should change most.
  Uniform weights: accuracy when every token sees the mean of all.
- uniform: trains a classifier whose weights are uniform from the first step on
  (Wiegreffe and Pinter, 2019, section 3.2). If it is as accurate as one with attention,
  the task does not need attention, and can tell nothing about it.

Both papers have one attention layer above a BiLSTM; BERT has one in every layer.
`changed` writes scores.json, permuted.png and uniform.png, `uniform` what every
fine-tuning run writes.
"""

from examples.explanation.explanation import ChangedAttention, UniformTraining

TESTS = {"changed": ChangedAttention, "uniform": UniformTraining}


def get_config(name: str = "changed") -> ChangedAttention | UniformTraining:
    """The test with a name, a key of `TESTS`."""
    if name not in TESTS:
        raise ValueError(f"{name!r} is unknown; choose one of {', '.join(TESTS)}")
    return TESTS[name]()
