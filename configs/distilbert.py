r"""DistilBERT: the quickstart's model in half its layers, or BERT-base in six.

    python train.py --config=configs/quickstart.py --workdir=runs/quickstart
    python train.py --config=configs/distilbert.py
    bert-jax prepare TEXT --tokenizer TEACHER --max-length 512 --pairs none \
        --held-out 0.001 --out rows512
    python train.py --config=configs/distilbert.py:base \
        --config.task.teacher=TEACHER --config.task.prepared=rows512 \
        --workdir=runs/distilbert

Sanh et al., 2019, and examples/research_projects/distillation of transformers: loss
weights of 5 for the teacher's predictions at a temperature of 2, 2 for masked LM and 1
for the cosine of hidden states (README); layers 0, 2, 4, 7, 9, 11 of the teacher as the
start (extract_distilbert.py); a rate of 5e-4 after 5 % of the steps, no weight decay,
gradients clipped at 5 (train.py). TEACHER is a directory or a name. Any teacher with a
masked LM head will do; the encoder must have its sizes:

    --config.encoder.hidden_size=1024 --config.encoder.num_attention_heads=16 …

Scores on GLUE: 77.0 on average; the teacher has 79.5 (its README). It was trained for 3
epochs (train.py) of BERT's text in batches of up to 4K rows (section 3); the number of
steps here follows from BERT's 40 epochs in a million steps of 256 rows. Three things
differ: their code masks rare tokens more often than common ones, its rows hold one line
of text, and it does not train the student's positions (sinusoidal_pos_embds in
training_configs), which is `--config.optimizer.frozen=embeddings/position` here.
"""

from dataclasses import replace

from bert_jax.data import RowConfig
from bert_jax.models import BertConfig
from bert_jax.tasks import DistillationConfig
from bert_jax.training import OptimizerConfig, TrainConfig
from configs import quickstart

FAMILY = dict(model_type="distilbert", type_vocab_size=0)


def get_config(size: str = "tiny") -> TrainConfig:
    """The recipe for "tiny" or "base"."""
    if size not in RECIPES:
        raise ValueError(f"size {size!r} is not one of {', '.join(RECIPES)}")
    return RECIPES[size]()


def base() -> TrainConfig:
    """Six layers of BERT-base's twelve."""
    return TrainConfig(
        encoder=BertConfig(num_hidden_layers=6, **FAMILY),
        dtype="bfloat16",
        task=DistillationConfig(
            teacher="bert-base-uncased",
            recipe=RowConfig(sequence_length=512, pairs="none", held_out=0.001),
        ),
        optimizer=optimizer(5e-4, 234),
        batch_size=4096,
        num_steps=4_688,
        log_every=20,
        eval_every=500,
        checkpoint_every=100,
    )


def tiny() -> TrainConfig:
    """One layer of the quickstart's two."""
    base = quickstart.get_config()
    return replace(
        base,
        encoder=replace(base.encoder, num_hidden_layers=1, **FAMILY),
        task=DistillationConfig(
            teacher="runs/quickstart/model",
            recipe=RowConfig(sequence_length=64, pairs="none"),
        ),
        optimizer=optimizer(2e-3, 40),
        num_steps=400,
        eval_every=200,
        checkpoint_every=200,
    )


def optimizer(learning_rate: float, warmup_steps: int) -> OptimizerConfig:
    """The optimizer of its train.py and distiller.py."""
    return OptimizerConfig(
        name="adamw",
        learning_rate=learning_rate,
        schedule="linear",
        warmup_steps=warmup_steps,
        weight_decay=0.0,
        b2=0.98,
        clip_norm=5.0,
    )


RECIPES = {"tiny": tiny, "base": base}
