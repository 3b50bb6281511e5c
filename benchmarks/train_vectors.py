"""A training step of sentence vectors, in turns with sentence-transformers.

    python -m benchmarks.train_vectors DIR --batch 32 --length 32 --loss cosent

Both train the model in DIR on the same synthetic pairs: every text has `length` tokens,
dropout is on, gradients are clipped to norm 1, AdamW. Blocks of steps alternate in one
process, so that both see the same machine. Prints the median step of each.

    python -m benchmarks.train_vectors DIR --scores train.csv dev.csv test.csv --seed 0

trains with sentence-transformers on scored pairs (0 to 5) by the recipe of
`bert-jax finetune embed`: CoSENT, batch 32, 5e-5 with a tenth of warmup and a linear
fall, weight decay 0.01, the epoch with the best Spearman correlation on dev. Prints
seconds and scores.
"""

import argparse
import csv
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bert_jax.training import malloc

if __name__ == "__main__":
    malloc.keep()

import jax
import numpy as np
import sentence_transformers
import torch
from sentence_transformers import losses

from bert_jax import pretrained
from bert_jax.models import heads
from bert_jax.objectives import contrastive
from bert_jax.training import step as steps
from bert_jax.training.optimizers import OptimizerConfig, make_optimizer

PEER_LOSSES = {
    "cosent": losses.CoSENTLoss,
    "multiple_negatives": losses.MultipleNegativesRankingLoss,
}


def tokens(batch: int, length: int) -> np.ndarray:
    """Ids `[B, 2, L]` of random words between `[CLS]` and `[SEP]`."""
    ids = np.random.default_rng(0).integers(1000, 30_000, (batch, 2, length), np.int32)
    ids[..., 0], ids[..., -1] = 101, 102
    return ids


def our_step(directory: str, loss: str, ids: np.ndarray, scores: np.ndarray) -> Any:
    """A function of no arguments that trains for one step."""
    start = pretrained.load(directory)
    model = heads.SentenceEncoder(start.head.encoder)
    batch = {"input_ids": ids, "labels": scores, "example": np.arange(len(ids))}
    objective = contrastive.LOSSES[loss].function

    def totals(params, batch, key):
        rows = batch["input_ids"].reshape(-1, ids.shape[-1])
        vectors = model.apply(
            {"params": params}, rows, deterministic=False, rngs={"dropout": key}
        )
        vectors = vectors.reshape(*ids.shape[:2], -1)
        exists = np.ones(ids.shape[:2], bool)
        groups = contrastive.VectorGroups(vectors, exists, batch["labels"])
        return {"loss": objective(groups)}

    optimizer = make_optimizer(OptimizerConfig(name="adamw"), 10_000)
    init = steps.make_init(lambda key: {"params": start.params}, optimizer)
    state = jax.jit(init)(jax.random.key(0), {})
    update = jax.jit(
        steps.make_train_step(totals, {"loss": 1.0}, optimizer), donate_argnums=0
    )

    def step() -> float:
        nonlocal state
        state, sums = update(state, batch, jax.random.key(0))
        return float(sums["loss"][0])

    return step


def peer_step(
    directory: str, loss: str, ids: np.ndarray, scores: np.ndarray
) -> Callable[[], float]:
    """The same with sentence-transformers."""
    model = sentence_transformers.SentenceTransformer(directory, device="cpu").train()
    objective = PEER_LOSSES[loss](model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, weight_decay=0.01)
    columns = [torch.from_numpy(ids[:, i].astype(np.int64)) for i in (0, 1)]
    labels = torch.from_numpy(scores)

    def step() -> float:
        inputs = [
            {"input_ids": x, "attention_mask": torch.ones_like(x)} for x in columns
        ]
        value = objective(inputs, labels)
        value.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        return float(value)

    return step


def compare(args: argparse.Namespace) -> None:
    """Prints the median seconds of both and their ratio."""
    ids = tokens(args.batch, args.length)
    scores = np.linspace(0, 1, args.batch, dtype=np.float32)
    inputs = args.model, args.loss, ids, scores
    sides = {"bert_jax": our_step(*inputs), "peer": peer_step(*inputs)}
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    for step in sides.values():
        step(), step()
    for _ in range(args.rounds):
        for name, step in sides.items():
            for _ in range(args.steps):
                begin = time.perf_counter()
                step()
                seconds[name].append(time.perf_counter() - begin)
    ours, theirs = (float(np.median(x)) for x in seconds.values())
    version = sentence_transformers.__version__
    print(
        f"{args.loss} {args.batch} pairs x {args.length} tokens: bert_jax {ours:.4f} s,"
        f" sentence-transformers {version} {theirs:.4f} s, ratio {theirs / ours:.2f}"
    )


def read(path: str) -> dict[str, list]:
    """The columns of a file of two texts and a score from 0 to 5."""
    with open(path, newline="") as file:
        rows = list(csv.reader(file))
    return {
        "sentence1": [row[0] for row in rows],
        "sentence2": [row[1] for row in rows],
        "score": [float(row[2]) / 5 for row in rows],
    }


def train_peer(args: argparse.Namespace) -> None:
    """Trains with sentence-transformers and prints seconds and scores."""
    import datasets
    from sentence_transformers import evaluation

    train, dev, test = map(read, args.scores)
    model = sentence_transformers.SentenceTransformer(args.model, device="cpu")
    model.max_seq_length = args.length

    def evaluator(rows: dict[str, list], name: str) -> Any:
        return evaluation.EmbeddingSimilarityEvaluator(*rows.values(), name=name)

    with tempfile.TemporaryDirectory() as scratch:
        settings = sentence_transformers.SentenceTransformerTrainingArguments(
            output_dir=str(Path(scratch)),
            num_train_epochs=args.epochs,
            per_device_train_batch_size=args.batch,
            learning_rate=5e-5,
            warmup_ratio=0.1,
            weight_decay=0.01,
            seed=args.seed,
            eval_strategy="epoch",
            save_strategy="epoch",
            save_total_limit=1,
            load_best_model_at_end=True,
            metric_for_best_model="dev_spearman_cosine",
            use_cpu=True,
            report_to="none",
            disable_tqdm=True,
        )
        trainer = sentence_transformers.SentenceTransformerTrainer(
            model,
            settings,
            train_dataset=datasets.Dataset.from_dict(train),
            loss=losses.CoSENTLoss(model),
            evaluator=evaluator(dev, "dev"),
        )
        begin = time.perf_counter()
        trainer.train()
        seconds = time.perf_counter() - begin
    scores = {
        name: evaluator(rows, name)(model)[f"{name}_spearman_cosine"]
        for name, rows in (("dev", dev), ("test", test))
    }
    print(
        f"sentence-transformers, seed {args.seed}: {seconds:.0f} s, Spearman dev "
        f"{scores['dev']:.4f}, test {scores['test']:.4f}"
    )


def main() -> None:
    """Reads the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--length", type=int, default=64)
    parser.add_argument("--loss", choices=PEER_LOSSES, default="cosent")
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--scores", nargs=3, metavar=("TRAIN", "DEV", "TEST"))
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    train_peer(args) if args.scores else compare(args)


if __name__ == "__main__":
    main()
