"""Live parity with transformers on tiny random models of every family and head."""

import jax.numpy as jnp
import numpy as np
import pytest

import bert_jax

pytestmark = pytest.mark.parity
torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

make = pytest.importorskip("goldens.make")
CASES = [name for family in make.CONFIGS for name in make.architectures(family)]


# Without tying, transformers keeps a second bias that nothing reads.
UNREAD = ("cls.predictions.bias", "lm_head.bias", "predictions.bias")


def compare(ours, theirs):
    ours = ours if isinstance(ours, tuple) else (ours,)
    assert len(ours) == len(theirs)
    for x, y in zip(ours, theirs, strict=True):
        assert x.shape == y.shape and x.dtype == jnp.float32
        np.testing.assert_allclose(x, y, atol=1e-4, rtol=0)


def check_both_ways(theirs, path):
    """Outputs are equal after transformers saves, we load and save, and it loads."""
    theirs.save_pretrained(path / "theirs")
    model = bert_jax.load(path / "theirs")
    batch = make.random_batch(theirs)
    compare(model(**batch), make.outputs(theirs, batch))

    model.save(path / "ours")
    back, report = type(theirs).from_pretrained(
        path / "ours", output_loading_info=True, attn_implementation="eager"
    )
    assert not any(report.values()), report
    for name, x in theirs.state_dict().items():
        if name not in UNREAD or theirs.config.tie_word_embeddings:
            np.testing.assert_array_equal(back.state_dict()[name], x, err_msg=name)
    skipped = {"transformers_version", "dtype", "torch_dtype", "_name_or_path"}
    before, after = theirs.config.to_dict(), back.config.to_dict()
    # ModernBERT says its angles and layers in the words of transformers 4 and of 5.
    skipped |= {"global_attn_every_n_layers", "global_rope_theta", "local_rope_theta"}
    changed = {k: v for k, v in after.items() if k not in skipped and before[k] != v}
    assert changed == {}, changed


@pytest.mark.parametrize("architecture", CASES)
def test_every_head_of_every_family_has_equal_outputs_in_both_directions(
    architecture, tmp_path
):
    check_both_ways(make.random_model(architecture), tmp_path)


UNUSUAL = {
    "BertForMaskedLM": {"tie_word_embeddings": False, "num_attention_heads": 1},
    "BertModel": {"type_vocab_size": 1, "layer_norm_eps": 1e-3, "hidden_act": "silu"},
    "RobertaForMaskedLM": {"pad_token_id": 3, "tie_word_embeddings": False},
    "DistilBertForMaskedLM": {"activation": "relu", "tie_word_embeddings": False},
    "AlbertForMaskedLM": {
        "embedding_size": 12,
        "num_hidden_layers": 5,
        "num_hidden_groups": 3,
        "inner_group_num": 1,
        "hidden_act": "gelu",
    },
    "ElectraForMaskedLM": {"embedding_size": 12, "tie_word_embeddings": False},
    "ElectraForMultipleChoice": {"summary_activation": "tanh"},
    "BertForSequenceClassification": {
        "num_labels": 1,
        "problem_type": "regression",
        "classifier_dropout": 0.25,
    },
    "ModernBertForMaskedLM": {
        "layer_types": ["sliding_attention", "full_attention", "full_attention"],
        "num_hidden_layers": 3,
        "local_attention": 3,
        "tie_word_embeddings": False,
        "decoder_bias": False,
        "classifier_activation": "relu",
        "rope_parameters": {
            "full_attention": {"rope_type": "default", "rope_theta": 50.0},
            "sliding_attention": {"rope_type": "default", "rope_theta": 700.0},
        },
    },
    "ModernBertForSequenceClassification": {
        "classifier_pooling": "cls",
        "classifier_bias": False,
        "num_attention_heads": 1,
        "num_labels": 1,
        "problem_type": "regression",
    },
    "ModernBertForTokenClassification": {
        "attention_bias": True,
        "mlp_bias": True,
        "norm_bias": True,
        "hidden_activation": "silu",
        "norm_eps": 1e-3,
        "num_hidden_layers": 6,
        "global_attn_every_n_layers": 2,
        "attention_dropout": 0.1,
        "classifier_dropout": 0.3,
    },
    "ModernBertModel": {"num_hidden_layers": 1, "local_attention": 1},
    "XLNetLMHeadModel": {
        "tie_word_embeddings": False,
        "n_head": 1,
        "ff_activation": "relu",
        "clamp_len": -1,
        "mem_len": None,
    },
    "XLNetForSequenceClassification": {
        "summary_type": "first",
        "summary_activation": "relu",
        "summary_last_dropout": 0.25,
        "num_labels": 1,
        "problem_type": "regression",
    },
    "XLNetModel": {"d_model": 20, "n_head": 5, "n_layer": 3, "layer_norm_eps": 1e-3},
    "AlbertForTokenClassification": {
        "id2label": {0: "O", 1: "B-PER", 2: "I-PER"},
        "label2id": {"O": 0, "B-PER": 1, "I-PER": 2},
    },
}


@pytest.mark.parametrize("architecture", UNUSUAL)
def test_unusual_configs_have_equal_outputs_in_both_directions(architecture, tmp_path):
    changes = dict(UNUSUAL[architecture])
    if "id2label" in changes:
        changes["num_labels"] = len(changes["id2label"])
    check_both_ways(make.random_model(architecture, **changes), tmp_path)
