"""Late interaction of sentence-transformers gives the same vectors and scores."""

import json

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from tiny import LETTERS, TINY, made, wordpiece

from bert_jax.inference import maxsim
from bert_jax.inference.model import load
from bert_jax.models import Bert, Features
from bert_jax.pretrained import LateInteraction
from bert_jax.pretrained.dense import Dense

pytestmark = pytest.mark.parity

MARKED = [*LETTERS[:4], "[MASK]", "[unused0]", "[unused1]", ",", *LETTERS[5:-3]]
QUERIES = ["a b c", "q", "d e f g a a a o"]
DOCUMENTS = ["a b , c", "q", "d e f g a a a o", ", b ,", "k l m n o p"]


def projection(seed=1):
    kernel = np.random.default_rng(seed).normal(size=(12, 8)).astype("f4")
    return Dense(kernel, np.zeros(8, "f4"), "Identity")


def colbert(folder, **fields):
    model = made(Features(Bert(TINY)), wordpiece(folder, MARKED))
    model.late = LateInteraction((projection(),), **fields)
    return model


def compare(model, directory):
    """Asserts that vectors and scores are the same there; returns their model."""
    from sentence_transformers import MultiVectorEncoder

    theirs = MultiVectorEncoder(str(directory), device="cpu")
    queries = theirs.encode_query(QUERIES, batch_size=2)
    documents = theirs.encode_document(DOCUMENTS, batch_size=2)
    ours = model.embed_tokens(QUERIES, kind="query", batch_size=2)
    our_documents = model.embed_tokens(DOCUMENTS, batch_size=2)
    for x, y in zip([*ours, *our_documents], [*queries, *documents], strict=True):
        np.testing.assert_allclose(x, y.numpy(), atol=1e-5)
    scores = maxsim(ours, our_documents, model.late.similarity == "meanmaxsim")
    theirs_scores = theirs.similarity(queries, documents).numpy()
    np.testing.assert_allclose(scores, theirs_scores, atol=1e-5)
    return theirs


@pytest.mark.parametrize(
    "fields",
    [
        {"fill_to": 10, "query_length": 10},
        {"fill_to": 6, "query_length": None, "attends": True, "filler": "[UNK]"},
        {"fill_to": 0, "query_length": 7, "similarity": "meanmaxsim"},
    ],
)
def test_a_saved_model_has_the_same_vectors_there_and_comes_back(fields, tmp_path):
    skipped = {"skipped": (",", "b")}
    model = colbert(tmp_path, query_prompt="a ", **fields, **skipped)
    model.max_length = 9
    with pytest.warns(UserWarning, match="cut|lost the rest"):
        model.embed_tokens(["a b c d e f g h i j k"], kind="query")
        model.embed_tokens(["a b c d e f g h i j k"])
    model.save(tmp_path / "ours")
    theirs = compare(load(tmp_path / "ours"), tmp_path / "ours")
    theirs.save(str(tmp_path / "theirs"))
    again = load(tmp_path / "theirs")
    compare(again, tmp_path / "theirs")
    for name in ("fill_to", "query_length", "attends", "skipped", "query_prompt"):
        assert getattr(again.late, name) == getattr(model.late, name)


def test_a_directory_of_pylate_gives_the_vectors_of_its_markers(tmp_path):
    model = colbert(tmp_path)
    model.save(tmp_path / "old")
    directory = tmp_path / "old"
    modules = json.loads((directory / "modules.json").read_text())[:2]
    modules[1]["type"] = "pylate.models.Dense.Dense"
    modules[0]["type"] = "sentence_transformers.models.Transformer"
    (directory / "modules.json").write_text(json.dumps(modules))
    settings = {"query_prefix": "[unused0] ", "document_prefix": "[unused1] "}
    settings |= {"query_length": 11, "document_length": 15, "model_type": "ColBERT"}
    settings |= {"attend_to_expansion_tokens": False, "skiplist_words": None}
    file = directory / "config_sentence_transformers.json"
    file.write_text(json.dumps(settings))
    dense = json.loads((directory / "1_Dense/config.json").read_text())
    dense = {k: x for k, x in dense.items() if not k.startswith("module_")}
    (directory / "1_Dense/config.json").write_text(json.dumps(dense))
    limits = json.dumps({"max_seq_length": 15, "do_lower_case": False})
    (directory / "sentence_bert_config.json").write_text(limits)
    again = load(directory)
    compare(again, directory)
    (vectors,) = again.embed_tokens(["a , b"])
    assert len(vectors) == 5  # [CLS] [unused1] a b [SEP]
    again.save(tmp_path / "new")
    compare(load(tmp_path / "new"), tmp_path / "new")


def test_a_directory_of_stanford_gives_the_vectors_of_its_markers(tmp_path):
    model = made(Features(Bert(TINY), has_pooler=True), wordpiece(tmp_path, MARKED))
    model.save(tmp_path / "stanford")
    directory = tmp_path / "stanford"
    tensors = load_file(directory / "model.safetensors")
    tensors = {f"bert.{k}": x for k, x in tensors.items()}
    tensors["linear.weight"] = np.ascontiguousarray(projection().kernel.T)
    save_file(tensors, directory / "model.safetensors", {"format": "pt"})
    config = json.loads((directory / "config.json").read_text())
    config["architectures"] = ["HF_ColBERT"]
    (directory / "config.json").write_text(json.dumps(config))
    metadata = {"query_maxlen": 12, "doc_maxlen": 14, "mask_punctuation": True}
    metadata |= {"query_token_id": "[unused0]", "doc_token_id": "[unused1]"}
    (directory / "artifact.metadata").write_text(json.dumps(metadata))
    again = load(directory)
    assert again.max_length == 14
    compare(again, directory)
