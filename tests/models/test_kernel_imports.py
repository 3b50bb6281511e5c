"""A part that JAX lacks disables one attention kernel and does not stop the run."""

import importlib
import sys
import warnings

import jax
import jax.numpy as jnp
import pytest

from bert_jax.models import BertConfig, kernels
from bert_jax.models.kernels import select

SPLASH = "jax.experimental.pallas.ops.tpu.splash_attention"
PALLAS = "jax.experimental.pallas"
CUDNN = "jax._src.cudnn.fused_attention_stablehlo"
TPU = select.DeviceSpec("tpu", 0.0, 1024, 8)
GPU = select.DeviceSpec("gpu", 9.0, 512, 8)

# The missing module, and a device on which the kernel would be used.
MISSING = {
    "splash": (SPLASH, TPU),
    "one_tile": (PALLAS, TPU._replace(length=512)),
    "cudnn_packed": (CUDNN, GPU),
}


def hide(monkeypatch, module):
    """Makes `module` fail to import, as if JAX had moved it."""
    package, _, name = module.rpartition(".")
    monkeypatch.setitem(sys.modules, module, None)
    monkeypatch.delattr(importlib.import_module(package), name, raising=False)
    # Our module that imports it may be imported already.
    monkeypatch.delitem(sys.modules, f"{kernels.__name__}.tpu", raising=False)
    monkeypatch.delattr(kernels, "tpu", raising=False)


def config(name, **fields):
    """A tiny encoder that `name` fits: it drops attention weights for `one_tile`."""
    return BertConfig(
        vocab_size=11,
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=20,
        attention_probs_dropout_prob=0.1 if name == "one_tile" else 0.0,
        dtype="bfloat16",
        **fields,
    )


@pytest.mark.parametrize("name", MISSING)
def test_auto_runs_without_a_kernel_whose_module_is_missing(monkeypatch, name):
    module, device = MISSING[name]
    assert config(name).for_device(*device).attention == name
    hide(monkeypatch, module)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        chosen = config(name).for_device(*device)
        encoder, ids = chosen.build(), jnp.zeros((2, 8), jnp.int32)
        x, _ = encoder.init_with_output(jax.random.key(0), ids)
    assert chosen.attention == "plain" and x.shape == (2, 8, 16)
    (warning,) = caught
    text = str(warning.message)
    assert f"attention='{name}' cannot be imported from jax {jax.__version__}" in text
    assert module in text and "computed by 'plain'" in text


@pytest.mark.parametrize("name", MISSING)
def test_a_kernel_by_name_whose_module_is_missing_is_refused(monkeypatch, name):
    module, device = MISSING[name]
    hide(monkeypatch, module)
    message = rf"attention='{name}' cannot be imported from jax .*{module}"
    with pytest.raises(ValueError, match=message) as error:
        config(name, attention=name).for_device(*device)
    assert str(error.value).endswith("or set attention=auto")


def test_a_missing_name_in_a_module_disables_only_its_kernel(monkeypatch):
    device = TPU._replace(length=512)
    assert config("splash").for_device(*device).attention == "splash"
    monkeypatch.delattr(importlib.import_module(SPLASH), "make_splash_mha")
    with pytest.warns(UserWarning, match="make_splash_mha.* computed by 'one_tile'"):
        assert config("splash").for_device(*device).attention == "one_tile"


def test_one_warning_lists_all_missing_kernels(monkeypatch):
    hide(monkeypatch, PALLAS)
    with pytest.warns(UserWarning, match="'splash' .*; attention='one_tile'") as caught:
        config("splash").for_device(*TPU._replace(length=512))
    assert len(caught) == 1


def test_nothing_is_imported_if_no_kernel_fits(monkeypatch):
    for module in (PALLAS, CUDNN):
        hide(monkeypatch, module)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        cpu = config("splash").for_device("cpu", 0.0, 512, 8)
    assert cpu.attention == "plain"
