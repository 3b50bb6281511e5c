"""PyTorch's half of `benchmarks.gpu`: transformers with SDPA, and torch.compile.

Reads a case and prints a line of JSON for each way. The same rows, parameters in
float32 with autocast to bfloat16, fused AdamW, gradients clipped to norm 1. It imports
nothing of bert_jax.
"""

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def main() -> None:
    """Measures without torch.compile, then with it."""
    folder = Path(sys.argv[1])
    case = json.loads((folder / "case.json").read_text())
    rows = dict(np.load(folder / "rows.npz"))
    torch.set_float32_matmul_precision("high")
    name = torch.cuda.get_device_name() if DEVICE == "cuda" else "cpu"
    batches = [on_device(rows, i, case) for i in range(case["batches"])]
    for how in ("SDPA", "SDPA, torch.compile"):
        model = model_of(case)
        model = torch.compile(model) if "compile" in how else model
        step = (training if case["predictions"] else inference)(model)
        begin = time.perf_counter()
        step(batches[0])
        wait()
        first = time.perf_counter() - begin
        seconds = timed(step, batches, case["steps"])
        result = {"device": name, "how": how, "seconds": seconds, "first": first}
        print(json.dumps(result), flush=True)


def on_device(rows: dict[str, np.ndarray], i: int, case: dict) -> dict[str, Any]:
    """Batch `i` by the names of transformers.

    Packed rows have a mask `[B, 1, L, L]` of who sees whom; rows without padding none,
    so that SDPA may take its fastest kernel.
    """
    names = {"input_ids", "token_type_ids", "position_ids"}
    batch = {k: torch.from_numpy(rows[k][i]).long() for k in names}
    mask = torch.from_numpy(rows["attention_mask"][i])
    if case["sequences"] > 1:
        batch["attention_mask"] = (mask[:, None] == mask[:, :, None])[:, None]
    if case["predictions"]:
        batch["labels"] = torch.from_numpy(rows["labels"][i])
        first = torch.from_numpy(rows["pair_labels"][i][:, 0])
        batch["next_sentence_label"] = first.long()
    return {k: x.to(DEVICE) for k, x in batch.items()}


def model_of(case: dict[str, Any]) -> torch.nn.Module:
    """The model as transformers builds it."""
    config = transformers.BertConfig(
        vocab_size=case["vocab_size"],
        hidden_size=case["hidden"],
        num_hidden_layers=case["layers"],
        num_attention_heads=case["hidden"] // 64,
        intermediate_size=4 * case["hidden"],
        attention_probs_dropout_prob=case["rate"],
        attn_implementation="sdpa",
    )
    if case["predictions"]:
        return transformers.BertForPreTraining(config).to(DEVICE).train()
    return transformers.BertModel(config, add_pooling_layer=False).to(DEVICE).eval()


def training(model: torch.nn.Module) -> Callable[[dict], None]:
    """A whole update."""
    fused = DEVICE == "cuda"
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4, fused=fused)

    def step(batch):
        with torch.autocast(DEVICE, torch.bfloat16):
            loss = model(**batch).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()

    return step


def inference(model: torch.nn.Module) -> Callable[[dict], None]:
    """Mean vectors of rows `[B, D]`; parameters too are bfloat16."""
    model = model.to(torch.bfloat16)

    def step(batch):
        with torch.inference_mode():
            model(**batch).last_hidden_state.float().mean(1)

    return step


def timed(step: Callable, batches: list, count: int) -> float:
    """Seconds of a step: the median of three rounds, none of which waits within."""
    rounds = []
    for _ in range(4):
        begin = time.perf_counter()
        for i in range(count):
            step(batches[i % len(batches)])
        wait()
        rounds.append((time.perf_counter() - begin) / count)
    return float(np.median(rounds[1:]))


def wait() -> None:
    """Until the device is done."""
    if DEVICE == "cuda":
        torch.cuda.synchronize()


if __name__ == "__main__":
    main()
