"""Live parity with transformers' XLNet: both streams, memory, padding, segments."""

import jax.numpy as jnp
import numpy as np
import pytest

import bert_jax
from bert_jax.models.xlnet import next_memory

pytestmark = pytest.mark.parity
torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

make = pytest.importorskip("goldens.make")

B, L, P = 3, 11, 4
CONFIGS = {
    "plain": {"clamp_len": -1},
    "clamped": {"clamp_len": 3, "n_layer": 3, "ff_activation": "relu"},
    "one head": {"n_head": 1, "layer_norm_eps": 1e-3, "ff_activation": "gelu_new"},
    "uni": {"attn_type": "uni", "d_inner": 9},
    "same length": {"attn_type": "uni", "same_length": True, "ff_activation": "silu"},
    "short memory": {"mem_len": 7, "reuse_len": 5},
    "wide": {"d_model": 32, "n_head": 2, "n_layer": 1, "vocab_size": 17},
}


@pytest.fixture(params=CONFIGS)
def both(request, tmp_path):
    """A random model of transformers, our encoder and its parameters."""
    changes = {"mem_len": None} | CONFIGS[request.param]
    model = make.random_model("XLNetModel", **changes)
    model.save_pretrained(tmp_path)
    ours = bert_jax.load(tmp_path)
    return model, ours.encoder, {"params": ours.params["encoder"]}


def batch(model, seed=3):
    """Rows padded on the left, with segments 0, 1 and 2."""
    draw = np.random.default_rng(seed)
    ids = draw.integers(0, model.config.vocab_size, (B, L))
    mask = np.ones_like(ids)
    mask[1, :3] = 0
    types = np.sort(draw.integers(0, 3, (B, L)), axis=1)
    return {"input_ids": ids, "attention_mask": mask, "token_type_ids": types}


def orders(seed=5):
    """perm_mask `[B, L, L]` of random orders, and P positions of each row."""
    draw = np.random.default_rng(seed)
    rank = np.argsort(draw.random((B, L)), axis=1)
    hidden = rank[:, :, None] <= rank[:, None]
    return hidden.astype(np.float32), np.argsort(draw.random((B, L)), axis=1)[:, :P]


def theirs_of(model, arrays, mems=None, **kwargs):
    """The output of transformers row by row: its "uni" masks fail for several rows."""
    parts = []
    for row in range(B):
        tensors = {k: torch.tensor(v[row : row + 1]) for k, v in arrays.items()}
        row_mems = None if mems is None else [x[:, row : row + 1] for x in mems]
        with torch.no_grad():
            parts.append(model(**tensors, mems=row_mems, use_mems=True, **kwargs))
    return parts


def joined(parts, name, axis=0):
    """An output of all rows, or a list of outputs."""
    values = [row[name] for row in parts]
    if isinstance(values[0], torch.Tensor):
        return torch.cat(values, axis).numpy()
    return [torch.cat(x, axis).numpy() for x in zip(*values, strict=True)]


def compare(ours, theirs):
    assert ours.shape == theirs.shape
    np.testing.assert_allclose(ours, theirs, atol=1e-4, rtol=0)


def test_the_content_stream_equals_that_of_transformers(both):
    model, encoder, params = both
    inputs = batch(model)
    theirs = theirs_of(model, inputs, output_attentions=True, output_hidden_states=True)
    ours, seen = encoder.apply(params, **inputs, mutable="intermediates")
    compare(ours, joined(theirs, "last_hidden_state"))
    seen = seen["intermediates"]
    for i, weights in enumerate(joined(theirs, "attentions")):
        compare(seen[f"layer_{i}"]["attention"]["weights"][0], weights)
    states = joined(theirs, "hidden_states")
    for state, expected in zip(seen["hidden_states"], states, strict=True):
        compare(state, expected)
    bare = {"input_ids": inputs["input_ids"]}
    theirs = theirs_of(model, bare)
    compare(encoder.apply(params, **bare), joined(theirs, "last_hidden_state"))


def test_both_streams_equal_those_of_transformers(both):
    model, encoder, params = both
    inputs = batch(model)
    perm_mask, positions = orders()
    mapping = np.eye(L, dtype=np.float32)[positions]
    order = {"perm_mask": perm_mask, "target_mapping": mapping}
    theirs = theirs_of(model, inputs | order, output_hidden_states=True)
    content, query = encoder.apply(
        params,
        **inputs,
        perm_mask=perm_mask,
        positions=positions,
        method=encoder.two_streams,
    )
    compare(query, joined(theirs, "last_hidden_state"))
    compare(content, joined(theirs, "hidden_states")[-2])
    alone = encoder.apply(params, **inputs, perm_mask=perm_mask)
    np.testing.assert_allclose(alone, content, atol=1e-6)


def test_memory_equals_that_of_transformers(both):
    model, encoder, params = both
    memory = mems = None
    perm_mask, positions = orders()
    mapping = np.eye(L, dtype=np.float32)[positions]
    order = {"perm_mask": perm_mask, "target_mapping": mapping}
    for seed in range(2):
        inputs = batch(model, seed)
        theirs = theirs_of(model, inputs | order, mems)
        plain = theirs_of(model, inputs, mems)
        (_, query), seen = encoder.apply(
            params,
            **inputs,
            perm_mask=perm_mask,
            positions=positions,
            memory=memory,
            mutable="intermediates",
            method=encoder.two_streams,
        )
        compare(query, joined(theirs, "last_hidden_state"))
        ours = encoder.apply(params, **inputs, memory=memory)
        compare(ours, joined(plain, "last_hidden_state"))
        states = seen["intermediates"]["hidden_states"]
        memory = next_memory(encoder.config, states, memory)
        memory_of_theirs = joined(theirs, "mems", axis=1)
        for x, y in zip(memory, memory_of_theirs, strict=True):
            compare(jnp.swapaxes(x, 0, 1), y)
        mems = [torch.tensor(x) for x in memory_of_theirs]
