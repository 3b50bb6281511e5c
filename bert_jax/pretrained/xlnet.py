"""The table of XLNet."""

from collections.abc import Mapping
from typing import Any

from bert_jax.models import heads
from bert_jax.models.heads import PermutationLM
from bert_jax.models.xlnet import XLNetConfig
from bert_jax.pretrained.family import Family, Head

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
_DEFAULTS = {"pooling": "last", "rate": 0.1}
_FIELDS = {
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


def normalize(published: Mapping[str, Any]) -> dict[str, Any]:
    """Renames the fields of a config.json to those of `XLNetConfig`."""
    return {_OLD.get(name, name): value for name, value in published.items()}


XLNET = Family(
    prefix="transformer.",
    config=XLNetConfig,
    normalize=normalize,
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
            defaults=_DEFAULTS,
            fields=_FIELDS | {"problem_type": "problem_type"},
        ),
        "XLNetForTokenClassification": Head(
            heads.TokenClassifier, {"classifier": "classifier"}, defaults={"rate": 0.0}
        ),
        "XLNetForQuestionAnsweringSimple": Head(
            heads.SpanClassifier, {"span": "qa_outputs"}
        ),
        "XLNetForMultipleChoice": Head(
            heads.MultipleChoice, _SUMMARY, defaults=_DEFAULTS, fields=_FIELDS
        ),
    },
    # Nothing limits a row, but the published models were trained on rows of 512.
    fixed={"max_position_embeddings": 512},
    # It would read half of a batch backwards, which fine-tuning never does.
    required={"bi_data": False},
)
