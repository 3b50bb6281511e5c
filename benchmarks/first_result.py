"""From nothing to a first result: lines to write, and seconds in a fresh process.

    python -m benchmarks.first_result MODEL [--rounds 3] [--keras PYTHON]

MODEL is an encoder in the format of transformers. A masked LM, a classifier, a tagger
and a reader are made of it, with heads as they are drawn: time counts here, not words.
Each job is done by this library, from Python and from a shell, and by its peers, taking
turns, each time in a process of its own; medians. `--keras` names a Python with
KerasHub, whose backend is JAX; it opens no masked LM without a pooler.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

KINDS = {
    "mlm": "AutoModelForMaskedLM",
    "classifier": "AutoModelForSequenceClassification",
    "tagger": "AutoModelForTokenClassification",
    "reader": "AutoModelForQuestionAnswering",
}

MAKE = """
import pathlib, sys, transformers
model, kind, out = sys.argv[1:]
getattr(transformers, kind).from_pretrained(model).save_pretrained(out)
tokenizer = transformers.AutoTokenizer.from_pretrained(model)
tokenizer.save_pretrained(out)
words = tokenizer.get_vocab()  # KerasHub looks for vocab.txt
pathlib.Path(out, "vocab.txt").write_text("\\n".join(sorted(words, key=words.get)))
"""

PIPELINE = """
from transformers import pipeline
print(pipeline("{task}", model="{folder}")({text}))
"""

# transformers 5 has no pipeline for answers any more.
READ = """
import torch
from transformers import AutoModelForQuestionAnswering, AutoTokenizer
tokenizer = AutoTokenizer.from_pretrained("{folder}")
model = AutoModelForQuestionAnswering.from_pretrained("{folder}")
inputs = tokenizer("Who wrote it?", "Ada wrote it.", return_tensors="pt")
with torch.no_grad():
    output = model(**inputs)
start, end = output.start_logits.argmax(), output.end_logits.argmax()
print(tokenizer.decode(inputs["input_ids"][0, start : end + 1]))
"""

OURS = """
import bert_jax
print(bert_jax.load("{folder}").{call})
"""

SENTENCE = """
from sentence_transformers import SentenceTransformer
print(SentenceTransformer("{folder}").encode(["a film for a rainy day"]).shape)
"""

KERAS_CLASSIFY = """
import keras_hub
model = keras_hub.models.BertTextClassifier.from_preset("{folder}", num_classes=2)
print(model.predict(["a film for a rainy day"]))
"""

TEXT, MASKED = "a film for a rainy day", "the cat [MASK] on the mat"


def verb(name: str, call: str, text: str, task: str) -> dict[str, str | list[str]]:
    """A verb of ours and a pipeline of theirs, on one text."""
    piped = PIPELINE.format(task=task, folder="{folder}", text=repr(text))
    return {
        "bert_jax": OURS.format(folder="{folder}", call=call),
        "bert-jax": [name, text],
        "transformers": piped,
    }


# Job -> the kind of model, then who does it, and how: Python, or arguments of bert-jax.
JOBS = {
    "embed": (
        "encoder",
        {
            "bert_jax": OURS.format(folder="{folder}", call=f"embed(['{TEXT}']).shape"),
            "bert-jax": ["embed", TEXT],
            "sentence-transformers": SENTENCE,
        },
    ),
    "fill a mask": (
        "mlm",
        verb("fill-mask", f"fill_mask('{MASKED}')", MASKED, "fill-mask"),
    ),
    "classify": (
        "classifier",
        verb("classify", f"classify(['{TEXT}'])", TEXT, "text-classification")
        | {"keras": KERAS_CLASSIFY},
    ),
    "answer": (
        "reader",
        {
            "bert_jax": OURS.format(
                folder="{folder}", call="answer('Who wrote it?', 'Ada wrote it.')"
            ),
            "transformers": READ,
        },
    ),
    "tag": ("tagger", verb("tag", f"tag(['{TEXT}'])", TEXT, "token-classification")),
}


def main() -> None:
    """Prints a row for each job and library."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--keras", help="a Python with KerasHub")
    args = parser.parse_args()
    print("| job | with | lines | first | seconds |\n|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as made:
        for job, (kind, ways) in JOBS.items():
            folder = folder_of(kind, args.model, Path(made))
            ways = {k: x for k, x in ways.items() if k != "keras" or args.keras}
            seconds = {name: [] for name in ways}
            for _ in range(args.rounds):
                for name, way in ways.items():
                    command = command_of(name, way, folder, args.keras)
                    seconds[name].append(timed(command))
            for name, (first, *rest) in seconds.items():
                again = statistics.median(rest or [first])
                print(f"| {job} | {name} | {lines(ways[name])} | {first:.1f} "
                      f"| {again:.1f} |", flush=True)  # fmt: skip


def folder_of(kind: str, model: Path, made: Path) -> Path:
    """The directory of a model of that kind."""
    if kind == "encoder":
        return model
    command = [sys.executable, "-c", MAKE, str(model), KINDS[kind], str(made / kind)]
    subprocess.run(command, check=True, capture_output=True)
    return made / kind


def command_of(
    name: str, way: str | list[str], folder: Path, keras: str | None
) -> list[str]:
    """The command that starts a job."""
    if isinstance(way, list):
        start = [sys.executable, "-c", "from bert_jax.cli import main; main()"]
        return [*start, *way, "--model", str(folder)]
    python = keras if name == "keras" else sys.executable
    return [str(python), "-c", way.replace("{folder}", str(folder))]


def lines(way: str | list[str]) -> int:
    """Number of lines that a user writes."""
    return 1 if isinstance(way, list) else len(way.strip().splitlines())


def timed(command: list[str]) -> float:
    """Seconds until the process has printed its result and ended."""
    start = time.perf_counter()
    done = subprocess.run(
        command,
        env={**os.environ, "KERAS_BACKEND": "jax", "HF_HUB_OFFLINE": "1"},
        capture_output=True,
        text=True,
    )
    if done.returncode or not done.stdout.strip():
        raise SystemExit(f"{command} failed:\n{done.stderr[-2000:]}")
    return time.perf_counter() - start


if __name__ == "__main__":
    main()
