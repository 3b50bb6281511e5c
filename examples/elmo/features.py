r"""Frozen ELMo vectors as features: a linear probe of each layer and of their mix.

    python -m examples.probes --config=examples/elmo/features.py:texts \
        --config.init_from=runs/elmo --config.train=train.tsv --config.dev=dev.tsv \
        --config.test=test.tsv --workdir=runs/elmo-texts

classifies texts by the mean of their words' vectors, and `:words` labels the words of
files like train.conll. `mix` is the mean of all layers with learnt weights, as in the
paper (Peters et al., 2018, section 3.2); there it is the input of a larger network. The
same probes of BERT's layers are examples/probes/sst2.py and entities.py.
"""

from examples.elmo.probe import ElmoTextProbe, ElmoWordProbe

PROBES = {"texts": ElmoTextProbe, "words": ElmoWordProbe}


def get_config(kind: str) -> ElmoTextProbe | ElmoWordProbe:
    """The probe of "texts" or "words"; set files and model on the command line."""
    if kind not in PROBES:
        raise ValueError(f"kind {kind!r} is unknown; choose {' or '.join(PROBES)}")
    return PROBES[kind]()
