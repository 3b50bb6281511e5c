"""Settings and tensors of transformers: OpenAIGPTLMHeadModel and GPT2LMHeadModel."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import flax
import jax
import jax.numpy as jnp
import numpy as np
import safetensors.numpy

from examples.gpt.model import GPT, GPTConfig


class Names(NamedTuple):
    """The names of a family in transformers: of the model, its tables, its settings."""

    model_type: str
    architecture: str
    word: str
    position: str
    activation: str


FILE = "model.safetensors"

# By `pre_norm`.
FAMILIES = {
    True: Names("gpt2", "GPT2LMHeadModel", "wte", "wpe", "activation_function"),
    False: Names(
        *("openai-gpt", "OpenAIGPTLMHeadModel"),
        *("tokens_embed", "positions_embed", "afn"),
    ),
}
# Fields of both families.
FIELDS = {
    "vocab_size": "vocab_size",
    "n_embd": "hidden_size",
    "n_layer": "num_hidden_layers",
    "n_head": "num_attention_heads",
    "n_positions": "max_position_embeddings",
    "resid_pdrop": "hidden_dropout_prob",
    "attn_pdrop": "attention_probs_dropout_prob",
    "initializer_range": "initializer_range",
    "layer_norm_epsilon": "layer_norm_eps",
}
# Settings that change what a GPT-2 computes, and the only values that fit `GPT`.
FIXED = {
    "scale_attn_weights": True,
    "scale_attn_by_inverse_layer_idx": False,
    "add_cross_attention": False,
    "tie_word_embeddings": True,
}
# Parts of a block; those of `SPLIT` are thirds of one matrix.
SPLIT = "query", "key", "value"
PARTS = {
    "attention_norm": "ln_1",
    "attention/out": "attn.c_proj",
    "mlp_norm": "ln_2",
    "mlp/up": "mlp.c_fc",
    "mlp/down": "mlp.c_proj",
}


def read_config(settings: Mapping[str, Any]) -> GPTConfig:
    """The config of a config.json of transformers."""
    types = {names.model_type: pre_norm for pre_norm, names in FAMILIES.items()}
    if settings.get("model_type") not in types:
        raise ValueError(
            f"model_type={settings.get('model_type')!r} is unknown; choose one of "
            + ", ".join(types)
        )
    for name, value in FIXED.items():
        if settings.get(name, value) != value:
            raise ValueError(f"{name}={settings[name]} is not supported, only {value}")
    pre_norm = types[settings["model_type"]]
    activation = settings[FAMILIES[pre_norm].activation]
    if not pre_norm and activation == "gelu":
        activation = "gelu_new"  # The only one in GPT, under the other's name.
    return GPTConfig(
        **{ours: settings[theirs] for theirs, ours in FIELDS.items()},
        intermediate_size=settings.get("n_inner") or 4 * settings["n_embd"],
        hidden_act=activation,
        pre_norm=pre_norm,
    )


def write_config(config: GPTConfig) -> dict[str, Any]:
    """The config.json of transformers for a config."""
    names, activation = FAMILIES[config.pre_norm], config.hidden_act
    if not config.pre_norm:
        known = {"gelu_new": "gelu", "relu": "relu", "silu": "silu"}
        if (
            activation not in known
            or config.intermediate_size != 4 * config.hidden_size
        ):
            raise ValueError(
                f"hidden_act={activation!r} with an MLP of {config.intermediate_size} "
                f"is not a GPT of transformers; use one of {', '.join(known)} and "
                f"intermediate_size={4 * config.hidden_size}, or pre_norm=True"
            )
        activation = known[activation]
    return {
        "model_type": names.model_type,
        "architectures": [names.architecture],
        **{theirs: getattr(config, ours) for theirs, ours in FIELDS.items()},
        "embd_pdrop": config.hidden_dropout_prob,
        names.activation: activation,
        **({"n_inner": config.intermediate_size} if config.pre_norm else {}),
    }


# Errors that missing or damaged files cause.
DAMAGE = OSError, ValueError, KeyError, TypeError, safetensors.SafetensorError


def model_directory(directory: str | Path) -> Path:
    """The directory of a model: `model/` of a run, or the directory itself."""
    inside = Path(directory) / "model"
    return inside if (inside / "config.json").is_file() else Path(directory)


def read(directory: Path) -> tuple[dict[str, Any], dict[str, np.ndarray], GPT]:
    """The config.json, the tensors and the module of a directory."""
    try:
        settings = json.loads((directory / "config.json").read_text("utf-8"))
        model = read_config(settings).build()
        return settings, safetensors.numpy.load_file(directory / FILE), model
    except DAMAGE as error:
        raise ValueError(
            f"{directory} is not a GPT with {FILE}, or is damaged ({error}); fetch it "
            "again"
        ) from error


def write(
    directory: Path,
    config: GPTConfig,
    params: Mapping[str, Any],
    settings: Mapping[str, Any],
    tensors: Mapping[str, np.ndarray],
) -> None:
    """Writes config.json and model.safetensors, with more `settings` and `tensors`."""
    text = json.dumps({**write_config(config), **settings}, indent=2)
    tensors = {**write_params(config, params), **tensors}
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "config.json").write_text(text + "\n", "utf-8")
    written = safetensors.numpy.save(tensors, metadata={"format": "pt"})
    (directory / FILE).write_bytes(written)


def tensor_names(config: GPTConfig) -> dict[str, tuple[str, ...]]:
    """The paths of parameters by the tensor of transformers that holds them."""
    names = FAMILIES[config.pre_norm]
    tensors = {
        f"{names.word}.weight": ("embeddings/word",),
        f"{names.position}.weight": ("embeddings/position",),
    }
    for i in range(config.num_hidden_layers):
        thirds = tuple(f"attention/{part}" for part in SPLIT)
        parts = {theirs: (ours,) for ours, theirs in PARTS.items()}
        for theirs, ours in {**parts, "attn.c_attn": thirds}.items():
            first = "scale" if "norm" in ours[0] else "kernel"
            for kind, leaf in (("weight", first), ("bias", "bias")):
                paths = tuple(f"layer_{i}/{path}/{leaf}" for path in ours)
                tensors[f"h.{i}.{theirs}.{kind}"] = paths
    if config.pre_norm:
        tensors["ln_f.weight"] = ("final_norm/scale",)
        tensors["ln_f.bias"] = ("final_norm/bias",)
    return {f"transformer.{name}": paths for name, paths in tensors.items()}


def read_params(model: GPT, tensors: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """The parameters in tensors of transformers, whose names may lack the prefix."""
    ids = jax.ShapeDtypeStruct((1, 1), jnp.int32)
    shapes = jax.eval_shape(model.init, jax.random.key(0), ids)["params"]
    shapes = flax.traverse_util.flatten_dict(shapes, sep="/")
    flat = {}
    for name, paths in tensor_names(model.config).items():
        short = name.removeprefix("transformer.")
        tensor = tensors.get(name, tensors.get(short))
        if tensor is None:
            raise ValueError(f"{FILE} lacks {short}; fetch it again")
        tensor = tensor.astype(np.float32)
        for path, part in zip(paths, np.split(tensor, len(paths), -1), strict=True):
            if part.shape != shapes[path].shape:
                raise ValueError(
                    f"{short} of {FILE} has the shape {list(tensor.shape)}, which does "
                    "not fit config.json; take both from one model"
                )
            flat[path] = np.ascontiguousarray(part)
    return flax.traverse_util.unflatten_dict(flat, sep="/")


def write_params(config: GPTConfig, params: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """The tensors of transformers for parameters."""
    flat = flax.traverse_util.flatten_dict(params, sep="/")
    return {
        name: np.concatenate([np.asarray(flat[path]) for path in paths], axis=-1)
        for name, paths in tensor_names(config).items()
    }
