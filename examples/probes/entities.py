r"""A linear probe of words: labels from a frozen model, layer by layer.

    python -m examples.probes --config=examples/probes/entities.py \
        --config.init_from=DIR --config.train=train.conll --config.dev=dev.conll \
        --config.test=test.conll --workdir=runs/layers

The experiment of the BERT paper's section 5.3 (Devlin et al., 2018): which layers are
best for naming entities? A word has the state of its first piece. In the paper two
layers of a BiLSTM read these states, and sums of layers have learnt weights; here a
logistic regression sees one word at a time, and sums are plain. So scores are lower,
and show what the states themselves contain. It needs the extra:
pip install 'bert_jax[experiments]'

The paper's F1 on CoNLL-2003, dev, of BERT-base, cased (table 7):

    embeddings 91.0  second-to-last 95.6  last 94.9  weighted sum of last four 95.9
    concatenation of last four 96.1  weighted sum of all twelve 95.5  fine-tuned 96.4
"""

from examples.probes.probe import WordProbe


def get_config() -> WordProbe:
    """The probe; set files and model on the command line."""
    return WordProbe()
