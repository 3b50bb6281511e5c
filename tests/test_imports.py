"""Laws of who may import whom, by the syntax trees, and of what stays unloaded."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "bert_jax"

# A part, and the parts it does not know. Models know nothing but models: see below.
STRANGERS = {
    "training": ("models", "tasks", "predict", "pretrained", "programs"),
    "data": ("models", "tasks", "predict", "pretrained", "training", "tokenizers"),
    "tokenizers": ("models", "tasks", "predict", "pretrained", "training", "data"),
    "masking.py": ("models", "tasks", "predict", "pretrained", "training", "data"),
    "permutation.py": ("models", "tasks", "predict", "pretrained", "training", "data"),
    "pretrained": ("tasks", "predict", "training"),
    "predict.py": ("tasks", "training"),
    "tasks": ("training",),
}

# What a module is made of; none of it reads or writes files.
MATERIALS = {
    *("jax", "flax", "numpy"),
    *("dataclasses", "typing", "collections", "math", "functools"),
}


def sources(*parts):
    """The Python files of some parts of the package."""
    for part in parts:
        path = PACKAGE / part
        yield from sorted(path.rglob("*.py")) if path.is_dir() else [path]


def imported(path):
    """Dotted names that a file imports anywhere, functions included."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{path} has a relative import"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def is_in(name, package):
    return name == package or name.startswith(f"{package}.")


def offences(paths, forbidden):
    """Imports from `forbidden` packages, as `file: name`."""
    return [
        f"{path.relative_to(ROOT)}: {name}"
        for path in paths
        for name in imported(path)
        if any(is_in(name, package) for package in forbidden)
    ]


@pytest.mark.parametrize("part", STRANGERS)
def test_a_part_does_not_know_its_strangers(part):
    strangers = [f"bert_jax.{name}" for name in STRANGERS[part]]
    assert not offences(sources(part), strangers)


def test_models_are_made_of_jax_flax_and_each_other():
    for path in sources("models"):
        for name in imported(path):
            known = name.split(".")[0] in MATERIALS or is_in(name, "bert_jax.models")
            assert known, f"{path.name}: {name}"


def test_layers_know_no_encoder_and_heads_receive_theirs_as_a_field():
    lowest = ("fused", "cudnn", "one_tile", "dropping", "products")
    for part in ("layers", *lowest):
        names = imported(PACKAGE / f"models/{part}.py")
        ours = {name for name in names if is_in(name, "bert_jax")}
        below = [f"bert_jax.models.{other}" for other in lowest]
        assert all(any(is_in(name, x) for x in below) for name in ours), part
    parts = {"bert_jax.models.layers", "bert_jax.models.head_layers"}
    names = imported(PACKAGE / "models/heads.py")
    assert {name for name in names if is_in(name, "bert_jax")} == parts
    names = imported(PACKAGE / "models/scoring.py")
    assert {name for name in names if is_in(name, "bert_jax")} < parts


def test_tasks_know_heads_and_layers_but_no_encoder():
    files = [PACKAGE / f"models/{name}.py" for name in ("heads", "permutation")]
    nodes = [node for file in files for node in ast.parse(file.read_text()).body]
    heads = {node.name for node in nodes if isinstance(node, ast.ClassDef)}
    for path in sources("tasks"):
        for name in imported(path):
            if is_in(name, "bert_jax.models"):
                part = name.removeprefix("bert_jax.models.").split(".")[0]
                known = {"heads", "layers", "dropping", "permutation"}
                assert part in heads | known, f"{path.name}: {name}"


def test_only_data_imports_tensorflow():
    others = [x for x in sources(".") if PACKAGE / "data" not in x.parents]
    others += [ROOT / "train.py", *(ROOT / "configs").glob("*.py")]
    assert len(others) > 30
    assert not offences(others, ["tensorflow", "tensorflow_datasets"])


def test_data_imports_tensorflow_inside_functions_only():
    for path in sources("data"):
        for node in ast.parse(path.read_text("utf-8")).body:
            names = ast.unparse(node) if isinstance(node, ast.Import) else ""
            module = node.module if isinstance(node, ast.ImportFrom) else ""
            assert "tensorflow" not in names + module, path.name


def test_nothing_imports_torch_or_transformers():
    paths = [*sources("."), ROOT / "train.py", *(ROOT / "configs").glob("*.py")]
    assert not offences(paths, ["torch", "transformers", "sentence_transformers"])


def run(script, *arguments):
    """What a fresh interpreter prints for `script`."""
    command = [sys.executable, "-c", script, *map(str, arguments)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert not done.returncode, done.stderr
    return done.stdout


def test_import_bert_jax_is_light():
    script = (
        "import sys, time\n"
        "start = time.perf_counter()\n"
        "import bert_jax\n"
        "print(time.perf_counter() - start)\n"
        "heavy = {'tensorflow', 'torch', 'jax', 'flax', 'numpy'}\n"
        "assert not heavy & sys.modules.keys(), heavy & sys.modules.keys()\n"
    )
    # The best of three: another process may have had the core.
    assert min(float(run(script)) for _ in range(3)) < 0.3


USE = """
import pathlib, sys
import jax, numpy
import bert_jax
from bert_jax.models import BertConfig, Pretraining
from bert_jax.tokenizers import WordPiece

folder = pathlib.Path(sys.argv[1])
pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "tree", "##s"]
(folder / "vocab.txt").write_text("\\n".join(pieces))
config = BertConfig(len(pieces), 8, 1, 2, 12, max_position_embeddings=16)
head = Pretraining(config.build())
shapes = jax.eval_shape(head.init, jax.random.key(0), numpy.zeros((1, 2), int))
params = jax.tree.map(lambda x: numpy.ones(x.shape, "float32"), shapes["params"])
tokenizer = WordPiece.from_vocab(folder / "vocab.txt")
bert_jax.Model.of(head, params, tokenizer).save(folder / "model")

model = bert_jax.load(folder / "model")
assert model.embed(["a tree", "trees"]).shape == (2, 8)
assert len(model.fill_mask("a [MASK]", k=2)[0]) == 2
heavy = {"tensorflow", "tensorflow_datasets", "torch", "transformers"}
assert not heavy & sys.modules.keys(), heavy & sys.modules.keys()
"""


def test_using_a_model_loads_neither_tensorflow_nor_torch(tmp_path):
    run(USE, tmp_path)


KERAS = """
import sys
from bert_jax.data import pipeline

tf = pipeline.tensorflow()
heavy = {"keras", "sklearn", "matplotlib.pyplot"}
assert not heavy & sys.modules.keys(), heavy & sys.modules.keys()
# Whoever asks for it gets it: nothing says any more that there is none.
assert "keras.src.optimizers" not in sys.modules and "keras" in dir(tf)
"""


def test_tensorflow_comes_without_keras_until_it_is_asked_for():
    run(KERAS)
