r"""One vector a word against a vector in each context: skip-gram beside BERT and ELMo.

    python -m examples.skip_gram --config=examples/skip_gram/config.py:train \
        --config.text=reviews.txt --workdir=runs/skip_gram
    python -m examples.skip_gram --config=examples/skip_gram/config.py:compare \
        --config.text=reviews.txt --config.skip_gram=runs/skip_gram \
        --config.bert=DIR --workdir=runs/neighbours

`train` learns skip-gram with negative sampling (Mikolov et al., 2013, "Distributed
representations of words and phrases", section 2) on a text. `compare` lists the nearest
neighbours of a few words in several sentences of the text, by the one vector of
skip-gram and by layers of BERT, and with `--config.elmo=DIR` of ELMo (examples/elmo).
It writes neighbours.md, and a page WORD.html with the map of each word by BERT.
"""

from examples.skip_gram.neighbours import Comparison
from examples.skip_gram.skip_gram import Training

CONFIGS = {"train": Training, "compare": Comparison}


def get_config(name: str = "train") -> Training | Comparison:
    """The config with a name, a key of `CONFIGS`."""
    if name not in CONFIGS:
        raise ValueError(f"{name!r} is unknown; choose one of {', '.join(CONFIGS)}")
    return CONFIGS[name]()
