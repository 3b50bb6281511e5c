"""Laws of `Model.search` and `Model.index`: exact, resumable, of one model."""

import json
import os
import re

import numpy as np
import pytest
from tiny import LETTERS, TINY, made, wordpiece

from bert_jax import cli
from bert_jax.inference import Index, index, jitted, nearest
from bert_jax.models import Bert, Features, pooling
from bert_jax.pretrained import Pooling

DRAW = np.random.default_rng(0)
TEXTS = [
    " ".join(DRAW.choice(list("abcdefgh"), DRAW.integers(1, 9))) for _ in range(23)
]


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    return wordpiece(tmp_path_factory.mktemp("model"), LETTERS)


@pytest.fixture(scope="module")
def model(tokenizer):
    return made(Features(Bert(TINY)), tokenizer)


@pytest.fixture
def small_shards(monkeypatch):
    monkeypatch.setattr(index, "SHARD", 5)


def cosines(queries, corpus):
    queries = queries / np.linalg.norm(queries, axis=1, keepdims=True)
    return queries @ (corpus / np.linalg.norm(corpus, axis=1, keepdims=True)).T


@pytest.mark.parametrize("measure", ["cosine", "dot"])
@pytest.mark.parametrize("k", [1, 4, 60])
def test_the_nearest_are_those_of_all_products_in_any_blocks(measure, k, monkeypatch):
    monkeypatch.setattr(nearest, "QUERIES", 4)
    monkeypatch.setattr(nearest, "ROWS", 8)
    draw = np.random.default_rng(1)
    queries, corpus = draw.normal(size=(7, 5)), draw.normal(size=(53, 5))
    queries, corpus = queries.astype(np.float32), corpus.astype(np.float32)
    products = cosines(queries, corpus) if measure == "cosine" else queries @ corpus.T
    order = np.argsort(-products, axis=1, kind="stable")[:, :k]
    blocks = np.split(corpus, [3, 30])
    result = nearest.nearest(queries, blocks, k, measure)
    np.testing.assert_array_equal(result.rows, order)
    expected = np.take_along_axis(products, order, 1)
    np.testing.assert_allclose(result.scores, expected, atol=1e-5)


def test_equal_documents_are_in_the_order_of_the_corpus():
    corpus = np.ones((40, 3), np.float32)
    result = nearest.nearest(corpus[:1], [corpus[:17], corpus[17:]], 5)
    assert result.rows.tolist() == [[0, 1, 2, 3, 4]]


def test_hits_are_ids_scores_and_texts_of_any_kind_of_corpus(model, tmp_path):
    products = cosines(model.embed(["a b", "c"]), model.embed(TEXTS))
    many = model.search(["a b", "c"], TEXTS, k=3)
    for hits, row in zip(many, products, strict=True):
        best = np.argsort(-row, kind="stable")[:3]
        assert [hit.id for hit in hits] == best.tolist()
        assert [hit.text for hit in hits] == [TEXTS[i] for i in best]
        np.testing.assert_allclose([hit.score for hit in hits], row[best], atol=1e-5)
    assert [x.id for x in model.search("a b", TEXTS, k=3)] == [x.id for x in many[0]]
    assert len(model.search("a b", TEXTS, k=100)) == len(TEXTS)
    by_id = dict(zip(map(str, range(23)), TEXTS, strict=True))
    assert [x.id for x in model.search("c", by_id, 3)] == [str(x.id) for x in many[1]]
    (tmp_path / "x.txt").write_text("\n".join(TEXTS) + "\n")
    lines = model.search("c", tmp_path / "x.txt", 3)
    assert [x.id for x in lines] == [str(hit.id + 1) for hit in many[1]]
    assert model.search([], TEXTS) == []


def test_an_index_on_disk_is_that_in_memory_and_is_memory_mapped(
    model, tmp_path, small_shards
):
    memory, disk = model.index(TEXTS), model.index(TEXTS, tmp_path / "index")
    vectors = np.concatenate(list(disk.vectors()))
    np.testing.assert_allclose(vectors, next(memory.vectors()), atol=1e-6)
    assert all(isinstance(x, np.memmap) for x in disk.vectors())
    assert len([*disk.vectors()]) == 5 and len(disk) == 23
    assert [disk.document(i) for i in range(23)] == list(enumerate(TEXTS))
    for corpus in (memory, disk, tmp_path / "index", str(tmp_path / "index")):
        hits = model.search("a b", corpus, 4)
        assert [hit.id for hit in hits] == [x.id for x in model.search("a b", TEXTS, 4)]
    with pytest.raises(IndexError, match="the index has 23 documents"):
        disk.document(23)


def test_an_interrupted_index_resumes_with_the_shards_that_are_missing(
    model, tmp_path, small_shards, monkeypatch
):
    folder, embed, embedded = tmp_path / "index", index.embed_as, []

    def dies(model, side, texts, batch_size):
        embedded.append(texts)
        if len(embedded) == 3:
            (folder / f".vectors-00002.npy.{os.getpid()}").write_text("torn")
            raise KeyboardInterrupt
        return embed(model, side, texts, batch_size)

    monkeypatch.setattr(index, "embed_as", dies)
    with pytest.raises(KeyboardInterrupt):
        model.index(TEXTS, folder)
    with pytest.raises(ValueError, match="has 2 of 5 shards; finish it with the call"):
        model.search("a", folder)
    resumed = model.index(TEXTS, folder)
    assert embedded[3:] == [TEXTS[10:15], TEXTS[15:20], TEXTS[20:]]
    vectors = np.concatenate(list(resumed.vectors()))
    np.testing.assert_allclose(vectors, model.embed(TEXTS), atol=1e-6)
    assert not list(folder.glob(".*"))
    model.index(TEXTS, folder)
    assert len(embedded) == 6


def test_one_warning_says_that_texts_are_cut(model, tmp_path, small_shards):
    with pytest.warns(UserWarning) as caught:
        model.index(["a " * 30] * 11, tmp_path / "index")
    (message,) = [str(x.message) for x in caught]
    assert message.startswith("cut 5 of 5 texts to 20 tokens; split them")


def test_documents_of_an_index_get_their_prompt_and_queries_theirs(tokenizer):
    model = made(Features(Bert(TINY)), tokenizer)
    plain = model.index(["p a", "p b c"])
    model.pooling = Pooling(prompts=(("query", "q "), ("document", "p ")))
    prompted = model.index(["a", "b c"])
    np.testing.assert_allclose(
        next(prompted.vectors()), next(plain.vectors()), atol=1e-6
    )
    (hit,) = model.search("a", prompted, 1)
    other = made(Features(Bert(TINY)), tokenizer)
    expected = cosines(other.embed(["q a"]), next(plain.vectors())).max()
    assert hit.score == pytest.approx(expected, abs=1e-5)


def test_an_index_of_another_model_or_corpus_is_refused(model, tokenizer, tmp_path):
    model.index(TEXTS, tmp_path / "index")
    other = made(Features(Bert(TINY)), tokenizer, seed=1)
    with pytest.raises(ValueError, match="the index was made by another model:\nwei"):
        other.search("a", tmp_path / "index")
    with pytest.raises(ValueError, match="index has another index:\nchecksum: was"):
        model.index(TEXTS[::-1], tmp_path / "index")
    pooled = made(Features(Bert(TINY)), tokenizer)
    pooled.pooling = Pooling(("cls",))
    with pytest.raises(
        ValueError, match="pooling: was 'mean pooling', is 'cls pooling'"
    ):
        pooled.search("a", Index.open(tmp_path / "index"))
    kernel = np.ones((12, 2), np.float32)
    dense = pooling.Dense(kernel, np.zeros(2, np.float32), "Identity")
    pooled.pooling = Pooling(dense=(dense,))
    narrow = pooled.index(TEXTS)
    pooled.pooling = Pooling(dense=(dense.replace(kernel=2 * kernel),))
    with pytest.raises(ValueError, match="another model:\nweights: was"):
        pooled.search("a", narrow)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "x").write_text("")
    with pytest.raises(ValueError, match="is not empty and holds no index: it has 'x'"):
        model.index(TEXTS, tmp_path / "other")


def test_damage_to_an_index_is_one_sentence(model, tmp_path):
    model.index(TEXTS, tmp_path / "index")
    vectors = tmp_path / "index" / "vectors-00000.npy"
    content = vectors.read_bytes()
    vectors.write_bytes(content[:-9])
    with pytest.raises(
        ValueError, match=r"vectors-00000.npy or a file beside it cannot"
    ):
        Index.open(tmp_path / "index")
    with pytest.raises(ValueError, match="has no index.json; is it a model's direct"):
        Index.open(tmp_path)


@pytest.mark.parametrize(
    "queries, corpus, k, error",
    [
        ("a", TEXTS, 0, "k=0; it must be at least 1"),
        ("a", TEXTS, 1.5, "k=1.5; it must be a whole number"),
        (["a", " "], TEXTS, 1, r"queries\[1\] is empty; write a question or a text"),
        ("a", ["a", ""], 1, r"corpus\[1\] is empty; leave it out or fill it in"),
        ("a", {"x": ""}, 1, r"corpus\['x'\] is empty; leave it out or fill it in"),
        ("a", [], 1, "the corpus has no document; give at least one"),
        ("a", "nowhere.jsonl", 1, "nowhere.jsonl: No such file or directory; check"),
        ("a", ["a", 3], 1, r"corpus\[1\] is 3, not a string"),
    ],
)
def test_wrong_arguments_are_one_sentence(model, queries, corpus, k, error):
    with pytest.raises(ValueError, match=error):
        model.search(queries, corpus, k)


def test_an_id_that_two_documents_have_is_named(model, tmp_path):
    rows = [{"_id": x, "text": "a"} for x in ("x", "y", "x")]
    path = tmp_path / "corpus.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    error = r"corpus.jsonl:3: the id 'x' is there twice; give each document one of"
    for directory in (None, tmp_path / "index"):
        with pytest.raises(ValueError, match=error):
            model.index(tmp_path, directory)


def test_the_commands_index_a_file_and_search_it(model, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(jitted, "use_compilation_cache", lambda: None)
    monkeypatch.chdir(tmp_path)
    model.save("model")
    rows = [{"_id": f"d{i}", "text": text} for i, text in enumerate(TEXTS)]
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    (tmp_path / "corpus.jsonl").write_text(lines)
    cli.main("index corpus.jsonl --model model --out index".split())
    assert capsys.readouterr().out == "index: 23 documents\n"
    expected = model.search("a b", "index", 2)
    for corpus in ("index", "corpus.jsonl"):
        arguments = f"--corpus {corpus} -k 2 --model model --format".split()
        cli.main(["search", "a b", *arguments, "jsonl"])
        row = json.loads(capsys.readouterr().out)
        assert row == {"text": "a b", "hits": [hit._asdict() for hit in expected]}
    cli.main(["search", "a b", *arguments, "text"])
    first = re.escape(f"  {expected[0].id}  {expected[0].text}")
    assert re.match(rf"a b\n  0\.\d{{4}}{first}\n", capsys.readouterr().out)
    with pytest.raises(SystemExit):
        cli.main("search x.txt --corpus index -k 0 --model model".split())
    assert "bert-jax: -k 0; it must be at least 1" in capsys.readouterr().err
