r"""BERT-base, the second phase: the last 100,000 steps, on rows of 512 tokens.

    bert-jax prepare TEXT --max-length 512 --tokenizer rows128/tokenizer \
        --dupe-factor 10 --held-out 0.001 --out rows512
    python train.py --config=configs/bert_base_phase2.py \
        --config.init_from=runs/base128/model \
        --config.task.prepared=rows512 --workdir=runs/base512

It starts from the model of `bert_base_phase1.py`, which names the paper and its scores,
and needs its vocabulary. 76 predictions a row are those of MLPerf.

The learning rate begins at 1e-5, the value after 900,000 steps in the paper. The
moments of the optimizer start at zero; the short warm-up is there for them.

On TPUs a fused kernel computes attention, dropout included. On GPUs it does so only
without dropout: with `--config.encoder.attention_probs_dropout_prob=0`, which is not
the paper's recipe. With dropout the attention scores of whole rows are kept in memory.
"""

from dataclasses import replace

from bert_jax.objectives import Masking
from bert_jax.training import TrainConfig
from configs import bert_base_phase1


def get_config() -> TrainConfig:
    """The recipe, as a change of the first phase."""
    base = bert_base_phase1.get_config()
    recipe = replace(base.task.recipe, sequence_length=512)
    masking = Masking(max_predictions=76)
    return replace(
        base,
        task=replace(base.task, recipe=recipe, masking=masking),
        optimizer=replace(base.optimizer, learning_rate=1e-5, warmup_steps=1_000),
        num_steps=100_000,
    )
