"""Laws of TFDS datasets that are read as files."""

import json
import re

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

    monkeypatch.setattr(tfds.core.constants, "DATA_DIR", str(tmp_path))
    return store


@pytest.fixture(scope="module")
def unbuilt():
    """The name of a dataset that TFDS builds itself, in its own default format."""
    tfds = pytest.importorskip("tensorflow_datasets")
    features = {
        "sentence": tfds.features.Text(),
        "label": tfds.features.ClassLabel(names=["bad", "good"]),
        "tokens": tfds.features.Sequence(tfds.features.Text()),
        "ner": tfds.features.Sequence(tfds.features.ClassLabel(names=["O", "B-x"])),
    }

    class CupsBuiltHere(tfds.core.GeneratorBasedBuilder):
        VERSION = tfds.core.Version("1.0.0")

        def _info(self):
            row = tfds.features.FeaturesDict(features)
            return tfds.core.DatasetInfo(builder=self, features=row)

        def _split_generators(self, _):
            return {"train": self._generate_examples()}

        def _generate_examples(self):
            for i in range(10):
                words = {"tokens": ["a"] * (i % 3), "ner": [1] * (i % 3)}
                yield i, {"sentence": f"cup {i}", "label": i % 2, **words}

    return "cups_built_here"


def test_a_dataset_that_tfds_builds_and_its_slices_are_read(
    unbuilt, tmp_path, monkeypatch
):
    tfds = pytest.importorskip("tensorflow_datasets")
    monkeypatch.setattr(tfds.core.constants, "DATA_DIR", str(tmp_path))
    whole = tables.read(tfds_files.local_file(f"tfds:{unbuilt}:train"))
    assert sorted(whole.texts) == [f"cup {i}" for i in range(10)]
    assert whole.labels == [str(int(text[-1]) % 2) for text in whole.texts]
    assert tfds.builder(unbuilt).info.file_format.value == "tfrecord"
    parts = [
        tables.read(tfds_files.local_file(f"tfds:{unbuilt}:{split}")).texts
        for split in ("train[:80%]", "train[80%:]", "train[:20%]+train[80%:]")
    ]
    first, last = whole.texts[:8], whole.texts[8:]
    assert parts == [first, last, first[:2] + last]
    file = tfds_files.local_file(f"tfds:{unbuilt}:train")
    words = [x for x in map(json.loads, open(file)) if x["sentence"] == "cup 5"]
    assert words[0]["tokens"] == ["a", "a"] and words[0]["ner"] == ["B-x", "B-x"]


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


@pytest.mark.parametrize(
    "name", ["tfds:nothing:train", "tfds:teas", "tfds:teas:dev", "tfds:teas[:80%]"]
)
def test_a_missing_dataset_is_refused_in_a_sentence(stored, name):
    stored("teas", lambda f: {"text": f.Text()}, [{"text": "Tea."}])
    with pytest.raises(
        ValueError, match=f"{re.escape(name)} cannot be read .*give a file"
    ):
        tfds_files.local_file(name)
