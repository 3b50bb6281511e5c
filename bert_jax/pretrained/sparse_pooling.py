"""The settings of sparse vectors, as directories of sentence-transformers have them.

`models.sparse` computes the vectors.
"""

import dataclasses
from pathlib import Path

from bert_jax.files import read_object, write_json
from bert_jax.models.sparse import ACTIVATIONS, POOLINGS
from bert_jax.pretrained import modules

# The class of the module in modules.json, and the field of its limit.
POOLING, MOST = "SpladePooling", "max_active_dims"


@dataclasses.dataclass(frozen=True)
class SparsePooling:
    """A way to make sparse vectors of the logits of a masked LM head.

    Attributes:
      pooling: "max" or "sum", over the tokens of a text.
      activation: "relu" or "log1p_relu", see `models.sparse.word_weights`.
      most: the largest number of weights in a vector, the highest ones; None: all.
      prompt, prompts, similarity: see `Pooling`.

    Raises:
      ValueError: for an unknown pooling or activation.

    >>> SparsePooling("mean")
    Traceback (most recent call last):
    ValueError: pooling='mean' of sparse vectors is unknown; choose one of max, sum
    """

    pooling: str = "max"
    activation: str = "relu"
    most: int | None = None
    prompt: str = ""
    prompts: tuple[tuple[str, str], ...] = ()
    similarity: str | None = None

    def __post_init__(self) -> None:
        choices = {"pooling": POOLINGS, "activation": ACTIVATIONS}
        for name, known in choices.items():
            if getattr(self, name) not in known:
                raise ValueError(
                    f"{name}={getattr(self, name)!r} of sparse vectors is unknown; "
                    f"choose one of {', '.join(known)}"
                )

    def describe(self) -> str:
        """The settings in a few words."""
        limit = f", the {self.most} highest" if self.most else ""
        return f"sparse, {self.pooling} pooling of {self.activation}{limit}"


def is_sparse(parts: list[modules.Module]) -> bool:
    """True for the modules of a sparse encoder."""
    return any(part.kind == POOLING for part in parts)


def read(directory: Path) -> SparsePooling | None:
    """The settings of a directory; None if its modules make no sparse vectors."""
    parts = modules.read(directory)
    if not is_sparse(parts):
        return None
    kinds = [part.kind for part in parts]
    if len(kinds) != 2 or kinds[0] not in modules.TRANSFORMERS or kinds[1] != POOLING:
        raise ValueError(
            f"{directory}/modules.json has {', '.join(kinds)}; of sparse encoders only "
            f"MLMTransformer, {POOLING} is supported"
        )
    config = read_object(parts[1].folder / "config.json")
    prompts = modules.read_prompts(directory)
    return SparsePooling(
        config.get("pooling_strategy", "max"),
        config.get("activation_function", "relu"),
        modules.settings(directory).get(MOST),
        prompts.default,
        prompts.named,
        prompts.similarity,
    )


def write(
    directory: Path, sparse: SparsePooling, max_length: int | None, vocab_size: int
) -> None:
    """Writes the files that sentence-transformers reads beside the model."""
    package = "sentence_transformers.sparse_encoder.models"
    _, folder = modules.write(
        directory,
        [f"{package}.MLMTransformer", f"{package}.{POOLING}"],
        modules.Prompts(sparse.prompt, sparse.prompts, sparse.similarity),
        max_length,
        model={"model_type": "SparseEncoder"}
        | ({MOST: sparse.most} if sparse.most else {}),
    )
    config = {
        "pooling_strategy": sparse.pooling,
        "activation_function": sparse.activation,
        "word_embedding_dimension": vocab_size,
    }
    write_json(folder / "config.json", config)
