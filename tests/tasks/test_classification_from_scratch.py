"""Laws of classifiers without a pre-trained model or vocabulary."""

import dataclasses
import json

import pytest

import bert_jax
from bert_jax import tokenizers
from bert_jax.models import BertConfig
from bert_jax.tasks.classification import ClassificationConfig
from bert_jax.training.config import TrainConfig

pytestmark = pytest.mark.filterwarnings("ignore:.*are also in")

TEXTS = ["good film", "bad film", "good fun", "bad fun"]
# As many as make every word a piece.
PIECES = 34


def reviews(path, texts=TEXTS):
    """Reviews and whether they are good."""
    path.write_text("".join(f"{x}\t{x[:4] == 'good'}\n" for x in texts * 8))
    return str(path)


def config_for(tmp_path, vocab_size, **task):
    """The config of a run of a small Transformer with sinusoidal positions."""
    files = {name: reviews(tmp_path / f"{name}.tsv") for name in ("train", "dev")}
    return TrainConfig(
        encoder=BertConfig(
            vocab_size=vocab_size,
            hidden_size=12,
            num_hidden_layers=1,
            num_attention_heads=3,
            intermediate_size=20,
            max_position_embeddings=16,
            sinusoidal_pos_embds=True,
        ),
        task=ClassificationConfig(max_length=16, epochs=1.0, **files, **task),
        batch_size=8,
    )


@pytest.mark.slow
def test_a_vocabulary_is_learnt_from_training_texts_and_saved_with_the_model(
    tmp_path,
):
    config = dataclasses.replace(config_for(tmp_path, PIECES), keep_checkpoints=True)
    model = bert_jax.train(config, tmp_path / "run")
    assert model.tokenizer.tokenize("good film") == ["good", "film"]
    saved = tokenizers.load(tmp_path / "run/data/tokenizer")
    again = bert_jax.load(tmp_path / "run/model")
    fingerprints = {x.fingerprint for x in (model.tokenizer, saved, again.tokenizer)}
    assert len(fingerprints) == 1
    assert again.config.sinusoidal_pos_embds
    assert again.classify("good fun") == model.classify("good fun")
    # A step of the run finds it too.
    (tmp_path / "run/model").rename(tmp_path / "elsewhere")
    step = bert_jax.load(tmp_path / "run")
    assert step.tokenizer.fingerprint in fingerprints
    written = json.loads((tmp_path / "run/config.json").read_text())
    assert written["task.tokenizer"] is None


def test_a_vocabulary_larger_than_the_texts_allow_is_refused_with_its_size(tmp_path):
    with pytest.raises(
        ValueError, match=f"vocab_size=500, but .* only {PIECES} pieces"
    ):
        bert_jax.train(config_for(tmp_path, 500), tmp_path / "run")


def test_a_named_tokenizer_is_used(tmp_path):
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "good", "bad"]
    (tmp_path / "vocab.txt").write_text("\n".join(words))
    config = config_for(tmp_path, PIECES, tokenizer=str(tmp_path / "vocab.txt"))
    prepared = config.task.prepare(tmp_path / "run", config.encoder, 0)
    assert prepared.tokenizer.vocab_size == len(words)
