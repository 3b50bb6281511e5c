"""Raw text -> prepared directory: what it holds, and what interrupts or forbids it."""

import dataclasses
import json
import os
import random
import signal
import subprocess
import sys
import time
import warnings
import zlib
from pathlib import Path

import numpy as np
import pytest

from bert_jax import files
from bert_jax.data import corpus, lock, prepared_rows, shards
from bert_jax.data.preparation import prepare
from bert_jax.data.prepared_rows import PreparedRows
from bert_jax.data.records import Layout, RowConfig, fill_rows
from bert_jax.data.sequences import flatten, make_sequences
from bert_jax.data.shards import prepare_shard

RECIPE = RowConfig(sequence_length=32, sequences_per_row=4, held_out=0.2)


@dataclasses.dataclass
class Words:
    """A tokenizer whose ids are hashes of whole words; it can be made to fail."""

    vocab_size: int = 211
    fails_on: str = ""
    pad_id = 0
    cls_id = 1
    sep_id = 2

    @property
    def fingerprint(self) -> str:
        return f"words of {self.vocab_size}"

    def encode_batch(self, texts):
        if self.fails_on and any(self.fails_on in text for text in texts):
            raise KeyError(self.fails_on)
        return [[self._id(word) for word in text.split()] for text in texts]

    def _id(self, word):
        return 5 + zlib.crc32(word.encode()) % (self.vocab_size - 5)


def write_corpus(folder, count=60, seed=0, name="text.txt"):
    rng = random.Random(seed)
    documents = [
        "\n".join(
            " ".join(f"d{d}s{s}w{w}" for w in range(rng.randint(1, 14))) + "."
            for s in range(rng.randint(1, 9))
        )
        for d in range(count)
    ]
    path = folder / name
    path.write_text("\n\n".join(documents) + "\n")
    return [str(path)]


def prepared_in(folder, paths, recipe=RECIPE, tokenizer=None, **options):
    return prepare(
        paths,
        folder,
        tokenizer=tokenizer or Words(),
        recipe=recipe,
        progress=False,
        **{"format": "lines", "processes": 1, "shard_bytes": 3000, **options},
    )


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def all_rows(folder, split="train"):
    source = PreparedRows(folder, split)
    return source.gather(np.arange(len(source)))


def test_the_number_of_processes_changes_nothing(tmp_path):
    paths = write_corpus(tmp_path)
    prepared_in(tmp_path / "one", paths)
    prepared_in(tmp_path / "two", paths, processes=2)
    one, two = contents(tmp_path / "one"), contents(tmp_path / "two")
    assert sum("train" in name for name in one) > 4
    assert one == two


def test_another_seed_gives_other_rows(tmp_path):
    paths = write_corpus(tmp_path)
    prepared_in(tmp_path / "a", paths)
    prepared_in(tmp_path / "b", paths, dataclasses.replace(RECIPE, seed=1))
    a, b = all_rows(tmp_path / "a"), all_rows(tmp_path / "b")
    assert a["input_ids"].tobytes() != b["input_ids"].tobytes()


def test_shards_double_in_size_where_there_is_more_text_than_expected(monkeypatch):
    monkeypatch.setattr(shards, "CHUNKS", 3)
    documents = [(f"{i:010}",) for i in range(400)]
    chunks = list(shards.group(documents, held_out=0, fewest=1, size=40))
    sizes = [chunk.characters for chunk in chunks]
    assert sizes[:8] == [40, 40, 40, 80, 80, 80, 160, 160]
    assert len(chunks) == 15 and sum(sizes) == 4000  # 100 of one size
    assert [d for chunk in chunks for d in chunk.documents] == documents


def test_a_killed_run_continues_where_it_stopped(tmp_path):
    paths = write_corpus(tmp_path)
    prepared_in(tmp_path / "whole", paths)
    with pytest.raises(KeyError):
        prepared_in(tmp_path / "data", paths, tokenizer=Words(fails_on="d40s0w0"))
    staged = tmp_path / "data.partial"
    assert (
        len(list(staged.glob("*-done.json"))) > 1 and not (tmp_path / "data").exists()
    )
    documents = corpus.read(paths, "lines")
    first = next(d for d in documents if not corpus.is_held_out(d, RECIPE.held_out))
    # What is finished is not tokenized again: its first sentence would now fail.
    prepared_in(tmp_path / "data", paths, tokenizer=Words(fails_on=first[0]))
    assert contents(tmp_path / "data") == contents(tmp_path / "whole")
    assert not staged.exists()


def test_a_run_killed_in_its_last_moments_continues(tmp_path, monkeypatch):
    paths = write_corpus(tmp_path)
    prepared_in(tmp_path / "whole", paths)

    def die(path, content):
        raise KeyboardInterrupt

    for name in ("_write_tfds_metadata", "np.save"):
        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(f"bert_jax.data.prepared_rows.{name}", lambda *_: die(*_[:2]))
            prepared_in(tmp_path / "data", paths)
        assert not (tmp_path / "data").exists()
    prepared_in(tmp_path / "data", paths)
    assert contents(tmp_path / "data") == contents(tmp_path / "whole")


def test_a_prepared_directory_is_used_again(tmp_path):
    paths = write_corpus(tmp_path)
    first = prepared_in(tmp_path / "data", paths)
    before = contents(tmp_path / "data")
    second = prepared_in(tmp_path / "data", paths, tokenizer=Words(fails_on="d"))
    assert first == second and before == contents(tmp_path / "data")


def test_a_directory_made_from_something_else_is_refused(tmp_path):
    paths = write_corpus(tmp_path)
    folder = tmp_path / "data"
    prepared_in(folder, paths)
    other = dataclasses.replace(RECIPE, seed=7)
    with pytest.raises(ValueError, match="recipe.seed: was 0, is 7\ndelete"):
        prepared_in(folder, paths, other)
    with pytest.raises(
        ValueError, match="tokenizer: was .words of 211.*, is .words of 199"
    ):
        prepared_in(folder, paths, tokenizer=Words(vocab_size=199))
    with pytest.raises(ValueError, match=r"inputs.more.txt: was None, is '\d+ bytes"):
        prepared_in(folder, paths + write_corpus(tmp_path, name="more.txt"))
    os.utime(paths[0], (1e9, 1e9))
    with pytest.raises(ValueError, match=r"inputs.text.txt: .* of 2001-09-09 01:46:40"):
        prepared_in(folder, paths)


def test_an_unfinished_directory_of_something_else_is_refused(tmp_path):
    paths = write_corpus(tmp_path)
    with pytest.raises(KeyError):
        prepared_in(tmp_path / "data", paths, tokenizer=Words(fails_on="d40s0w0"))
    other = dataclasses.replace(RECIPE, dupe_factor=2)
    with pytest.raises(
        ValueError, match=r"partial was prepared [^:]*:\nrecipe.dupe_factor"
    ):
        prepared_in(tmp_path / "data", paths, other)


def test_tfds_reads_the_same_rows(tmp_path):
    tfds = pytest.importorskip("tensorflow_datasets")
    folder = tmp_path / "data"
    prepared_in(folder, write_corpus(tmp_path))
    data = tfds.builder_from_directory(folder).as_data_source()
    for split in ("train", "eval"):
        rows = PreparedRows(folder, split)
        assert len(data[split]) == len(rows) > 0
        ours = all_rows(folder, split)
        for i in (0, len(rows) // 2, len(rows) - 1):
            row = data[split][i]
            assert (row["input_ids"] == ours["input_ids"][i]).all()
            assert (row["pair_labels"] == ours["pair_labels"][i]).all()
            real = ours["attention_mask"][i] > 0
            assert row["lengths"].sum() == real.sum()


@pytest.mark.parametrize("layout", [Layout(11, 1, "uint16"), Layout(300, 7, "int32")])
def test_a_record_is_the_example_that_tfds_would_write(layout):
    tfds = pytest.importorskip("tensorflow_datasets")
    features = tfds.features.FeaturesDict(
        {
            name: tfds.features.Tensor(
                shape=shape, dtype=np.dtype(dtype), encoding="bytes"
            )
            for name, (dtype, shape) in layout.features.items()
        }
    )
    rng, record = np.random.default_rng(0), layout.blank(1)
    for name, (dtype, shape) in layout.features.items():
        record[name] = rng.integers(0, 100, shape).astype(dtype)
    example = {name: record[name][0] for name in layout.features}
    from tensorflow_datasets.proto import tf_example_pb2

    theirs, ours = features.serialize_example(example), record.tobytes()
    assert len(theirs) == len(ours)  # the order of a map's entries is free
    parsed = tf_example_pb2.Example.FromString(ours)
    assert parsed == tf_example_pb2.Example.FromString(theirs)


@pytest.mark.parametrize("cls_last", [False, True])
def test_rows_hold_the_sequences_and_nothing_else(cls_last):
    tokens = flatten([[[7, 8, 9], [10, 11]], [[20], [21, 22, 23, 24]], [[30]]])
    sequences = make_sequences(
        tokens, random.Random(4), pairs="next", sequence_length=12
    )
    labels = sequences.labels.tolist()
    assert labels == [0, 1, 1, 1]  # so that a label in a wrong place is seen
    layout, rows = Layout(30, 3, "uint16", cls_last), [1, 0, 1, 0]
    records = fill_rows(layout, sequences, np.array(rows), cls_id=1, sep_id=2, pad_id=0)
    ids, pair_labels, lengths = ([[], []] for _ in range(3))
    for row, label, ((a, b), (c, d)) in zip(rows, labels, sequences.spans, strict=True):
        words = [*tokens.ids[a:b], 2, *tokens.ids[c:d], 2]
        ids[row] += [*words, 1] if cls_last else [1, *words]
        pair_labels[row].append(label)
        lengths[row].append([b - a + 2, d - c + 1])
    for row in range(2):
        assert records["input_ids"][row].tolist() == ids[row] + [0] * (
            30 - len(ids[row])
        )
        assert records["pair_labels"][row].tolist() == [*pair_labels[row], -1]
        assert records["lengths"][row].tolist() == [*lengths[row], [0, 0]]


def test_ids_beyond_16_bits_survive(tmp_path):
    tokenizer = Words(vocab_size=100_003)
    documents = [(f"a{i} b{i} c{i}", f"d{i} e{i}") for i in range(30)]
    records, _ = prepare_shard(
        documents, "train", 0, tokenizer=tokenizer, recipe=RECIPE, format="lines"
    )
    known = {i for d in documents for s in d for i in tokenizer.encode_batch([s])[0]}
    assert set(records["input_ids"].ravel().tolist()) <= known | {0, 1, 2}
    assert records["input_ids"].max() > 65536


def test_a_shard_is_a_function_of_its_documents_seed_and_number():
    documents = [(f"a{i} b{i}", f"c{i} d{i} e{i}") for i in range(40)]

    def shard(split="train", index=0, recipe=RECIPE):
        records, _ = prepare_shard(
            documents, split, index, tokenizer=Words(), recipe=recipe, format="lines"
        )
        return records.tobytes()

    assert shard() == shard()
    others = shard(index=1), shard("eval"), shard(recipe=RowConfig(32, seed=1))
    assert len({shard(), *others}) == 4


def test_statistics_are_those_of_the_rows(tmp_path):
    statistics = prepared_in(tmp_path / "data", write_corpus(tmp_path))
    documents = sum(counts.documents for counts in statistics.splits.values())
    assert documents == 60
    for split, counts in statistics.splits.items():
        rows = all_rows(tmp_path / "data", split)
        labels = rows["pair_labels"]
        assert counts.rows == len(labels)
        assert counts.real_tokens == (rows["attention_mask"] > 0).sum()
        assert counts.positions == rows["input_ids"].size
        assert counts.sequences == counts.labelled == (labels >= 0).sum()
        assert counts.ones == (labels == 1).sum()
        assert counts.label_rate == (labels[labels >= 0]).mean()
        assert f"{split}: {counts.documents} documents" in str(statistics)


def test_unigrams_count_the_tokens_that_masking_may_hide(tmp_path):
    prepared_in(tmp_path / "data", write_corpus(tmp_path))
    rows = all_rows(tmp_path / "data")
    expected = np.bincount(rows["input_ids"].ravel(), minlength=211)
    expected[[0, 1, 2]] = 0
    assert (PreparedRows(tmp_path / "data").unigrams == expected).all()


def test_held_out_documents_are_never_trained_on(tmp_path):
    paths = write_corpus(tmp_path)
    tokenizer = Words(vocab_size=60_000)
    prepared_in(tmp_path / "data", paths, tokenizer=tokenizer)
    held_out = {True: set(), False: set()}
    for document in corpus.read(paths, "lines"):
        ids = (i for s in document for i in tokenizer.encode_batch([s])[0])
        held_out[corpus.is_held_out(document, RECIPE.held_out)].update(ids)
    for split, out in (("train", False), ("eval", True)):
        ids = all_rows(tmp_path / "data", split)["input_ids"]
        assert set(ids.ravel().tolist()) <= held_out[out] | {0, 1, 2}


def test_the_train_split_alone_is_paired_anew(tmp_path):
    paths = write_corpus(tmp_path)
    once = prepared_in(tmp_path / "one", paths).splits
    more = dataclasses.replace(RECIPE, dupe_factor=3)
    thrice = prepared_in(tmp_path / "three", paths, more).splits
    assert thrice["eval"].sequences == once["eval"].sequences
    assert 2.5 < thrice["train"].sequences / once["train"].sequences < 3.5
    assert thrice["train"].tokens == once["train"].tokens


@pytest.mark.parametrize("pairs", ["next", "order", "none"])
def test_without_packing_each_row_is_one_sequence(tmp_path, pairs):
    recipe = dataclasses.replace(RECIPE, pairs=pairs, pack=False)
    counts = prepared_in(tmp_path / "data", write_corpus(tmp_path), recipe).splits
    assert counts["train"].sequences == counts["train"].rows
    assert all_rows(tmp_path / "data")["cls_positions"].shape[1] == 1
    if pairs == "none":
        assert counts["train"].labelled == 0


@pytest.mark.parametrize("pairs, count", [("next", 4), ("order", 2), ("none", 2)])
def test_a_small_corpus_keeps_something_in_both_splits(tmp_path, pairs, count):
    recipe = dataclasses.replace(RECIPE, pairs=pairs, held_out=1e-9)
    paths = write_corpus(tmp_path, count=count)
    with pytest.warns(UserWarning, match="the eval split had 0 document"):
        counts = prepared_in(tmp_path / "data", paths, recipe).splits
    assert counts["train"].documents == counts["eval"].documents == count // 2


def test_a_corpus_too_small_for_two_splits_warns(tmp_path):
    paths = write_corpus(tmp_path, count=3)
    with pytest.warns(UserWarning, match="a corpus of 3 document.* training text"):
        counts = prepared_in(tmp_path / "data", paths).splits
    assert counts["train"].documents == counts["eval"].documents == 3


def test_nothing_is_held_out_with_a_share_of_0(tmp_path):
    recipe = dataclasses.replace(RECIPE, held_out=0.0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        prepared_in(tmp_path / "data", write_corpus(tmp_path), recipe)
    with pytest.raises(
        ValueError, match="no split 'eval', only train; prepare it with"
    ):
        PreparedRows(tmp_path / "data", "eval")


def test_too_little_text_is_refused_and_leaves_nothing(tmp_path):
    empty = tmp_path / "empty.txt"
    empty.write_text("\n\n\n")
    with pytest.raises(ValueError, match="the corpus is empty"):
        prepared_in(tmp_path / "data", [str(empty)])
    with pytest.raises(ValueError, match='pairs="next" needs two documents, .* has 1'):
        prepared_in(tmp_path / "data", write_corpus(tmp_path, count=1))
    assert sorted(p.name for p in tmp_path.iterdir()) == ["empty.txt", "text.txt"]


def test_a_corpus_without_a_token_is_refused(tmp_path):
    class Nothing(Words):
        def encode_batch(self, texts):
            return [[] for _ in texts]

    with pytest.raises(ValueError, match="holds no token of the vocabulary"):
        prepared_in(tmp_path / "data", write_corpus(tmp_path), tokenizer=Nothing())


def test_an_id_beyond_the_vocabulary_is_refused(tmp_path):
    class Liar(Words):
        def _id(self, word):
            return 50

    with pytest.raises(ValueError, match="gave id 50 and has vocab_size=50"):
        prepared_in(tmp_path / "data", write_corpus(tmp_path), tokenizer=Liar(50))


def test_a_directory_that_cannot_be_written_is_refused(tmp_path):
    paths = write_corpus(tmp_path)
    inside = "text.txt/data.partial cannot be written .*choose another place"
    with pytest.raises(files.WriteError, match=inside):
        prepared_in(Path(paths[0]) / "data", paths)
    with pytest.raises(ValueError, match="text.txt is a file; name a directory"):
        prepared_in(Path(paths[0]), paths)
    with pytest.raises(ValueError, match="not a prepared dataset"):
        prepared_in(tmp_path, paths)


@pytest.mark.parametrize(
    "field, value, message",
    [
        ("sequence_length", 4, "sequence_length=4 must be from 5 to 65535"),
        ("sequence_length", 65536, "sequence_length=65536 must be"),
        ("pairs", "random", "pairs='random' must be one of next, order, none"),
        ("short_seq_prob", 1.1, "short_seq_prob=1.1 must be from 0 to 1"),
        ("dupe_factor", 0, "dupe_factor=0 must be 1 or more"),
        ("sequences_per_row", 0, "sequences_per_row=0 must be 1 or more"),
        ("held_out", 1.0, "held_out=1.0 must be 0 or more and below 1"),
        ("seed", -1, "seed=-1 must be 0 or more"),
    ],
)
def test_a_wrong_recipe_is_refused_by_name(tmp_path, field, value, message):
    recipe = dataclasses.replace(RECIPE, **{field: value})
    with pytest.raises(ValueError, match=f"recipe.{message}"):
        prepared_in(tmp_path / "data", write_corpus(tmp_path), recipe)


def test_a_worker_passes_its_error_on(tmp_path):
    with pytest.raises(KeyError, match="d40s0w0"):
        prepared_in(
            tmp_path / "data",
            write_corpus(tmp_path),
            tokenizer=Words(fails_on="d40s0w0"),
            processes=2,
        )


@dataclasses.dataclass
class Killed(Words):
    """A tokenizer that kills the process it works in."""

    def encode_batch(self, texts):
        os.kill(os.getpid(), signal.SIGKILL)


def test_two_processes_do_not_prepare_one_directory_at_once(tmp_path):
    paths, staged = write_corpus(tmp_path), tmp_path / "data.partial"
    staged.mkdir()
    with (
        lock.locked(staged),
        pytest.raises(ValueError, match=f"in use by process {os.getpid()} on "),
    ):
        prepared_in(tmp_path / "data", paths)
    prepared_in(tmp_path / "data", paths)
    assert not staged.exists()


def test_a_killed_worker_is_an_error_that_says_how_to_go_on(tmp_path):
    paths = write_corpus(tmp_path)
    with pytest.raises(RuntimeError, match="worker process was killed .*fewer proc"):
        prepared_in(tmp_path / "data", paths, tokenizer=Killed(), processes=2)


ORPHANS = """
import time
from bert_jax.data import workers

def name_process(task):
    import os
    print(os.getpid(), flush=True)
    sum(range(10**10 * task))  # no other thread of the process runs meanwhile

list(workers.run(name_process, [0, 0, 1, 1], 2))
"""


@pytest.mark.slow
def test_workers_end_after_their_parent_was_killed():
    command = [sys.executable, "-c", ORPHANS]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as parent:
        workers = {int(parent.stdout.readline()) for _ in range(4)}
        parent.kill()
        deadline = time.monotonic() + 10
        while any(Path(f"/proc/{worker}").exists() for worker in workers):
            assert time.monotonic() < deadline, "a worker is still there"
            time.sleep(0.1)


SCRIPT = """
import sys
sys.path.insert(0, {here!r})
from test_prepare import RECIPE, Words, all_rows, prepared_in
print("once")
prepared_in({out!r}, {paths!r}, processes=2)
from pathlib import Path
all_rows(Path({out!r}))
assert not {{"tensorflow", "torch", "jax"}} & set(sys.modules), "too much imported"
"""


def test_a_script_without_a_main_guard_prepares_and_loads_no_tensorflow(tmp_path):
    script = tmp_path / "script.py"
    here = str(Path(__file__).parent)
    paths, out = write_corpus(tmp_path), str(tmp_path / "data")
    script.write_text(SCRIPT.format(here=here, paths=paths, out=out))
    done = subprocess.run(
        [sys.executable, script], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "once\n"
    assert json.loads((tmp_path / "data" / prepared_rows.METADATA).read_text())[
        "splits"
    ]


def test_rows_of_text_in_sentences_are_full(tmp_path):
    recipe = RowConfig(sequence_length=128)
    statistics = prepared_in(
        tmp_path / "data",
        write_corpus(tmp_path, count=600),
        recipe,
        shard_bytes=4_000_000,
    )
    assert statistics.splits["train"].efficiency > 0.97
