"""Model: the verbs a user types."""

import dataclasses
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn

from bert_jax import pretrained
from bert_jax.inference import answer as answering
from bert_jax.inference import attention as attending
from bert_jax.inference import choose as choosing
from bert_jax.inference import classify as classifying
from bert_jax.inference import embed as embedding
from bert_jax.inference import fill_mask as filling
from bert_jax.inference import jitted
from bert_jax.inference import tag as tagging
from bert_jax.inference.batching import Answer, Batch, answers
from bert_jax.inference.word_alignment import Words
from bert_jax.models import Bert, BertConfig
from bert_jax.pretrained import Pooling
from bert_jax.tokenizers import Tokenizer


@dataclasses.dataclass
class Model:
    """A trained model with its tokenizer.

    Attributes:
      head: the module that `model(**batch)` applies, on its field `encoder`.
      params: its parameters; those of the encoder are `params["encoder"]`.
      tokenizer: of its vocabulary.
      labels: names of the classes, where there are some.
      pooling: how `embed` makes one vector of many, where a checkpoint says it.
      max_length: tokens in the longest row; what is longer is cut. The default, 0, and
        more than the encoder has positions for become that number.
      extra: what else a published config.json said, kept for saving.
      history: of the run that made it; see `pretrained.Checkpoint`.
      strict: whether verbs refuse a text that is too long or has a lone surrogate,
        instead of changing it with a warning.
      progress: whether long work shows a bar, where there is a terminal.

    >>> model.config.hidden_size, model.max_length
    (12, 20)
    """

    head: nn.Module
    params: Mapping[str, Any]
    tokenizer: Tokenizer | None = None
    labels: tuple[str, ...] = ()
    pooling: Pooling | None = None
    max_length: int = 0
    extra: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    history: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    strict: bool = False
    progress: bool = True

    def __post_init__(self) -> None:
        positions = self.config.max_length
        self.max_length = min(self.max_length or positions, positions)

    @classmethod
    def of(
        cls,
        module: nn.Module,
        params: Mapping[str, Any],
        tokenizer: Tokenizer | None = None,
        labels: Sequence[str] = (),
    ) -> "Model":
        """A model from the pieces a training run ends with.

        >>> Model.of(model.head, model.params, model.tokenizer).labels
        ()
        """
        return cls(module, jax.tree.map(jnp.asarray, params), tokenizer, tuple(labels))

    @property
    def encoder(self) -> Bert:
        """The encoder, whose parameters are `params["encoder"]`."""
        return self.head.encoder

    @property
    def config(self) -> BertConfig:
        """The encoder's config."""
        return self.encoder.config

    def __call__(self, **batch: Any) -> Any:
        """The head's output for arrays as the tokenizer gives them, as float32.

        Hidden states `[B, L, D]` without a head, logits otherwise: `[B, C]`,
        `[B, L, C]`, span answers `[B, L, 2]`, masked LM `[B, L, V]` (`[B, P, V]` with
        `positions`), pre-training a pair of these and `[B, 2]`.

        Raises ValueError for ids that the model does not have.

        >>> model(**model.tokenizer(["a b", "c d e"])).shape  # B, L, V
        (2, 5, 31)
        """
        jitted.check_ids(batch, self.config)
        return jitted.outputs(self.head, self.params, batch)

    def hidden_states(self, **batch: Any) -> jax.Array:
        """What every layer makes of a batch, `[layers + 1, B, L, D]`.

        The first is that of the embeddings, the last is the encoder's output. Raises
        ValueError for ids that the model does not have.

        >>> model.hidden_states(**model.tokenizer(["a b", "c d e"])).shape
        (2, 2, 5, 12)
        """
        jitted.check_ids(batch, self.config)
        return jitted.hidden_states(self.encoder, self.params["encoder"], batch)

    def attention(self, text: str, pair: str | None = None) -> attending.Attention:
        """Every layer's and head's attention on one text or a pair.

        A notebook shows it as a page to look through, where it ends a cell. Weights are
        `[layers, H, L, L]`, and those of a token sum to 1 (Vaswani et al., 2017,
        section 3.2.1). Raises ValueError for what is no string.

        >>> seen = model.attention("a b")
        >>> seen.tokens, seen.weights.shape
        (['[CLS]', 'a', 'b', '[SEP]'], (1, 3, 4, 4))
        """
        run = functools.partial(self._answers, batch_size=1)
        parts = self.encoder, self.params["encoder"], self.check_tokenizer()
        return attending.attended(*parts, text, pair, run)

    def embed(
        self,
        texts: str | Sequence[str],
        pooling: str | None = None,
        layers: Sequence[int] = (-1,),
        normalize: bool | None = None,
        batch_size: int = 32,
    ) -> np.ndarray | list[Words]:
        """Vectors of texts: float32 `[N, D]`, in the order of the texts.

        Args:
          texts: one or many; what is too long is cut, with one warning.
          pooling: how the tokens' vectors become one: "mean", "cls", "max",
            "mean_sqrt_len_tokens", "weightedmean" or "lasttoken"; None does what the
            checkpoint says, or else takes the mean. "tokens" gives `Words` for each
            text, each vector the mean over the pieces of a word.
          layers: whose hidden states to read, -1 the last and 0 the embeddings; those
            of several are concatenated.
          normalize: whether to scale vectors to length 1; None does what the
            checkpoint says. The vectors of words are left as they are.
          batch_size: texts computed together.

        Raises:
          ValueError: for what is no text, a pooling or a layer that there is not.

        The modes are those of sentence-transformers (Reimers and Gurevych, 2019,
        section 3).

        >>> model.embed(["a b", "c d e"]).shape
        (2, 12)
        >>> (of_words,) = model.embed("a b", pooling="tokens")
        >>> of_words.words, of_words.vectors.shape
        (['a', 'b'], (2, 12))
        """
        run = functools.partial(self._answers, batch_size=batch_size)
        parts = self.encoder, self.params["encoder"], self.check_tokenizer()
        said = self.pooling or Pooling()
        how = embedding.resolved(said, pooling, normalize)
        return embedding.embedded(*parts, texts, how, layers, run)

    def fill_mask(
        self, texts: str | Sequence[str], k: int = 5, batch_size: int = 32
    ) -> list[Any]:
        """The `k` likeliest tokens for each mask: a list of `Guess`, likeliest first.

        One text gives a list over its masks, many give a list of such lists. A
        probability is the softmax over the vocabulary (Devlin et al., 2018, section
        3.1). Raises ValueError for a text without a mask, and for a model without a
        masked LM head.

        >>> (guesses,) = model.fill_mask("a [MASK] b", k=2)
        >>> len(guesses), guesses[0].probability >= guesses[1].probability
        (2, True)
        """
        run = functools.partial(self._answers, batch_size=batch_size)
        parts = self.head, self.params, self.check_tokenizer()
        return filling.filled(*parts, texts, k, self.max_length, run)

    def answer(
        self,
        question: str | Sequence[str],
        context: str | Sequence[str],
        k: int | None = None,
        null_threshold: float | None = None,
        batch_size: int = 32,
    ) -> Any:
        """The answer to a question in a context, a `Span`; for two lists a list.

        The text is a slice of the context, or empty where there is no answer in it. A
        context that is longer than the model reads at once is read in windows.

        Args:
          question, context: one of each, or as many.
          k: gives a list of up to so many answers instead, the chosen one first.
          null_threshold: by how much "no answer" must be likelier than the best answer
            to be given; None does what was best in training (`extra["null_threshold"]`)
            and always answers where the model has learnt to.
          batch_size: windows computed together.

        Raises:
          ValueError: for a model that finds no answers, lists of unequal length, or a
            `k` below 1 or above 20.

        Windows and spans are those of Devlin et al., 2018, section 4.2, and its code.

        >>> span = reader.answer("a b", "c d e f")
        >>> span.text == "c d e f"[span.start : span.end]
        True
        """
        return answering.answered(
            *(self.head, self.params, self.check_tokenizer(), question, context),
            k=k,
            threshold=null_threshold,
            extra=self.extra,
            longest=self.max_length,
            batch_size=batch_size,
            strict=self.strict,
            progress=self.progress,
        )

    def classify(
        self,
        texts: str | tuple[str, str] | Sequence[str | tuple[str, str]],
        batch_size: int = 32,
    ) -> Any:
        """Classes with probabilities, a list of `Label`, the likeliest first.

        One text, or one tuple of two texts, gives one such list, many give a list of
        them; for regression each is a float instead. Raises ValueError for a model
        without a classifier, or for texts and pairs in one list. (Devlin et al., 2018,
        section 4.1.)

        >>> best, other = classifier.classify("a b")
        >>> sorted([best.name, other.name]), best.probability >= other.probability
        (['no', 'yes'], True)
        """
        run = functools.partial(self._answers, batch_size=batch_size)
        return classifying.classified(self.head, self.params, self.labels, texts, run)

    def choose(
        self, contexts: Any, choices: Sequence[Any], batch_size: int = 32
    ) -> list[Any]:
        """Choices with probabilities, a list of `Choice`, the likeliest first.

        A context, or a tuple of it and what opens every choice, comes with a list of
        choices. Many come with a list of such lists, and give one. Raises ValueError
        for a model that does not choose, or where a context has no choices. (Devlin et
        al., 2018, section 4.4.)

        >>> sorted(choice.text for choice in chooser.choose("a b", ["c", "d e"]))
        ['c', 'd e']
        """
        run = functools.partial(self._answers, batch_size=batch_size)
        return choosing.chosen(self.head, self.params, contexts, choices, run)

    def tag(
        self, texts: str | Sequence[str] | Sequence[Sequence[str]], batch_size: int = 32
    ) -> list[Any]:
        """A list of `Tag` for one text, a list of such lists for many.

        A word is what the tokenizer cuts into pieces, or, where a text is given as a
        list of words, one of these. Its label is that of its first piece, as in BERT
        (Devlin et al., 2018, section 5.3). A text that does not fit into a row is read
        in parts, so that every word has one. Raises ValueError for a model that labels
        no words.

        >>> [(tag.word, tag.start, tag.end) for tag in tagger.tag("a bit")]
        [('a', 0, 1), ('bit', 2, 5)]
        """
        return tagging.tagged(
            *(self.head, self.params, self.check_tokenizer(), self.labels, texts),
            longest=self.max_length,
            batch_size=batch_size,
            strict=self.strict,
            progress=self.progress,
        )

    def save(self, directory: str | Path) -> None:
        """Writes a directory, with a card, that `load` and transformers read.

        Raises ValueError for a head that the family does not publish.

        >>> model.save("copy")
        >>> np.array_equal(load("copy").embed("a b"), model.embed("a b"))
        True
        """
        pretrained.save(directory, self._checkpoint())

    def save_tf1(self, directory: str | Path) -> None:
        """Writes a directory that google-research/bert and `load` read.

        Raises ValueError for what Google's code cannot compute; imports TensorFlow.

        >>> model.save_tf1("published")
        >>> load("published/bert_model.ckpt").config.hidden_size
        12
        """
        pretrained.save_tf1(directory, self._checkpoint())

    def _answers(
        self,
        step: Callable,
        texts: list[str],
        batch_size: int,
        offsets: bool = False,
        pairs: list[str] | None = None,
    ) -> Iterator[Answer]:
        def checked(batch: Batch) -> Any:
            inputs = {name: batch[name] for name in _INPUTS}
            jitted.check_ids(inputs, self.config)
            return step(inputs)

        return answers(
            checked,
            self.check_tokenizer(),
            texts,
            pairs,
            max_length=self.max_length,
            batch_size=batch_size,
            offsets=offsets,
            strict=self.strict,
            progress=self.progress,
        )

    def check_tokenizer(self) -> Tokenizer:
        """The tokenizer. Raises ValueError where there is none.

        >>> model.check_tokenizer() is model.tokenizer
        True
        """
        if self.tokenizer is None:
            raise ValueError(
                "this model came without a tokenizer; set model.tokenizer to the one "
                "it was trained with"
            )
        return self.tokenizer

    def _checkpoint(self) -> pretrained.Checkpoint:
        kept = dataclasses.fields(pretrained.Checkpoint)
        return pretrained.Checkpoint(**{f.name: getattr(self, f.name) for f in kept})


_INPUTS = ("input_ids", "attention_mask", "token_type_ids")


def load(source: str | Path, dtype: str = "float32", strict: bool = False) -> Model:
    """Opens a published or trained model, with its verbs.

    Args:
      source: a directory of transformers, sentence-transformers or `Model.save`, the
        work directory of a run, Google's `bert_model.ckpt`, or a name on the Hub; see
        `pretrained.load`.
      dtype: of the compute: "float32", "bfloat16" or "float16".
      strict: see `Model`.

    Raises:
      ValueError: for anything missing, damaged, unknown or contradictory.

    >>> model.save("my_model")
    >>> load("my_model").config == model.config
    True
    """
    found = vars(pretrained.load(source, dtype))
    params = jax.tree.map(jnp.asarray, found["params"])
    return Model(**found | {"params": params, "strict": strict})
