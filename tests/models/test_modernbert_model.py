"""Inference and fine-tuning of a ModernBERT with byte-level BPE."""

import json

import jax
import numpy as np
import pytest
import tokenizers as library
from tiny import made, written
from tokenizers import models, normalizers, pre_tokenizers, processors, trainers

import bert_jax
from bert_jax import tokenizers
from bert_jax.models import (
    MaskedLM,
    ModernBertConfig,
    SequenceClassifier,
    SpanClassifier,
    TokenClassifier,
)
from bert_jax.pretrained import new_head

SPECIAL = ["[UNK]", "[CLS]", "[SEP]", "[PAD]", "[MASK]"]
TEXTS = ["a cat sat on the mat", "dogs bark at the cat", "who sat on whom"]


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    """A tokenizer in the form that ModernBERT publishes: one tokenizer.json."""
    backend = library.Tokenizer(models.BPE(unk_token="[UNK]"))
    backend.normalizer = normalizers.NFC()
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = library.decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    backend.train_from_iterator(
        TEXTS,
        trainers.BpeTrainer(
            vocab_size=300, special_tokens=SPECIAL, initial_alphabet=alphabet
        ),
    )
    backend.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B [SEP]",
        special_tokens=[("[CLS]", 1), ("[SEP]", 2)],
    )
    folder = tmp_path_factory.mktemp("tokenizer")
    backend.save(str(folder / "tokenizer.json"))
    token_fields = {"cls_token": "[CLS]", "sep_token": "[SEP]", "mask_token": "[MASK]"}
    token_fields |= {"pad_token": "[PAD]", "unk_token": "[UNK]"}
    (folder / "tokenizer_config.json").write_text(json.dumps(token_fields))
    return tokenizers.load(folder)


@pytest.fixture(scope="module")
def encoder(tokenizer):
    return ModernBertConfig(
        vocab_size=tokenizer.vocab_size,
        hidden_size=12,
        num_hidden_layers=2,
        num_attention_heads=3,
        intermediate_size=16,
        max_position_embeddings=32,
        local_attention=4,
        initializer_range=0.2,
        pad_token_id=tokenizer.pad_id,
    ).build()


@pytest.fixture(scope="module")
def directory(encoder, tokenizer, tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    made(new_head(MaskedLM, encoder), tokenizer).save(folder)
    return folder


def test_the_tokenizer_adds_special_tokens_and_pads_like_berts(tokenizer):
    batch = tokenizer(TEXTS[:1], TEXTS[1:2])
    ids = batch["input_ids"][0].tolist()
    assert ids[0] == tokenizer.cls_id == 1 and ids.count(tokenizer.sep_id) == 2
    assert tokenizer.decode(tokenizer.encode("a café")) == "a café"
    assert tokenizer.mask_id == 4 and tokenizer.pad_id == 3


def test_every_inference_method_works_on_a_saved_model(directory):
    model = bert_jax.load(directory)
    assert model.max_length == 32
    x = model.embed(TEXTS)
    assert x.shape == (3, 12) and np.isfinite(x).all()
    words = model.embed(TEXTS[0], pooling="tokens")[0]
    assert len(words.words) == len(TEXTS[0].split())
    assert len(model.fill_mask("a [MASK] sat", k=3)[0]) == 3
    seen = model.attention(TEXTS[0], TEXTS[1])
    length = len(seen.tokens)
    assert seen.weights.shape == (2, 3, length, length)
    near = np.abs(np.subtract.outer(np.arange(length), np.arange(length))) <= 2
    assert (seen.weights[1][:, ~near] == 0).all() and (seen.weights[0] > 0).all()
    states = model.hidden_states(**model.tokenizer(TEXTS))
    batch = model.tokenizer(TEXTS)
    expected = model.encoder.apply({"params": model.params["encoder"]}, **batch)
    np.testing.assert_allclose(states[-1], expected, atol=1e-5)


@pytest.mark.parametrize(
    "module, fields, ask",
    [
        (SequenceClassifier, {"num_labels": 2, "pooling": "mean"}, "classify"),
        (TokenClassifier, {"num_labels": 2}, "tag"),
        (SpanClassifier, {}, "answer"),
    ],
)
def test_saved_heads_load_unchanged(module, fields, ask, encoder, tokenizer, tmp_path):
    labels = ("no", "yes") if fields else ()
    model = made(new_head(module, encoder, **fields), tokenizer, labels)
    model.save(tmp_path)
    again = bert_jax.load(tmp_path)
    assert again.head == model.head
    inputs_of_one = (TEXTS[0],) if fields else ("who sat?", TEXTS[0])
    assert getattr(again, ask)(*inputs_of_one) == getattr(model, ask)(*inputs_of_one)


@pytest.mark.slow
def test_a_classifier_reuses_the_head_of_masked_lm(directory, tmp_path):
    train = written(tmp_path / "train.tsv", 64, seed=0)
    dev = written(tmp_path / "dev.tsv", 16, seed=1)
    how = {"epochs": 1, "max_length": 32, "frozen": ("encoder", "pooler", "norm")}
    model = bert_jax.finetune(directory, "classify", train=train, dev=dev, **how)
    start = bert_jax.load(directory)
    for name, part in (("pooler", "transform"), ("norm", "norm")):
        for x, y in zip(
            jax.tree.leaves(model.params[name]),
            jax.tree.leaves(start.params["mlm"][part]),
            strict=True,
        ):
            np.testing.assert_array_equal(x, y)
    assert len(model.classify("a b c")) == 2
