"""Laws of the ELMo example: its network, published weights, losses and a run."""

import dataclasses
import doctest
import importlib.util
import json
import os
import pathlib
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import bert_jax
from bert_jax.data import corpus
from bert_jax.training import OptimizerConfig, TrainConfig
from examples.elmo import softmax
from examples.elmo.elmo import Elmo
from examples.elmo.features import get_config
from examples.elmo.model import ElmoConfig, Lstm
from examples.elmo.task import ElmoTaskConfig, TextRows, by_frequency, to_numbers
from examples.elmo.words import SPECIAL, character_ids

FIXTURES = pathlib.Path(__file__).parents[3] / "shared/data/elmo"

TINY = ElmoConfig(
    vocab_size=11,
    hidden_size=5,
    cell_size=7,
    filters=(2, 3, 4),
    character_size=3,
    max_characters=6,
    num_highways=2,
    cell_clip=0.6,
    projection_clip=0.5,
    dropout=0.0,
)
TEXT = "a dog sees the small cat . the cat sees it too . it runs !".split()


def started(shapes, seed=1):
    """Parameters far from their initial values, so that no term is a no-op."""
    draw = np.random.default_rng(seed)
    return jax.tree.map(
        lambda x: draw.normal(0, 0.6, x.shape).astype(np.float32), shapes
    )


@pytest.fixture(scope="module")
def elmo():
    inputs = np.ones((1, 2, TINY.max_characters), np.int32), np.ones((1, 2), np.int32)
    shapes = jax.eval_shape(TINY.build().init, jax.random.key(0), *inputs)
    return Elmo(TINY, {"encoder": started(shapes["params"])})


def batch_of(sentences, length, max_characters):
    characters = np.zeros((len(sentences), length, max_characters), np.int32)
    for row, words in zip(characters, sentences, strict=True):
        row[: len(words)] = character_ids(words, max_characters)
    return characters, (characters[..., 0] > 0).astype(np.int32)


def test_bilm_tfs_own_vectors_are_met():
    pytest.importorskip("h5py")
    if not FIXTURES.exists():
        pytest.skip("needs the test fixtures of allenai/bilm-tf")
    import h5py

    elmo = Elmo.from_bilm(FIXTURES / "options.json", FIXTURES / "lm_weights.hdf5")
    model, params = elmo.config.build(), {"params": elmo.params["encoder"]}
    # The compiler options of the tests round more, up to 1e-4 after two LSTMs.
    options = {}
    if "xla_cpu_use_fusion_emitters" in os.environ["XLA_FLAGS"]:
        options = {"xla_cpu_use_fusion_emitters": True}
    run = jax.jit(
        lambda *inputs: model.apply(params, *inputs, method="encode"),
        compiler_options=options,
    )
    texts = json.loads((FIXTURES / "lm_embeddings_sentences.json").read_text())
    expected = [h5py.File(FIXTURES / f"lm_embeddings_{k}.hdf5") for k in range(3)]
    # Three streams of ten sentences, each of which begins where the last one ended.
    sizes = elmo.config.cell_size, elmo.config.hidden_size
    empty = [tuple(jnp.zeros((3, size)) for size in sizes) for _ in range(2)]
    states = {"forward": empty, "backward": empty}
    for i, sentences in enumerate(zip(*texts, strict=True)):
        framed = [["<S>", *x.split(), "</S>"] for x in sentences]
        layers, states = run(*batch_of(framed, 55, 50), states)
        for k, words in enumerate(framed):
            last = np.concatenate(expected[k][str(i)], -1)
            ours = layers[2, k, 1 : len(words) - 1]
            np.testing.assert_allclose(ours, last, rtol=0, atol=1e-6)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def by_hand(p, x, config):
    """One LSTM over `[L, D]` in float64, gate by gate."""
    F, D = p["projection"].shape
    cell, output, outputs = np.zeros(F), np.zeros(D), []
    for row in x:
        gates = np.concatenate([row, output]) @ p["kernel"] + p["bias"]
        i, j, f, o = (gates[k * F : (k + 1) * F] for k in range(4))
        cell = sigmoid(f + 1) * cell + sigmoid(i) * np.tanh(j)
        cell = np.clip(cell, -config.cell_clip, config.cell_clip)
        output = (sigmoid(o) * np.tanh(cell)) @ p["projection"]
        output = np.clip(output, -config.projection_clip, config.projection_clip)
        outputs.append(output)
    return np.array(outputs)


@pytest.mark.parametrize("reverse", [False, True])
def test_an_lstm_is_its_equations_whatever_the_padding(elmo, reverse):
    params = elmo.params["encoder"]["forward_1"]
    x = np.random.default_rng(0).normal(size=(2, 6, 5)).astype(np.float32)
    mask = np.array([[1, 1, 1, 1, 0, 0], [1] * 6])
    y, (cell, last) = Lstm(TINY, reverse).apply({"params": params}, x, mask)
    for row, length in enumerate((4, 6)):
        order = slice(None, None, -1 if reverse else 1)
        expected = by_hand(params, x[row, :length][order], TINY)
        np.testing.assert_allclose(y[row, :length], expected[order], atol=1e-6)
        np.testing.assert_allclose(last[row], expected[-1], atol=1e-6)
    assert np.abs(cell).max() == pytest.approx(TINY.cell_clip)
    assert np.abs(y).max() == pytest.approx(TINY.projection_clip)


def test_layers_are_words_twice_then_each_direction_with_its_input_added(elmo):
    layers = elmo.features([TEXT])[0]
    assert layers.shape == (3, len(TEXT), 10)
    words = batch_of([["<S>", *TEXT, "</S>"]], len(TEXT) + 2, TINY.max_characters)
    all_layers = elmo.config.build().apply({"params": elmo.params["encoder"]}, *words)
    x = np.asarray(all_layers)[:, 0]
    np.testing.assert_array_equal(x[0, :, :5], x[0, :, 5:])
    for half, name in ((slice(0, 5), "forward"), (slice(5, 10), "backward")):
        order = slice(None, None, -1 if name == "backward" else 1)
        for i in range(2):
            below = x[i, :, half][order]
            expected = by_hand(elmo.params["encoder"][f"{name}_{i}"], below, TINY)
            expected += below if i else 0
            np.testing.assert_allclose(x[i + 1, :, half][order], expected, atol=1e-5)
    np.testing.assert_allclose(layers, x[:, 1:-1], atol=1e-6)


def test_a_sentence_has_its_vectors_whatever_the_batch(elmo):
    sentences = [TEXT, ["cat"], TEXT[3:], ["it", "runs"] * 12]
    together = elmo.features(sentences, batch_size=3)
    for words, layers in zip(sentences, together, strict=True):
        assert layers.shape == (3, len(words), 10)
        np.testing.assert_allclose(layers, elmo.features([words])[0], atol=1e-6)


def test_probes_read_the_vectors_of_words_and_their_means(elmo, tmp_path):
    elmo.save(tmp_path / "elmo")
    (tmp_path / "a.tsv").write_text("text\tlabel\nit runs!\tyes\na dog\tno\n")
    (tmp_path / "a.conll").write_text("it\tO\nruns\tB-X\n!\tO\n\na\tO\ndog\tO\n")
    features = elmo.features([["it", "runs", "!"], ["a", "dog"]])
    by_word = np.concatenate([x.swapaxes(0, 1) for x in features])
    by_text = np.stack([x.mean(1) for x in features])
    for kind, file, expected in (
        ("texts", "a.tsv", by_text),
        ("words", "a.conll", by_word),
    ):
        probe = get_config(kind)
        probe.init_from = str(tmp_path / "elmo")
        model, depth = probe.start()
        assert depth == 2
        states = probe.states(model, probe.read(str(tmp_path / file)), "mean")
        np.testing.assert_allclose(states, expected, atol=1e-6)
    with pytest.raises(ValueError, match="kind 'pairs' is unknown; choose texts or wo"):
        get_config("pairs")


def test_forward_sees_no_later_word_and_backward_no_earlier_one(elmo):
    model, params = elmo.config.build(), elmo.params["encoder"]
    characters, mask = batch_of([TEXT[:6]], 6, TINY.max_characters)
    words = model.bind({"params": params}).characters(characters)

    def output(words, name):
        x = words
        for i in range(2):
            lstm = Lstm(TINY, reverse=name == "backward")
            y, _ = lstm.apply({"params": params[f"{name}_{i}"]}, x, mask)
            x = y + x if i else y
        return x[0].sum(-1)

    for name, seen in (("forward", np.tril), ("backward", np.triu)):
        by_word = np.abs(jax.jacobian(output)(words, name)[:, 0]).sum(-1)
        np.testing.assert_array_equal(by_word > 0, seen(np.ones((6, 6))) > 0)


def softmax_inputs(seed=0):
    draw = np.random.default_rng(seed)
    hidden = draw.normal(size=(3, 4, 5)).astype(np.float32)
    table = draw.normal(size=(11, 5)).astype(np.float32)
    bias = draw.normal(size=11).astype(np.float32)
    return hidden, draw.integers(0, 11, (3, 4)), table, bias


def test_a_sample_of_all_words_gives_the_full_softmax_and_its_gradient():
    hidden, labels, *table = softmax_inputs()
    scores = jax.nn.log_softmax(hidden @ table[0].T + table[1])
    expected = -np.take_along_axis(np.asarray(scores), labels[..., None], -1)[..., 0]
    full = softmax.full_softmax(hidden, labels, *table)
    np.testing.assert_allclose(full, expected, rtol=1e-5)

    def sampled(hidden):
        key = jax.random.key(0)
        return softmax.sampled_softmax(hidden, labels, *table, 11, key).sum()

    gradient = jax.grad(lambda x: softmax.full_softmax(x, labels, *table).sum())
    np.testing.assert_allclose(sampled(hidden), expected.sum(), rtol=1e-5)
    np.testing.assert_allclose(
        jax.grad(sampled)(hidden), gradient(hidden), rtol=1e-4, atol=1e-6
    )


def test_words_are_drawn_once_and_as_often_as_their_chances_say():
    keys = jax.random.split(jax.random.key(0), 4000)
    draw = jax.jit(jax.vmap(lambda key: softmax.log_uniform_sample(key, 9, 4)))
    drawn, chances = map(np.asarray, draw(keys))
    hits = (drawn[..., None] == np.arange(9)).sum(1)
    assert hits.max() == 1 and (hits.sum(1) == 4).all()
    # Each draw weighted by its chance counts every word once (Horvitz-Thompson).
    np.testing.assert_allclose((hits / chances).mean(0), 1, atol=0.08)
    assert (np.diff(hits.mean(0)) < 0).all()


def test_a_label_that_is_drawn_too_counts_once():
    hidden, labels, *table = softmax_inputs()
    labels[:] = 0  # the word that is drawn most often
    losses = softmax.sampled_softmax(hidden, labels, *table, 1, jax.random.key(1))
    drawn, _ = softmax.log_uniform_sample(jax.random.key(1), 11, 1)
    assert drawn.tolist() == [0]
    np.testing.assert_array_equal(losses, 0)


def test_characters_are_bytes_between_marks_and_long_words_are_cut():
    rows = character_ids(["é", "abcdefg", "</S>"], 6)
    assert rows.tolist() == [
        [259, 0xC3 + 1, 0xA9 + 1, 260, 261, 261],
        [259, 98, 99, 100, 101, 260],
        [259, 258, 260, 261, 261, 261],
    ]


def test_the_examples_of_words_are_as_shown():
    results = doctest.testmod(sys.modules[character_ids.__module__])
    assert (results.attempted, results.failed) == (2, 0)


def test_rows_hold_each_pair_of_neighbours_once():
    numbers = {word: i for i, word in enumerate(SPECIAL)}
    text = [["b", "a"], ["a", "c", "a"], ["b"]]
    streams = {"train": to_numbers(text, numbers, 1000)}
    streams["eval"] = to_numbers([["c", "new"]], numbers, 1000)
    words, known = by_frequency(streams, numbers, 100)
    assert (words, known) == ([*SPECIAL, "a", "b", "c", "new"], 6)
    assert streams["train"].tolist() == [0, 4, 3, 1, 0, 3, 5, 3, 1, 0, 4, 1]
    rows = TextRows(streams["train"], words, known, 6, length=5)
    batch = rows.gather(np.arange(len(rows)))
    assert batch["labels"].tolist()[:2] == [[0, 4, 3, 1, 0], [0, 3, 5, 3, 1]]
    assert batch["attention_mask"].tolist()[2] == [1, 1, 1, 1, 0]
    pairs = [
        (row[i], row[i + 1])
        for row, real in zip(batch["labels"], batch["attention_mask"], strict=True)
        for i in range(4)
        if real[i + 1]
    ]
    stream = streams["train"]
    assert pairs == list(zip(stream[:-1], stream[1:], strict=True))
    # A word that training lacks is unknown, but its characters are read.
    held_out = TextRows(streams["eval"], words, known, 6, 5).gather([0])
    assert held_out["labels"].tolist() == [[0, 5, 2, 1, 0]]
    assert (held_out["characters"][0, 2] == character_ids(["new"], 6)[0]).all()


def small_run(folder, num_steps, samples):
    draw = np.random.default_rng(0)
    names, verbs = ["ann", "bob", "cy"], ["sees", "likes"]
    lines = [
        f"{draw.choice(names)} {draw.choice(verbs)} {draw.choice(names)} ."
        for _ in range(120)
    ]
    for name, part in (("train", lines[:90]), ("dev", lines[90:])):
        (folder / f"{name}.txt").write_text("\n\n".join(part))
    task = ElmoTaskConfig(
        train=(str(folder / "train.txt"),),
        dev=(str(folder / "dev.txt"),),
        length=9,
        samples=samples,
    )
    return TrainConfig(
        encoder=dataclasses.replace(TINY, cell_clip=3.0, projection_clip=3.0),
        task=task,
        optimizer=OptimizerConfig(name="adamw", learning_rate=1e-2, schedule="linear"),
        batch_size=16,
        num_steps=num_steps,
        eval_every=num_steps,
        checkpoint_every=num_steps,
        log_every=num_steps,
    )


def test_a_run_logs_perplexity_and_its_model_is_read_as_it_was_saved(tmp_path):
    config = small_run(tmp_path, 2, samples=4)
    trained = bert_jax.train(config, tmp_path / "run")
    lines = (tmp_path / "run/metrics.jsonl").read_text().splitlines()
    last = [x for x in map(json.loads, lines) if x["split"] == "eval"][-1]
    assert last["loss"] == pytest.approx(
        (last["forward_loss"] + last["backward_loss"]) / 2
    )
    assert last["perplexity"] == pytest.approx(np.exp(last["loss"]))
    again = Elmo.load(tmp_path / "run")
    assert again.words == trained.words
    assert again.words[:4] == (*SPECIAL, ".")
    assert set(again.words[4:]) == {"ann", "bob", "cy", "sees", "likes"}
    sentence = ["bob", "likes", "zoe"]
    np.testing.assert_array_equal(
        again.features([sentence])[0], trained.features([sentence])[0]
    )


@pytest.mark.slow
def test_training_with_a_sample_comes_close_to_the_entropy_of_the_text(tmp_path):
    config = small_run(tmp_path, 300, samples=6)
    bert_jax.train(config, tmp_path / "run")
    scores = json.loads((tmp_path / "run/scores.json").read_text())["scores"]["eval"]
    # Of five predictions in a sentence two are sure, two of three and one of two.
    entropy = (2 * np.log(3) + np.log(2)) / 5
    assert entropy < scores["loss"] < entropy + 0.15


@pytest.mark.parametrize(
    "fields, message",
    [
        ({"train": ()}, "task.train is empty; set it to files of text"),
        ({"length": 1}, "task.length=1; it must be at least 2"),
        ({"samples": -1}, "task.samples=-1; it must be at least 0"),
        ({"held_out": 1.0}, "task.held_out=1.0 is not between 0 and 1"),
    ],
)
def test_a_wrong_field_of_the_task_is_refused(fields, message):
    task = ElmoTaskConfig(**({"train": ("a.txt",)} | fields))
    with pytest.raises(ValueError, match=message):
        task.resolve(None)


@pytest.mark.parametrize(
    "fields, message",
    [
        ({"cell_size": 0}, "cell_size=0; it must be at least 1"),
        ({"max_characters": 2}, "max_characters=2 is less than the longest of"),
        ({"dropout": 1.0}, r"dropout=1.0; choose one in \[0, 1\)"),
        (
            {"dtype": "bfloat16"},
            "dtype='bfloat16', remat=False, attention='auto'; ELMo",
        ),
    ],
)
def test_a_wrong_size_is_refused(fields, message):
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(TINY, **fields).build()


def test_texts_without_held_out_documents_are_refused(tmp_path):
    (tmp_path / "a.txt").write_text("One sentence is all there is.\n")
    task = ElmoTaskConfig(train=(str(tmp_path / "a.txt"),), held_out=0.001)
    with pytest.raises(ValueError, match="there is no text for 'eval' in task.train="):
        task.prepare(tmp_path, TINY, seed=0)
    (document,) = corpus.read([tmp_path / "a.txt"])
    assert not corpus.is_held_out(document, 0.001)


def test_h5py_is_named_where_it_is_missing(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "h5py", None)
    with pytest.raises(ValueError, match="weights.hdf5 needs h5py to be read; pip in"):
        Elmo.from_bilm(tmp_path / "options.json", tmp_path / "weights.hdf5")


def test_files_that_are_no_weights_are_refused(tmp_path):
    with pytest.raises(ValueError, match="is no ELMo, or is damaged"):
        Elmo.load(tmp_path)
    if importlib.util.find_spec("h5py"):
        (tmp_path / "options.json").write_text("{}")
        with pytest.raises(ValueError, match="are no weights of bilm-tf"):
            Elmo.from_bilm(tmp_path / "options.json", tmp_path / "weights.hdf5")
