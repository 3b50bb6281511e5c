"""Live parity with transformers on tiny random models of every family and head."""

import jax.numpy as jnp
import numpy as np
import pytest

import bert_jax

pytestmark = pytest.mark.parity
torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

SIZES = {
    "vocab_size": 31,
    "hidden_size": 12,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "intermediate_size": 20,
    "max_position_embeddings": 16,
}
SMALL = SIZES | {"num_labels": 5}
CONFIGS = {
    "Bert": SMALL | {"hidden_act": "gelu_new", "type_vocab_size": 3},
    "Roberta": SMALL | {"layer_norm_eps": 1e-5, "hidden_act": "relu"},
    "DistilBert": SMALL | {"activation": "gelu"},
    "Albert": SMALL
    | {"embedding_size": 7, "num_hidden_groups": 2, "inner_group_num": 2},
    "Electra": SMALL | {"embedding_size": 7, "hidden_act": "gelu_new"},
}
HEADS = (
    "Model",
    "ForPreTraining",
    "ForMaskedLM",
    "ForSequenceClassification",
    "ForTokenClassification",
    "ForQuestionAnswering",
    "ForMultipleChoice",
)
CASES = [
    (family, head)
    for family in CONFIGS
    for head in HEADS
    if hasattr(transformers, family + head)
]


def published(family, head, seed=0, **changes):
    """A model of transformers, every parameter of which matters."""
    values = CONFIGS[family] | changes
    if head in ("ForPreTraining", "ForQuestionAnswering"):
        values |= {"num_labels": 2}
    config = getattr(transformers, f"{family}Config")(**values)
    config._attn_implementation = "eager"
    model = getattr(transformers, family + head)(config)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            parameter.copy_((parameter.ndim == 1) * 0.5 + 0.3 * noise)
    return model.eval()


def drawn_batch(head, pad_id, types, seed=3):
    """Two pairs of odd lengths, one of them padded, as a tokenizer gives them."""
    ids = np.random.default_rng(seed).integers(5, 31, (2, 11))
    batch = {
        "input_ids": ids,
        "attention_mask": np.ones_like(ids),
        "token_type_ids": np.zeros_like(ids),
    }
    batch["token_type_ids"][:, 4:] = types > 1
    for name, value in ("input_ids", pad_id), ("attention_mask", 0):
        batch[name][1, 8:] = value
    batch["token_type_ids"][1, 8:] = 0
    if head == "ForMultipleChoice":
        batch = {name: np.stack([x, x[::-1]], 1) for name, x in batch.items()}
    return batch


def their_outputs(model, batch):
    """What transformers computes, in our shapes."""
    inputs = {name: torch.tensor(x) for name, x in batch.items()}
    if "distilbert" in type(model).__name__.lower():
        del inputs["token_type_ids"]
    with torch.no_grad():
        out = model(**inputs, output_hidden_states=True)
    out = {name: x for name, x in out.items() if name not in ("hidden_states",)}
    if "start_logits" in out:
        return [torch.stack([out["start_logits"], out["end_logits"]], -1).numpy()]
    if "pooler_output" in out:
        del out["pooler_output"]
    return [x.numpy() for x in out.values()]


def compare(ours, theirs):
    ours = ours if isinstance(ours, tuple) else (ours,)
    assert len(ours) == len(theirs)
    for x, y in zip(ours, theirs, strict=True):
        assert x.shape == y.shape and x.dtype == jnp.float32
        np.testing.assert_allclose(x, y, atol=1e-4, rtol=0)


def check_both_ways(theirs, head, batch, path):
    theirs.save_pretrained(path / "theirs")
    model = bert_jax.load(path / "theirs")
    expected = their_outputs(theirs, batch)
    compare(model(**batch), expected)

    model.save(path / "ours")
    back, report = type(theirs).from_pretrained(
        path / "ours", output_loading_info=True, attn_implementation="eager"
    )
    assert not any(report.values()), report
    for name, x in theirs.state_dict().items():
        np.testing.assert_array_equal(back.state_dict()[name], x, err_msg=name)
    skipped = {"transformers_version", "dtype", "torch_dtype", "_name_or_path"}
    kept = back.config.to_dict().items()
    before = theirs.config.to_dict()
    assert {k: v for k, v in kept if before[k] != v and k not in skipped} == {}


@pytest.mark.parametrize("family, head", CASES)
def test_every_head_of_every_family_computes_the_same_and_goes_back(
    family, head, tmp_path
):
    theirs = published(family, head)
    pad, types = theirs.config.pad_token_id, CONFIGS[family].get("type_vocab_size", 2)
    check_both_ways(theirs, head, drawn_batch(head, pad, types), tmp_path)
