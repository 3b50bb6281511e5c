"""Model: a trained model and its methods."""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn

from bert_jax import pretrained
from bert_jax.data.evaluation import Data, Row
from bert_jax.data.progress import Part
from bert_jax.inference import (
    answer,
    attention,
    checks,
    choose,
    classify,
    embed,
    embed_sparse,
    embed_tokens,
    evaluate,
    fill_mask,
    index,
    jitted,
    rank,
    search,
    summary,
    tag,
    word_map,
)
from bert_jax.inference.answer import Answer
from bert_jax.inference.attention import Attention
from bert_jax.inference.choose import Choice, Context
from bert_jax.inference.classify import Prediction, Text
from bert_jax.inference.fill_mask import Guesses
from bert_jax.inference.index import Corpus, Index
from bert_jax.inference.rank import Ranked
from bert_jax.inference.search import Hit
from bert_jax.inference.tag import NamedEntity, Tag
from bert_jax.inference.word_alignment import Words
from bert_jax.inference.word_map import WordMap
from bert_jax.models.config import DType, EncoderConfig
from bert_jax.pretrained import LateInteraction, Pooling, SparsePooling
from bert_jax.tokenizers import Tokenizer

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix


# Methods that models of other libraries have, and the same thing here.
OTHER_NAMES = {
    "encode": "model.embed(texts)",
    "similarity": "model.embed(texts, normalize=True), then vectors @ vectors.T",
    "predict": "model.classify(texts), or another method of its task",
    "save_pretrained": "model.save(directory)",
    "from_pretrained": "bert_jax.load(source)",
    "generate": "model.fill_mask(texts)",
    "fit": "bert_jax.finetune(model, task, train=..., dev=...)",
    "train": "bert_jax.finetune(model, task, train=..., dev=...)",
    "state_dict": "model.params",
    "parameters": "model.params",
}


@dataclasses.dataclass(repr=False)
class Model:
    """A trained model with its tokenizer.

    Attributes:
      head: the module that `model(**batch)` applies, with its encoder as a field.
      params: the parameters of the head; `params["encoder"]` are the encoder's.
      tokenizer: the tokenizer of its vocabulary.
      labels: names of the classes, if there are any.
      pooling: how `embed` makes one vector of many, if the checkpoint has it.
      sparse: how `embed_sparse` makes vectors; None: as SPLADE does.
      late: how `embed_tokens` makes vectors, if the checkpoint is made for it.
      max_length: tokens in the longest row; what is longer is cut. It can be set, and
        is the length of the rows that the model was trained with, if it is known. The
        default, 0, and more than the encoder has positions for become that number.
      extra: other fields of a published config.json, for saving.
      history: the run that made it; see `pretrained.Checkpoint`.
      strict: True makes a text that is too long or has a lone surrogate an error;
        False changes it with a warning.
      progress: True shows a progress bar for long work on a terminal or in a
        notebook; a part of a bar is moved instead.

    >>> model
    bert: 1 layer, hidden size 12, 3 heads, MLP 20 with gelu; 2,055 parameters
    head: masked words
    WordPiece of 31 pieces, rows of up to 20 tokens, no pooling
    """

    head: nn.Module
    params: Mapping[str, Any]
    tokenizer: Tokenizer | None = None
    labels: tuple[str, ...] = ()
    pooling: Pooling | None = None
    sparse: SparsePooling | None = None
    late: LateInteraction | None = None
    max_length: int = 0
    extra: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    history: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    strict: bool = False
    progress: bool | Part = True

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

    def __repr__(self) -> str:
        return "\n".join(summary.lines(self))

    def __getattr__(self, name: str) -> Any:
        hint = f"; use {OTHER_NAMES[name]}" if name in OTHER_NAMES else ""
        raise AttributeError(f"a Model has no {name!r}{hint}", name=name, obj=self)

    @property
    def encoder(self) -> nn.Module:
        """The encoder; its parameters are `params["encoder"]`."""
        return self.head.encoder

    @property
    def config(self) -> EncoderConfig:
        """The encoder's config."""
        return self.encoder.config

    def __call__(self, *texts: Any, **batch: Any) -> Any:
        """The head's output for arrays of the tokenizer, as float32.

        An encoder alone returns hidden states `[B, L, D]`. Heads return logits:
        `[B, C]` for sequences, `[B, L, C]` for tokens, `[B, L, 2]` for answers,
        `[B, L, V]` for masked LM (`[B, P, V]` with `positions`), and pre-training the
        last with `[B, 2]` for the pair.

        The arrays are checked, so that `jax.jit` cannot trace this call: use
        `bert_jax.as_function`, or `model.head.apply({"params": params}, **batch)`.

        Raises ValueError for ids that the model does not have, and for texts.

        >>> model(**model.tokenizer(["a b", "c d e"])).shape  # B, L, V
        (2, 5, 31)
        """
        if texts:
            raise ValueError(
                f"a model is called with arrays by name, not with {texts[0]!r:.60}; "
                "use model(**model.tokenizer(texts)), or model.embed(texts)"
            )
        checks.check_ids(batch, self.config)
        return jitted.outputs(self.head, self.params, batch)

    def hidden_states(self, **batch: Any) -> jax.Array:
        """The hidden states of every layer for a batch, `[layers + 1, B, L, D]`.

        The first are the embeddings, the last are the encoder's output. Raises
        ValueError for ids that the model does not have.

        >>> model.hidden_states(**model.tokenizer(["a b", "c d e"])).shape
        (2, 2, 5, 12)
        """
        checks.check_ids(batch, self.config)
        return jitted.hidden_states(self.encoder, self.params["encoder"], batch)

    def attention(self, text: str, pair: str | None = None) -> Attention:
        """The attention of every layer and head on one text or a pair.

        A notebook shows it as an interactive page at the end of a cell. Weights are
        `[layers, H, L, L]`, and those of a token sum to 1 (Vaswani et al., 2017,
        section 3.2.1). Raises ValueError for a text that is not a string.

        >>> seen = model.attention("a b")
        >>> seen.tokens, seen.weights.shape
        (['[CLS]', 'a', 'b', '[SEP]'], (1, 3, 4, 4))
        """
        return attention.attention(self, text, pair)

    def word_map(
        self, word: str, texts: Sequence[str], groups: Sequence[str] | None = None
    ) -> WordMap:
        """The vectors of one word in many contexts, in every layer.

        A notebook shows them in two dimensions at the end of a cell.

        Args:
          word: one word in any case, as the texts have it: "bank" is not "banks".
          texts: texts with the word; those without it only count for `others`.
          groups: a name for each text, such as the meaning of the word; it gives the
            colours.

        Raises:
          ValueError: for texts that hold the word less than twice, or too few groups.

        >>> places = model.word_map("a", ["a b", "c A", "e f"], groups=["x", "y", "x"])
        >>> places.spans.tolist(), places.groups
        ([[0, 1], [2, 3]], ['x', 'y'])
        """
        return word_map.word_map(self, word, texts, groups)

    def embed(
        self,
        texts: str | Sequence[str],
        pooling: str | None = None,
        layers: Sequence[int] = (-1,),
        normalize: bool | None = None,
        batch_size: int = 32,
        prompt: str | None = None,
    ) -> np.ndarray | list[Words]:
        """Vectors of texts: float32 `[N, D]`, in the order of the texts.

        Args:
          texts: one or many; long ones are cut, with one warning.
          pooling: how the vectors of tokens become one: "mean", "cls", "max",
            "mean_sqrt_len_tokens", "weightedmean" or "lasttoken". None takes the
            pooling of the checkpoint with its dense layers, or the mean. "tokens"
            returns `Words` for each text: a vector for each word, the mean over its
            pieces.
          layers: the layers whose hidden states are read, -1 for the last and 0 for the
            embeddings; those of several are concatenated.
          normalize: True scales vectors to length 1; None does as the checkpoint says.
            It does not apply to the vectors of words.
          batch_size: texts computed together.
          prompt: the name of one of the model's prompts, such as "query"; None: the
            default one, if there is one. Words have none.

        Raises:
          ValueError: for a text that is not a string, or an unknown pooling, layer or
            prompt.

        The modes are those of sentence-transformers (Reimers and Gurevych, 2019,
        section 3).

        >>> model.embed(["a b", "c d e"]).shape
        (2, 12)
        >>> (of_words,) = model.embed("a b", pooling="tokens")
        >>> of_words.words, of_words.vectors.shape
        (['a', 'b'], (2, 12))
        """
        return embed.embed(self, texts, pooling, layers, normalize, batch_size, prompt)

    def embed_sparse(
        self,
        texts: str | Sequence[str],
        prompt: str | None = None,
        batch_size: int = 32,
    ) -> "csr_matrix":
        """Sparse vectors of texts: a SciPy CSR matrix, float32 `[N, V]`.

        A row has a weight for each word of the text, and for words that fit it; all
        others are 0. The products of rows are the scores of a search:
        `queries @ documents.T`. Only weights above 0 take memory.

        Args:
          texts: one or many; long ones are cut, with one warning.
          prompt: the name of one of the model's prompts, such as "query"; None: the
            default one, if there is one.
          batch_size: texts computed together.

        Raises:
          ValueError: for a model without a masked LM head, a text that is not a string,
            or an unknown prompt.

        The weights are those of SPLADE (Formal et al., 2021, section 3.1), unless the
        checkpoint says otherwise.

        >>> rows = model.embed_sparse(["a b", "c d e"])
        >>> rows.shape, bool(rows.min() >= 0)
        ((2, 31), True)
        """
        return embed_sparse.embed_sparse(self, texts, prompt, batch_size)

    def embed_tokens(
        self,
        texts: str | Sequence[str],
        kind: str = "document",
        batch_size: int = 32,
    ) -> list[np.ndarray]:
        """Vectors of the tokens of texts, for late interaction: float32 `[L, D]` each.

        `bert_jax.inference.maxsim` compares those of queries with those of documents.

        Args:
          texts: one or many; long ones are cut, with one warning.
          kind: "document", or "query": those are filled up with mask tokens, whose
            vectors count too.
          batch_size: texts computed together.

        Raises:
          ValueError: for a model that is not made for late interaction, a text that is
            not a string, or another kind.

        (ColBERT: Khattab and Zaharia, 2020, section 3.2.)

        >>> changed = dataclasses.replace(model, late=LateInteraction(fill_to=8))
        >>> [x.shape for x in changed.embed_tokens(["a b", "c d e"])]
        [(4, 12), (5, 12)]
        >>> [x.shape for x in changed.embed_tokens(["a b", "c d e"], kind="query")]
        [(8, 12), (8, 12)]
        """
        return embed_tokens.embed_tokens(self, texts, kind, batch_size)

    def search(
        self,
        queries: str | Sequence[str],
        corpus: Corpus | Index,
        k: int = 10,
        batch_size: int = 32,
    ) -> list[Hit] | list[list[Hit]]:
        """The `k` documents nearest to a query, a list of `Hit`, the nearest first.

        One query returns a list, many a list of lists. The search is exact: each query
        is compared with every document, in blocks on the device. Documents of equal
        scores are in the order of the corpus.

        Args:
          queries: one or many.
          corpus: an `Index` or its directory; or texts, texts by their ids, a file, or
            a folder with corpus.jsonl, which are embedded in each call.
          k: documents for each query; all if the corpus has fewer.
          batch_size: texts computed together.

        Queries and documents get the prompts of the checkpoint; see `evaluate`.

        Raises:
          ValueError: for a `k` below 1, empty texts, and the index of another model.

        >>> [hit.text for hit in model.search("a b", ["c d", "a b", "b"], k=2)]
        ['a b', 'b']
        """
        return search.search(self, queries, corpus, k, batch_size)

    def index(
        self,
        corpus: Corpus,
        directory: str | Path | None = None,
        batch_size: int = 32,
    ) -> Index:
        """The vectors of a corpus, to search it many times.

        Args:
          corpus: texts, texts by their ids, a file with a text or an object in each
            line, or a folder with corpus.jsonl.
          directory: where to write it, in parts: memory holds one part at a time, and
            the same call resumes after an interruption. None holds it in memory.
          batch_size: texts computed together.

        Raises:
          ValueError: for an empty text or corpus, an id that is there twice, and a
            directory with another index.

        >>> index = model.index({"x": "a b", "y": "c d e"}, "small")
        >>> len(index), model.search("a b", "small", k=1)[0].id
        (2, 'x')
        """
        return index.index(self, corpus, directory, batch_size)

    def evaluate(
        self,
        data: str | Path | Sequence[Row] | Data,
        kind: str | None = None,
        split: str = "test",
        batch_size: int = 32,
    ) -> dict[str, float]:
        """Scores on data of one of these kinds: of the vectors, or of a reranker.

        - "similarity", rows of two texts and a number: `pearson_cosine`,
          `spearman_cosine`, and both of the dot product.
        - "pairs", rows of two texts and 1 if they belong together, or 0: what the best
          thresholds do, see `metrics.pair_scores`.
        - "triplets", rows of an anchor, a positive and a negative: `accuracy_cosine`
          and `accuracy_dot`.
        - "reranking", rows of a query and two lists of texts, positive and negative:
          see `metrics.reranking_scores`.
        - "retrieval", a folder of corpus.jsonl, queries.jsonl and qrels.tsv, as those
          of BEIR: see `metrics.retrieval_scores`.

        Queries and anchors get the prompt "query" of the checkpoint if it has one,
        documents "document", "passage" or "corpus"; others get its default prompt. A
        reranker, see `rank`, scores pairs itself: it has `pearson` and `spearman`,
        those of `metrics.pair_scores`, and those of `metrics.reranking_scores`. A
        sparse model is scored by its sparse vectors, late interaction by `maxsim`.
        Scores are those of the evaluators of sentence-transformers.

        Args:
          data: a folder, a file, or rows: tuples, or dictionaries with the names that
            columns have.
          kind: one of the above; None detects it.
          split: the judgements to read where a folder has several.
          batch_size: texts computed together.

        Raises:
          ValueError: for malformed data, and judgements of ids that do not exist.

        >>> rows = [("a b", "a b c", 5.0), ("c", "d", 1.0), ("e f", "g", 2.0)]
        >>> sorted(model.evaluate(rows))
        ['pearson_cosine', 'pearson_dot', 'spearman_cosine', 'spearman_dot']
        """
        return evaluate.evaluate(self, data, kind, split, batch_size)

    def fill_mask(
        self, texts: str | Sequence[str], k: int = 5, batch_size: int = 32
    ) -> Guesses | list[Guesses]:
        """The `k` likeliest tokens for each mask: a list of `Guess`, likeliest first.

        One text returns a list over its masks, many return a list of such lists. A
        probability is the softmax over the vocabulary (Devlin et al., 2018, section
        3.1). Raises ValueError for a text without a mask, and for a model without a
        masked LM head.

        >>> (guesses,) = model.fill_mask("a [MASK] b", k=2)
        >>> len(guesses), guesses[0].probability >= guesses[1].probability
        (2, True)
        """
        return fill_mask.fill_mask(self, texts, k, batch_size)

    def answer(
        self,
        question: str | Sequence[str],
        context: str | Sequence[str],
        k: int | None = None,
        null_threshold: float | None = None,
        batch_size: int = 32,
    ) -> Answer | list[Answer]:
        """The answer to a question in a context, a `Span`; for two lists a list.

        The text is a slice of the context, or empty if the context has no answer. A
        context that is longer than a row is read in windows.

        Args:
          question, context: one of each, or two lists of equal length.
          k: returns a list of up to `k` answers instead, the final one first.
          null_threshold: the answer is empty where "no answer" has a logit above that
            of the best answer by more than this; None takes the threshold that was best
            in training (`extra["null_threshold"]`), and always answers if there is
            none.
          batch_size: windows computed together.

        Raises:
          ValueError: for a model without a head for answers, lists of unequal length,
            or a `k` below 1 or above 20.

        Windows and spans are those of Devlin et al., 2018, section 4.2, and its code.

        >>> span = reader.answer("a b", "c d e f")
        >>> span.text == "c d e f"[span.start : span.end]
        True
        """
        return answer.answer(self, question, context, k, null_threshold, batch_size)

    def classify(
        self, texts: Text | Sequence[Text], batch_size: int = 32
    ) -> Prediction | list[Prediction]:
        """Classes with probabilities, a list of `Label`, the likeliest first.

        One text, or one tuple of two texts, returns one such list, many return a list
        of them; for regression each is a float instead. Raises ValueError for a model
        without a classifier, or for texts and pairs in one list. (Devlin et al., 2018,
        section 4.1.)

        >>> best, other = classifier.classify("a b")
        >>> sorted([best.name, other.name]), best.probability >= other.probability
        (['no', 'yes'], True)
        """
        return classify.classify(self, texts, batch_size)

    def choose(
        self,
        contexts: Context | Sequence[Context],
        choices: Sequence[str] | Sequence[Sequence[str]],
        batch_size: int = 32,
    ) -> list[Choice] | list[list[Choice]]:
        """Choices with probabilities, a list of `Choice`, the likeliest first.

        A context, or a tuple of a context and the opening of every choice, comes with a
        list of choices. Many contexts come with a list of such lists, and return one.
        Raises ValueError for a model without a head for choices, or a context without
        choices. (Devlin et al., 2018, section 4.4.)

        >>> sorted(choice.text for choice in chooser.choose("a b", ["c", "d e"]))
        ['c', 'd e']
        """
        return choose.choose(self, contexts, choices, batch_size)

    def rank(
        self,
        query: str | Sequence[str],
        documents: Sequence[str] | Sequence[Sequence[str]],
        k: int | None = None,
        batch_size: int = 32,
    ) -> list[Ranked] | list[list[Ranked]]:
        """Documents in the order of their scores for a query, a list of `Ranked`.

        The model reads the query and a document together (Nogueira and Cho, 2019). A
        score is a logit after the activation that the model declares, and a sigmoid if
        it declares none, as in the CrossEncoder of sentence-transformers.

        Args:
          query: one, or many.
          documents: the texts to rank, or a list of them for each of many queries.
          k: only the `k` best documents; None for all.
          batch_size: pairs computed together.

        Raises:
          ValueError: for a model without a head for one score, a `k` below 1, or
            documents that are no list of texts.

        >>> best, *_ = reranker.rank("a b", ["c", "d e", "f"], k=2)
        >>> best.text in ("c", "d e", "f"), 0 < best.score < 1
        (True, True)
        """
        return rank.rank(self, query, documents, k, batch_size)

    def tag(
        self, texts: str | Sequence[str] | Sequence[Sequence[str]], batch_size: int = 32
    ) -> list[Tag] | list[list[Tag]]:
        """A list of `Tag` for one text, a list of such lists for many.

        Words are those that the tokenizer cuts into pieces; a text can also be a list
        of words. The label of a word is that of its first piece, as in BERT (Devlin et
        al., 2018, section 5.3). A text that does not fit into a row is read in parts,
        so that every word has a label. Raises ValueError for a model without a head for
        words.

        >>> [(tag.word, tag.start, tag.end) for tag in tagger.tag("a bit")]
        [('a', 0, 1), ('bit', 2, 5)]
        """
        return tag.tag(self, texts, batch_size)

    def entities(
        self, texts: str | Sequence[str] | Sequence[Sequence[str]], batch_size: int = 32
    ) -> list[NamedEntity] | list[list[NamedEntity]]:
        """A list of `NamedEntity` for one text, a list of such lists for many.

        They are read from the labels that `tag` gives, in any of the usual schemes: B-,
        I- and O, BIOES and BILOU. Raises ValueError for other labels.

        >>> [x for x in tagger.entities("a bit") if x.type not in ("x", "y")]
        []
        """
        return tag.entities(self, texts, batch_size)

    def save(self, directory: str | Path) -> None:
        """Writes a directory, with a card, that `load` and transformers read.

        Raises ValueError for a head that the family does not publish, and for a
        directory that has files but no model.

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

    def check_tokenizer(self) -> Tokenizer:
        """The tokenizer. Raises ValueError if there is none.

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
        fields = dataclasses.fields(pretrained.Checkpoint)
        return pretrained.Checkpoint(**{f.name: getattr(self, f.name) for f in fields})


def check_model(function: str, model: Model) -> None:
    """Checks that a function that takes a model was given one, and not its name."""
    if not isinstance(model, Model):
        raise ValueError(
            f"{function} takes a Model, not {model!r:.60}; open it with bert_jax.load"
        )


def load(source: str | Path, dtype: DType = "float32", strict: bool = False) -> Model:
    """Opens a published or trained model, ready to use.

    Args:
      source: a directory of transformers, sentence-transformers or `Model.save`, the
        work directory of a run, Google's `bert_model.ckpt`, or a name on the Hub; see
        `pretrained.load`.
      dtype: the type to compute in: "float32", "bfloat16" or "float16", or one of them
        as JAX and NumPy have it, such as `jnp.bfloat16`.
      strict: see `Model`.

    Raises:
      ValueError: for anything missing, damaged, unknown or contradictory.

    >>> model.save("my_model")
    >>> load("my_model").config == model.config
    True
    """
    checkpoint = vars(pretrained.load(source, dtype))
    params = jax.tree.map(jnp.asarray, checkpoint["params"])
    return Model(**checkpoint | {"params": params, "strict": strict})
