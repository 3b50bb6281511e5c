"""Laws of permutation pre-training: resuming, micro-batches, parity with PyTorch."""

import dataclasses
import itertools
import shutil

import jax
import numpy as np
import pytest
from safetensors.numpy import load_file

import bert_jax
from bert_jax.data import pipeline
from bert_jax.data.records import RowConfig
from bert_jax.inference.model import Model
from bert_jax.models import BertConfig, XLNetConfig
from bert_jax.objectives.masking import Masking
from bert_jax.objectives.permutation import Permutation, permute_tokens
from bert_jax.tasks.permutation import PermutationConfig
from bert_jax.training import step as steps
from bert_jax.training.config import TrainConfig
from bert_jax.training.optimizers import OptimizerConfig, learning_rate, make_optimizer

ENCODER = XLNetConfig(
    vocab_size=300,
    d_model=24,
    n_layer=2,
    n_head=3,
    d_inner=48,
    dropout=0.0,
    max_position_embeddings=40,
)
OPTIMIZER = OptimizerConfig(
    name="adamw", learning_rate=3e-3, schedule="linear", warmup_steps=2
)
STEPS, BATCH = 10, 8


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    import pydoc_data.topics

    folder = tmp_path_factory.mktemp("text")
    text = "\n\n\n".join(list(pydoc_data.topics.topics.values())[:20])
    (folder / "topics.txt").write_text(text, "utf-8")
    return folder / "topics.txt"


def task_of(text, length=40, **recipe):
    recipe = RowConfig(sequence_length=length, held_out=0.2, cls_last=True, **recipe)
    return PermutationConfig(paths=(str(text),), format="paragraphs", recipe=recipe)


@pytest.fixture(scope="module")
def packed(text, tmp_path_factory):
    """Rows that hold several sequences."""
    task = task_of(text, length=128, short_seq_prob=0.9)
    encoder = dataclasses.replace(ENCODER, max_position_embeddings=128)
    return task.prepare(tmp_path_factory.mktemp("packed"), encoder, seed=0)


def batches(task, count):
    rows = pipeline.batches(task.rows["train"], batch_size=BATCH, seed=0)
    return list(itertools.islice(rows, count))


def started(task):
    model = task.build(ENCODER.build())
    optimizer = make_optimizer(OPTIMIZER, STEPS)
    init = steps.make_init(lambda key: model.init(key, **task.example_batch), optimizer)
    return model, optimizer, jax.jit(init)(jax.random.key(0), {})


def trained(task, rows, accumulation=1):
    """Losses and parameters of a few steps."""
    model, optimizer, state = started(task)
    update = jax.jit(
        steps.make_train_step(
            lambda *args: task.loss(model, *args)[0],
            task.loss_weights,
            optimizer,
            accumulation,
        )
    )
    losses = []
    for batch in rows:
        state, totals = update(state, batch, jax.random.key(0))
        losses.append(float(totals["mlm_loss"][0] / totals["mlm_loss"][1]))
    return losses, state.params


def test_rows_are_packed_with_cls_at_the_end(packed):
    t, batch = packed.tokenizer, batches(packed, 1)[0]
    mask, ids = batch["attention_mask"], batch["input_ids"]
    assert mask.max() > 1 and t.specials.cls == "<cls>"
    for row in range(BATCH):
        for number in range(1, mask[row].max() + 1):
            tokens = mask[row] == number
            assert ids[row, tokens][-2:].tolist() == [t.sep_id, t.cls_id]
            assert batch["token_type_ids"][row, tokens][-1] == 2


def test_no_prediction_depends_on_another_sequence_of_its_row(packed):
    model, _, state = started(packed)
    batch = batches(packed, 1)[0]
    mask, ids = batch["attention_mask"], batch["input_ids"]
    row = int(np.argmax(mask.max(1)))
    other = np.where(mask[row] == 1, ids[row], 9)
    place = np.nonzero(mask[row] == 1)[0][:1]
    predictions = [
        model.apply(
            {"params": state.params},
            some[None],
            mask[row : row + 1],
            positions=place[None],
        )
        for some in (ids[row], other)
    ]
    assert (other != ids[row]).any()
    np.testing.assert_array_equal(*predictions)


@pytest.mark.slow
def test_micro_batches_train_like_the_whole_batch(packed):
    rows = batches(packed, 3)
    whole, params = trained(packed, rows)
    parts, same = trained(packed, rows, accumulation=2)
    np.testing.assert_allclose(whole, parts, atol=1e-5)
    for x, y in zip(*map(jax.tree.leaves, (params, same)), strict=True):
        np.testing.assert_allclose(x, y, atol=2e-5)


@pytest.mark.slow
def test_every_evaluation_predicts_the_same_tokens(packed):
    model, _, state = started(packed)
    batch = next(iter(pipeline.eval_batches(packed.rows["eval"], batch_size=BATCH)))
    first, _ = packed.loss(model, state.params, batch, None)
    again, _ = packed.loss(model, state.params, batch, None)
    assert first["mlm_loss"][0] == again["mlm_loss"][0]
    assert first["mlm_labels"][1] == first["mlm_loss"][1] > 0
    train, _ = packed.loss(model, state.params, batch, jax.random.key(1))
    assert train["mlm_loss"][0] != first["mlm_loss"][0]


@pytest.mark.slow
def test_a_resumed_run_ends_like_an_uninterrupted_one(text, tmp_path):
    config = TrainConfig(
        encoder=ENCODER,
        task=task_of(text),
        optimizer=OPTIMIZER,
        batch_size=BATCH,
        num_steps=4,
        log_every=2,
        eval_every=4,
        checkpoint_every=2,
    )
    model = bert_jax.train(config, tmp_path / "one")
    assert model.fill_mask("the <mask> of a class", k=3)
    shutil.copytree(tmp_path / "one", tmp_path / "two")
    for path in ("checkpoints/4", "model"):
        shutil.rmtree(tmp_path / "two" / path)
    bert_jax.train(config, tmp_path / "two")
    one, two = (load_file(tmp_path / x / "model/model.safetensors") for x in
                ("one", "two"))  # fmt: skip
    assert one.keys() == two.keys()
    for name, x in one.items():
        np.testing.assert_array_equal(x, two[name], err_msg=name)
    assert bert_jax.load(tmp_path / "two/model").tokenizer.specials.pads_left


def test_settings_without_effect_are_refused(text):
    task = dataclasses.replace(task_of(text), masking=Masking(rate=0.3))
    with pytest.raises(ValueError, match="task.masking has no effect"):
        task.validate(ENCODER)
    task = dataclasses.replace(task_of(text), permutation=Permutation(one_in=1))
    with pytest.raises(ValueError, match="permutation.one_in=1"):
        task.validate(ENCODER)


def test_an_encoder_without_a_query_stream_is_refused(packed):
    encoder = BertConfig(hidden_size=12, num_attention_heads=3).build()
    with pytest.raises(ValueError, match="'bert' has no PermutationLM head"):
        packed.build(encoder)


@pytest.fixture(scope="module")
def alone(text, tmp_path_factory):
    """Rows of one sequence: transformers has no packed rows."""
    task = task_of(text, pack=False)
    return task.prepare(tmp_path_factory.mktemp("alone"), ENCODER, seed=0)


def torch_batch(torch, task, batch):
    """A permuted batch in the form of transformers."""
    drawn = permute_tokens(
        jax.random.fold_in(jax.random.key(task.seed), 1),
        batch["example"],
        batch["input_ids"],
        batch["attention_mask"],
        task.config.permutation,
        task.vocabulary,
    )
    drawn = {name: np.asarray(x) for name, x in drawn.items()}
    length = batch["input_ids"].shape[1]
    labels = np.where(drawn["weights"] > 0, drawn["labels"], -100)
    numbers = {
        "input_ids": batch["input_ids"],
        "token_type_ids": batch["token_type_ids"],
        "labels": labels,
    }
    masks = {
        "attention_mask": batch["attention_mask"],
        "perm_mask": drawn["perm_mask"],
        "target_mapping": np.eye(length)[drawn["positions"]],
    }
    return {
        **{k: torch.tensor(v.astype(np.int64)) for k, v in numbers.items()},
        **{k: torch.tensor(v.astype(np.float32)) for k, v in masks.items()},
    }


def torch_losses(torch, model, rows):
    named = list(model.named_parameters())
    groups = []
    for decays in (True, False):
        members = [
            p
            for name, p in named
            if name.endswith(("bias", "layer_norm.weight")) != decays
        ]
        decay = OPTIMIZER.weight_decay if decays else 0.0
        groups.append({"params": members, "weight_decay": decay})
    optimizer = torch.optim.AdamW(groups, lr=1.0, eps=OPTIMIZER.eps)
    rate, losses = learning_rate(OPTIMIZER, STEPS), []
    for step, batch in enumerate(rows):
        for group in optimizer.param_groups:
            group["lr"] = float(rate(step))
        loss = model(**batch).loss
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), OPTIMIZER.clip_norm)
        optimizer.step()
        losses.append(loss.item())
    return losses


@pytest.mark.parity
def test_ten_steps_follow_pytorch(alone, tmp_path):
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    model, _, state = started(alone)
    Model.of(model, state.params, alone.tokenizer).save(tmp_path)
    theirs = transformers.XLNetLMHeadModel.from_pretrained(tmp_path).train()
    rows = batches(alone, STEPS)
    ours, _ = trained(alone, rows)
    expected = torch_losses(torch, theirs, [torch_batch(torch, alone, x) for x in rows])
    np.testing.assert_allclose(ours, expected, atol=1e-4)
    assert ours[-1] < ours[0] - 0.1
