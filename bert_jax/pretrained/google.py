"""The checkpoints of google-research/bert, in TensorFlow 1: their table, in and out.

`bert_model.ckpt.*`, `bert_config.json` and `vocab.txt`, as it publishes them and as
`run_pretraining.py`, `run_classifier.py` and `run_squad.py` write them.
"""

import os
import warnings
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, cast

import numpy as np

from bert_jax.files import WriteError, make_directory, read_object, write_json
from bert_jax.models import heads
from bert_jax.models.bert import BertConfig
from bert_jax.pretrained import config_json, convert
from bert_jax.pretrained.checkpoint import Checkpoint
from bert_jax.pretrained.family import Family, Head
from bert_jax.pretrained.huggingface import read_tokenizer

CONFIG = "bert_config.json"
PREFIX = "bert_model.ckpt"


def _norms(names: Mapping[str, str]) -> dict[str, str]:
    """Entries of layer norms, where Google has gamma and beta."""
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
    """Entries of a last layer, whose kernel alone Google stores as [out, in]."""
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

# Variables of optimizers.
_SLOTS = ("/adam_m", "/adam_v", "/lamb_m", "/lamb_v", "global_step")


def checkpoint_prefix(source: Path) -> Path | None:
    """`.../bert_model.ckpt` from itself or its directory; None for other sources."""
    if Path(f"{source}.index").is_file():
        return source
    if (source / CONFIG).is_file() and not (source / "config.json").is_file():
        indexes = sorted(source.glob("*.index"), key=lambda path: path.stat().st_mtime)
        if not indexes:
            raise ValueError(
                f"{source} has {CONFIG} but no {PREFIX}.index; fetch it again"
            )
        return indexes[-1].with_suffix("")
    return None


def read(prefix: Path) -> Checkpoint:
    """Reads `<prefix>.*`, and the config and vocabulary beside it."""
    published = read_object(prefix.parent / CONFIG)
    variables = read_variables(prefix)
    tensors = {k: v for k, v in variables.items() if not k.endswith(_SLOTS)}
    head = config_json.largest_head(GOOGLE, tensors)
    if head.module is heads.SequenceClassifier:
        published["num_labels"] = len(tensors["output_bias"])
    encoder = encoder_config(published).build()
    module = config_json.build_head(head, published, encoder, tensors)
    return Checkpoint(
        module,
        convert.read_params(module, GOOGLE, head, tensors),
        read_tokenizer(prefix.parent),
        config_json.read_labels(published, getattr(module, "num_labels", 0)),
    )


def encoder_config(published: Mapping[str, Any]) -> BertConfig:
    """The encoder's config; Google's `gelu` is the tanh approximation.

    Before February 2019 it was erf. The field `gelu`, which `write` adds and Google's
    code ignores, tells the two apart.
    """
    fields = {"model_type": "bert"} | dict(published)
    config = cast(BertConfig, config_json.encoder_config(fields, GOOGLE))
    if config.hidden_act == "gelu" and published.get("gelu") != "erf":
        config.hidden_act = "gelu_new"
    return config


def write(directory: Path, checkpoint: Checkpoint) -> None:
    """Writes bert_model.ckpt, bert_config.json and the tokenizer's files."""
    config = checkpoint.head.encoder.config
    check_config(config)
    if config_json.is_pooled(checkpoint.head):
        raise ValueError(
            f"a classifier that reads {checkpoint.head.pooling} pooling has no form in "
            "Google's checkpoints; save a directory, or train it with pooling='pooler'"
        )
    head = GOOGLE.heads[GOOGLE.architecture(type(checkpoint.head))]
    flat = convert.flatten(checkpoint.params)
    variables = convert.to_tensors(flat, GOOGLE.names(head, flat, config))
    if config.hidden_act == "gelu":
        warnings.warn(
            "this model has the exact gelu, but Google's code computes the tanh "
            "approximation: its vectors will differ by about 0.002; bert_jax reads the "
            "exact one back",
            stacklevel=4,  # the line that called `Model.save_tf1`
        )
    make_directory(directory)
    if checkpoint.tokenizer is not None:
        max_length = checkpoint.max_length or config.max_length
        checkpoint.tokenizer.save(directory, {"model_max_length": max_length})
    write_json(directory / CONFIG, publish(config))
    write_variables(directory / PREFIX, variables)


def publish(config: BertConfig) -> dict[str, Any]:
    """The bert_config.json of an encoder."""
    published = {name: getattr(config, name) for name in _FIELDS}
    if config.hidden_act.startswith("gelu"):
        published["hidden_act"] = "gelu"
        published["gelu"] = "erf" if config.hidden_act == "gelu" else "tanh"
    return published


def check_config(config: BertConfig) -> None:
    """Raises ValueError for an encoder that Google's code cannot compute."""
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


def read_variables(prefix: Path) -> dict[str, np.ndarray]:
    """The variables of `<prefix>.index` and `<prefix>.data-*`, by name."""
    tf = _tensorflow()
    try:
        reader = tf.train.load_checkpoint(str(prefix))
        names = reader.get_variable_to_shape_map()
        return {name: reader.get_tensor(name) for name in names}
    except Exception as error:  # of many kinds, IndexError among them
        reason = str(error).splitlines()[0][:200]
        raise ValueError(f"{prefix} is damaged ({reason}); fetch it again") from error


def write_variables(prefix: Path, variables: Mapping[str, np.ndarray]) -> None:
    """Writes `<prefix>.index` and `<prefix>.data-00000-of-00001`."""
    tf = _tensorflow()
    names = sorted(variables)
    unfinished = prefix.with_name(f".{prefix.name}.{os.getpid()}")
    try:
        tf.raw_ops.SaveV2(
            prefix=str(unfinished),
            tensor_names=names,
            shape_and_slices=[""] * len(names),
            tensors=[tf.constant(variables[name]) for name in names],
        )
        # The index comes last: `checkpoint_prefix` looks for it.
        for part in (".data-00000-of-00001", ".index"):
            os.replace(f"{unfinished}{part}", f"{prefix}{part}")
    except (tf.errors.OpError, OSError) as error:
        for rest in unfinished.parent.glob(f"{unfinished.name}*"):
            rest.unlink()
        raise WriteError(
            f"{prefix} cannot be written ({str(error).splitlines()[0][:150]}); make "
            "room, or choose another place"
        ) from None


def _tensorflow() -> ModuleType:
    """TensorFlow, kept off the accelerators, which belong to JAX."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    try:
        import tensorflow as tf
    except ImportError as error:
        raise ValueError(
            "checkpoints of google-research/bert are read and written by TensorFlow, "
            'which is not installed; install it with pip install "bert_jax[train]"'
        ) from error
    try:
        for kind in ("GPU", "TPU"):
            tf.config.set_visible_devices([], kind)
    except RuntimeError:
        pass  # the caller has used TensorFlow before, and chose its devices
    return tf
