"""Nearest neighbours of a word in several sentences, by skip-gram, BERT and ELMo."""

import dataclasses
import itertools
from collections.abc import Sequence
from pathlib import Path

import numpy as np

import bert_jax
from bert_jax.inference import Model
from examples.elmo.elmo import Elmo
from examples.elmo.words import split
from examples.skip_gram.skip_gram import SkipGram, read_texts

# Words of a sentence in lower case, and their vectors in each layer, [layers, W, D].
Sentence = tuple[list[str], np.ndarray]


def nearest(
    query: np.ndarray, word: str, pool: Sequence[Sentence], layer: int, k: int
) -> list[str]:
    """The `k` words of other sentences with a place nearest to a vector `[D]`.

    A word counts with the largest cosine of its places; `word` itself does not count.
    """
    words = list(itertools.chain.from_iterable(words for words, _ in pool))
    vectors = np.concatenate([x[layer] for _, x in pool])
    norms = np.linalg.norm(vectors, axis=1) * np.linalg.norm(query)
    order = np.argsort(-(vectors @ query) / norms, kind="stable").tolist()
    others = (words[i] for i in order if words[i] != word and words[i][0].isalnum())
    return list(itertools.islice(dict.fromkeys(others), k))


def by_bert(model: Model, texts: Sequence[str]) -> list[Sentence]:
    """The words of sentences with their states in every layer."""
    layers = range(len(model.config.layer_order) + 1)
    return [
        (
            [word.lower() for word in x.words],
            x.vectors.reshape(len(x.words), len(layers), -1).swapaxes(0, 1),
        )
        for x in model.embed(texts, "tokens", layers)
    ]


def by_elmo(model: Elmo, texts: Sequence[str]) -> list[Sentence]:
    """The same by ELMo."""
    sentences = [split(text) for text in texts]
    features = model.features(sentences)
    return [
        ([word.lower() for word in words], x)
        for words, x in zip(sentences, features, strict=True)
    ]


@dataclasses.dataclass
class Comparison:
    """Neighbours of words in sentences of a text.

    Attributes:
      text: files, see `bert_jax.data.corpus.read`.
      skip_gram: the work directory of its training.
      bert: a model: a directory or a name on the Hub.
      elmo: the work directory of an ELMo; None for none.
      words: the words.
      sentences: of each word.
      pool: further sentences, in which neighbours are looked for, too.
      max_sentences: of the text that are read.
      k: neighbours of a place.
      seed: of the choice of sentences.
    """

    text: tuple[str, ...] = ()
    skip_gram: str | None = None
    bert: str | None = None
    elmo: str | None = None
    words: tuple[str, ...] = ("bank", "stick", "film", "play")
    sentences: int = 6
    pool: int = 2000
    max_sentences: int = 200_000
    k: int = 5
    seed: int = 0

    def run(self, workdir: Path) -> str:
        """Writes neighbours.md, which it returns, and WORD.html for each word.

        Raises ValueError for missing fields, and for a word without two sentences.
        """
        for name in ("text", "skip_gram", "bert"):
            if not getattr(self, name):
                raise ValueError(f"{name} is missing; set it with --config.{name}")
        static, bert = SkipGram.load(self.skip_gram), bert_jax.load(self.bert)
        chosen, pool = self.choose()
        texts = [*itertools.chain.from_iterable(chosen.values()), *pool]
        sources = {"BERT": by_bert(bert, texts)}
        if self.elmo:
            sources["ELMo"] = by_elmo(Elmo.load(self.elmo), texts)
        workdir.mkdir(parents=True, exist_ok=True)
        lines, place = [], 0
        for word, own in chosen.items():
            same = ", ".join(static.nearest(word, self.k))
            lines += [f"## {word}", "", f"skip-gram, in every sentence: {same}"]
            for text in own:
                lines += ["", f"> {text}", ""]
                for name, sentences in sources.items():
                    lines += self.rows(name, sentences, place, word)
                place += 1
            lines.append("")
            bert.word_map(word, own).save_html(workdir / f"{word}.html")
        report = "\n".join(lines)
        (workdir / "neighbours.md").write_text(report, "utf-8")
        print(report)
        return report

    def rows(
        self, name: str, sentences: Sequence[Sentence], place: int, word: str
    ) -> list[str]:
        """The neighbours of the word in sentence number `place`, a line a layer."""
        words, vectors = sentences[place]
        if word not in words:
            return [f"- {name}: the word was cut off"]
        pool = [x for i, x in enumerate(sentences) if i != place and x[0]]
        return [
            f"- {name}, layer {layer}: "
            f"{', '.join(nearest(x[words.index(word)], word, pool, layer, self.k))}"
            for layer, x in enumerate(vectors)
        ]

    def choose(self) -> tuple[dict[str, list[str]], list[str]]:
        """Sentences of each word, and others, drawn from the beginning of the text."""
        random = np.random.default_rng(self.seed)
        texts = list(itertools.islice(read_texts(self.text), self.max_sentences))
        # Short ones say too little, long ones do not fit on a line.
        texts = [x for x in dict.fromkeys(texts) if 5 <= len(x.split()) <= 30]
        texts = [texts[i] for i in random.permutation(len(texts))]
        split_texts = [set(split(text.lower())) for text in texts]
        chosen = {}
        for word in self.words:
            own = (
                x for x, words in zip(texts, split_texts, strict=True) if word in words
            )
            chosen[word] = list(itertools.islice(own, self.sentences))
            if len(chosen[word]) < 2:
                raise ValueError(
                    f"{word!r} is in {len(chosen[word])} sentences of 5 to 30 words of "
                    f"{', '.join(self.text)}; give more text, or another word"
                )
        taken = set(itertools.chain.from_iterable(chosen.values()))
        rest = (text for text in texts if text not in taken)
        return chosen, list(itertools.islice(rest, self.pool))
