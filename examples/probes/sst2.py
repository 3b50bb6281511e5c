r"""Classes of texts from a frozen model: its vectors and a logistic regression.

    python train.py --config=examples/probes/sst2.py --config.init_from=DIR \
        --config.train=train.tsv --config.dev=dev.tsv --config.test=test.tsv \
        --workdir=runs/features

The first experiment with BERT in Alammar's "A Visual Guide to Using BERT for the First
Time" (2019): the vector of [CLS], SST-2, and scikit-learn's logistic regression; there
of DistilBERT's last layer, here of every layer and of sums and rows of several, beside
the mean over the tokens. It needs the extra: pip install 'bert_jax[experiments]'

    --config.poolings=cls --config.features=layer_6 --config.features=concat_last_four
"""

from examples.probes.text_probe import TextProbe


def get_config() -> TextProbe:
    """The recipe; files and model are given on the command line."""
    return TextProbe()
