r"""The 24 miniatures of BERT: LAYERSxWIDTH, for example 4x256.

    bert-jax prepare TEXT --length 128 --dupe-factor 10 --held-out 0.001 --out rows128
    python train.py --config=configs/miniatures.py:4x256 \
        --config.task.prepared=rows128 --workdir=runs/mini

Turc et al., 2019. Layers are 2, 4, 6, 8, 10 or 12, the width is 128, 256, 512 or 768.
Published scores on the GLUE test sets (google-research/bert, README):

    2x128 (tiny) 64.2    4x256 (mini) 65.8    4x512 (small) 71.2    8x512 (medium) 73.5

They were trained by BERT's own recipe, of which this is the first phase: see
`bert_base_phase1.py`. The second takes the flags in which `bert_base_phase2.py` differs
from it; without it, positions from 128 on are not trained.
"""

from bert_jax.data.records import RowConfig
from bert_jax.models import sized
from bert_jax.objectives.masking import Masking
from bert_jax.tasks.pretraining import PretrainingConfig
from bert_jax.training.config import TrainConfig
from bert_jax.training.optimizers import OptimizerConfig

LAYERS, WIDTHS = (2, 4, 6, 8, 10, 12), (128, 256, 512, 768)
SIZES = {f"{layers}x{width}": (layers, width) for layers in LAYERS for width in WIDTHS}


def get_config(size: str = "2x128") -> TrainConfig:
    """The recipe for one of `SIZES`."""
    if size not in SIZES:
        raise ValueError(
            f"size {size!r} is none of the 24 miniatures; choose LAYERSxWIDTH with "
            f"layers in {LAYERS} and width in {WIDTHS}"
        )
    return TrainConfig(
        encoder=sized(*SIZES[size]),
        dtype="bfloat16",
        task=PretrainingConfig(
            recipe=RowConfig(sequence_length=128, dupe_factor=10, held_out=0.001),
            masking=Masking(max_predictions=20),
        ),
        optimizer=OptimizerConfig(
            name="bert_adam",
            learning_rate=1e-4,
            schedule="google",
            warmup_steps=10_000,
        ),
        batch_size=256,
        num_steps=900_000,
        log_every=100,
        eval_every=10_000,
        checkpoint_every=1_000,
    )
