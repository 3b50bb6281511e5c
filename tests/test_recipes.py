"""Laws of the published recipes for GLUE: their numbers, and that they fit a model."""

from pathlib import Path

import pytest
from absl import flags
from ml_collections import config_flags
from tiny import LETTERS, made, wordpiece

from bert_jax.models import Bert, BertConfig, Features
from bert_jax.tasks.classification import GLUE
from bert_jax.training.config import resolve

# ml_collections loads config files by a method that Python will drop.
pytestmark = pytest.mark.filterwarnings("ignore:the load_module:DeprecationWarning")

# fairseq, examples/roberta/README.glue.md; the steps are those of 10 epochs.
ROBERTA = """
task       mnli   qnli   qqp    rte  sst2  mrpc cola stsb
rate       1e-5   1e-5   1e-5   2e-5 1e-5  1e-5 1e-5 2e-5
batch      32     32     32     16   32    16   16   16
steps      123873 33112  113272 2036 20935 2296 5336 3598
warmup     7432   1986   28318  122  1256  137  320  214
"""

# google-research/albert, run_glue.sh.
ALBERT = """
task       sst2  mnli  cola qnli  qqp   rte  stsb mrpc
warmup     1256  1000  320  1986  1000  200  214  200
rate       1e-5  3e-5  1e-5 1e-5  5e-5  3e-5 2e-5 2e-5
steps      20935 10000 5336 33112 14000 800  3598 800
save       100   100   100  200   100   100  100  100
batch      32    128   16   32    128   32   16   32
"""

# What a config says beside what its task does: the optimizer and the length of rows.
OPTIMIZERS = {
    # run_flax_glue.py: optax.adamw.
    "glue_hf_flax": ("adamw", "linear", 0.9, 0.999, 1e-6, 0.0, 0.0, 1.0, 128),
    "glue_roberta": ("adamw", "linear", 0.9, 0.98, 1e-6, 0.1, 0.0, 1.0, 512),
    # optimization.py of ALBERT and of ELECTRA.
    "glue_albert": ("bert_adam", "google", 0.9, 0.999, 1e-6, 0.01, 1.0, 1.0, 512),
    "glue_electra": ("bert_adam", "google", 0.9, 0.999, 1e-6, 0.01, 1.0, 0.8, 128),
}

# The family that a recipe is for, so tiny that nothing takes time.
FAMILIES = {
    "glue": {},
    "glue_hf_flax": {},
    "glue_roberta": {"model_type": "roberta", "position_offset": 2, "pad_token_id": 1},
    "glue_albert": {
        "model_type": "albert",
        "num_hidden_groups": 1,
        "embedding_size": 6,
    },
    "glue_electra": {"model_type": "electra", "embedding_size": 6},
}


CONFIGS = Path(__file__).parent.parent / "configs"


def recipe(name, *overrides):
    """The config of `--config=configs/NAME.py:TASK` and more flags."""
    stem, _, task = name.partition(":")
    file = f"{CONFIGS / stem}.py:{task}".rstrip(":")
    argv = ["train.py", f"--config={file}", *overrides]
    values = flags.FlagValues()
    holder = config_flags.DEFINE_config_file(
        "config", flag_values=values, sys_argv=argv
    )
    values(argv)
    return holder.value


def columns(text):
    """The cells of a table, by task and row name."""
    (_, *tasks), *rows = (line.split() for line in text.strip().splitlines())
    table = {name: map(float, cells) for name, *cells in rows}
    each = zip(*table.values(), strict=True)
    return {
        task: dict(zip(table, x, strict=True))
        for task, x in zip(tasks, each, strict=True)
    }


@pytest.mark.parametrize("name, numbers", OPTIMIZERS.items())
def test_optimizers_equal_those_of_the_sources(name, numbers):
    config = recipe(name)
    optimizer = config.optimizer
    names = "name schedule b1 b2 eps weight_decay clip_norm layer_decay".split()
    assert (*[getattr(optimizer, x) for x in names], config.task.max_length) == numbers


@pytest.mark.parametrize("task, numbers", columns(ROBERTA).items())
def test_numbers_of_roberta_equal_its_table(task, numbers):
    config = recipe(f"glue_roberta:{task}")
    assert (config.task.name, config.task.epochs) == (task, 10)
    rate_and_batch = config.optimizer.learning_rate, config.batch_size
    assert rate_and_batch == (numbers["rate"], numbers["batch"])
    # Theirs is rounded.
    warmup = numbers["steps"] * config.task.warmup
    assert warmup == pytest.approx(numbers["warmup"], abs=2)


@pytest.mark.parametrize("task, numbers", columns(ALBERT).items())
def test_numbers_of_albert_equal_its_script(task, numbers):
    config = recipe(f"glue_albert:{task}")
    assert (config.task.name, config.task.epochs) == (task, 0)
    assert numbers == {
        "warmup": config.optimizer.warmup_steps,
        "rate": config.optimizer.learning_rate,
        "steps": config.num_steps,
        "save": config.checkpoint_every,
        "batch": config.batch_size,
    }
    assert config.eval_every == config.checkpoint_every


@pytest.mark.parametrize("task", GLUE)
def test_the_flax_recipes_take_five_epochs_for_tiny_datasets(task):
    config = recipe(f"glue_hf_flax:{task}")
    assert (config.optimizer.learning_rate, config.batch_size) == (2e-5, 32)
    epochs = 5 if task in ("mrpc", "wnli") else 3
    assert (config.task.name, config.task.epochs) == (task, epochs)
    assert config.task.warmup == 0


@pytest.mark.parametrize("task", GLUE)
def test_electra_takes_ten_epochs_for_rte_and_sts_b(task):
    config = recipe(f"glue_electra:{task}")
    assert (config.optimizer.learning_rate, config.batch_size) == (1e-4, 32)
    epochs = 10 if task in ("rte", "stsb") else 3
    assert (config.task.name, config.task.epochs) == (task, epochs)
    assert config.task.warmup == 0.1


@pytest.mark.parametrize("name", ["glue_roberta", "glue_albert"])
def test_a_task_without_published_numbers_is_refused_by_name(name):
    with pytest.raises(flags.Error, match="'wnli' has no published numbers; choose"):
        recipe(f"{name}:wnli")


@pytest.mark.parametrize("name, family", FAMILIES.items())
def test_every_recipe_fits_a_model_of_its_family_and_a_file_of_glue(
    name, family, tmp_path
):
    config = BertConfig(
        vocab_size=len(LETTERS),
        hidden_size=12,
        num_hidden_layers=1,
        num_attention_heads=3,
        intermediate_size=20,
        max_position_embeddings=514,
        **family,
    )
    made(Features(Bert(config)), wordpiece(tmp_path, LETTERS)).save(tmp_path / "model")
    rows = [f"a b\tc d\t{i % 2}\n" for i in range(64)]
    text = "".join(["sentence1\tsentence2\tlabel\n", *rows])
    (tmp_path / "train.tsv").write_text(text)
    settings = recipe(
        name if name == "glue" else f"{name}:mrpc",
        f"--config.task.train={tmp_path / 'train.tsv'}",
        f"--config.task.dev={tmp_path / 'train.tsv'}",
        f"--config.init_from={tmp_path / 'model'}",
    )
    resolved = resolve(settings)
    assert resolved.encoder == config
    steps = int(64 * settings.task.epochs / settings.batch_size)
    assert resolved.num_steps == (steps or settings.num_steps)
    with pytest.warns(UserWarning, match="64 of the 64 rows"):
        task = resolved.task.prepare(tmp_path, resolved.encoder, resolved.seed)
    batch = task.rows["train"].gather([0, 1])
    assert batch["labels"].tolist() == [0, 1] and batch["input_ids"].shape == (2, 16)
