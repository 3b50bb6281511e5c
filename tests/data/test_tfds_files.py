"""Laws of TFDS datasets that are read as files."""

import numpy as np
import pytest

from bert_jax.data import conll, squad, tables, tfds_files


@pytest.fixture
def stored(tmp_path, monkeypatch):
    """Makes a dataset where TFDS looks for its own."""
    tfds = pytest.importorskip("tensorflow_datasets")

    def store(name, features, rows):
        tfds.dataset_builders.store_as_tfds_dataset(
            name,
            version="1.0.0",
            features=tfds.features.FeaturesDict(features(tfds.features)),
            split_datasets={"train": list(enumerate(rows))},
            data_dir=str(tmp_path),
            file_format="array_record",
        )

    builder = tfds.builder
    monkeypatch.setattr(
        tfds, "builder", lambda name: builder(name, data_dir=str(tmp_path))
    )
    return store


def test_texts_with_classes_become_a_table(stored):
    stored(
        "teas",
        lambda f: {"sentence": f.Text(), "label": f.ClassLabel(names=["bad", "good"])},
        [{"sentence": "Tea is hot.", "label": 1}, {"sentence": "Teä\n!", "label": 0}],
    )
    file = tfds_files.local_file("tfds:teas:train")
    table = tables.read(file)
    assert sorted(zip(table.texts, table.labels, strict=True)) == [
        ("Tea is hot.", "1"),
        ("Teä\n!", "0"),
    ]
    assert tables.classes(table, ("bad", "good")) == [int(x) for x in table.labels]
    assert (
        tfds_files.local_file("tfds:teas:train") == file == tfds_files.local_file(file)
    )


def test_words_keep_the_names_of_their_classes(stored):
    names = ["O", "B-PER"]
    stored(
        "people",
        lambda f: {
            "tokens": f.Sequence(f.Text()),
            "ner": f.Sequence(f.ClassLabel(names=names)),
        },
        [{"tokens": ["Ada", "sang"], "ner": [1, 0]}],
    )
    sentences = conll.read(
        tfds_files.local_file("tfds:people:train"), conll.Columns(label="ner")
    )
    assert sentences.words == [["Ada", "sang"]] and sentences.labels == [["B-PER", "O"]]


def test_answers_are_read_as_squad_s(stored):
    stored(
        "questions",
        lambda f: {
            "id": f.Text(),
            "question": f.Text(),
            "context": f.Text(),
            "answers": f.Sequence({"text": f.Text(), "answer_start": np.int32}),
        },
        [
            {
                "id": "1",
                "question": "What is hot?",
                "context": "Tea is hot.",
                "answers": [{"text": "Tea", "answer_start": 0}],
            }
        ],
    )
    (question,) = squad.read(tfds_files.local_file("tfds:questions:train"))
    assert question.answers == (squad.Answer("Tea", 0),)


@pytest.mark.parametrize("name", ["tfds:nothing:train", "tfds:teas", "tfds:teas:dev"])
def test_a_missing_dataset_is_refused_in_a_sentence(stored, name):
    stored("teas", lambda f: {"text": f.Text()}, [{"text": "Tea."}])
    with pytest.raises(ValueError, match=f"{name} cannot be read .*give a file"):
        tfds_files.local_file(name)
