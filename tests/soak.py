"""Runs that get signals at random must end as undisturbed runs do.

    python tests/soak.py --shots 20 --workdir /tmp/soak [TEXT ...]

Trains a small BERT on TEXT (default: Python's own language reference) twice: once in
peace, and once under SIGKILL, SIGTERM and SIGINT at random moments, with the newest
checkpoint damaged at times, the same command again after each. Then it fine-tunes in
the same way. Parameters, optimizer state, metrics and scores must be equal to the bit.
"""

import argparse
import dataclasses
import json
import os
import pickle
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
from safetensors.numpy import load_file

from bert_jax.data.records import RowConfig
from bert_jax.models import BertConfig
from bert_jax.tasks.classification import ClassificationConfig
from bert_jax.tasks.pretraining import PretrainingConfig
from bert_jax.training import sharding
from bert_jax.training.checkpoints import Checkpoints
from bert_jax.training.config import TrainConfig, resolve
from bert_jax.training.optimizers import OptimizerConfig
from bert_jax.training.program import Program

ROOT = Path(__file__).parent.parent
# Numbers that depend on the machine's mood.
TIMES = ("seconds", "tokens_per_second", "input_wait", "mfu")
DEVICES = "xla_force_host_platform_device_count"
SCRIPT = """
import sys, pickle, bert_jax
bert_jax.train(pickle.loads(bytes.fromhex(sys.argv[1])), sys.argv[2])
"""


def start(config: TrainConfig, workdir: Path) -> subprocess.Popen:
    """A run in a process of its own, on one device."""
    # Of a flag that is given twice the last one counts.
    flags = f"{os.environ.get('XLA_FLAGS', '')} --{DEVICES}=1"
    argument = pickle.dumps(config).hex()
    return subprocess.Popen(
        [sys.executable, "-c", SCRIPT, argument, str(workdir)],
        cwd=ROOT,
        env={
            "JAX_COMPILATION_CACHE_DIR": str(workdir / "cache"),
            **os.environ,
            "XLA_FLAGS": flags,
        },
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )


def shoot(
    config: TrainConfig,
    workdir: Path,
    draw: random.Random,
    signals: Sequence[signal.Signals],
    within: float,
) -> str:
    """Starts the run, and sends a signal up to `within` seconds after its first step.

    One in five comes earlier, while it starts. Returns what happened: the signal and
    the step, or that the run was over before. Raises AssertionError where a run ends
    otherwise than it should.
    """
    before = written(workdir)
    process, number = start(config, workdir), draw.choice(signals)
    early = draw.random() < 0.2
    # A run that goes on first leaves out what came after its checkpoint.
    while process.poll() is None and written(workdir) == before and not early:
        time.sleep(0.002)
    first = trained(workdir)
    while process.poll() is None and trained(workdir) <= first and not early:
        time.sleep(0.002)
    time.sleep(draw.uniform(0, 8 if early else within))
    process.send_signal(number)
    _, errors = process.communicate(timeout=600)
    step = trained(workdir)
    if process.returncode == 0:
        return f"over at step {step}"
    killed = process.returncode in (-number, 128 + number)
    assert killed or f"{number.name}: stopped" in errors, errors
    return f"{number.name} at step {step}"


def written(workdir: Path) -> int:
    """The time at which the metrics were last written."""
    file = workdir / "metrics.jsonl"
    return file.stat().st_mtime_ns if file.exists() else 0


def trained(workdir: Path) -> int:
    """The last step in metrics.jsonl."""
    return max(
        (x["step"] for x in metrics(workdir) if x["split"] == "train"), default=0
    )


def damage(workdir: Path, draw: random.Random) -> str:
    """Cuts, flips or deletes a file of the newest checkpoint, if there are two."""
    steps = [p for p in (workdir / "checkpoints").glob("*") if p.name.isdigit()]
    if len(steps) < 2:
        return ""
    newest = max(steps, key=lambda path: int(path.name))
    file = draw.choice(sorted(p for p in newest.rglob("*") if p.is_file()))
    content = bytearray(file.read_bytes())
    how = draw.choice(["cut", "flip", "delete"])
    if how == "delete" or not content:
        file.unlink()
    else:
        place = draw.randrange(len(content))
        content[place] ^= 1 << draw.randrange(8)
        file.write_bytes(content if how == "flip" else content[:place])
    return f", then {how} {file.relative_to(workdir)}"


def killed(whole: Path, workdir: Path, step: int) -> Path:
    """`workdir`, filled with the files of `whole` as they were after `step`.

    There must be a checkpoint of it. The metrics go on, as those of a run do.
    """
    shutil.copytree(whole, workdir)
    for path in (workdir / "checkpoints").iterdir():
        if path.name.isdigit() and int(path.name) > step:
            shutil.rmtree(path)
    shutil.rmtree(workdir / "model")
    (workdir / "scores.json").unlink()
    return workdir


def metrics(workdir: Path) -> list[dict[str, Any]]:
    """The lines of metrics.jsonl without times; an unfinished line is left out."""
    file = workdir / "metrics.jsonl"
    lines = file.read_text().split("\n")[:-1] if file.exists() else []
    return [
        {k: v for k, v in json.loads(line).items() if k not in TIMES} for line in lines
    ]


def weights(workdir: Path) -> dict[str, np.ndarray]:
    """The parameters of the finished model."""
    return load_file(workdir / "model" / "model.safetensors")


def assert_same_run(config: TrainConfig, one: Path, other: Path) -> None:
    """Raises AssertionError unless two finished runs are equal bit for bit."""
    a, b = final_state(config, one), final_state(config, other)
    paths = jax.tree_util.tree_leaves_with_path
    for (path, x), (_, y) in zip(paths(a), paths(b), strict=True):
        np.testing.assert_array_equal(x, y, err_msg=jax.tree_util.keystr(path))
    assert metrics(one) == metrics(other)
    scores = [(path / "scores.json").read_text() for path in (one, other)]
    assert scores[0] == scores[1]


def final_state(config: TrainConfig, workdir: Path) -> Any:
    """Parameters and optimizer state at the end."""
    config = resolve(config)
    task = config.task.prepare(workdir, config.encoder, config.seed)
    program = Program(config, task, sharding.make_mesh(config.model_parallel))
    with Checkpoints(workdir / "checkpoints") as checkpoints:
        restored = checkpoints.restore(program.state)
    assert restored.step == config.num_steps and not restored.skipped
    return restored.state


ENCODER = BertConfig(
    vocab_size=300,
    hidden_size=16,
    num_hidden_layers=1,
    num_attention_heads=2,
    intermediate_size=32,
    max_position_embeddings=32,
)
OFTEN = dict(batch_size=16, log_every=5, eval_every=50, checkpoint_every=20)


def rows(
    texts: Sequence[str], folder: Path, vocab_size: int = ENCODER.vocab_size
) -> Path:
    """Prepared rows, packed, some of them held out."""
    task = PretrainingConfig(
        paths=tuple(texts), recipe=RowConfig(sequence_length=32, held_out=0.2)
    )
    task.write_rows(folder / "rows", folder / "tokenizer", vocab_size)
    return folder / "rows"


def pretraining(prepared: Path, **changes) -> TrainConfig:
    """Masked LM and next sentence on prepared rows."""
    fields = dict(
        encoder=ENCODER,
        task=PretrainingConfig(
            prepared=str(prepared), recipe=RowConfig(sequence_length=32)
        ),
        optimizer=OptimizerConfig(learning_rate=1e-3, warmup_steps=2),
        **OFTEN,
    )
    return TrainConfig(**{**fields, **changes})


def short(prepared: Path, **changes) -> TrainConfig:
    """The same run with six steps only."""
    often = dict(num_steps=6, log_every=2, eval_every=3, checkpoint_every=3)
    return pretraining(prepared, **{**often, **changes})


def fine_tuning(folder: Path, **changes) -> TrainConfig:
    """A run on rows of different lengths; the best step is exported."""
    draw, letters = random.Random(0), "abcdefghijklmnop"
    for name, count in (("train", 300), ("dev", 70)):
        texts = [draw.choices(letters, k=draw.randrange(1, 28)) for _ in range(count)]
        rows = [f"{' '.join(text)}\t{int('a' in text)}\n" for text in texts]
        (folder / f"{name}.tsv").write_text("".join(rows))
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *letters]
    (folder / "vocab.txt").write_text("\n".join(words))
    return TrainConfig(
        encoder=ENCODER,
        task=ClassificationConfig(
            train=str(folder / "train.tsv"),
            dev=str(folder / "dev.tsv"),
            tokenizer=str(folder / "vocab.txt"),
            max_length=32,
            epochs=0,
        ),
        optimizer=OptimizerConfig(learning_rate=1e-3, warmup_steps=2),
        export="best",
        keep_checkpoints=True,  # The newest step is compared.
        **OFTEN,
        **changes,
    )


def soak(
    config: TrainConfig,
    folder: Path,
    shots: int,
    seed: int = 0,
    signals: Sequence[signal.Signals] = (
        signal.SIGKILL,
        signal.SIGTERM,
        signal.SIGINT,
    ),
    within: float = 1.0,
    damages: float = 0.0,
    say: Callable[[str], None] = print,
) -> None:
    """Runs `config` undisturbed, then with signals; raises on a difference.

    Args:
      damages: how probably the newest checkpoint is damaged after a shot.
    """
    draw = random.Random(seed)
    peace, war = folder / "peace", folder / "war"
    assert start(config, peace).wait() == 0
    for number in range(1, shots + 1):
        happened = shoot(config, war, draw, signals, within)
        if draw.random() < damages:
            happened += damage(war, draw)
        say(f"{number:3} of {shots}: {happened}")
    process = start(config, war)
    _, errors = process.communicate()
    assert process.returncode == 0, errors
    assert_same_run(config, peace, war)
    say("equal to the bit")


def main() -> None:
    """Both kinds of run."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("texts", nargs="*")
    parser.add_argument("--shots", type=int, default=20)
    parser.add_argument("--steps", type=int, default=1500)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--damages", type=float, default=0.3)
    parser.add_argument("--workdir", type=Path, required=True)
    args = parser.parse_args()
    args.workdir.mkdir(parents=True)
    texts = args.texts or [str(language_reference(args.workdir))]
    # Room for the characters of any text.
    of_text = dataclasses.replace(ENCODER, vocab_size=8000)
    kinds = {
        "pre-training": lambda folder: pretraining(
            rows(texts, folder, of_text.vocab_size),
            encoder=of_text,
            accumulation=2,
            skip_spikes=6.0,
            num_steps=args.steps,
        ),
        "fine-tuning": lambda folder: fine_tuning(folder, num_steps=args.steps),
    }
    for name, make in kinds.items():
        print(name, flush=True)
        folder = args.workdir / name
        folder.mkdir()
        say = lambda line: print(line, flush=True)  # noqa: E731
        soak(make(folder), folder, args.shots, args.seed, damages=args.damages, say=say)


def language_reference(folder: Path) -> Path:
    """A text that is installed with every Python."""
    import pydoc_data.topics

    file = folder / "topics.txt"
    file.write_text("\n\n\n".join(list(pydoc_data.topics.topics.values())[:25]))
    return file


if __name__ == "__main__":
    main()
