r"""The 24 miniatures of BERT: LAYERSxWIDTH, for example 4x256.

    bert-jax prepare TEXT --max-length 128 --dupe-factor 10 --held-out 0.001 \
        --out rows128
    python train.py --config=configs/miniatures.py:4x256 \
        --config.task.prepared=rows128 --workdir=runs/mini

Turc et al., 2019. Layers are 2, 4, 6, 8, 10 or 12, the width is 128, 256, 512 or 768.
Published scores on the GLUE test sets (google-research/bert, README):

    2x128 (tiny) 64.2    4x256 (mini) 65.8    4x512 (small) 71.2    8x512 (medium) 73.5

They were trained with BERT's own recipe. This is its first phase, see
`bert_base_phase1.py`; for the second, set the fields that `bert_base_phase2.py`
changes. Without a second phase, positions from 128 on are not trained.
"""

from dataclasses import replace

from bert_jax.models import sized
from bert_jax.training import TrainConfig
from configs import bert_base_phase1

LAYERS, WIDTHS = (2, 4, 6, 8, 10, 12), (128, 256, 512, 768)
SIZES = {f"{layers}x{width}": (layers, width) for layers in LAYERS for width in WIDTHS}


def get_config(size: str = "2x128") -> TrainConfig:
    """The recipe for one of `SIZES`."""
    if size not in SIZES:
        raise ValueError(
            f"size {size!r} is not one of the 24 miniatures; choose LAYERSxWIDTH with "
            f"layers in {LAYERS} and width in {WIDTHS}"
        )
    return replace(bert_base_phase1.get_config(), encoder=sized(*SIZES[size]))
