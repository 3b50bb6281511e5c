"""Laws of model cards."""

import pytest
from tiny import LETTERS, TINY, made, published, wordpiece, written

import bert_jax
from bert_jax.models import Bert, Features, SequenceClassifier
from bert_jax.pretrained import Pooling, card
from bert_jax.pretrained.families import FAMILIES


def test_every_head_that_is_published_has_a_use():
    heads = {head.module for x in FAMILIES.values() for head in x.heads.values()}
    assert heads <= card.USES.keys()


def test_a_saved_model_has_a_card_that_describes_it(tmp_path):
    tokenizer = wordpiece(tmp_path, LETTERS)
    model = made(SequenceClassifier(Bert(TINY), 2), tokenizer, ("no", "yes"))
    model.save(tmp_path / "model")
    text = (tmp_path / "model/README.md").read_text()
    assert text.startswith("---\nlibrary_name: transformers\n")
    for line in (
        "pipeline_tag: text-classification",
        "# BertForSequenceClassification",
        "- labels: no, yes",
        "WordPiece vocabulary of 31 pieces, rows of up to 20 tokens",
    ):
        assert line in text
    assert "## Training" not in text
    encoder = made(Features(Bert(TINY)), tokenizer)
    encoder.pooling = Pooling(normalize=True)
    encoder.save(tmp_path / "encoder")
    line = "- vectors: mean pooling, scaled to length 1"
    assert line in (tmp_path / "encoder/README.md").read_text()


def test_a_card_written_by_a_person_is_not_overwritten(tmp_path):
    model = made(SequenceClassifier(Bert(TINY), 2), labels=("no", "yes"))
    model.save(tmp_path)
    model.labels = ("bad", "good")
    model.save(tmp_path)
    file = tmp_path / "README.md"
    assert "bad, good" in file.read_text()
    file.write_text(file.read_text().replace(card.OURS, "Licence: MIT"))
    model.labels = ("down", "up")
    model.save(tmp_path)
    assert "bad, good" in file.read_text() and "Licence: MIT" in file.read_text()


@pytest.mark.slow
def test_the_card_of_a_run_has_its_training_and_scores(tmp_path):
    start = published(tmp_path)
    files = [written(tmp_path / name, 33, 1) for name in ("train.tsv", "dev.tsv")]
    bert_jax.finetune(
        start,
        "classify",
        train=files[0],
        dev=files[1],
        epochs=1,
        batch_size=16,
        max_length=16,
        workdir=tmp_path / "run",
    )
    text = (tmp_path / "run/model/README.md").read_text()
    assert "| batch_size | 16 |" in text and "| num_steps | 2 |" in text
    assert "Scores on `eval`:" in text and "| accuracy | " in text
    # It may be published: nothing of the machine is in it but names of files.
    assert f"| task.train | {tmp_path.name}/train.tsv |" in text
    assert str(tmp_path) not in text


@pytest.mark.parametrize("value, shown", [(float("nan"), "not finite"), (0.5, "0.5")])
def test_scores_are_numbers_or_words(value, shown):
    history = {"config": {}, "step": 1, "scores": {"eval": {"f1": value}, "test": {}}}
    text = "\n".join(card._training(history))
    assert f"| f1 | {shown} |" in text and "`test`" not in text
