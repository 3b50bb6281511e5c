"""A model card: what a saved directory says of itself to a person."""

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from bert_jax.models import PermutationLM, heads
from bert_jax.pretrained import convert
from bert_jax.pretrained.checkpoint import Checkpoint
from bert_jax.pretrained.families import FAMILIES

FILE = "README.md"

# A card without it was written by a person, or taken over.
OURS = "<!-- Written by bert_jax; without this line, saving leaves the card alone. -->"

# Head -> what the Hub calls its use, and a call in Python.
USES = {
    heads.Features: ("feature-extraction", 'embed(["one text", "another text"])'),
    heads.MaskedLM: ("fill-mask", 'fill_mask("a text with a {mask} .")'),
    PermutationLM: ("fill-mask", 'fill_mask("a text with a {mask} .")'),
    heads.Pretraining: ("fill-mask", 'fill_mask("a text with a {mask} .")'),
    heads.SequenceClassifier: ("text-classification", 'classify(["one text"])'),
    heads.TokenClassifier: ("token-classification", 'tag("one text")'),
    heads.SpanClassifier: ("question-answering", 'answer("What?", "a text")'),
    heads.MultipleChoice: ("multiple-choice", 'choose("a text", ["this", "that"])'),
    heads.ReplacedTokenDetection: ("feature-extraction", 'embed(["one text"])'),
}

# Fields of a run that say how it trained, by the ends of their paths.
TOLD = (
    *("task.train", "task.dev", "task.paths", "init_from", "num_steps", "batch_size"),
    *("optimizer.name", "optimizer.learning_rate", "optimizer.schedule"),
    *("optimizer.warmup_steps", "optimizer.weight_decay", "dtype", "seed"),
)


def write(directory: Path, checkpoint: Checkpoint) -> None:
    """Writes README.md, unless there is one that a person wrote."""
    file = directory / FILE
    if not file.exists() or OURS in file.read_text("utf-8", errors="replace"):
        file.write_text(text(checkpoint), "utf-8")


def text(checkpoint: Checkpoint) -> str:
    """The card, as Markdown with the front matter of the Hugging Face Hub."""
    config, head = checkpoint.head.encoder.config, type(checkpoint.head)
    architecture = FAMILIES[config.model_type].architecture(head)
    use, call = USES[head]
    tokenizer = checkpoint.tokenizer
    if tokenizer is not None:
        call = call.format(mask=tokenizer.id_to_token(tokenizer.mask_id))
    sizes = (x.size for x in convert.flatten(checkpoint.params).values())
    return "\n".join(
        [
            "---",
            "library_name: transformers",
            f"pipeline_tag: {use}",
            "tags: [jax, flax, bert_jax]",
            "---",
            "",
            f"# {architecture}",
            "",
            *_facts(checkpoint, sum(sizes)),
            "",
            "```python",
            "import bert_jax",
            "",
            f'bert_jax.load("DIR").{call}',
            "```",
            "",
            f"`transformers` opens it as `{architecture}`.",
            *_training(checkpoint.history),
            "",
            "Who publishes it adds what is not known here: licence, language, where "
            "the text comes from, what the model is fit for and what not.",
            "",
            OURS,
            "",
        ]
    )


def _facts(checkpoint: Checkpoint, parameters: int) -> Iterator[str]:
    c, tokenizer = checkpoint.head.encoder.config, checkpoint.tokenizer
    longest = min(c.max_length, checkpoint.max_length or c.max_length)
    yield f"- {parameters:,} parameters, float32"
    yield (
        f"- {c.num_hidden_layers} layers, hidden size {c.hidden_size}, "
        f"{c.num_attention_heads} heads, MLP {c.intermediate_size} with {c.hidden_act}"
    )
    if tokenizer is not None:
        kind, size = type(tokenizer).__name__, tokenizer.vocab_size
        yield f"- {kind} vocabulary of {size:,} pieces, rows of up to {longest} tokens"
    if checkpoint.labels:
        yield f"- labels: {', '.join(checkpoint.labels)}"
    if checkpoint.pooling is not None:
        scaled = ", scaled to length 1" if checkpoint.pooling.normalize else ""
        yield f"- vectors: {' and '.join(checkpoint.pooling.modes)} pooling{scaled}"


def _training(history: Mapping[str, Any]) -> Iterator[str]:
    """How it was trained and what it scored, where a run said so."""
    if not history:
        return
    yield from ("", "## Training", "", "| | |", "|---|---|")
    for name in TOLD:
        value = history["config"].get(name)
        if value not in (None, "", [], ()):
            yield f"| {name} | {_shown(value)} |"
    yield f"| step | {history['step']} |"
    for split, scores in history["scores"].items():
        if scores:
            yield from ("", f"Scores on `{split}`:", "", "| | |", "|---|---|")
            yield from (f"| {name} | {_number(x)} |" for name, x in scores.items())


def _shown(value: Any) -> str:
    """A value without the folders of the machine it was on."""
    if isinstance(value, list | tuple):
        return ", ".join(map(_shown, value))
    path = Path(str(value))
    return "/".join(path.parts[-2:]) if path.is_absolute() else str(value)


def _number(value: float) -> str:
    return f"{value:.4g}" if math.isfinite(value) else "not finite"
