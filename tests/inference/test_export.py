"""Laws of `export`: it computes the same as the model, without this package."""

import contextlib
import json
import re
import subprocess
import sys

import jax
import numpy as np
import pytest
from tiny import LETTERS, TINY, made, wordpiece

import bert_jax
from bert_jax.inference.export import default_kind
from bert_jax.models import (
    Bert,
    BertConfig,
    Features,
    MultipleChoice,
    Pretraining,
    SequenceClassifier,
    TokenClassifier,
    XLNetConfig,
)
from bert_jax.pretrained import Pooling

# Other positions, no token types, an offset, as in RoBERTa.
OFFSET = BertConfig(
    **vars(TINY) | {"position_offset": 2, "type_vocab_size": 0, "model_type": "roberta"}
)
NAMES = ("input_ids", "attention_mask", "token_type_ids")

# A head and the shapes of its batches.
HEADS = {
    "classes": (SequenceClassifier(Bert(TINY), 3), [(1, 3), (2, 7), (5, 18)]),
    "classes_of_roberta": (SequenceClassifier(Bert(OFFSET), 3), [(1, 3), (5, 18)]),
    "pretraining": (Pretraining(Bert(TINY)), [(1, 3), (5, 18)]),
    "pretraining_of_roberta": (Pretraining(Bert(OFFSET)), [(1, 3), (5, 18)]),
    "choices": (MultipleChoice(Bert(TINY)), [(1, 2, 5), (3, 4, 7)]),
}
POOLINGS = ("mean", "lasttoken")
TEXTS = ["a b c", "d", "e f g h i"]

# Runs the code of each README, and then the program that it loads.
RUN = """
import os, re, sys
for name in ("bert_jax", "flax", "orbax", "tokenizers"):
    sys.modules[name] = None  # importing it is an error
import jax.export
import numpy as np

for folder in sys.argv[1:]:
    os.chdir(folder)
    readme = {}
    exec(re.search("```python\\n(.*?)```", open("README.md").read(), re.S)[1], readme)
    outputs = {"readme": np.array(jax.tree.leaves(readme["output"])[0].shape)}
    program, inputs = jax.jit(readme["program"].call), np.load("inputs.npz")
    for number in range(len(inputs) // 3):
        arrays = [inputs[f"{number} {i}"] for i in range(3)]
        for i, x in enumerate(jax.tree.leaves(program(readme["params"], *arrays))):
            outputs[f"{number} {i}"] = x
    np.savez("outputs.npz", **outputs)
"""


def batch(shape):
    """Rows with padding and two segments, the last of them full."""
    draw = np.random.default_rng(sum(shape))
    ids = draw.integers(5, TINY.vocab_size, shape, np.int32)
    rows = ids.reshape(-1, shape[-1])
    lengths = draw.integers(1, shape[-1] + 1, len(rows))
    lengths[-1] = shape[-1]
    mask = (np.arange(shape[-1]) < lengths[:, None]).astype(np.int32)
    types = (np.arange(shape[-1]) >= lengths[:, None] // 2) * mask
    return ids * mask.reshape(shape), mask.reshape(shape), types.reshape(shape)


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """Models by name."""
    tokenizer = wordpiece(tmp_path_factory.mktemp("vocabulary"), LETTERS)
    models = {name: made(head) for name, (head, _) in HEADS.items()}
    models["classes"].labels = ("no", "maybe", "yes")
    encoder = made(Features(Bert(TINY)), tokenizer)
    for mode in POOLINGS:
        pooling = Pooling((mode,), normalize=True)
        models[mode] = bert_jax.Model(**vars(encoder) | {"pooling": pooling})
    return models


@pytest.fixture(scope="module")
def exports(models, tmp_path_factory):
    """Directories of exports, with outputs from a process without this package."""
    home = tmp_path_factory.mktemp("exports")
    for name, model in models.items():
        bert_jax.export(model, home / name)
        if name in HEADS:
            batches = [batch(shape) for shape in HEADS[name][1]]
        else:
            rows = model.tokenizer(TEXTS)
            batches = [[rows[key] for key in NAMES]]
        inputs = {
            f"{number} {i}": x
            for number, arrays in enumerate(batches)
            for i, x in enumerate(arrays)
        }
        np.savez(home / name / "inputs.npz", **inputs)
    command = [sys.executable, "-c", RUN, *(str(home / name) for name in models)]
    done = subprocess.run(command, cwd=home, capture_output=True, text=True)
    assert not done.returncode, done.stderr
    return home


@pytest.mark.slow
@pytest.mark.parametrize("name", HEADS)
def test_an_export_runs_elsewhere_at_any_batch_and_length(name, models, exports):
    outputs = np.load(exports / name / "outputs.npz")
    for number, shape in enumerate(HEADS[name][1]):
        arrays = dict(zip(NAMES, batch(shape), strict=True))
        for i, expected in enumerate(jax.tree.leaves(models[name](**arrays))):
            np.testing.assert_allclose(outputs[f"{number} {i}"], expected, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("mode", POOLINGS)
def test_vectors_are_those_of_embed(mode, models, exports):
    vectors = np.load(exports / mode / "outputs.npz")["0 0"]
    np.testing.assert_allclose(vectors, models[mode].embed(TEXTS), atol=1e-5)
    signature = json.loads((exports / mode / "signature.json").read_text())
    assert signature["computes"] == "embed"
    assert (exports / mode / "tokenizer.json").is_file()


def test_the_encoder_is_a_plain_function_of_params_ids_and_mask(models):
    function, params = bert_jax.as_function(models["classes"], "encoder")
    ids, mask, _ = batch((2, 7))
    states = models["classes"].hidden_states(input_ids=ids, attention_mask=mask)
    np.testing.assert_allclose(function(params, ids, mask), states[-1], atol=1e-5)
    # It is a function of its parameters, so it can be differentiated by them.
    slopes = jax.grad(lambda params: function(params, ids, mask).sum())(params)
    assert slopes.keys() == params.keys()
    assert np.abs(slopes["layer_0/mlp/up/kernel"]).max() > 0


def test_an_export_computes_what_its_model_does(models, tmp_path):
    bert_jax.export(models["classes"], tmp_path / "out")
    readme = (tmp_path / "out/README.md").read_text()
    code = re.search("```python\\n(.*?)```", readme, re.S)[1]
    names = {}
    with contextlib.chdir(tmp_path / "out"):
        exec(code, names)
    arrays = dict(zip(NAMES, batch((5, 18)), strict=True))
    outputs = jax.jit(names["program"].call)(names["params"], *arrays.values())
    (outputs,) = jax.tree.leaves(outputs)
    np.testing.assert_allclose(outputs, models["classes"](**arrays), atol=1e-5)


@pytest.mark.parametrize("kind", ["encoder", "model"])
def test_an_export_of_xlnet_computes_what_its_model_does(tmp_path, kind):
    """Its table of distances depends on the length, which an export leaves open."""
    config = XLNetConfig(31, 12, n_layer=2, n_head=3, d_inner=20, clamp_len=4)
    head = TokenClassifier(config.build(), 3)
    model = made(head if kind == "model" else Features(config.build()))
    bert_jax.export(model, tmp_path / "out", kind)
    program = (tmp_path / "out/model.stablehlo").read_bytes()
    params = dict(np.load(tmp_path / "out/params.npz"))
    program = jax.jit(jax.export.deserialize(program).call)
    for shape in ((2, 7), (1, 3)):
        ids, mask, types = batch(shape)
        expected = model(input_ids=ids, attention_mask=mask, token_type_ids=types)
        actual = program(params, ids, mask, types)
        np.testing.assert_allclose(actual, expected, atol=1e-5)


@pytest.mark.parametrize("wrong", [TINY.vocab_size, -1])
def test_a_wrong_id_is_nan_in_a_function_and_refused_by_the_readme(
    models, tmp_path, wrong
):
    function, params = bert_jax.as_function(models["classes"])
    ids, mask, types = batch((2, 7))
    ids[0, 1] = wrong
    seen = np.isnan(function(params, ids, mask, types)).all(1)
    assert seen.tolist() == [True, False]
    bert_jax.export(models["classes"], tmp_path / "out")
    readme = (tmp_path / "out/README.md").read_text()
    code = re.search("```python\n(.*?)```", readme, re.S)[1]
    ids = f"np.array([[5, {wrong}]], np.int32)"
    with contextlib.chdir(tmp_path / "out"):
        with pytest.raises(ValueError, match="outside the vocabulary; was it made by"):
            exec(code.replace("np.ones((2, 7), np.int32)", ids), {})


@pytest.mark.slow
def test_the_code_in_the_readme_of_an_export_runs(exports):
    shapes = {
        name: np.load(exports / name / "outputs.npz")["readme"].tolist()
        for name in ("classes", "choices", "mean")
    }
    assert shapes == {"classes": [2, 3], "choices": [2, 1], "mean": [2, 12]}


@pytest.mark.slow
def test_an_export_is_for_every_platform_and_lists_its_inputs(exports):
    signature = json.loads((exports / "classes/signature.json").read_text())
    assert {"cpu", "cuda", "tpu"} <= set(signature["platforms"])
    assert signature["inputs"]["input_ids"] == "int32[B, L]"
    assert signature["outputs"] == ["float32[B, 3]"]
    assert signature["labels"] == ["no", "maybe", "yes"]


def test_another_kind_or_a_directory_that_is_not_empty_is_an_error(models, tmp_path):
    model = models["classes"]
    with pytest.raises(
        ValueError, match="kind='logits' is unknown; choose one of model"
    ):
        bert_jax.export(model, tmp_path / "out", "logits")
    assert not (tmp_path / "out").exists()
    (tmp_path / "file").touch()
    with pytest.raises(ValueError, match="exists already; delete it"):
        bert_jax.export(model, tmp_path)


@pytest.mark.parametrize(
    "head, pooling, kind",
    [
        (Features(Bert(TINY)), Pooling(), "embed"),
        (Features(Bert(TINY)), None, "model"),
        (SequenceClassifier(Bert(TINY), 2), Pooling(), "model"),
    ],
)
def test_what_is_exported_follows_from_the_head_and_its_pooling(head, pooling, kind):
    assert default_kind(bert_jax.Model(head, {}, pooling=pooling)) == kind
