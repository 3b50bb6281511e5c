"""Makes the goldens: tiny random models of transformers, and what they compute.

    python tests/goldens/make.py

writes `<family>.safetensors` beside itself; it needs the extra "parity". The encoder's
tensors are under `encoder/`, those of a head under the name of its architecture, inputs
under `in/` and outputs under `out/`; the metadata holds every config.json.
"""

import json
import pathlib

import numpy as np
import torch
import transformers
from safetensors.numpy import save_file

SIZES = {
    "vocab_size": 31,
    "hidden_size": 12,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "intermediate_size": 20,
    "max_position_embeddings": 16,
    "num_labels": 5,
}
# Both gelus, and every number that one family may have and another may not.
CONFIGS = {
    "Bert": SIZES | {"hidden_act": "gelu_new", "type_vocab_size": 3},
    "Roberta": SIZES | {"layer_norm_eps": 1e-5, "hidden_act": "relu"},
    "DistilBert": SIZES | {"hidden_dim": 20, "activation": "gelu"},
    "Albert": SIZES
    | {"embedding_size": 7, "num_hidden_groups": 2, "inner_group_num": 2},
    "Electra": SIZES | {"embedding_size": 7, "hidden_act": "gelu_new"},
    # A window of two to either side, and layers of both kinds after the first.
    "ModernBert": SIZES
    | {
        "num_hidden_layers": 4,
        "local_attention": 4,
        "classifier_pooling": "mean",
        "classifier_bias": True,
        "pad_token_id": 0,
    },
    "XLNet": {
        "vocab_size": 31,
        "d_model": 12,
        "n_layer": 2,
        "n_head": 3,
        "d_inner": 20,
        "clamp_len": 7,
        "num_labels": 5,
    },
}
HEADS = (
    "Model",
    "LMHeadModel",
    "ForPreTraining",
    "ForMaskedLM",
    "ForSequenceClassification",
    "ForTokenClassification",
    "ForQuestionAnswering",
    "ForQuestionAnsweringSimple",
    "ForMultipleChoice",
)
# Architectures of transformers that are none of ours.
OTHERS = ("BertLMHeadModel", "XLNetForQuestionAnswering")


def architectures(family: str) -> list[str]:
    """The heads that transformers has."""
    names = [family + head for head in HEADS if family + head not in OTHERS]
    return [name for name in names if hasattr(transformers, name)]


def random_model(architecture: str, seed: int = 0, **changes) -> torch.nn.Module:
    """A model of which every parameter matters."""
    family = next(name for name in CONFIGS if architecture.startswith(name))
    values = CONFIGS[family] | changes
    if "ForPreTraining" in architecture or "ForQuestionAnswering" in architecture:
        values |= {"num_labels": 2}
    config = getattr(transformers, f"{family}Config")(**values)
    config._attn_implementation = "eager"
    model = getattr(transformers, architecture)(config)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            parameter.copy_((parameter.ndim == 1) * 0.5 + 0.3 * noise)
    return model.eval()


def random_batch(model: torch.nn.Module, seed: int = 3) -> dict[str, np.ndarray]:
    """Two pairs of 11 and 8 tokens, as a tokenizer gives them."""
    config = model.config
    ids = np.random.default_rng(seed).integers(5, config.vocab_size, (2, 11))
    pads_left = config.model_type == "xlnet"
    padding = slice(3) if pads_left else slice(8, None)
    ids[1, padding] = config.pad_token_id
    mask = np.ones_like(ids)
    mask[1, padding] = 0
    batch = {"input_ids": ids, "attention_mask": mask}
    if pads_left or getattr(config, "type_vocab_size", 0) > 1:
        batch["token_type_ids"] = np.zeros_like(ids)
        batch["token_type_ids"][:, 4:8] = 1
    if "MultipleChoice" in type(model).__name__:
        batch = {name: x[None] for name, x in batch.items()}
    return batch


def outputs(model: torch.nn.Module, batch: dict[str, np.ndarray]) -> list[np.ndarray]:
    """The outputs of a model, in the shapes of bert_jax."""
    with torch.no_grad():
        results = dict(model(**{name: torch.tensor(x) for name, x in batch.items()}))
    for name in ("pooler_output", "mems"):
        results.pop(name, None)
    if "start_logits" in results:
        results = {"span": torch.stack(list(results.values()), -1)}
    return [x.numpy() for x in results.values()]


def tensors(model: torch.nn.Module) -> dict[str, np.ndarray]:
    """Parameters and their tied copies; a bare encoder's as if it were under a head."""
    bare = model.base_model is model
    prefix = f"{model.base_model_prefix}." if bare else ""
    return {prefix + k: v.numpy().copy() for k, v in model.state_dict().items()}


def golden(family: str) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """The arrays and the metadata of one file."""
    arrays, configs = {}, {}
    for architecture in architectures(family):
        model = random_model(architecture)
        config = model.config.to_dict() | {"architectures": [architecture]}
        configs[architecture] = json.dumps(config)
        for name, value in tensors(model).items():
            inside = name.startswith(model.base_model_prefix) and "pooler" not in name
            key = f"encoder/{name}" if inside else f"{architecture}/{name}"
            assert np.array_equal(arrays.setdefault(key, value), value), key
        batch = random_batch(model)
        arrays |= {f"in/{architecture}/{name}": x for name, x in batch.items()}
        for i, x in enumerate(outputs(model, batch)):
            arrays[f"out/{architecture}/{i}"] = x
    return arrays, configs


if __name__ == "__main__":
    for family in CONFIGS:
        arrays, configs = golden(family)
        path = pathlib.Path(__file__).with_name(f"{family.lower()}.safetensors")
        save_file(arrays, path, metadata=configs)
        print(path.name, path.stat().st_size)
