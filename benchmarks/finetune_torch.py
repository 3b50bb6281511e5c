"""Fine-tuning as users of PyTorch write it: transformers, AdamW, padded batches.

    python -m benchmarks.finetune_torch sst2 MODEL train.tsv dev.tsv test.tsv --seed 0

The peer of `train.py --config=configs/glue.py` and `configs/ner.py`: the same rows, the
same recipe (linear schedule, a tenth of it warmup; weight decay 0.01 but for biases and
LayerNorm; gradients clipped to norm 1). It reads files itself and imports nothing of
bert_jax. Prints a line an epoch: seconds of training and of scoring, and the scores.
"""

import argparse
import csv
import random
import time
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
import transformers

IGNORED = -100


class MeanClassifier(torch.nn.Module):
    """One layer on the mean over tokens, for which transformers has no class."""

    def __init__(self, name: str, outputs: int):
        super().__init__()
        self.encoder = transformers.AutoModel.from_pretrained(
            name, add_pooling_layer=False
        )
        config = self.encoder.config
        self.dropout = torch.nn.Dropout(config.hidden_dropout_prob)
        self.classifier = torch.nn.Linear(config.hidden_size, outputs)
        torch.nn.init.normal_(self.classifier.weight, std=config.initializer_range)
        torch.nn.init.zeros_(self.classifier.bias)

    def forward(self, labels: torch.Tensor, **batch: torch.Tensor) -> SimpleNamespace:
        """The loss and the logits `[B, C]`; the squared error for one output."""
        states = self.encoder(**batch).last_hidden_state
        weights = batch["attention_mask"][..., None].float()
        mean = (states * weights).sum(1) / weights.sum(1)
        logits = self.classifier(self.dropout(mean))
        if logits.shape[1] == 1:
            loss = torch.nn.functional.mse_loss(logits[:, 0], labels)
        else:
            loss = torch.nn.functional.cross_entropy(logits, labels)
        return SimpleNamespace(loss=loss, logits=logits)


class Sentences:
    """SST-2: sentence, tab, 0 or 1; accuracy."""

    outputs, model = 2, transformers.AutoModelForSequenceClassification

    def __init__(self, train: str):
        del train  # the labels are known

    def read(self, path: str) -> list:
        """Rows of a file."""
        lines = Path(path).read_text("utf-8").splitlines()
        return [line.rsplit("\t", 1) for line in lines]

    def encode(self, tokenizer: Any, rows: list, length: int) -> dict:
        """A batch `[B, L]` with its labels `[B]`."""
        batch = tokenizer([row[0] for row in rows], **padded(length))
        return {**batch, "labels": torch.tensor([int(row[1]) for row in rows])}

    def score(self, logits: list, batches: list) -> dict[str, float]:
        """Scores of a split, by name."""
        hits = [
            x.argmax(-1) == b["labels"] for x, b in zip(logits, batches, strict=True)
        ]
        return {"accuracy": torch.cat(hits).double().mean().item()}


class Similarity(Sentences):
    """STS-B: two sentences and a number, as CSV; correlations."""

    outputs = 1

    def read(self, path: str) -> list:
        """Rows of a file."""
        with open(path, encoding="utf-8", newline="") as file:
            return list(csv.reader(file))

    def encode(self, tokenizer: Any, rows: list, length: int) -> dict:
        """A batch `[B, L]` with its scores `[B]`."""
        first, second, scores = zip(*rows, strict=True)
        batch = tokenizer(list(first), list(second), **padded(length))
        return {**batch, "labels": torch.tensor([float(x) for x in scores])}

    def score(self, logits: list, batches: list) -> dict[str, float]:
        """Pearson and Spearman."""
        from scipy import stats

        predicted = torch.cat(logits)[:, 0].numpy()
        true = torch.cat([b["labels"] for b in batches]).numpy()
        return {
            "pearson": stats.pearsonr(predicted, true).statistic,
            "spearman": stats.spearmanr(predicted, true).statistic,
        }


class Entities:
    """Words and tags, a blank line between sentences; F1 of seqeval."""

    model = transformers.AutoModelForTokenClassification

    def __init__(self, train: str):
        rows = self.read(train)
        self.names = sorted({tag for sentence in rows for _, tag in sentence})
        self.outputs = len(self.names)

    def read(self, path: str) -> list:
        """Rows of a file: (word, tag) of each word."""
        blocks = "\n".join(map(str.rstrip, open(path, encoding="utf-8"))).split("\n\n")
        rows = [[line.split("\t") for line in b.splitlines() if line] for b in blocks]
        return [row for row in rows if row]

    def encode(self, tokenizer: Any, rows: list, length: int) -> dict:
        """A batch `[B, L]`; a word's first piece has its label."""
        words = [[word for word, _ in row] for row in rows]
        batch = tokenizer(words, is_split_into_words=True, **padded(length))
        labels = torch.full(batch["input_ids"].shape, IGNORED)
        for i, row in enumerate(rows):
            of_piece = batch.word_ids(i)
            for j, word in enumerate(of_piece):
                if word is not None and word != of_piece[j - 1]:
                    labels[i, j] = self.names.index(row[word][1])
        return {**batch, "labels": labels}

    def score(self, logits: list, batches: list) -> dict[str, float]:
        """F1 of entities."""
        from seqeval.metrics import f1_score

        predicted, true = [], []
        for x, batch in zip(logits, batches, strict=True):
            for best, labels in zip(x.argmax(-1), batch["labels"], strict=True):
                seen = labels != IGNORED
                predicted.append([self.names[k] for k in best[seen]])
                true.append([self.names[k] for k in labels[seen]])
        return {"f1": f1_score(true, predicted)}


TASKS = {"sst2": Sentences, "stsb": Similarity, "entities": Entities}


def main() -> None:
    """Trains and prints a line an epoch."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("task", choices=TASKS)
    parser.add_argument("model")
    parser.add_argument("files", nargs=3, metavar=("TRAIN", "DEV", "TEST"))
    for name, kind, value in (
        ("--seed", int, 0),
        ("--epochs", int, 3),
        ("--rate", float, 5e-5),
        ("--batch-size", int, 32),
        ("--length", int, 128),
        ("--threads", int, 2),
    ):
        parser.add_argument(name, type=kind, default=value)
    parser.add_argument("--mean", action="store_true", help="read the mean, no pooler")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    for seed in (random.seed, np.random.seed, torch.manual_seed):
        seed(args.seed)

    task = TASKS[args.task](args.files[0])
    train, dev, test = map(task.read, args.files)
    tokenizer = transformers.AutoTokenizer.from_pretrained(args.model)
    if args.mean:
        model = MeanClassifier(args.model, task.outputs)
    else:
        model = task.model.from_pretrained(args.model, num_labels=task.outputs)
    steps = args.epochs * (len(train) // args.batch_size)
    optimizer, schedule = optimizer_of(model, args.rate, steps)
    training = scoring = 0.0
    for epoch in range(1, args.epochs + 1):
        start = time.perf_counter()
        model.train()
        order = np.random.permutation(len(train))
        whole = len(order) // args.batch_size * args.batch_size
        for rows in np.split(order[:whole], whole // args.batch_size):
            batch = task.encode(tokenizer, [train[i] for i in rows], args.length)
            model(**batch).loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
        training += time.perf_counter() - start
        start = time.perf_counter()
        scores = {
            f"{split} {name}": round(float(value), 4)
            for split, rows in (("dev", dev), ("test", test))
            for name, value in evaluate(model, task, tokenizer, rows, args.length)
        }
        scoring += time.perf_counter() - start
        print(
            f"seed {args.seed} epoch {epoch}: {training:.0f} s training, "
            f"{scoring:.0f} s scoring, {scores}",
            flush=True,
        )


def padded(length: int) -> dict[str, Any]:
    """The arguments of every call of the tokenizer."""
    return {
        "padding": True,
        "truncation": True,
        "max_length": length,
        "return_tensors": "pt",
    }


def optimizer_of(model: Any, rate: float, steps: int) -> tuple[Any, Any]:
    """AdamW without decay on biases and LayerNorm, and its linear schedule."""
    plain, decayed = [], []
    for name, value in model.named_parameters():
        whole = name.endswith("bias") or "LayerNorm" in name
        (plain if whole else decayed).append(value)
    groups = [
        {"params": decayed, "weight_decay": 0.01},
        {"params": plain, "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, lr=rate)
    schedule = transformers.get_linear_schedule_with_warmup(
        optimizer, int(0.1 * steps), steps
    )
    return optimizer, schedule


@torch.no_grad()
def evaluate(
    model: Any, task: Any, tokenizer: Any, rows: Sequence, length: int
) -> list[tuple[str, float]]:
    """Scores of all rows, by name."""
    model.eval()
    parts = [rows[i : i + 64] for i in range(0, len(rows), 64)]
    batches = [task.encode(tokenizer, part, length) for part in parts]
    logits = [model(**batch).logits for batch in batches]
    return list(task.score(logits, batches).items())


if __name__ == "__main__":
    main()
