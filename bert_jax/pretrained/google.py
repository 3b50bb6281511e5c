"""Google's own checkpoints of BERT (TensorFlow 1) <-> a checkpoint.

`bert_model.ckpt.*`, `bert_config.json` and `vocab.txt`, as google-research/bert
publishes them and `run_pretraining.py`, `run_classifier.py` and `run_squad.py` leave
them.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from bert_jax.data.pipeline import tensorflow
from bert_jax.files import read_object, write_json
from bert_jax.models import heads
from bert_jax.models.bert import BertConfig
from bert_jax.pretrained import configs, convert
from bert_jax.pretrained.checkpoint import Checkpoint, read_params
from bert_jax.pretrained.huggingface import read_tokenizer
from bert_jax.pretrained.names import Family, Head


def read_checkpoint(prefix: Path) -> dict[str, np.ndarray]:
    """The variables of `<prefix>.index` and `<prefix>.data-*`, by name."""
    tf = tensorflow()
    try:
        reader = tf.train.load_checkpoint(str(prefix))
        names = reader.get_variable_to_shape_map()
        return {name: reader.get_tensor(name) for name in names}
    except Exception as error:  # of many kinds, IndexError among them
        reason = str(error).splitlines()[0][:200]
        raise ValueError(f"{prefix} is damaged ({reason}); fetch it again") from error


def write_checkpoint(prefix: Path, variables: Mapping[str, np.ndarray]) -> None:
    """Writes `<prefix>.index` and `<prefix>.data-00000-of-00001`."""
    tf = tensorflow()
    names = sorted(variables)
    tf.raw_ops.SaveV2(
        prefix=str(prefix),
        tensor_names=names,
        shape_and_slices=[""] * len(names),
        tensors=[tf.constant(variables[name]) for name in names],
    )


CONFIG = "bert_config.json"
PREFIX = "bert_model.ckpt"


def _norms(names: Mapping[str, str]) -> dict[str, str]:
    """Entries of layer norms, whose leaves Google calls gamma and beta."""
    scales = {f"{k}/scale": f"{v}/gamma" for k, v in names.items()}
    return scales | {f"{k}/bias": f"{v}/beta" for k, v in names.items()}


_LAYER = "encoder/layer_{layer}"
_POOLER = {"pooler": "bert/pooler/dense"}
_MLM = {
    "mlm/transform": "cls/predictions/transform/dense",
    **_norms({"mlm/norm": "cls/predictions/transform/LayerNorm"}),
    "mlm/bias": "cls/predictions/output_bias",
}


def _output(ours: str, scope: str) -> dict[str, str]:
    """A last layer, the one kind of kernel that Google stores as [out, in]."""
    return {
        f"{ours}/kernel": f"{scope}output_weights",
        f"{ours}/bias": f"{scope}output_bias",
    }


GOOGLE = Family(
    prefix="bert/",
    leaves={"kernel": "/kernel", "bias": "/bias"},
    encoder={
        "embeddings/word": "embeddings/word_embeddings",
        "embeddings/position": "embeddings/position_embeddings",
        "embeddings/token_type": "embeddings/token_type_embeddings",
        "layer_#/attention/query": f"{_LAYER}/attention/self/query",
        "layer_#/attention/key": f"{_LAYER}/attention/self/key",
        "layer_#/attention/value": f"{_LAYER}/attention/self/value",
        "layer_#/attention/out": f"{_LAYER}/attention/output/dense",
        "layer_#/mlp/up": f"{_LAYER}/intermediate/dense",
        "layer_#/mlp/down": f"{_LAYER}/output/dense",
        **_norms(
            {
                "embeddings/norm": "embeddings/LayerNorm",
                "layer_#/attention_norm": f"{_LAYER}/attention/output/LayerNorm",
                "layer_#/mlp_norm": f"{_LAYER}/output/LayerNorm",
            }
        ),
    },
    heads={
        "BertModel": Head(heads.Features, _POOLER),
        "BertForPreTraining": Head(
            heads.Pretraining, _POOLER | _MLM | _output("pair", "cls/seq_relationship/")
        ),
        "BertForMaskedLM": Head(heads.MaskedLM, _MLM),
        "BertForSequenceClassification": Head(
            heads.SequenceClassifier, _POOLER | _output("classifier", "")
        ),
        "BertForQuestionAnswering": Head(
            heads.SpanClassifier, _output("span", "cls/squad/")
        ),
    },
)

# Of the optimizers, beside every variable.
_SLOTS = ("/adam_m", "/adam_v", "/lamb_m", "/lamb_v", "global_step")


def checkpoint_prefix(source: Path) -> Path | None:
    """`.../bert_model.ckpt`, given itself or its directory; None for other sources."""
    if Path(f"{source}.index").is_file():
        return source
    if (source / CONFIG).is_file() and not (source / "config.json").is_file():
        found = sorted(source.glob("*.index"), key=lambda path: path.stat().st_mtime)
        if not found:
            raise ValueError(
                f"{source} has {CONFIG} but no {PREFIX}.index; fetch it again"
            )
        return found[-1].with_suffix("")
    return None


def read(prefix: Path) -> Checkpoint:
    """Reads `<prefix>.*` with the config and vocabulary beside it."""
    published = read_object(prefix.parent / CONFIG)
    variables = read_checkpoint(prefix)
    tensors = {k: v for k, v in variables.items() if not k.endswith(_SLOTS)}
    head = configs.richest_head(GOOGLE, tensors)
    if head.module is heads.SequenceClassifier:
        published["num_labels"] = len(tensors["output_bias"])
    encoder = encoder_config(published).build()
    module = configs.build(head, published, encoder, tensors)
    return Checkpoint(
        module,
        read_params(module, GOOGLE, head, tensors),
        read_tokenizer(prefix.parent),
        configs.labels_of(published, getattr(module, "num_labels", 0)),
    )


def encoder_config(published: Mapping[str, Any]) -> BertConfig:
    """The config; what Google's code calls gelu is the tanh approximation.

    It was erf before February 2019; `gelu` in the file, which `write` adds and
    Google's code ignores, tells the two apart.
    """
    config = configs.encoder_config({"model_type": "bert"} | published, GOOGLE)
    if config.hidden_act == "gelu" and published.get("gelu") != "erf":
        config.hidden_act = "gelu_new"
    return config


def write(directory: Path, checkpoint: Checkpoint) -> None:
    """Writes bert_model.ckpt, bert_config.json and the tokenizer's files."""
    config = checkpoint.head.encoder.config
    refuse_others(config)
    head = GOOGLE.heads[GOOGLE.architecture(type(checkpoint.head))]
    flat = convert.flatten(checkpoint.params)
    variables = convert.to_tensors(flat, GOOGLE.names(head, flat, config))
    directory.mkdir(parents=True, exist_ok=True)
    if checkpoint.tokenizer is not None:
        longest = checkpoint.max_length or config.max_length
        checkpoint.tokenizer.save(directory, {"model_max_length": longest})
    write_json(directory / CONFIG, publish(config))
    write_checkpoint(directory / PREFIX, variables)


def publish(config: BertConfig) -> dict[str, Any]:
    """What bert_config.json says."""
    published = {name: getattr(config, name) for name in _FIELDS}
    if config.hidden_act.startswith("gelu"):
        published["hidden_act"] = "gelu"
        published["gelu"] = "erf" if config.hidden_act == "gelu" else "tanh"
    return published


def refuse_others(config: BertConfig) -> None:
    """Raises ValueError for what Google's code cannot compute."""
    for field, value in (
        ("model_type", "bert"),
        ("layer_norm_eps", 1e-12),
        ("tie_word_embeddings", True),
        ("sinusoidal_pos_embds", False),
    ):
        if getattr(config, field) != value:
            raise ValueError(
                f"{field}={getattr(config, field)!r} has no form in Google's "
                f"checkpoints, which have {value!r}; save a directory for transformers"
            )


_FIELDS = (
    "vocab_size",
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "intermediate_size",
    "hidden_act",
    "hidden_dropout_prob",
    "attention_probs_dropout_prob",
    "max_position_embeddings",
    "type_vocab_size",
    "initializer_range",
)
