"""Every family and head equals stored outputs of transformers."""

import functools
import json
import pathlib
import tempfile

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

import bert_jax
from bert_jax.models import Features
from bert_jax.pretrained.families import FAMILIES

GOLDENS = pathlib.Path(__file__).parents[1] / "goldens"
CASES = [(name, head) for name, family in FAMILIES.items() for head in family.heads]


@functools.cache
def golden(family):
    """The arrays of a file, and the config.json of each architecture."""
    with safe_open(GOLDENS / f"{family}.safetensors", "np") as file:
        return file.get_tensors(), file.metadata()


def below(arrays, prefix):
    return {
        k.removeprefix(prefix): x for k, x in arrays.items() if k.startswith(prefix)
    }


def tensors_of(family, architecture):
    """The tensors of the published file, tied copies included."""
    arrays, _ = golden(family)
    return below(arrays, "encoder/") | below(arrays, f"{architecture}/")


@functools.cache
def loaded(family, architecture):
    """The model of one published directory."""
    with tempfile.TemporaryDirectory() as directory:
        path = pathlib.Path(directory)
        (path / "config.json").write_text(golden(family)[1][architecture])
        save_file(tensors_of(family, architecture), path / "model.safetensors")
        return bert_jax.load(path)


@pytest.mark.parametrize("family, architecture", CASES)
def test_outputs_equal_those_of_transformers(family, architecture):
    model, (arrays, _) = loaded(family, architecture), golden(family)
    inputs = below(arrays, f"in/{architecture}/")
    # Without jit, programs of single operations serve all models.
    results = model.head.apply({"params": model.params}, **inputs)
    results = results if isinstance(results, tuple) else (results,)
    expected = below(arrays, f"out/{architecture}/")
    assert len(results) == len(expected)
    for i, x in enumerate(results):
        assert x.shape == expected[str(i)].shape
        np.testing.assert_allclose(x, expected[str(i)], atol=1e-4, rtol=0)


@pytest.mark.parametrize("family, architecture", CASES)
def test_saved_tensors_equal_the_published_ones_bit_for_bit(
    family, architecture, tmp_path
):
    loaded(family, architecture).save(tmp_path)
    came = tensors_of(family, architecture)
    left = load_file(tmp_path / "model.safetensors")
    if FAMILIES[family].heads[architecture].module is Features:
        left = {FAMILIES[family].prefix + name: x for name, x in left.items()}
    for name, x in left.items():
        np.testing.assert_array_equal(x, came.pop(name), err_msg=name)
    # Only the tied copies stay behind.
    copies = ("decoder", "vocab_projector", "generator_lm_head", "lm_loss")
    assert all(any(part in name for part in copies) for name in came)
    config = json.loads(golden(family)[1][architecture])
    config = json.loads(json.dumps(FAMILIES[family].normalize(config)))
    again = json.loads((tmp_path / "config.json").read_text())
    assert {k: v for k, v in again.items() if v != config[k]} == {}


def test_flax_models_of_transformers_compute_the_same():
    outputs = load_file(GOLDENS / "flax/outputs.safetensors")
    model = bert_jax.load(GOLDENS / "flax")
    tokens, pairs = model.head.apply(
        {"params": model.params}, outputs["input_ids"], outputs["attention_mask"]
    )
    np.testing.assert_allclose(tokens, outputs["tokens"], atol=1e-4, rtol=0)
    np.testing.assert_allclose(pairs, outputs["pairs"], atol=1e-4, rtol=0)


def test_the_goldens_cover_every_head_and_stay_small():
    for family in FAMILIES:
        _, configs = golden(family)
        assert set(configs) == set(FAMILIES[family].heads)
        assert (GOLDENS / f"{family}.safetensors").stat().st_size < 200_000
