"""BLEU and perplexity of a trained translator on a file of pairs."""

import dataclasses
import functools
import importlib.util
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import linen as nn

from bert_jax.tokenizers import Tokenizer
from examples.translation.pair_files import read_pairs, words
from examples.translation.task import PairRows
from examples.translation.translator import (
    SearchConfig,
    Translator,
    search,
    token_ids,
)


@dataclasses.dataclass
class Evaluation:
    """Scores of a translator.

    Attributes:
      model: the work directory of a finished run, or a saved translator.
      test: a file of pairs; see `TranslationConfig` for `text` and `translation`.
      beams, alpha: of the beam search, see `beam_search`; greedy search is scored too.
      batch_size: pairs at a time.
    """

    model: str | None = None
    test: str | None = None
    text: str | None = None
    translation: str | None = None
    beams: int = 5
    alpha: float = 1.0
    batch_size: int = 128

    def run(self, workdir: str | Path) -> dict[str, float]:
        """Writes scores.json and, for each search, the translations.

        Returns:
          `bleu_greedy` and `bleu_beam`, see `bleu`; `perplexity` of the words and ends
          of the translations, each after the right words before it; and
          `free_perplexity`, each after the words that the model would have written.

        Raises:
          ValueError: for anything wrong with the fields, the file or the model.
        """
        self.check()
        pairs = read_pairs(self.test, self.text, self.translation)
        translator = Translator.load(self.model)
        length = translator.max_length + 1
        rows = PairRows(pairs, translator.tokenizer, length)
        references = [" ".join(words(translation)) for _, translation in pairs]
        workdir = Path(workdir)
        workdir.mkdir(parents=True, exist_ok=True)
        scores: dict[str, float] = {}
        for name, beams in (("greedy", 1), ("beam", self.beams)):
            ids = self.written(translator, rows, beams)
            texts = [joined(row, translator.tokenizer) for row in ids]
            content = "".join(f"{text}\n" for text in texts)
            (workdir / f"{name}.txt").write_text(content, "utf-8")
            scores[f"bleu_{name}"], signature = bleu(texts, references)
        scores["perplexity"] = self.perplexity(translator, rows, free=False)
        scores["free_perplexity"] = self.perplexity(translator, rows, free=True)
        content = scores | {"beams": self.beams, "sacrebleu": signature}
        (workdir / "scores.json").write_text(json.dumps(content, indent=2) + "\n")
        print(", ".join(f"{name} {x:.2f}" for name, x in scores.items()), flush=True)
        return scores

    def check(self) -> None:
        """Raises ValueError for a field that cannot be right."""
        for field in ("model", "test"):
            if not getattr(self, field):
                raise ValueError(f"{field} is missing; set it with --config.{field}")
        for field in ("beams", "batch_size"):
            if getattr(self, field) < 1:
                raise ValueError(
                    f"{field}={getattr(self, field)}; it must be at least 1"
                )
        if importlib.util.find_spec("sacrebleu") is None:
            raise ValueError(
                "BLEU needs sacrebleu; install it: pip install 'bert_jax[experiments]'"
            )

    def batches(self, rows: PairRows):
        """Numbers of rows and their batch, in the order of their lengths."""
        order = np.argsort(rows.lengths, kind="stable")
        for start in range(0, len(rows), self.batch_size):
            numbers = order[start : start + self.batch_size]
            yield numbers, rows.gather(numbers)

    def written(self, translator: Translator, rows: PairRows, beams: int) -> np.ndarray:
        """Tokens `[N, L]` of the best translations."""
        ids = token_ids(translator.tokenizer)
        config = SearchConfig(beams, translator.max_length, self.alpha, *ids)
        tokens = np.zeros((len(rows), translator.max_length), np.int32)
        for numbers, batch in self.batches(rows):
            tokens[numbers] = run_search(translator, config, batch)[:, 0]
        return tokens

    def perplexity(self, translator: Translator, rows: PairRows, free: bool) -> float:
        """The exponential of the mean cross-entropy of a token."""
        start, _, pad, pieces = token_ids(translator.tokenizer)
        total = count = 0.0
        for _, batch in self.batches(rows):
            if free:
                # No token ends these texts, as the right one may be longer.
                length = batch["labels"].shape[1]
                config = SearchConfig(1, length, 0.0, start, -1, pad, pieces)
                own = np.asarray(run_search(translator, config, batch)[:, 0, :-1])
                ids = np.concatenate([batch["decoder_input_ids"][:, :1], own], 1)
                batch |= {"decoder_input_ids": ids}
            total += float(loss_sum(translator.model, translator.params, batch))
            count += batch["decoder_attention_mask"].sum()
        return math.exp(total / count)


def run_search(translator: Translator, config: SearchConfig, batch: Mapping[str, Any]):
    """Tokens `[B, beams, L]` of a batch."""
    inputs = batch["input_ids"], batch["attention_mask"]
    return search(translator.model, config, translator.params, *inputs)[0]


@functools.partial(jax.jit, static_argnums=0)
def loss_sum(model: nn.Module, params: Any, batch: Mapping[str, jax.Array]):
    """The cross-entropy of all real tokens of a batch together."""
    logits = model.apply(
        {"params": params},
        batch["input_ids"],
        batch["decoder_input_ids"],
        batch["attention_mask"],
        batch["decoder_attention_mask"],
    )
    losses = optax.softmax_cross_entropy_with_integer_labels(logits, batch["labels"])
    return jnp.sum(losses * batch["decoder_attention_mask"])


def joined(row: Sequence[int], tokenizer: Tokenizer) -> str:
    """The words of a row of ids with blanks between them, unknown ones as [UNK]."""
    special = {tokenizer.cls_id, tokenizer.sep_id, tokenizer.pad_id}
    pieces = [tokenizer.id_to_token(i) for i in row if i not in special]
    return " ".join(pieces).replace(" ##", "")


def bleu(texts: Sequence[str], references: Sequence[str]) -> tuple[float, str]:
    """BLEU of texts of words with blanks between them, and sacrebleu's signature.

    Both are in lower case and split by `pair_files.words` before, so sacrebleu splits
    nothing.
    """
    import sacrebleu

    metric = sacrebleu.BLEU(tokenize="none", force=True)
    score = metric.corpus_score(list(texts), [list(references)]).score
    return score, str(metric.get_signature())
