"""The table of ModernBERT."""

from collections.abc import Mapping
from typing import Any

from bert_jax.models import heads
from bert_jax.models.modernbert import GLOBAL, LOCAL, ModernBertConfig
from bert_jax.pretrained.bert import ENDS
from bert_jax.pretrained.family import Family, Head

# Every head has a dense layer, an activation and a norm before its last layer.
_FIELDS = {
    "hidden_act": "classifier_activation",
    "use_bias": "classifier_bias",
    "rate": "classifier_dropout",
}
_DEFAULTS = {"hidden_act": "gelu", "use_bias": False, "has_norm": True, "rate": 0.0}
_EACH = {"transform": "head.dense", "norm": "head.norm"}
_ROW = {"pooler": "head.dense", "norm": "head.norm", "classifier": "classifier"}
_POOLING = _FIELDS | {"pooling": "classifier_pooling"}


def normalize(published: Mapping[str, Any]) -> dict[str, Any]:
    """Brings a config.json to the fields of `ModernBertConfig`.

    transformers 5 writes the kind of every layer and a table of angles for each kind;
    version 4 wrote the distance between global layers and two bases of angles.
    """
    fields = dict(published)
    kinds = fields.get("layer_types")
    if isinstance(kinds, list):
        n = fields.get("global_attn_every_n_layers") or _period(kinds)
        usual = [GLOBAL if i % n == 0 else LOCAL for i in range(len(kinds))]
        fields |= {"global_attn_every_n_layers": n, "layer_types": tuple(kinds)}
        if kinds == usual:
            del fields["layer_types"]
    tables = fields.pop("rope_parameters", None) or {}
    for kind, name in ((GLOBAL, "global_rope_theta"), (LOCAL, "local_rope_theta")):
        table = tables.get(kind) or {}
        if table.get("rope_type", "default") != "default":
            raise ValueError(
                f"rope_parameters has rope_type={table['rope_type']!r}, which is not "
                "supported; only 'default' is"
            )
        if "rope_theta" in table:
            fields[name] = table["rope_theta"]
    return fields


def _period(kinds: list[str]) -> int:
    """The number of the second global layer."""
    return kinds.index(GLOBAL, 1) if GLOBAL in kinds[1:] else max(1, len(kinds))


MODERNBERT = Family(
    prefix="model.",
    config=ModernBertConfig,
    normalize=normalize,
    encoder={
        "embeddings/word": "embeddings.tok_embeddings.weight",
        "embeddings/norm": "embeddings.norm",
        "layer_#/attention_norm": "layers.{layer}.attn_norm",
        "layer_#/attention/query": "layers.{layer}.attn.Wqkv[0/3]",
        "layer_#/attention/key": "layers.{layer}.attn.Wqkv[1/3]",
        "layer_#/attention/value": "layers.{layer}.attn.Wqkv[2/3]",
        "layer_#/attention/out": "layers.{layer}.attn.Wo",
        "layer_#/mlp_norm": "layers.{layer}.mlp_norm",
        "layer_#/mlp/up": "layers.{layer}.mlp.Wi[0/2]",
        "layer_#/mlp/gate": "layers.{layer}.mlp.Wi[1/2]",
        "layer_#/mlp/down": "layers.{layer}.mlp.Wo",
        "final_norm": "final_norm",
    },
    heads={
        "ModernBertModel": Head(heads.Features),
        "ModernBertForMaskedLM": Head(
            heads.MaskedLM,
            {
                "mlm/transform": "head.dense",
                "mlm/norm": "head.norm",
                "mlm/bias": "decoder.bias",
                "mlm/decoder": "decoder",
            },
            defaults={"hidden_act": "gelu", "use_bias": False},
            fields={
                "hidden_act": "classifier_activation",
                "use_bias": "classifier_bias",
                "decoder_bias": "decoder_bias",
            },
        ),
        "ModernBertForSequenceClassification": Head(
            heads.SequenceClassifier,
            _ROW,
            defaults=_DEFAULTS,
            fields=_POOLING | {"problem_type": "problem_type"},
        ),
        "ModernBertForTokenClassification": Head(
            heads.TokenClassifier,
            _EACH | {"classifier": "classifier"},
            defaults=_DEFAULTS,
            fields=_FIELDS,
        ),
        "ModernBertForQuestionAnswering": Head(
            heads.SpanClassifier,
            _EACH | {"span": "classifier"},
            defaults=_DEFAULTS,
            fields=_FIELDS,
        ),
        "ModernBertForMultipleChoice": Head(
            heads.MultipleChoice, _ROW, defaults=_DEFAULTS, fields=_POOLING
        ),
    },
    special_ids=ENDS
    | {
        "pad_token_id": "pad_id",
        "cls_token_id": "cls_id",
        "sep_token_id": "sep_id",
    },
    # transformers applies it to the output too.
    derived={"attention_out_dropout": lambda config: config.attention_dropout},
)
