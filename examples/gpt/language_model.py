"""A GPT with its tokenizer: continuations, and directories that transformers reads."""

import dataclasses
import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from bert_jax import tokenizers
from bert_jax.tokenizers import ByteLevelBPE, SpecialTokens, Tokenizer
from examples.gpt import weights
from examples.gpt.model import GPT
from examples.gpt.sampling import Sampling, generate


class Characters:
    """The characters of a text as ids, in their order in Unicode.

    >>> tokenizer = Characters("hello")
    >>> tokenizer.encode("hole"), tokenizer.decode([1, 0, 2])
    ([1, 3, 2, 0], 'hel')
    """

    sep_id: int | None = None  # No character ends a text.

    def __init__(self, text: str):
        self.characters = "".join(sorted(set(text)))
        self.vocab_size = len(self.characters)
        self.fingerprint = hashlib.sha256(self.characters.encode()).hexdigest()[:16]

    def encode(self, text: str) -> list[int]:
        """An id for each character. Raises ValueError for one that has none."""
        for character in text:
            if character not in self.characters:
                raise ValueError(
                    f"the model was trained without the character {character!r}; "
                    "leave it out"
                )
        return [self.characters.index(character) for character in text]

    def decode(self, ids: Sequence[int]) -> str:
        """The text of ids."""
        return "".join(self.characters[i] for i in ids)

    def save(self, directory: Path) -> None:
        """Writes characters.json."""
        (directory / CHARACTERS).write_text(json.dumps(self.characters), "utf-8")


CHARACTERS = "characters.json"
# GPT-2 has one special token, which ends a text.
END = SpecialTokens(*["<|endoftext|>"] * 5)


def load_tokenizer(directory: Path) -> Characters | Tokenizer | None:
    """The tokenizer of a directory; None without one that can be read (GPT's own)."""
    if (directory / CHARACTERS).is_file():
        return Characters(json.loads((directory / CHARACTERS).read_text("utf-8")))
    file = directory / "tokenizer.json"
    text = file.read_text("utf-8") if file.is_file() else ""
    if END.sep in text:
        return ByteLevelBPE.from_file(file, END)
    return tokenizers.load(directory) if '"ByteLevel"' in text else None


@dataclasses.dataclass
class LanguageModel:
    """A GPT that continues texts.

    Attributes:
      model: the module.
      params: its parameters.
      tokenizer: None for a model without one.
      history: "config", "step" and "scores" of the training run; `save` does not write
        them, the files of the run have them.
    """

    model: GPT
    params: Mapping[str, Any]
    tokenizer: Characters | Tokenizer | None = None
    history: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def encode(self, text: str) -> list[int]:
        """The ids of a text."""
        if self.tokenizer is None:
            raise ValueError("the model has no tokenizer; put its files beside it")
        return self.tokenizer.encode(text)

    def continue_text(
        self, prompt: str, tokens: int = 100, *, seed: int = 0, **sampling: Any
    ) -> str:
        """So many tokens that continue a prompt; `sampling` is that of `Sampling`.

        Where the context is full, the text goes on from the last half of it. Raises
        ValueError for a prompt that is empty, or longer than the context.
        """
        options, context = Sampling(**sampling), self.model.config.max_length
        ids = self.encode(prompt)
        if not 0 < len(ids) < context or tokens < 1:
            raise ValueError(
                f"the prompt has {len(ids)} tokens, and {tokens} are to follow; give a "
                f"prompt of 1 to {context - 1}, and ask for at least 1"
            )
        start, key = len(ids), jax.random.key(seed)
        while len(ids) < start + tokens:
            prompt_ids = ids if len(ids) < context else ids[-max(1, context // 2) :]
            count = min(start + tokens - len(ids), context - len(prompt_ids))
            key, used = jax.random.split(key)
            ids += generate(
                self.model,
                self.params,
                jnp.array([prompt_ids]),
                used,
                count=count,
                sampling=options,
            )[0].tolist()
        return self.tokenizer.decode(ids[start:])

    def save(self, directory: str | Path) -> None:
        """Writes config.json, model.safetensors and the tokenizer's files."""
        end_id = self.tokenizer.sep_id if self.tokenizer else None
        settings = {"bos_token_id": end_id, "eos_token_id": end_id}
        directory = Path(directory)
        weights.write(directory, self.model.config, self.params, settings, {})
        if self.tokenizer:
            self.tokenizer.save(directory)

    @classmethod
    def load(cls, directory: str | Path) -> "LanguageModel":
        """Opens a directory of transformers or `save`, or of a finished run.

        Raises ValueError for files that are missing, damaged or of another model.
        """
        directory = weights.model_directory(directory)
        _, tensors, model = weights.read(directory)
        params = weights.read_params(model, tensors)
        return cls(model, params, load_tokenizer(directory))
