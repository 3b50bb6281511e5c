"""The interface that all tokenizers share: texts in, arrays of ids out."""

import abc
import dataclasses
import functools
import hashlib
import json
import os
import pathlib
from collections.abc import Iterable, Sequence

import numpy as np
import tokenizers

from bert_jax import files
from bert_jax.files import counted
from bert_jax.tokenizers import rows
from bert_jax.tokenizers.text import listed, read_text, without_surrogates
from bert_jax.tokenizers.vocabulary import (
    SpecialTokens,
    check_ids,
    check_specials,
    special_tokens,
)


class Tokenizer(abc.ABC):
    """Text <-> ids, over one `tokenizers.Tokenizer`.

    A literal like `[MASK]` in a text has one of two meanings. `tokenizer(texts)` reads
    it as the special token, because a person who writes `[MASK]` there means it.
    `tokenize`, `encode` and `encode_batch` read it as plain text, so that no corpus
    can contain special ids; Google's tokenizer does the same.

    Lone surrogates, which are not text, become U+FFFD, with a warning that has their
    number and the first row (`warnings.simplefilter("error")` makes it an error).

    >>> tokenizer("a [MASK]")["input_ids"]
    array([[2, 5, 4, 3]], dtype=int32)
    >>> tokenizer.encode("a [MASK]"), tokenizer.decode([2, 5, 6, 3])
    ([5, 1, 1, 1], 'a b')
    """

    model: str  # the name of its algorithm in the `tokenizers` library

    def __init__(self, backend: tokenizers.Tokenizer, specials: SpecialTokens):
        backend.no_truncation()
        backend.no_padding()
        vocabulary = backend.get_vocab(with_added_tokens=True)
        self.specials = specials
        self.vocab_size = len(vocabulary)
        self.pad_id = vocabulary[specials.pad]
        self.unk_id = vocabulary[specials.unk]
        self.cls_id = vocabulary[specials.cls]
        self.sep_id = vocabulary[specials.sep]
        self.mask_id = vocabulary[specials.mask]
        self._backend = backend
        self._raw = self._for_raw_text()

    @classmethod
    def from_file(cls, path: str | os.PathLike, specials: SpecialTokens | None = None):
        """Opens a `tokenizer.json` unchanged.

        Only its truncation and padding, which are arguments of a call here, are
        ignored. Raises ValueError for a damaged file, and one of another class.
        """
        return cls.from_backend(read_backend(path), path, specials)

    @classmethod
    def from_backend(
        cls,
        backend: tokenizers.Tokenizer,
        source: str | os.PathLike,
        specials: SpecialTokens | None = None,
    ):
        """Wraps a `tokenizers.Tokenizer` unchanged.

        Raises ValueError, which names `source`, for one of another class, ids with
        gaps and missing special tokens.
        """
        cls._check_model(backend, source)
        vocabulary = backend.get_vocab(with_added_tokens=True)
        check_ids(vocabulary, source)
        specials = specials or special_tokens(vocabulary, {})
        check_specials(specials, vocabulary, source)
        return cls(backend, specials)

    def __call__(
        self,
        texts: str | Sequence[str],
        pairs: str | Sequence[str] | None = None,
        max_length: int | None = None,
        padding: bool | int = True,
        offsets: bool = False,
        truncation: str = "head",
    ) -> dict[str, np.ndarray]:
        """int32 `input_ids`, `attention_mask` and `token_type_ids`, each [B, L].

        Args:
            pairs: second sequences, one for each text.
            max_length: rows are cut to it; of a pair, the longer side loses a token,
                the second one on a tie, until both fit.
            padding: True pads to the longest row, a number to that length; False
                demands rows of one length.
            offsets: adds `offsets` [B, L, 2], the start and end of each token in its
                text, in characters; (0, 0) for special tokens.
            truncation: the tokens of a long text that stay: the first ones ("head"),
                the last ones ("tail"), or a quarter from its beginning and the rest
                from its end ("head_tail"; Sun et al., 2019, section 5.3).

        Raises:
            ValueError: for values that are not text, fewer or more pairs than texts,
                rows that do not fit the lengths, and an unknown `truncation`.

        >>> batch = tokenizer(["a b", "c"], pairs=["d", "e"])
        >>> batch["input_ids"]
        array([[2, 5, 6, 3, 8, 3],
               [2, 7, 3, 9, 3, 0]], dtype=int32)
        >>> batch["token_type_ids"][0]
        array([0, 0, 0, 0, 1, 1], dtype=int32)
        >>> tokenizer("a b c d", max_length=4, truncation="tail")["input_ids"]
        array([[2, 7, 8, 3]], dtype=int32)
        """
        columns = [listed(texts, "texts")]
        if pairs is not None:
            columns.append(listed(pairs, "pairs"))
            if len(columns[0]) != len(columns[1]):
                raise ValueError(
                    f"{counted(len(columns[0]), 'text')} came with "
                    f"{counted(len(columns[1]), 'pair')}; "
                    "give one pair for each text"
                )
        encoded = [_run(self._backend.encode_batch, column) for column in columns]
        slots = rows.layout(self._backend, len(columns))
        budget = rows.budget_of(max_length, len(slots) - len(columns))
        batch = rows.stack(
            [
                rows.assemble(parts, slots, budget, truncation)
                for parts in zip(*encoded, strict=True)
            ],
            padding,
            self.pad_id,
            self.specials.pads_left,
        )
        if not offsets:
            del batch["offsets"]
        return batch

    def with_markers(self, prompts: Iterable[str]) -> "Tokenizer":
        """This tokenizer, with the markers that prompts begin with as single pieces.

        A marker is a whole prompt, or its first word, that is in the vocabulary, such
        as `[unused0]`; as plain text it would be cut into its characters.

        >>> marked = tokenizer.with_markers(["[MASK] "])
        >>> marked("[MASK] a")["input_ids"]
        array([[2, 4, 5, 3]], dtype=int32)
        """
        vocabulary = self._backend.get_vocab(with_added_tokens=True)
        markers = []
        for prompt in prompts:
            pieces = [x for x in (prompt, *prompt.split()[:1]) if x in vocabulary]
            markers += pieces[:1]
        backend = tokenizers.Tokenizer.from_str(self._backend.to_str())
        backend.add_special_tokens(
            [tokenizers.AddedToken(x, special=True, normalized=False) for x in markers]
        )
        return type(self)(backend, self.specials)

    def tokenize(self, text: str) -> list[str]:
        """The pieces of one text, without special tokens."""
        return _run(self._raw.encode_batch, listed(text, "text"))[0].tokens

    def encode(self, text: str) -> list[int]:
        """The ids of one text, without special tokens."""
        return self.encode_batch([text])[0]

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """The ids of many texts, without special tokens and never cut."""
        encoded = _run(self._raw.encode_batch_fast, listed(texts, "texts"))
        return [encoding.ids for encoding in encoded]

    def encode_spans(
        self, texts: Sequence[str]
    ) -> list[tuple[list[int], list[tuple[int, int]]]]:
        """Like `encode_batch`, with the start and end of each piece in its text.

        >>> tokenizer.encode_spans(["a  c"])
        [([5, 7], [(0, 1), (3, 4)])]
        """
        encoded = _run(self._raw.encode_batch, listed(texts, "texts"))
        return [(encoding.ids, encoding.offsets) for encoding in encoded]

    def layout(self, sequences: int) -> list[rows.Slot]:
        """The slots of a row of one sequence or two, special tokens included."""
        return rows.layout(self._backend, sequences)

    def decode(self, ids: Iterable[int]) -> str:
        """The text of one row of ids; special tokens are left out.

        Raises ValueError for an id outside the vocabulary.
        """
        ids = [int(i) for i in ids]
        for token_id in ids:
            self._check_id(token_id)
        return self._backend.decode(ids, skip_special_tokens=True)

    def token_to_id(self, token: str) -> int:
        """The id of a piece. Raises ValueError where the vocabulary lacks it."""
        token_id = self._backend.token_to_id(token)
        if token_id is None:
            raise ValueError(
                f"{token!r} is not one of the {self.vocab_size} pieces of the "
                "vocabulary; use encode for text"
            )
        return token_id

    def id_to_token(self, token_id: int) -> str:
        """The piece of an id. Raises ValueError for one outside the vocabulary."""
        self._check_id(int(token_id))
        return str(self._backend.id_to_token(int(token_id)))

    @functools.cached_property
    def special_ids(self) -> tuple[int, ...]:
        """The ids that raw text never yields, in order: those of all special tokens but
        the unknown piece."""
        added = self._backend.get_added_tokens_decoder()
        ids = {i for i, token in added.items() if token.special}
        ids |= {self.pad_id, self.cls_id, self.sep_id, self.mask_id}
        return tuple(sorted(ids - {self.unk_id}))

    @functools.cached_property
    def frame(self) -> tuple[list[rows.Slot], list[rows.Slot]]:
        """The special tokens before one sequence in its row, and those after it."""
        slots = rows.layout(self._backend, 1)
        place = [slot.sequence for slot in slots].index(0)
        return slots[:place], slots[place + 1 :]

    @functools.cached_property
    def is_continuation(self) -> np.ndarray:
        """Boolean [V]: the pieces that continue a word instead of starting one."""
        continues = np.zeros(self.vocab_size, bool)
        for piece, i in self._backend.get_vocab(with_added_tokens=True).items():
            continues[i] = self._continues(piece)
        continues[[*self.special_ids, self.unk_id]] = False
        return continues

    @functools.cached_property
    def fingerprint(self) -> str:
        """Sixteen hex digits of the vocabulary and every setting."""
        # The library reads scores back with their last digits changed.
        settings = json.loads(self._backend.to_str(), parse_float=_rounded)
        settings["special_tokens"] = dataclasses.asdict(self.specials)
        text = json.dumps(settings, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def __reduce__(self):
        return _rebuilt, (type(self), self._backend.to_str(), self.specials)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.vocab_size} pieces, {self.fingerprint})"

    @abc.abstractmethod
    def _continues(self, piece: str) -> bool:
        """True for a piece that continues the word before it."""

    @classmethod
    def _check_model(cls, backend: tokenizers.Tokenizer, source) -> None:
        model = type(backend.model).__name__
        if model != cls.model:
            raise ValueError(
                f"{source} holds a {model} model, not {cls.model}; "
                "open its directory with bert_jax.tokenizers.load"
            )

    def _for_raw_text(self) -> tokenizers.Tokenizer:
        raw = tokenizers.Tokenizer.from_str(self._backend.to_str())
        raw.encode_special_tokens = True
        return raw

    def _check_id(self, token_id: int) -> None:
        if not 0 <= token_id < self.vocab_size:
            raise ValueError(
                f"id {token_id} is outside the vocabulary of {self.vocab_size} pieces; "
                "was it made by another tokenizer?"
            )

    @abc.abstractmethod
    def save(
        self, directory: str | os.PathLike, settings: dict[str, object] | None = None
    ) -> None:
        """Writes the files of the tokenizer; each kind has its own."""

    def _save(self, directory: pathlib.Path, settings: dict[str, object]) -> None:
        """Writes tokenizer_config.json and, last and atomically, tokenizer.json.

        So a directory that has it is complete.
        """
        inputs = ["input_ids", "attention_mask"]
        if any(slot.type_id for slot in rows.layout(self._backend, 2)):
            inputs.insert(1, "token_type_ids")
        names = self.specials.names.items()
        config: dict[str, object] = {f"{role}_token": name for role, name in names}
        config |= {
            # A class of its family would be rebuilt by transformers with that class's
            # normalizer and limits, regardless of tokenizer.json.
            "tokenizer_class": "PreTrainedTokenizerFast",
            "model_input_names": inputs,
            "padding_side": "left" if self.specials.pads_left else "right",
        }
        files.write_json(directory / "tokenizer_config.json", config | settings)
        files.write_text(directory / "tokenizer.json", self._backend.to_str(True))


def read_backend(path: str | os.PathLike) -> tokenizers.Tokenizer:
    """Reads a `tokenizer.json`."""
    try:
        return tokenizers.Tokenizer.from_str(read_text(path))
    except BaseException as error:  # the library has no narrower class, and panics
        if not isinstance(error, Exception) and "Panic" not in type(error).__name__:
            raise
        raise ValueError(
            f"{path} is not a tokenizer.json ({error}); fetch the file again"
        ) from error


def _run(encode_batch, texts: list[str]) -> list[tokenizers.Encoding]:
    try:
        return encode_batch(texts, add_special_tokens=False)
    except TypeError:  # the library's answer to a lone surrogate
        return encode_batch(without_surrogates(texts), add_special_tokens=False)


def _rounded(number: str) -> float:
    return round(float(number), 6)


def _rebuilt(cls: type, backend: str, specials: SpecialTokens) -> Tokenizer:
    return cls(tokenizers.Tokenizer.from_str(backend), specials)
