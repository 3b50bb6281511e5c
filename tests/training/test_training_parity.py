"""A hundred updates equal PyTorch's: same start, same rows, same masks."""

import jax
import numpy as np
import pytest

from bert_jax.data import pipeline
from bert_jax.data.records import RowConfig
from bert_jax.inference.model import Model
from bert_jax.models import BertConfig
from bert_jax.objectives.masking import Masking, Vocabulary, mask_tokens
from bert_jax.tasks.pretraining import PretrainingConfig
from bert_jax.training import step as steps
from bert_jax.training.optimizers import (
    OptimizerConfig,
    decay_mask,
    learning_rate,
    make_optimizer,
)

pytestmark = pytest.mark.parity
torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

STEPS, BATCH = 100, 8
OPTIMIZER = OptimizerConfig(
    name="adamw", learning_rate=3e-3, schedule="linear", warmup_steps=10
)


@pytest.fixture(scope="module")
def task(tmp_path_factory):
    import pydoc_data.topics

    folder = tmp_path_factory.mktemp("curves")
    text = "\n\n\n".join(list(pydoc_data.topics.topics.values())[:20])
    (folder / "topics.txt").write_text(text, "utf-8")
    # transformers knows no packed rows.
    recipe = RowConfig(sequence_length=40, held_out=0.2, pack=False)
    settings = PretrainingConfig(
        paths=(str(folder / "topics.txt"),), format="paragraphs", recipe=recipe
    )
    return settings.prepare(folder, BertConfig(vocab_size=400), seed=0)


def torch_batch(task, batch):
    """A batch after our masking, in the form of transformers."""
    t = task.tokenizer
    hidden = mask_tokens(
        jax.random.fold_in(jax.random.key(task.seed), 1),
        batch["example"],
        batch["input_ids"],
        batch["attention_mask"],
        Masking(),
        Vocabulary(t.vocab_size, t.mask_id, (t.pad_id, t.cls_id, t.sep_id)),
    )
    hidden = {name: np.asarray(x) for name, x in hidden.items()}
    labels = np.full(batch["input_ids"].shape, -100)
    rows, columns = np.nonzero(hidden["weights"])
    labels[rows, hidden["positions"][rows, columns]] = hidden["labels"][rows, columns]
    arrays = {
        "input_ids": hidden["input_ids"],
        "attention_mask": batch["attention_mask"],
        "token_type_ids": batch["token_type_ids"],
        "labels": labels,
        "next_sentence_label": batch["pair_labels"][:, 0],
    }
    return {k: torch.tensor(np.asarray(v), dtype=torch.long) for k, v in arrays.items()}


def torch_losses(model, batches):
    plain = ("bias", "LayerNorm.weight")
    groups = [
        {
            "params": [
                p for n, p in model.named_parameters() if n.endswith(plain) == skips
            ],
            "weight_decay": 0.0 if skips else OPTIMIZER.weight_decay,
        }
        for skips in (False, True)
    ]
    optimizer = torch.optim.AdamW(groups, lr=1.0, eps=OPTIMIZER.eps)
    rate = learning_rate(OPTIMIZER, STEPS)
    losses = []
    for step, batch in enumerate(batches):
        for group in optimizer.param_groups:
            group["lr"] = float(rate(step))
        loss = model(**batch).loss
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), OPTIMIZER.clip_norm)
        optimizer.step()
        losses.append(loss.item())
    return losses


def test_a_hundred_steps_follow_pytorch(task, tmp_path):
    config = BertConfig(
        vocab_size=400,
        hidden_size=24,
        num_hidden_layers=2,
        num_attention_heads=3,
        intermediate_size=48,
        max_position_embeddings=40,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    model = task.build(config.build())
    optimizer = make_optimizer(OPTIMIZER, STEPS)
    init = steps.make_init(lambda key: model.init(key, **task.example_batch), optimizer)
    state = jax.jit(init)(jax.random.key(0), {})
    assert not decay_mask(state.params)["mlm"]["bias"]
    Model.of(model, state.params, task.tokenizer).save(tmp_path)
    theirs = transformers.BertForPreTraining.from_pretrained(tmp_path).train()

    rows = pipeline.batches(
        task.rows["train"], batch_size=BATCH, seed=0, stop=STEPS * BATCH
    )
    rows = list(rows)
    update = jax.jit(
        steps.make_train_step(
            lambda *args: task.loss(model, *args)[0], task.loss_weights, optimizer
        )
    )
    ours = []
    for batch in rows:
        state, totals = update(state, batch, jax.random.key(0))
        ours.append(
            sum(float(totals[k][0] / totals[k][1]) for k in ("mlm_loss", "nsp_loss"))
        )
    expected = torch_losses(theirs, [torch_batch(task, batch) for batch in rows])
    # Roundings grow with the steps; the curves themselves fall by more than one.
    np.testing.assert_allclose(ours[:10], expected[:10], atol=1e-4)
    np.testing.assert_allclose(ours, expected, atol=5e-3)
    assert np.mean(ours[-10:]) < ours[0] - 1
