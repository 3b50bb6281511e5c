"""Laws of the recipes in configs/, and of the flags that change them."""

import dataclasses
import importlib.util
import re
import shlex
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest
from absl import flags
from ml_collections import config_flags

from bert_jax import cli, pretrained
from bert_jax.models import MaskedLM, Pretraining, ReplacedTokenDetection
from bert_jax.tasks.fine_tuning import FineTuningConfig
from bert_jax.training import fields
from bert_jax.training.config import flat, resolve

# ml_collections loads config files by a method that Python will drop.
pytestmark = pytest.mark.filterwarnings("ignore:the load_module:DeprecationWarning")

ROOT = Path(__file__).parent.parent
CONFIGS = sorted((ROOT / "configs").glob("[!_]*.py"))
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
MINIATURES = [f"{L}x{D}" for L in range(2, 13, 2) for D in (128, 256, 512, 768)]

# google-research/bert's models with the heads they were pre-trained with.
PUBLISHED = {
    "bert_base_phase1": 110_106_428,
    "bert_base_phase2": 110_106_428,
    "bert_large_phase1": 336_226_108,
    "bert_large_phase2": 336_226_108,
    "miniatures:2x128": 4_433_468,
    "miniatures:4x256": 11_267_900,
    "miniatures:10x512": 47_973_180,
    "miniatures:12x768": 110_106_428,
}


def path_of(name):
    """The file of a recipe: one of configs/ by its name, another by its path."""
    return ROOT / (name if name.endswith(".py") else f"configs/{name}.py")


def recipe(name):
    """The config of `--config=configs/NAME`."""
    file, _, argument = name.partition(":")
    path = path_of(file)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.get_config(*filter(None, [argument]))


FINE_TUNING = [
    x.stem for x in CONFIGS if isinstance(recipe(x.stem).task, FineTuningConfig)
]

# The successors as published, with masked LM and no pooler, ELECTRA with its detection:
# transformers counts so many.
SUCCESSORS = {
    "roberta:base": 124_697_433,
    "roberta:large": 355_412_057,
    "albert:base": 11_221_680,
    "albert:large": 16_795_824,
    "albert:xlarge": 54_821_040,
    "albert:xxlarge": 206_368_944,
    "electra:small": 13_549_057,
    "electra:base": 109_483_009,
    "electra:large": 335_142_913,
    "distilbert:base": 66_985_530,
}


def flagged(*overrides, name="quickstart"):
    """The config after a command line, as train.py reads it."""
    file, *argument = name.split(":")
    file = ":".join([str(path_of(file)), *argument])
    argv = ["train.py", f"--config={file}", *overrides]
    values = flags.FlagValues()
    holder = config_flags.DEFINE_config_file(
        "config", flag_values=values, sys_argv=argv
    )
    values(argv)
    return holder.value


def parameters(config):
    """The number of parameters with pre-training heads, without allocating them."""
    model = Pretraining(config.encoder.build())
    ids = jax.ShapeDtypeStruct((1, 8), jnp.int32)
    shapes = jax.eval_shape(model.init, jax.random.key(0), ids)
    return sum(x.size for x in jax.tree.leaves(shapes))


def counted(encoder):
    """The same number by hand, from the formulas of the papers."""
    return COUNTS[encoder.model_type](encoder)


def counted_modernbert(encoder):
    D, F, V = encoder.hidden_size, encoder.intermediate_size, encoder.vocab_size
    norms = (2 * encoder.num_hidden_layers - 1 + 2) * D  # none before layer 0
    encoded = V * D + encoder.num_hidden_layers * (4 * D * D + 3 * D * F) + norms
    masked_lm = (D + 1) * D + D + V
    return encoded + masked_lm + (D + 1) * D + 2 * (D + 1)


def counted_bert(encoder):
    D, F = encoder.hidden_size, encoder.intermediate_size
    rows = encoder.vocab_size + encoder.max_position_embeddings
    embeddings = (rows + encoder.type_vocab_size + 2) * D
    block = 4 * (D + 1) * D + 2 * D + (D + 1) * F + (F + 1) * D + 2 * D
    masked_lm = (D + 1) * D + 2 * D + encoder.vocab_size
    pairs = (D + 1) * D + 2 * (D + 1)
    return embeddings + encoder.num_hidden_layers * block + masked_lm + pairs


def encoded_xlnet(encoder):
    D, F = encoder.d_model, encoder.d_inner
    # Biases of content, distance and segment, and two segments, beside five products.
    block = 5 * D * D + 5 * D + 2 * D + (D + 1) * F + (F + 1) * D + 2 * D
    return (encoder.vocab_size + 1) * D + encoder.n_layer * block


def counted_xlnet(encoder):
    D = encoder.d_model
    masked_lm = (D + 1) * D + 2 * D + encoder.vocab_size
    return encoded_xlnet(encoder) + masked_lm + (D + 1) * D + 2 * (D + 1)


COUNTS = {
    "bert": counted_bert,
    "modernbert": counted_modernbert,
    "xlnet": counted_xlnet,
}
XLNETS = {"xlnet:base": 116_718_336, "xlnet:large": 360_268_800}
MODERN = [f"modernbert:{x}" for x in ("base", "base_8192", "large", "large_8192")]
BERTS = [
    x.stem
    for x in CONFIGS
    if x.stem not in FINE_TUNING and recipe(x.stem).encoder.model_type in COUNTS
]


@pytest.mark.parametrize("name", [*BERTS, *MODERN, *XLNETS])
def test_every_recipe_builds_validates_and_has_the_expected_parameter_count(name):
    config = recipe(name)
    resolve(config)
    assert parameters(config) == counted(config.encoder)


@pytest.mark.parametrize("name, total", PUBLISHED.items())
def test_recipes_of_published_models_have_their_parameter_counts(name, total):
    assert counted(recipe(name).encoder) == total


@pytest.mark.parametrize("name, total", XLNETS.items())
def test_xlnets_of_published_sizes_have_their_parameters(name, total):
    assert encoded_xlnet(recipe(name).encoder) == total


def test_modernbert_sees_as_many_tokens_as_were_published():
    tokens = {
        name: config.num_steps * config.batch_size * config.task.recipe.sequence_length
        for name, config in ((name, recipe(name)) for name in MODERN)
    }
    expected = dict(zip(MODERN, (1719e9, 300e9, 900e9, 300e9), strict=True))
    assert tokens == pytest.approx(expected, rel=1e-4)
    longer = recipe("modernbert:base_8192")
    at_the_end = longer.optimizer.decay_steps * 72 * 8192
    assert at_the_end == pytest.approx(50e9, rel=1e-4)
    # Weight decay is multiplied by the rate.
    assert longer.optimizer.weight_decay * 3e-4 == pytest.approx(1e-5)
    assert longer.encoder.global_rope_theta == 160_000


@pytest.mark.parametrize("size", ["toy", "multi30k", "base", "big"])
def test_translators_build_and_their_rate_peaks_at_the_step_of_the_paper(size):
    config = recipe(f"examples/translation/config.py:{size}")
    resolve(config)
    if size in ("base", "big"):
        peak = (config.encoder.hidden_size * 4000) ** -0.5  # equation 3, at step 4,000
        assert config.optimizer.learning_rate == pytest.approx(peak)


def published(config):
    """Parameters of a successor with the head that its encoder is published with."""
    kind = (
        ReplacedTokenDetection if config.encoder.model_type == "electra" else MaskedLM
    )
    model = pretrained.new_head(kind, config.encoder.build())
    ids = jax.ShapeDtypeStruct((1, 8), jnp.int32)
    shapes = jax.eval_shape(model.init, jax.random.key(0), ids)
    return sum(x.size for x in jax.tree.leaves(shapes))


@pytest.mark.parametrize("name, total", SUCCESSORS.items())
def test_successors_have_the_parameters_of_the_published_models(name, total):
    config = flagged(name=name)
    resolve(config)
    assert published(config) == total


@pytest.mark.parametrize("name", ["roberta", "albert", "electra", "distilbert"])
def test_successors_have_a_tiny_size_and_refuse_an_unknown_one(name):
    config = recipe(name)
    resolve(config)
    assert published(config) < 2_000_000
    with pytest.raises(flags.Error, match="size 'huge' is not one of tiny, "):
        flagged(name=f"{name}:huge")


@pytest.mark.parametrize("size", MINIATURES)
def test_all_24_miniatures_build_with_heads_of_64(size):
    config = flagged(name=f"miniatures:{size}")
    resolve(config)
    encoder = config.encoder
    layers, width = map(int, size.split("x"))
    assert (encoder.num_hidden_layers, encoder.hidden_size) == (layers, width)
    assert encoder.hidden_size == 64 * encoder.num_attention_heads


def test_a_miniature_that_was_never_published_is_refused_by_name():
    with pytest.raises(flags.Error, match="'3x100' is not one of the 24 miniatures"):
        flagged(name="miniatures:3x100")


@pytest.mark.parametrize("size", ["base", "large"])
def test_both_phases_train_one_model_a_million_steps_in_all(size):
    one, two = (recipe(f"bert_{size}_phase{phase}") for phase in (1, 2))
    assert one.num_steps + two.num_steps == 1_000_000
    assert one.num_steps == 9 * two.num_steps
    first, second = flat(one), flat(two)
    assert {name for name in first if first[name] != second[name]} == {
        "num_steps",
        "optimizer.learning_rate",
        "optimizer.warmup_steps",
        "task.masking.max_predictions",
        "task.recipe.sequence_length",
    }
    # Where the line from 1e-4 to 0 over a million steps stands after 900,000.
    assert two.optimizer.learning_rate == pytest.approx(1e-4 * (1 - 0.9))


def test_flags_reach_fields_at_every_depth_with_their_types():
    config = flagged(
        "--config.num_steps=7",
        "--config.init_from=runs/a/model",
        "--config.encoder.num_hidden_layers=3",
        "--config.optimizer.clip_norm=0",
        "--config.task.recipe.pairs=order",
        "--noconfig.task.recipe.pack",
        "--config.task.masking.max_predictions=20",
        "--config.task.paths=wiki/AA",
        "--config.task.paths=b.txt",
    )
    default = recipe("quickstart")
    assert config == dataclasses.replace(
        default,
        num_steps=7,
        init_from="runs/a/model",
        encoder=dataclasses.replace(default.encoder, num_hidden_layers=3),
        optimizer=dataclasses.replace(default.optimizer, clip_norm=0.0),
        task=dataclasses.replace(
            default.task,
            paths=("wiki/AA", "b.txt"),
            recipe=dataclasses.replace(default.task.recipe, pairs="order", pack=False),
            masking=dataclasses.replace(default.task.masking, max_predictions=20),
        ),
    )


def test_flags_select_the_data_of_fine_tuning():
    config = flagged(
        "--config.task.name=sst2",
        "--config.task.train=a.tsv",
        "--config.task.dev=b.tsv",
        "--config.task.text=3",
        "--config.task.labels=no",
        "--config.task.labels=yes",
        "--config.task.regression=true",
        "--config.task.epochs=0.5",
        "--config.init_from=DIR",
        name="glue",
    )
    default = recipe("glue")
    task = dataclasses.replace(
        default.task,
        name="sst2",
        train="a.tsv",
        dev="b.tsv",
        text="3",
        labels=("no", "yes"),
        regression=True,
        epochs=0.5,
    )
    assert config == dataclasses.replace(default, task=task, init_from="DIR")


@pytest.mark.parametrize(
    "field",
    ["batch_sise", "encoder.layers", "task.recipe.lenght", "optimizer.learning_rates"],
)
def test_a_misspelt_field_is_refused_by_name(field):
    with pytest.raises(KeyError, match=f"Field {field.split('.')[-1]} not found"):
        flagged(f"--config.{field}=3")


@pytest.mark.parametrize("value", ["many", "2.5", ""])
def test_a_value_of_another_type_is_refused(value):
    with pytest.raises(flags.Error, match="--config.batch_size="):
        flagged(f"--config.batch_size={value}")


@pytest.mark.parametrize(
    "flag, message",
    [
        (
            "--config.batch_sise=3",
            "TrainConfig has no field batch_sise; .*batch_size?",
        ),
        pytest.param(
            "--config.task.masking.q=3",
            "Masking has no field q; it has .*, dynamic",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            "--config=configs/q.py",
            "there is no recipe 'configs/q.py'; .*",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            "--config.num_steps=ten",
            "flag --config.num_steps=ten: invalid .*'ten'",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_train_refuses_missing_files_in_one_line(tmp_path, flag, message):
    command = [sys.executable, "train.py", f"--workdir={tmp_path / 'run'}", flag]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 1
    assert re.fullmatch(f"train.py: {message}\n".replace("?", r"\?"), done.stderr)
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_help_lists_the_fields_of_the_chosen_config(tmp_path):
    file = "--config=configs/miniatures.py:4x256"
    command = [sys.executable, "train.py", file, "--config.keep=7", "--help"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert not done.returncode and not done.stderr
    config = flagged(name="miniatures:4x256")
    for field in fields.leaves(config):
        assert f"\n  --config.{field.dotted}=" in done.stdout
    assert "--config.encoder.hidden_size=256\n" in done.stdout
    assert "--config.keep=7\n      checkpoints kept beside the best" in done.stdout


def commands(program):
    """(file, arguments) of every command in the docs that runs `program`."""
    start = r"\s*(?:bash start.sh\s+)?(?:\w+=\S+ )?(?:\S*python )?"
    pattern = re.compile(rf"{start}{re.escape(program)} (.*)")
    results = []
    for path in [*PAGES, *CONFIGS, *sorted((ROOT / "examples").rglob("*.py"))]:
        if path.name == "extending.md":  # it makes its own recipes: test_docs_code
            continue
        lines = path.read_text("utf-8").replace("\\\n", " ").splitlines()
        lines = [re.sub(r'.*--command="(.*)".*', r"\1", line) for line in lines]
        matches = filter(None, map(pattern.match, lines))
        results += [(path.name, shlex.split(x[1], comments=True)) for x in matches]
    return results


# Flags of the programs themselves, not of a config.
OWN_FLAGS = (
    "--workdir=",
    "--coordinator_address=",
    "--num_processes=",
    "--process_id=",
)


def config_of(arguments):
    """The config of a command line, and its name."""
    arguments = [x for x in arguments if not x.startswith(OWN_FLAGS)]
    arguments = [x for x in arguments if x not in ("&", "--hosts")]
    name = "quickstart"
    if arguments and arguments[0].startswith("--config="):
        name = arguments.pop(0).removeprefix("--config=")
        name = re.sub(r"^configs/(\w+)\.py", r"\1", name)
    assert all(x.startswith("--") for x in arguments)
    return flagged(*arguments, name=name), name


@pytest.mark.parametrize("where, arguments", commands("train.py"))
def test_every_training_command_in_the_docs_is_valid(where, arguments, monkeypatch):
    monkeypatch.chdir(ROOT)
    config, name = config_of(arguments)
    if name.startswith("examples/gpt/config.py"):  # its size follows from the text
        task = config.task
        assert getattr(task, "text", None) or (task.train and task.dev)
    elif name.split(":")[0] in FINE_TUNING:
        assert config.task.train and config.task.dev
        assert config.init_from or config.encoder
    else:
        resolve(config)


@pytest.mark.parametrize("where, arguments", commands("-m examples.probes"))
def test_every_probe_command_in_the_docs_is_valid(where, arguments):
    config_of(arguments)[0].check()


@pytest.mark.parametrize("where, arguments", commands("-m examples.ablations"))
def test_every_ablation_command_in_the_docs_is_valid(where, arguments):
    config, _ = config_of(arguments)
    config.check({name: vary(config.base) for name, vary in config.variants.items()})


@pytest.mark.parametrize(
    "program", ["probes", pytest.param("ablations", marks=pytest.mark.slow)]
)
def test_an_example_refuses_a_mistake_in_one_line(program, tmp_path):
    command = [sys.executable, "-m", f"examples.{program}", "--config.train=a.tsv"]
    command += [f"--workdir={tmp_path / 'run'}"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 1
    assert re.fullmatch("(init_from is missing|train and dev go).*\n", done.stderr)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("where, arguments", commands("bert-jax"))
def test_every_command_in_the_docs_is_valid(where, arguments):
    signs = [i for i, x in enumerate(arguments) if x in ("|", ">")]
    verb, args = cli.parse(arguments[: min(signs, default=None)])
    assert callable(verb.run) and args
