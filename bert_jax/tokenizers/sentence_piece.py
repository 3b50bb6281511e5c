"""SentencePiece's unigram model (Kudo, 2018), as ALBERT and XLNet use it."""

import json
import os
import pathlib
from collections.abc import Iterable

import tokenizers
from tokenizers import AddedToken, decoders, models, normalizers, pre_tokenizers
from tokenizers.processors import TemplateProcessing

from bert_jax.tokenizers import spm
from bert_jax.tokenizers.base import Tokenizer
from bert_jax.tokenizers.counting import word_counts
from bert_jax.tokenizers.special import (
    ALBERT,
    XLNET,
    SpecialTokens,
    refuse_missing,
    special_tokens,
)
from bert_jax.tokenizers.text import streamed


class SentencePiece(Tokenizer):
    """A unigram model over words; pieces that start a word begin with `▁`.

    A `.model` is run by the `tokenizers` library, as in transformers: plain quotes,
    compatibility forms decomposed, accents dropped, letters lowered, then the model's
    own normalization. Not taken over is the second look that Google's code for ALBERT
    and XLNet takes at pieces ending in a digit and a comma.

    >>> learnt = SentencePiece.train(["low lower lowest"] * 9, vocab_size=14)
    >>> learnt.tokenize("Lower lows")
    ['▁low', 'e', 'r', '▁low', 's']
    """

    model = "Unigram"

    def __init__(
        self,
        backend: tokenizers.Tokenizer,
        specials: SpecialTokens,
        proto: bytes | None = None,
    ):
        super().__init__(backend, specials)
        self._proto = proto

    @classmethod
    def from_backend(cls, backend, path, specials=None) -> "SentencePiece":
        """As for any tokenizer.json; a `spiece.model` beside it is kept for `save`."""
        opened = super().from_backend(backend, path, specials)
        model = pathlib.Path(path).with_name("spiece.model")
        if model.is_file():
            opened._proto = model.read_bytes()
        return opened

    @classmethod
    def from_vocab(
        cls,
        path: str | os.PathLike,
        lowercase: bool | None = None,
        *,
        keep_accents: bool = False,
        specials: SpecialTokens | None = None,
    ) -> "SentencePiece":
        """Opens a `spiece.model`.

        Args:
            lowercase: by default True, as ALBERT's, but False with XLNet's tokens.

        Raises:
            ValueError: for another kind of model, and special tokens that it lacks.
        """
        model = spm.read(path)
        specials = specials or special_tokens(model.names, {})
        refuse_missing(specials, model.names, path)
        lowercase = specials != XLNET if lowercase is None else lowercase
        backend = _backend(model, specials, lowercase, keep_accents)
        return cls(backend, specials, model.proto)

    @classmethod
    def train(
        cls,
        texts: Iterable[str],
        vocab_size: int,
        lowercase: bool = True,
        specials: SpecialTokens = ALBERT,
    ) -> "SentencePiece":
        """Learns a vocabulary from a stream of texts, which is read once.

        The special tokens take ALBERT's ids 0 to 4: <pad> <unk> [CLS] [SEP] [MASK], or
        are others in this order, such as `special.XLNET`. Raises ValueError where the
        texts support no vocabulary of `vocab_size`.
        """
        normalizer = normalizers.Sequence(_normalizers(lowercase, keep_accents=False))
        splitter = pre_tokenizers.WhitespaceSplit()
        counts = word_counts(streamed(texts), normalizer, splitter)
        model = spm.learn(counts, vocab_size, specials)
        backend = _backend(model, specials, lowercase, keep_accents=False)
        return cls(backend, specials, model.proto)

    def save(
        self, directory: str | os.PathLike, settings: dict[str, object] | None = None
    ) -> None:
        """Writes tokenizer.json and tokenizer_config.json, and spiece.model where this
        tokenizer was opened from one or trained.

        Args:
            settings: further entries of tokenizer_config.json (`model_max_length`).
        """
        directory = pathlib.Path(directory)
        directory.mkdir(parents=True, exist_ok=True)
        if self._proto is not None:
            (directory / "spiece.model").write_bytes(self._proto)
        self._save(directory, settings or {})

    def __reduce__(self):
        return _rebuilt, (self._backend.to_str(), self.specials, self._proto)

    def _continues(self, piece: str) -> bool:
        return not piece.startswith("▁")

    def _for_raw_text(self) -> tokenizers.Tokenizer:
        """The special pieces of a unigram vocabulary match text like any other piece.
        A newline, which splitting at whitespace leaves in no word, prevents it."""
        settings = json.loads(self._backend.to_str())
        special = {self.pad_id, self.cls_id, self.sep_id, self.mask_id}
        for token in settings["added_tokens"]:
            if token["special"]:
                special.add(token["id"])
        for i, (piece, score) in enumerate(settings["model"]["vocab"]):
            if i in special:
                settings["model"]["vocab"][i] = [f"{piece}\n", score]
        settings["added_tokens"] = []
        settings["post_processor"] = None
        return tokenizers.Tokenizer.from_str(json.dumps(settings))


def _rebuilt(backend: str, specials: SpecialTokens, proto: bytes | None):
    return SentencePiece(tokenizers.Tokenizer.from_str(backend), specials, proto)


def _normalizers(lowercase: bool, keep_accents: bool) -> list:
    steps = [normalizers.Replace("``", '"'), normalizers.Replace("''", '"')]
    if not keep_accents:
        steps += [normalizers.NFKD(), normalizers.StripAccents()]
    if lowercase:
        steps.append(normalizers.Lowercase())
    return steps


def _backend(
    model: spm.UnigramModel,
    specials: SpecialTokens,
    lowercase: bool,
    keep_accents: bool,
) -> tokenizers.Tokenizer:
    unigram = models.Unigram(model.pieces, model.unknown_id, byte_fallback=False)
    backend = tokenizers.Tokenizer(unigram)
    steps = _normalizers(lowercase, keep_accents)
    if model.charsmap:
        steps.append(normalizers.Precompiled(model.charsmap))
    backend.normalizer = normalizers.Sequence(steps)
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()]
    )
    backend.decoder = decoders.Metaspace()
    others = [*model.control, specials.pad, specials.unk, specials.cls, specials.sep]
    backend.add_special_tokens([name for name in others if name != specials.mask])
    # The mask takes the space before it, as a word would.
    backend.add_special_tokens([AddedToken(specials.mask, lstrip=True)])
    backend.post_processor = _post_processor(backend, specials)
    return backend


def _post_processor(
    backend: tokenizers.Tokenizer, specials: SpecialTokens
) -> TemplateProcessing:
    """ALBERT's rows, or XLNet's, whose <cls> ends the row and has a type of its own."""
    cls, sep = specials.cls, specials.sep
    single, pair = f"{cls} $A {sep}", f"{cls} $A {sep} $B:1 {sep}:1"
    if specials.pads_left:
        single, pair = f"$A {sep} {cls}:2", f"$A {sep} $B:1 {sep}:1 {cls}:2"
    return TemplateProcessing(
        single=single,
        pair=pair,
        special_tokens=[(name, backend.token_to_id(name)) for name in (cls, sep)],
    )
