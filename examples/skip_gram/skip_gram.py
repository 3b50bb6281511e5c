"""Skip-gram with negative sampling (Mikolov et al., 2013, sections 2.2 and 2.3)."""

import collections
import dataclasses
import functools
import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax

from bert_jax.data import corpus
from examples.elmo.words import split

# Words whose pairs are shuffled together, and steps in one call of the device.
CHUNK, STEPS = 500_000, 64

# The vectors of words `[V, D]`, and those of words as contexts.
Params = dict[str, jax.Array]


@dataclasses.dataclass(frozen=True)
class SkipGram:
    """Words, the most frequent first, and their vectors `[V, D]`.

    >>> vectors = np.array([[1.0, 0.0], [2.0, 0.1], [0.0, 1.0]], np.float32)
    >>> SkipGram(("film", "movie", "plot"), vectors).nearest("film", k=1)
    ['movie']
    """

    words: tuple[str, ...]
    vectors: np.ndarray

    def nearest(self, word: str, k: int = 5) -> list[str]:
        """The `k` words with the largest cosine. Raises ValueError for a new word."""
        if word not in self.words:
            raise ValueError(f"{word!r} is none of the {len(self.words):,} words")
        unit = self.vectors / np.linalg.norm(self.vectors, axis=1, keepdims=True)
        cosines = unit @ unit[self.words.index(word)]
        best = np.argsort(-cosines, kind="stable")[: k + 1].tolist()
        return [self.words[i] for i in best if self.words[i] != word][:k]

    def save(self, directory: str | Path) -> None:
        """Writes vocab.txt and vectors.npy."""
        directory = Path(directory)
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "vocab.txt").write_text("\n".join(self.words) + "\n", "utf-8")
        np.save(directory / "vectors.npy", self.vectors)

    @classmethod
    def load(cls, directory: str | Path) -> "SkipGram":
        """Opens the result of `save`."""
        words = (Path(directory) / "vocab.txt").read_text("utf-8").splitlines()
        return cls(tuple(words), np.load(Path(directory) / "vectors.npy"))


def loss(
    params: Params, words: jax.Array, contexts: jax.Array, negatives: jax.Array
) -> jax.Array:
    """The mean negative log-likelihood of pairs (equation 4).

    Args:
      params: `word` and `context`, `[V, D]`.
      words, contexts: the words of each pair, `[B]`.
      negatives: words that are no context, `[B, N]`.
    """
    x = params["word"][words]
    right = jnp.einsum("BD,BD->B", x, params["context"][contexts])
    wrong = jnp.einsum("BD,BND->BN", x, params["context"][negatives])
    log_likelihood = jax.nn.log_sigmoid(right) + jax.nn.log_sigmoid(-wrong).sum(-1)
    return -log_likelihood.mean()


def noise(counts: np.ndarray) -> np.ndarray:
    """The distribution of negatives, cumulative: counts to the power of 3/4."""
    weights = np.cumsum(np.asarray(counts, float) ** 0.75)
    return (weights / weights[-1]).astype(np.float32)


def stay_rate(counts: np.ndarray, threshold: float) -> np.ndarray:
    """The share of a word's places that stay, `[V]` (equation 5)."""
    return np.minimum(1, np.sqrt(threshold * counts.sum() / counts))


def pairs(
    stream: np.ndarray,
    sentence: np.ndarray,
    window: int,
    random: np.random.Generator,
) -> np.ndarray:
    """Pairs of a word and a context, `[N, 2]`, in random order.

    A word's contexts are up to a random number of words on either side, at most
    `window`, in its sentence.

    Args:
      stream, sentence: words and the number of their sentence, `[T]`.
      window: the largest distance.
      random: draws each distance, and the order.
    """
    reach = random.integers(1, window + 1, len(stream))
    both = []
    for distance in range(1, window + 1):
        left, right = stream[:-distance], stream[distance:]
        same = sentence[:-distance] == sentence[distance:]
        forward = same & (reach[:-distance] >= distance)
        backward = same & (reach[distance:] >= distance)
        both += [np.stack([left[forward], right[forward]], 1)]
        both += [np.stack([right[backward], left[backward]], 1)]
    return random.permutation(np.concatenate(both))


@functools.partial(jax.jit, static_argnums=(0, 1), donate_argnums=(2, 3))
def train_steps(
    optimizer: optax.GradientTransformation,
    negatives: int,
    params: Params,
    state: optax.OptState,
    batches: jax.Array,
    cumulative: jax.Array,
    key: jax.Array,
) -> tuple[Params, optax.OptState, jax.Array]:
    """Updates by batches of pairs `[STEPS, B, 2]`; the loss of each, `[STEPS]`."""

    def step(carry, inputs):
        params, state = carry
        batch, key = inputs
        uniform = jax.random.uniform(key, (len(batch), negatives))
        drawn = jnp.searchsorted(cumulative, uniform)
        value, grads = jax.value_and_grad(loss)(params, *batch.T, drawn)
        updates, state = optimizer.update(grads, state)
        return (optax.apply_updates(params, updates), state), value

    keys = jax.random.split(key, len(batches))
    (params, state), values = jax.lax.scan(step, (params, state), (batches, keys))
    return params, state, values


@dataclasses.dataclass
class Training:
    """Training of skip-gram on a text.

    Attributes:
      text: files, see `bert_jax.data.corpus.read`.
      max_words: reading ends after so many words.
      vocab_size, min_count: at most so many words, that occur so often.
      size: numbers of a vector.
      window: the largest distance of a context.
      negatives: words drawn for each pair.
      threshold: words above this share of the text are thinned out. The paper has 1e-5
        for a text of a billion words.
      epochs, batch_size, learning_rate, seed: of Adam, whose rate falls linearly. The
        paper has stochastic gradient descent, one pair at a time.
    """

    text: tuple[str, ...] = ()
    max_words: int = 10_000_000
    vocab_size: int = 30_000
    min_count: int = 5
    size: int = 100
    window: int = 5
    negatives: int = 5
    threshold: float = 1e-4
    epochs: int = 3
    batch_size: int = 4096
    learning_rate: float = 5e-3
    seed: int = 0

    def run(self, workdir: Path) -> SkipGram:
        """Trains, and saves the vectors in `workdir`.

        Raises ValueError for missing text, and for too little of it.
        """
        if not self.text:
            raise ValueError("text is missing; set it with --config.text=FILE")
        model = self.train(read_sentences(self.text))
        model.save(workdir)
        print(f"{len(model.words):,} words of {self.size} numbers are in {workdir}")
        return model

    def train(self, sentences: Iterator[list[str]]) -> SkipGram:
        """Vectors of the words of sentences."""
        words, counts, stream, sentence = self.number(sentences)
        random, cumulative = np.random.default_rng(self.seed), noise(counts)
        key, shape = jax.random.key(self.seed), (len(words), self.size)
        # As in word2vec.c: words near 0, and contexts 0.
        start = random.uniform(-0.5 / self.size, 0.5 / self.size, shape)
        params = {"word": jnp.asarray(start, "float32"), "context": jnp.zeros(shape)}
        rate, per_call = stay_rate(counts, self.threshold), STEPS * self.batch_size
        expected = (rate * counts).sum() * (self.window + 1) * self.epochs
        steps = max(1, int(expected) // self.batch_size)
        schedule = optax.linear_schedule(self.learning_rate, 0.0, steps)
        optimizer = optax.adam(schedule)
        state, calls = optimizer.init(params), itertools.count()
        for epoch in range(self.epochs):
            losses = []
            for start in range(0, len(stream), CHUNK):
                part = slice(start, start + CHUNK)
                stays = random.random(len(stream[part])) < rate[stream[part]]
                drawn = pairs(
                    stream[part][stays], sentence[part][stays], self.window, random
                )
                # A last call repeats some pairs.
                whole = -(-len(drawn) // per_call) * per_call
                for batches in np.resize(drawn, (whole // per_call, *self.shape)):
                    params, state, values = train_steps(
                        optimizer,
                        self.negatives,
                        params,
                        state,
                        batches,
                        cumulative,
                        jax.random.fold_in(key, next(calls)),
                    )
                    losses.append(float(values.mean()))
            print(f"epoch {epoch + 1}: loss {np.mean(losses):.4f}", flush=True)
        return SkipGram(words, np.asarray(params["word"]))

    @property
    def shape(self) -> tuple[int, int, int]:
        """The shape of the batches of a call."""
        return STEPS, self.batch_size, 2

    def number(
        self, sentences: Iterator[list[str]]
    ) -> tuple[tuple[str, ...], np.ndarray, np.ndarray, np.ndarray]:
        """Words `[V]`, their counts, and of each place its word and its sentence."""
        text, total = [], 0
        for sentence in sentences:
            text.append(sentence)
            total += len(sentence)
            if total >= self.max_words:
                break
        counted = collections.Counter(itertools.chain.from_iterable(text))
        common = counted.most_common(self.vocab_size)
        words = tuple(word for word, count in common if count >= self.min_count)
        if len(words) < 2:
            raise ValueError(
                f"{len(words)} words occur {self.min_count} times in the text; give "
                "more of it, or lower min_count"
            )
        numbers = {word: i for i, word in enumerate(words)}
        places = [
            (numbers[word], i)
            for i, sentence in enumerate(text)
            for word in sentence
            if word in numbers
        ]
        stream, sentence = np.array(places, np.int32).T
        return words, np.array([counted[x] for x in words]), stream, sentence


def read_sentences(paths: Sequence[str]) -> Iterator[list[str]]:
    """The words of each sentence of text files, in lower case, without punctuation."""
    for sentence in read_texts(paths):
        if words := [x for x in split(sentence.lower()) if x[0].isalnum()]:
            yield words


def read_texts(paths: Sequence[str]) -> Iterator[str]:
    """The sentences of text files."""
    kind = corpus.resolve(paths)
    for document in corpus.read(paths, kind):
        yield from corpus.sentences(document, kind)
