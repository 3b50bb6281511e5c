r"""BLEU and perplexity of a trained translator, a Transformer or a recurrent one.

    python -m examples.translation --config.model=runs/multi30k --config.test=test.tsv \
        --config.text=de --config.translation=en --workdir=runs/multi30k-test
"""

from examples.translation.evaluation import Evaluation


def get_config() -> Evaluation:
    """Greedy search and five beams."""
    return Evaluation()
