"""XLNet, as data: its names, and its config.json by old names and new."""

from collections.abc import Mapping
from typing import Any

from bert_jax.models import heads
from bert_jax.models.heads import PermutationLM
from bert_jax.models.xlnet import XLNetConfig
from bert_jax.pretrained.names import Family, Head

_LAYER = "layer.{layer}"
# The last axis of these is published as two, heads and their sizes.
_ATTENTION = {
    "query/kernel": "q",
    "key/kernel": "k",
    "value/kernel": "v",
    "distance/kernel": "r",
    "out/kernel": "o^T",
    "content_bias": "r_w_bias",
    "distance_bias": "r_r_bias",
    "segment_bias": "r_s_bias",
    "segment": "seg_embed",
}
_SUMMARY = {"pooler": "sequence_summary.summary", "classifier": "logits_proj"}
_FIXED = {"pooling": "last", "rate": 0.1}
_TOLD = {
    "pooling": "summary_type",
    "hidden_act": "summary_activation",
    "rate": "summary_last_dropout",
}
_OLD = {
    "n_token": "vocab_size",
    "hidden_size": "d_model",
    "num_hidden_layers": "n_layer",
    "num_attention_heads": "n_head",
}


def settings(published: Mapping[str, Any]) -> dict[str, Any]:
    """A config.json by the names of `XLNetConfig`."""
    return {_OLD.get(name, name): value for name, value in published.items()}


XLNET = Family(
    prefix="transformer.",
    config=XLNetConfig,
    settings=settings,
    encoder={
        "embeddings/word": "word_embedding.weight",
        "embeddings/mask": "mask_emb",
        **{
            f"layer_#/attention/{ours}": f"{_LAYER}.rel_attn.{theirs}[{{heads}}]"
            for ours, theirs in _ATTENTION.items()
        },
        "layer_#/attention_norm": f"{_LAYER}.rel_attn.layer_norm",
        "layer_#/mlp/up": f"{_LAYER}.ff.layer_1",
        "layer_#/mlp/down": f"{_LAYER}.ff.layer_2",
        "layer_#/mlp_norm": f"{_LAYER}.ff.layer_norm",
    },
    heads={
        "XLNetModel": Head(heads.Features),
        "XLNetLMHeadModel": Head(
            PermutationLM, {"mlm/bias": "lm_loss.bias", "mlm/decoder": "lm_loss"}
        ),
        "XLNetForSequenceClassification": Head(
            heads.SequenceClassifier,
            _SUMMARY,
            fixed=_FIXED,
            fields=_TOLD | {"problem_type": "problem_type"},
        ),
        "XLNetForTokenClassification": Head(
            heads.TokenClassifier, {"classifier": "classifier"}, fixed={"rate": 0.0}
        ),
        "XLNetForQuestionAnsweringSimple": Head(
            heads.SpanClassifier, {"span": "qa_outputs"}
        ),
        "XLNetForMultipleChoice": Head(
            heads.MultipleChoice, _SUMMARY, fixed=_FIXED, fields=_TOLD
        ),
    },
    # Nothing limits a row; the published models were trained on rows of 512.
    fixed={"max_position_embeddings": 512},
    # Half of a batch would be read backwards, which fine-tuning never does.
    demanded={"bi_data": False},
)
