r"""BERT-base, the first phase: 900,000 of a million steps, on rows of 128 tokens.

    bert-jax prepare TEXT --max-length 128 --dupe-factor 10 --held-out 0.001 \
        --out rows128
    python train.py --config=configs/bert_base_phase1.py \
        --config.task.prepared=rows128 --workdir=runs/base128

Devlin et al., 2018, appendix A.2; 20 predictions a row as in google-research/bert.
After both phases the paper's model scores 79.6 on the GLUE test sets (table 1) and an
F1 of 88.5 on SQuAD 1.1 (table 2); its masked LM perplexity is 3.99, so `mlm_loss` 1.38
(table 6), and its NSP accuracy 0.97 to 0.98. The text was Wikipedia and BooksCorpus;
the latter is no longer published.

Three things differ from the paper. Each visit of a row draws a new mask. Short
sequences share a row. The learning rate decays to 0 in each phase; in the paper it
decays over the whole million steps, and is 1e-5 where this phase ends.
"""

from bert_jax.data import RowConfig
from bert_jax.models import BertConfig
from bert_jax.objectives import Masking
from bert_jax.tasks import PretrainingConfig
from bert_jax.training import OptimizerConfig, TrainConfig


def get_config() -> TrainConfig:
    """The recipe."""
    return TrainConfig(
        encoder=BertConfig(),
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
