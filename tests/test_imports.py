"""Laws of imports: the table of allowed imports, and modules that load lazily."""

import graphlib
import importlib
import subprocess
import sys

import pytest
from source import (
    PACKAGE,
    ROOT,
    import_names,
    imported,
    imported_when_run,
    python_files,
    tree,
)

# Each folder and root module of the package, and those of ours that it may import.
ROOMS = {
    "files": set(),
    "digests": set(),
    "metrics": set(),
    "sizes": set(),
    "models": set(),
    "tokenizers": {"files"},
    "data": {"tokenizers", "files"},
    "pretrained": {"models", "tokenizers", "files", "digests"},
    "objectives": {"models"},
    "training": {"data", "files", "digests", "sizes", "metrics"},
    "views": {"files", "metrics"},
    "inference": {
        *("models", "tokenizers", "pretrained", "data", "views"),
        *("files", "digests", "metrics", "sizes"),
    },
}
ROOMS["tasks"] = {*ROOMS} - {"training"}
ROOMS["api"] = {*ROOMS}
ROOMS["__init__"] = {*ROOMS}
ROOMS["cli"] = {*ROOMS}
ROOMS["__main__"] = {"cli"}

# Code beside the package, and what it may import beside the package.
OUTSIDE = {
    "docs": set(),
    "examples": {"examples"},
    "configs": {"configs", "examples"},
    "benchmarks": {"benchmarks", "configs", "examples", "train", "tests"},
    "train.py": set(),
}
# These use public names only: `__all__` of bert_jax and of its folders.
PUBLIC_ONLY = ("examples", "configs")

# What models are made of; none of it reads or writes files.
MATERIALS = {
    *("jax", "flax", "numpy"),
    *("abc", "collections", "dataclasses", "functools", "math", "typing", "warnings"),
}

HEAVY = ("tensorflow", "tensorflow_datasets", "array_record")
OTHER_FRAMEWORKS = ("torch", "transformers", "sentence_transformers")


def is_in(name, package):
    """`name` is the package or something inside it."""
    return name == package or name.startswith(f"{package}.")


def offences(paths, forbidden):
    """Imports of `forbidden` packages, as `file: name`."""
    return [
        f"{path.relative_to(ROOT)}: {name}"
        for path in paths
        for name in imported(path)
        if any(is_in(name, package) for package in forbidden)
    ]


def room_of(path):
    """The folder or root module of the package that a file belongs to."""
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def rooms_imported(path):
    """Folders and root modules of the package that a file imports."""
    names = [x.split(".")[1:] for x in imported(path) if is_in(x, "bert_jax")]
    return {name[0] if name and name[0] in ROOMS else "__init__" for name in names}


def test_every_folder_and_root_module_of_the_package_is_in_the_table():
    entries = [x for x in PACKAGE.iterdir() if x.suffix == ".py" or any(x.glob("*.py"))]
    assert {room_of(x) for x in entries} == ROOMS.keys()
    assert len([x for x in entries if x.is_file()]) <= 7


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_imports_only_rooms_that_the_table_allows(room):
    place = PACKAGE / room
    place = place if place.is_dir() else place.with_suffix(".py")
    for path in python_files(str(place.relative_to(ROOT))):
        extra = rooms_imported(path) - ROOMS[room] - {room}
        assert not extra, f"{path.relative_to(ROOT)} imports {extra}"


def test_every_folder_of_code_beside_the_package_is_in_the_table():
    folders = {path.parent.name for path in ROOT.glob("*/*.py")}
    folders |= {path.parts[-3] for path in ROOT.glob("*/*/*.py")}
    files = {path.name for path in ROOT.glob("*.py")}
    ignored = {"bert_jax", "tests", "build", "site"}
    folders = {x for x in folders if (ROOT / x).is_dir() and x[0] != "."}
    assert folders - ignored | files == OUTSIDE.keys()


@pytest.mark.parametrize("place", OUTSIDE)
def test_code_beside_the_package_imports_what_the_table_allows(place):
    ours = {name.removesuffix(".py") for name in OUTSIDE} | {"tests"}
    for path in python_files(place):
        extra = {name.split(".")[0] for name in imported(path)} & ours
        assert extra <= OUTSIDE[place], f"{path.relative_to(ROOT)} imports {extra}"


def is_public(name):
    """A name, as `bert_jax.models.Bert`, is in `__all__` of each part before it."""
    inside, *parts = name.split(".")
    for part in parts:
        if part not in getattr(importlib.import_module(inside), "__all__", ()):
            return False
        inside = f"{inside}.{part}"
    return True


@pytest.mark.parametrize("place", PUBLIC_ONLY)
def test_examples_and_configs_use_public_names_only(place):
    private = [
        f"{path.relative_to(ROOT)}: {name}"
        for path in python_files(place)
        for name in imported(path)
        if is_in(name, "bert_jax") and not is_public(name)
    ]
    assert not private


def modules():
    """Each module of the package by its dotted name."""
    for path in python_files("bert_jax"):
        parts = path.relative_to(ROOT).with_suffix("").parts
        yield ".".join(parts).removesuffix(".__init__"), path


def test_no_modules_import_each_other_in_a_circle():
    files = dict(modules())
    graph = {name: set() for name in files}
    for name, path in files.items():
        for target in imported_when_run(path):
            module = target if target in files else target.rpartition(".")[0]
            graph[name] |= {module} & files.keys() - {name}
    graphlib.TopologicalSorter(graph).prepare()  # raises CycleError


def test_the_table_has_no_circle():
    graphlib.TopologicalSorter(ROOMS).prepare()


def test_models_are_made_of_jax_flax_and_each_other():
    for path in python_files("bert_jax/models"):
        for name in imported(path):
            known = name.split(".")[0] in MATERIALS or is_in(name, "bert_jax.models")
            assert known, f"{path.name}: {name}"


def encoders():
    """Names that are in files of encoders: modules, and classes and functions."""
    for path in python_files("bert_jax/models"):
        nodes = tree(path).body
        bases = [x for n in nodes for x in getattr(n, "bases", ())]
        if any(getattr(base, "id", "") == "EncoderConfig" for base in bases):
            yield path.stem
            yield from (node.name for node in nodes if hasattr(node, "name"))


def test_layers_heads_objectives_and_tasks_know_no_encoder():
    names = set(encoders())
    assert {"bert", "Bert", "XLNet", "ModernBert", "Transformer"} <= names
    parts = ("layers", "head_layers", "heads", "ops", "kernels", "config")
    places = [PACKAGE / "models" / part for part in parts]
    places = [x if x.is_dir() else x.with_suffix(".py") for x in places]
    places += [PACKAGE / "objectives", PACKAGE / "tasks", PACKAGE / "training"]
    for path in python_files(*(str(x.relative_to(ROOT)) for x in places)):
        extra = {
            name
            for name in imported(path)
            if is_in(name, "bert_jax.models") and set(name.split(".")[2:]) & names
        }
        assert not extra, f"{path.relative_to(ROOT)}: {extra}"


def test_only_data_and_googles_checkpoints_import_tensorflow_inside_functions():
    google = PACKAGE / "pretrained/google.py"
    for path in python_files("bert_jax", "configs", "examples", "train.py"):
        if PACKAGE / "data" not in path.parents and path != google:
            assert not offences([path], HEAVY)
        for node in tree(path).body:
            heavy = [x for x in import_names(node) for y in HEAVY if is_in(x, y)]
            assert not heavy, path


def test_nothing_imports_torch_or_transformers():
    paths = python_files("bert_jax", "configs", "examples", "train.py")
    assert not offences(paths, OTHER_FRAMEWORKS)


def test_no_class_is_called_prepared():
    names = {
        getattr(node, "name", "")
        for path in python_files("bert_jax", "examples")
        for node in tree(path).body
    }
    assert "Prepared" not in names


def run(script, *arguments):
    """Standard output of a script in a fresh interpreter."""
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
from bert_jax.data import optional

tf = optional.tensorflow()
heavy = {"keras", "sklearn", "matplotlib.pyplot"}
assert not heavy & sys.modules.keys(), heavy & sys.modules.keys()
# Whoever asks for it gets it: nothing says any more that there is none.
assert "keras.src.optimizers" not in sys.modules and "keras" in dir(tf)
"""


def test_tensorflow_loads_no_keras_until_it_is_used():
    run(KERAS)
