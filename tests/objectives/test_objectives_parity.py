"""Losses and gradients of the objectives beside PyTorch's, on one batch."""

import dataclasses

import jax
import numpy as np
import pytest
import soak
from safetensors.numpy import load_file
from soak import ENCODER, short

from bert_jax.data import pipeline
from bert_jax.data.records import RowConfig
from bert_jax.inference.model import Model
from bert_jax.models import Pretraining
from bert_jax.objectives.masked_lm import mask_batch
from bert_jax.objectives.masking import Masking
from bert_jax.objectives.replaced_tokens import (
    discriminator_params,
    generator_params,
    replace_tokens,
)
from bert_jax.tasks import pretraining
from bert_jax.tasks.distillation import DistillationConfig
from bert_jax.tasks.electra import ElectraConfig

pytestmark = pytest.mark.parity
torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

PLAIN = dict(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
BERT = dataclasses.replace(ENCODER, num_hidden_layers=3, **PLAIN)
ELECTRA = dataclasses.replace(BERT, model_type="electra", embedding_size=8)
ALBERT = dataclasses.replace(
    BERT,
    model_type="albert",
    embedding_size=8,
    num_hidden_groups=1,
    hidden_act="gelu_new",
)
DISTILBERT = dataclasses.replace(
    BERT, model_type="distilbert", num_hidden_layers=2, type_vocab_size=0
)


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory):
    """Rows with and without pairs, not packed: transformers has no packed rows."""
    folder = tmp_path_factory.mktemp("rows")
    text = soak.language_reference(folder)
    fields = {}
    for pairs in ("none", "order"):
        recipe = RowConfig(sequence_length=32, pairs=pairs, pack=False, held_out=0.2)
        task = pretraining.PretrainingConfig(paths=(str(text),), recipe=recipe)
        task.write_rows(folder / pairs, folder / "tokenizer", vocab_size=300)
        fields[pairs] = dict(prepared=str(folder / pairs), recipe=recipe)
    return fields


def joined(encoder, settings, workdir):
    """Task, model, parameters and a batch in which every row has its labels."""
    config = short(workdir, encoder=encoder, task=settings)
    task = settings.prepare(workdir, encoder, config.seed)
    model = task.build(encoder.build())
    params = jax.jit(lambda key: model.init(key, **task.example_batch))(
        jax.random.key(0)
    )
    rows = pipeline.batches(task.rows["train"], batch_size=48, seed=0)
    batch = next(iter(rows))
    batch = (
        {k: x[(batch["pair_labels"][:, 0] >= 0)] for k, x in batch.items()}
        if (batch["pair_labels"] >= 0).any()
        else batch
    )
    params = jax.tree.map(lambda x: x + 0.0, params["params"])
    return task, model, params, batch


def ours(task, model, params, batch):
    """The objective and its gradients, dropout off."""

    def objective(params):
        totals, _ = task.loss(
            model, {**params, **task.constants}, batch, jax.random.key(0)
        )
        return sum(
            w * totals[k][0] / totals[k][1] for k, w in task.loss_weights.items()
        )

    return jax.jit(jax.value_and_grad(objective))(params)


def tensor(x):
    return torch.tensor(np.asarray(x), dtype=torch.long)


def inputs(batch, ids):
    names = ("attention_mask", "token_type_ids")
    return {k: tensor(batch[k]) for k in names} | {"input_ids": tensor(ids)}


def labels(batch, hidden):
    """The ids of hidden tokens, -100 elsewhere."""
    targets = np.full(batch["input_ids"].shape, -100)
    rows, columns = np.nonzero(hidden["weights"])
    places = np.asarray(hidden["positions"])[rows, columns]
    targets[rows, places] = np.asarray(hidden["labels"])[rows, columns]
    return tensor(targets)


def opened(architecture, head, params, folder):
    """Our model, read by transformers without missing tensors; dropout is off."""
    Model.of(head, params).save(folder)
    model, report = getattr(transformers, architecture).from_pretrained(
        folder, output_loading_info=True
    )
    assert not report["missing_keys"] and not report["unexpected_keys"]
    for module in model.modules():
        # Here [PAD] has a gradient, too: as a draw it stands for a hidden token.
        if isinstance(module, torch.nn.Embedding):
            module.padding_idx = None
    return model.eval()


def assert_gradients(model, head, grads, folder):
    """Our gradients equal those that PyTorch has in `model`."""
    Model.of(head, grads).save(folder)
    names = dict(model.named_parameters())
    ours = load_file(folder / "model.safetensors")
    assert len(ours) > 10
    for name, x in ours.items():
        theirs = names[name].grad
        theirs = np.zeros(x.shape) if theirs is None else theirs.numpy()
        np.testing.assert_allclose(x, theirs, atol=2e-5, rtol=2e-4, err_msg=name)


def test_loss_and_gradients_of_albert_equal_pytorchs(unpacked, tmp_path):
    settings = pretraining.PretrainingConfig(
        **unpacked["order"], masking=Masking(whole_words=True, ngram=3)
    )
    task, model, params, batch = joined(ALBERT, settings, tmp_path)
    value, grads = ours(task, model, params, batch)
    hidden = mask_batch(batch, **task.masks(evaluating=False))
    theirs = opened("AlbertForPreTraining", model, params, tmp_path / "model")
    loss = theirs(
        **inputs(batch, hidden["input_ids"]),
        labels=labels(batch, hidden),
        sentence_order_label=tensor(batch["pair_labels"][:, 0]),
    ).loss
    loss.backward()
    np.testing.assert_allclose(value, loss.item(), rtol=1e-5)
    assert_gradients(theirs, model, grads, tmp_path / "grads")


def test_loss_and_gradients_of_electra_equal_pytorchs(unpacked, tmp_path):
    settings = ElectraConfig(**unpacked["none"], generator_hidden_size=0.75)
    task, model, params, batch = joined(ELECTRA, settings, tmp_path)
    value, grads = ours(task, model, params, batch)
    hidden = mask_batch(batch, **task.masks(evaluating=False))
    logits = model.generator.apply(
        {"params": generator_params(params)},
        hidden["input_ids"],
        batch["attention_mask"],
        batch["token_type_ids"],
        positions=hidden["positions"],
    )
    mask_key = task.masks(evaluating=False)["mask_key"]
    ids = np.asarray(replace_tokens(batch, hidden, logits, mask_key))
    assert 20 < (ids != batch["input_ids"]).sum()

    both = {
        "ElectraForPreTraining": (model.discriminator, discriminator_params),
        "ElectraForMaskedLM": (model.generator, generator_params),
    }
    find, guess = (
        opened(name, head, part(params), tmp_path / name)
        for name, (head, part) in both.items()
    )
    # What HF's own users do to tie them, the norm included as in Google's code.
    for name in ("word_embeddings", "position_embeddings", "token_type_embeddings"):
        table = getattr(find.electra.embeddings, name)
        setattr(guess.electra.embeddings, name, table)
    guess.electra.embeddings.LayerNorm = find.electra.embeddings.LayerNorm
    guess.generator_lm_head.weight = find.electra.embeddings.word_embeddings.weight
    mlm = guess(**inputs(batch, hidden["input_ids"]), labels=labels(batch, hidden)).loss
    rtd = find(**inputs(batch, ids), labels=tensor(ids != batch["input_ids"])).loss
    loss = mlm + 50 * rtd
    loss.backward()
    np.testing.assert_allclose(value, loss.item(), rtol=1e-5)
    assert_gradients(
        find, model.discriminator, discriminator_params(grads), tmp_path / "grads"
    )
    assert_gradients(
        guess, model.generator, generator_params(grads), tmp_path / "generator_grads"
    )


@pytest.mark.parametrize("restrict", [False, True])
def test_loss_and_gradients_of_distillation_equal_pytorchs(
    unpacked, tmp_path, restrict
):
    """By the formulas of distiller.py, in transformers' research projects."""
    head = Pretraining(BERT.build())
    params = head.init(jax.random.key(4), np.zeros((1, 2), np.int32))["params"]
    tokenizer = pretraining.PretrainingConfig(**unpacked["none"])
    tokenizer = tokenizer.prepare(tmp_path, BERT, 0).tokenizer
    Model.of(head, params, tokenizer).save(tmp_path / "teacher")
    settings = DistillationConfig(
        **unpacked["none"],
        teacher=str(tmp_path / "teacher"),
        restrict_ce_to_mask=restrict,
    )
    task, model, params, batch = joined(DISTILBERT, settings, tmp_path)
    value, grads = ours(task, model, params, batch)
    hidden = mask_batch(batch, **task.masks(evaluating=False))
    student = opened("DistilBertForMaskedLM", model, params, tmp_path / "student")
    teacher = transformers.BertForMaskedLM.from_pretrained(tmp_path / "teacher").eval()
    inputs = {
        "input_ids": tensor(hidden["input_ids"]),
        "attention_mask": tensor(batch["attention_mask"]),
        "output_hidden_states": True,
    }
    with torch.no_grad():
        wanted = teacher(**inputs)
    outputs, targets = student(**inputs), labels(batch, hidden)
    real = inputs["attention_mask"] > 0
    where = targets >= 0 if restrict else real
    ce = torch.nn.functional.kl_div(
        torch.log_softmax(outputs.logits[where] / 2.0, -1),
        torch.softmax(wanted.logits[where] / 2.0, -1),
        reduction="batchmean",
    )
    mlm = torch.nn.functional.cross_entropy(outputs.logits.transpose(1, 2), targets)
    states = outputs.hidden_states[-1][real], wanted.hidden_states[-1][real]
    cos = torch.nn.functional.cosine_embedding_loss(*states, torch.ones(len(states[0])))
    loss = 5 * ce * 2.0**2 + 2 * mlm + cos
    loss.backward()
    np.testing.assert_allclose(value, loss.item(), rtol=1e-5)
    assert_gradients(student, model, grads, tmp_path / "grads")
