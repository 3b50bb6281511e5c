"""A model card: the README.md of a saved directory."""

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from bert_jax.files import counted, write_text
from bert_jax.models import PermutationLM, heads
from bert_jax.pretrained import config_json, convert, cross_encoder
from bert_jax.pretrained.checkpoint import Checkpoint
from bert_jax.pretrained.families import family_of

FILE = "README.md"

# A card without this line was written or edited by a person.
OURS = "<!-- Written by bert_jax; without this line, saving leaves the card alone. -->"

# Head -> its task on the Hub, and a call in Python.
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

# The fields of a run's config that the card lists.
RUN_FIELDS = (
    *("task.train", "task.dev", "task.paths", "init_from", "num_steps", "batch_size"),
    *("optimizer.name", "optimizer.learning_rate", "optimizer.schedule"),
    *("optimizer.warmup_steps", "optimizer.weight_decay", "dtype", "seed"),
)


def write(directory: Path, checkpoint: Checkpoint) -> None:
    """Writes README.md, unless a person wrote the one that is there."""
    file = directory / FILE
    if not file.exists() or OURS in file.read_text("utf-8", errors="replace"):
        write_text(file, text(checkpoint))


def text(checkpoint: Checkpoint) -> str:
    """The card, as Markdown with the metadata of the Hugging Face Hub."""
    # Here, because it takes a quarter of a second to import.
    from huggingface_hub import ModelCardData

    head = type(checkpoint.head)
    architecture = family_of(checkpoint.head.encoder.config).architecture(head)
    task, call = USES[head]
    if checkpoint.late is not None:
        task, call = "feature-extraction", 'embed_tokens(["one text", "another text"])'
    if checkpoint.sparse is not None:
        task, call = "feature-extraction", 'embed_sparse(["one text", "another text"])'
    if cross_encoder.activation(checkpoint.extra) and _has_one_score(checkpoint):
        task, call = "text-ranking", 'rank("a query", ["one text", "another text"])'
    tokenizer = checkpoint.tokenizer
    if tokenizer is not None:
        call = call.format(mask=tokenizer.id_to_token(tokenizer.mask_id))
    pooled = config_json.is_pooled(checkpoint.head)
    metadata = ModelCardData(
        library_name="bert_jax" if pooled else "transformers",
        pipeline_tag=task,
        tags=["jax", "flax", "bert_jax"],
    )
    lines = [
        "---",
        metadata.to_yaml(),
        "---",
        "",
        f"# {architecture}",
        "",
        *_facts(checkpoint),
        "",
        "```python",
        "import bert_jax",
        "",
        f'bert_jax.load("DIR").{call}',
        "```",
        "",
        f"`transformers` opens it as `{architecture}`."
        if not pooled
        else f"`transformers` has no classifier that reads {checkpoint.head.pooling} "
        "pooling, and refuses this directory. For a model that it opens, train with "
        '`pooling="pooler"`.',
        *_training(checkpoint.history),
        "",
        "Before you publish the model, add its licence, its language, the source of "
        "its texts, its intended use and its limits.",
        "",
        OURS,
        "",
    ]
    return "\n".join(lines)


def _has_one_score(checkpoint: Checkpoint) -> bool:
    head = checkpoint.head
    return isinstance(head, heads.SequenceClassifier) and head.num_labels == 1


def _facts(checkpoint: Checkpoint) -> Iterator[str]:
    c, tokenizer = checkpoint.head.encoder.config, checkpoint.tokenizer
    max_length = min(c.max_length, checkpoint.max_length or c.max_length)
    parameters = sum(x.size for x in convert.flatten(checkpoint.params).values())
    yield f"- {parameters:,} parameters, float32"
    yield (
        f"- {counted(c.num_hidden_layers, 'layer')}, hidden size {c.hidden_size}, "
        f"{counted(c.num_attention_heads, 'head')}, MLP {c.intermediate_size} with "
        f"{c.hidden_act}"
    )
    if tokenizer is not None:
        kind, size = type(tokenizer).__name__, tokenizer.vocab_size
        yield (
            f"- {kind} vocabulary of {size:,} pieces, rows of up to {max_length} tokens"
        )
    if checkpoint.labels:
        yield f"- labels: {', '.join(checkpoint.labels)}"
    if checkpoint.pooling is not None:
        yield f"- vectors: {checkpoint.pooling.describe()}"
    if checkpoint.late is not None:
        yield f"- vectors: {checkpoint.late.describe()}"
    if checkpoint.sparse is not None:
        yield f"- vectors: {checkpoint.sparse.describe()}"


def _training(history: Mapping[str, Any]) -> Iterator[str]:
    """The run's config and scores, where the checkpoint is from a run."""
    if not history:
        return
    yield from ("", "## Training", "", "| | |", "|---|---|")
    for name in RUN_FIELDS:
        value = history["config"].get(name)
        if value not in (None, "", [], ()):
            yield f"| {name} | {_without_folders(value)} |"
    yield f"| step | {history['step']} |"
    for split, scores in history["scores"].items():
        if scores:
            yield from ("", f"Scores on `{split}`:", "", "| | |", "|---|---|")
            yield from (f"| {name} | {_number(x)} |" for name, x in scores.items())


def _without_folders(value: Any) -> str:
    """A value as text, without the folders of the machine it was on."""
    if isinstance(value, list | tuple):
        return ", ".join(map(_without_folders, value))
    path = Path(str(value))
    return "/".join(path.parts[-2:]) if path.is_absolute() else str(value)


def _number(value: float) -> str:
    return f"{value:.4g}" if math.isfinite(value) else "not finite"
