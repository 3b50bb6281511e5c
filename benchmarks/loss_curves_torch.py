"""The objectives of pre-training by transformers: PyTorch's half of `loss_curves`.

Losses are those that the models of transformers compute, and where these have none of
their own, those of the authors: run_pretraining.py of google-research/electra,
distiller.py of transformers' distillation project. In three places transformers and
torch do otherwise than the authors of BERT, and are set not to: an embedding has no
gradient for [PAD], which may be the random token that hides another, or ELECTRA's draw;
RoBERTa counts positions by what is not [PAD]; and torch adds 1e-6 to the norm that it
clips by.
"""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
import transformers
from torch.nn import functional

Batch = dict[str, torch.Tensor]

TYPES = {"token_type_ids": "token_type_ids"}
DTYPES = {32: torch.float32, 64: torch.float64}


class Peer(NamedTuple):
    """Models that are trained, and the loss of a batch."""

    models: Sequence[torch.nn.Module]
    loss: Callable[[Batch], torch.Tensor]


def opened(architecture: str, folder: Path, bits: int) -> Any:
    """A model that bert_jax has saved, without dropout; all of it must be there.

    [PAD] is a token like others: where it stands for padding, nothing sees it.
    """
    load = getattr(transformers, architecture).from_pretrained
    model, report = load(folder, output_loading_info=True)
    if report["missing_keys"]:
        raise ValueError(f"{folder} lacks {sorted(report['missing_keys'])}")
    for module in model.modules():
        if isinstance(module, torch.nn.Embedding):
            module.padding_idx = None
    return model.to(DTYPES[bits]).eval()


def plain(architecture: str, **arguments: str) -> Callable[[Path, Any], Peer]:
    """A model whose own loss is the objective's.

    It takes input_ids, attention_mask and labels; `arguments` names more arguments of
    the model, each with the array of the batch that it takes.
    """
    arguments |= {name: name for name in ("input_ids", "attention_mask", "labels")}

    def peer(folder: Path, settings: Any, bits: int) -> Peer:
        model = opened(architecture, folder, bits)
        return Peer(
            [model],
            lambda batch: model(**{k: batch[x] for k, x in arguments.items()}).loss,
        )

    return peer


def roberta(folder: Path, settings: Any, bits: int) -> Peer:
    """RoBERTa, whose first position is the one behind that of [PAD]."""
    model = opened("RobertaForMaskedLM", folder, bits)
    names = ("input_ids", "attention_mask", "labels")

    def loss(batch: Batch) -> torch.Tensor:
        positions = batch["position_ids"] + model.config.pad_token_id + 1
        return model(**{k: batch[k] for k in names}, position_ids=positions).loss

    return Peer([model], loss)


def xlnet(folder: Path, settings: Any, bits: int) -> Peer:
    """XLNet, whose table of distances is float32 in whatever it computes."""
    arguments = {name: name for name in ("perm_mask", "target_mapping")} | TYPES
    peer = plain("XLNetLMHeadModel", **arguments)(folder, settings, bits)
    stack = peer.models[0].transformer
    table = stack.relative_positional_encoding
    stack.relative_positional_encoding = lambda *args, **sizes: table(
        *args, **sizes
    ).to(DTYPES[bits])
    return peer


def modernbert(folder: Path, settings: Any, bits: int) -> Peer:
    """ModernBERT, whose own loss is float32 in whatever it computes."""
    model = opened("ModernBertForMaskedLM", folder, bits)

    def loss(batch: Batch) -> torch.Tensor:
        output = model(batch["input_ids"], batch["attention_mask"]).logits
        return functional.cross_entropy(output.transpose(1, 2), batch["labels"])

    return Peer([model], loss)


def electra(folder: Path, settings: Any, bits: int) -> Peer:
    """Generator and discriminator, which share the tables and norm of embeddings."""
    find = opened("ElectraForPreTraining", folder, bits)
    guess = opened("ElectraForMaskedLM", folder / "generator", bits)
    own, shared = guess.electra.embeddings, find.electra.embeddings
    for name, module in shared.named_children():
        setattr(own, name, module)
    guess.generator_lm_head.weight = shared.word_embeddings.weight

    def loss(batch: Batch) -> torch.Tensor:
        inputs = {k: batch[k] for k in ("attention_mask", "token_type_ids")}
        labels, places, ids = batch["labels"], batch["positions"], batch["original_ids"]
        guessed = guess(input_ids=batch["input_ids"], labels=labels, **inputs)
        logits = guessed.logits.detach().take_along_dim(places[..., None], 1)
        drawn = (logits + batch["noise"]).argmax(-1)
        new = torch.where(labels.gather(1, places) >= 0, drawn, ids.gather(1, places))
        new = ids.scatter(1, places, new)
        output = find(input_ids=new, labels=(new != ids).long(), **inputs)
        return settings.gen_weight * guessed.loss + settings.disc_weight * output.loss

    return Peer([find, guess], loss)


def distilbert(folder: Path, settings: Any, bits: int) -> Peer:
    """A student of `settings.teacher`."""
    student = opened("DistilBertForMaskedLM", folder, bits)
    teacher = opened("BertForMaskedLM", Path(settings.teacher), bits)
    heat = settings.temperature

    def loss(batch: Batch) -> torch.Tensor:
        inputs = {k: batch[k] for k in ("input_ids", "attention_mask")}
        with torch.no_grad():
            wanted = teacher(**inputs, output_hidden_states=True)
        output = student(**inputs, labels=batch["labels"], output_hidden_states=True)
        real = inputs["attention_mask"] > 0
        soft = functional.kl_div(
            torch.log_softmax(output.logits[real] / heat, -1),
            torch.softmax(wanted.logits[real] / heat, -1),
            reduction="batchmean",
        )
        states = output.hidden_states[-1][real], wanted.hidden_states[-1][real]
        same = states[0].new_ones(len(states[0]))
        return (
            settings.alpha_ce * soft * heat**2
            + settings.alpha_mlm * output.loss
            + settings.alpha_cos * functional.cosine_embedding_loss(*states, same)
        )

    return Peer([student], loss)


PEERS = {
    "bert": plain("BertForPreTraining", next_sentence_label="pair_labels", **TYPES),
    "roberta": roberta,
    "electra": electra,
    "albert": plain(
        "AlbertForPreTraining", sentence_order_label="pair_labels", **TYPES
    ),
    "distilbert": distilbert,
    "xlnet": xlnet,
    "modernbert": modernbert,
}


def groups(models: Sequence[torch.nn.Module], weight_decay: float) -> list[dict]:
    """Parameters for AdamW, shared ones once; vectors are biases and norms' scales."""
    parameters = {id(p): p for model in models for p in model.parameters()}.values()
    return [
        {"params": [p for p in parameters if p.ndim > 1], "weight_decay": weight_decay},
        {"params": [p for p in parameters if p.ndim == 1], "weight_decay": 0.0},
    ]


def losses(
    peer: Peer,
    batches: Iterable[dict[str, np.ndarray]],
    settings: Any,
    rates: Sequence[float],
) -> list[float]:
    """The loss of each step, by an `OptimizerConfig` named adamw."""
    optimizer = torch.optim.AdamW(
        groups(peer.models, settings.weight_decay),
        betas=(settings.b1, settings.b2),
        eps=settings.eps,
    )
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    values = []
    for rate, batch in zip(rates, batches, strict=True):
        for group in optimizer.param_groups:
            group["lr"] = rate
        dtype = parameters[0].dtype
        loss = peer.loss({name: tensor(x, dtype) for name, x in batch.items()})
        optimizer.zero_grad()
        loss.backward()
        if settings.clip_norm:
            clip(parameters, settings.clip_norm)
        optimizer.step()
        values.append(loss.item())
    return values


def clip(parameters: Sequence[torch.Tensor], largest: float) -> None:
    """Scales gradients down to a global norm of at most `largest`."""
    grads = [p.grad for p in parameters if p.grad is not None]
    norm = torch.nn.utils.get_total_norm(grads)
    for grad in grads:
        grad.mul_(largest / norm.clamp(min=largest))


def tensor(x: np.ndarray, dtype: torch.dtype) -> torch.Tensor:
    """Numbers in `dtype`, integers as PyTorch wants them."""
    return torch.tensor(x, dtype=dtype if x.dtype.kind == "f" else torch.long)
