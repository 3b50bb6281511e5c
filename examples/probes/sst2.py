r"""A linear probe of texts: classes from a frozen model, layer by layer.

    python -m examples.probes --config=examples/probes/sst2.py \
        --config.init_from=DIR --config.train=train.tsv --config.dev=dev.tsv \
        --config.test=test.tsv --workdir=runs/features

The first experiment with BERT in Alammar's "A Visual Guide to Using BERT for the First
Time" (2019): the state of [CLS], SST-2, and scikit-learn's logistic regression. There
it is the last layer of DistilBERT; here it is every layer, and sums and concatenations
of several, for [CLS] and for the mean over the tokens. It needs the extra:
pip install 'bert_jax[experiments]'

    --config.poolings=cls --config.features=layer_6 --config.features=concat_last_four
"""

from examples.probes.probe import TextProbe


def get_config() -> TextProbe:
    """The probe; set files and model on the command line."""
    return TextProbe()
