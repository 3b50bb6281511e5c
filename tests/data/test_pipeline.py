"""Prepared rows by number, and the batches made of them."""

import itertools
import resource
import shutil

import numpy as np
import pytest
from test_prepare import RECIPE, prepared_in, write_corpus

from bert_jax.data import optional, order, pipeline
from bert_jax.data import prepared_rows as source_module
from bert_jax.data.prepared_rows import PreparedRows, model_inputs
from bert_jax.data.records import Layout


class Numbers:
    """Rows that are their own numbers."""

    def __init__(self, size):
        self.size = size

    def __len__(self):
        return self.size

    def gather(self, indices):
        return {"row": indices.astype(np.int32), "twice": np.stack([indices] * 2, 1)}


def taken(batches, count=None):
    """The batches joined, one array for each name."""
    seen = list(itertools.islice(batches, count))
    return {name: np.concatenate([b[name] for b in seen]) for name in seen[0]}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("prepared")
    prepared_in(folder / "data", write_corpus(folder))
    return folder / "data"


def test_the_inputs_follow_from_the_lengths():
    lengths = np.array([[[3, 2], [2, 0], [0, 0]], [[4, 3], [2, 1], [1, 1]]])
    inputs = model_inputs(lengths, Layout(12, 3, "uint16"))
    rows = {
        "attention_mask": [
            [1, 1, 1, 1, 1, 2, 2, 0, 0, 0, 0, 0],
            [1, 1, 1, 1, 1, 1, 1, 2, 2, 2, 3, 3],
        ],
        "token_type_ids": [
            [0, 0, 0, 1, 1, 0, 0, 0, 0, 0, 0, 0],
            [0, 0, 0, 0, 1, 1, 1, 0, 0, 1, 0, 1],
        ],
        "position_ids": [
            [0, 1, 2, 3, 4, 0, 1, 0, 1, 2, 3, 4],
            [0, 1, 2, 3, 4, 5, 6, 0, 1, 2, 0, 1],
        ],
        "cls_positions": [[0, 5, 0], [0, 7, 10]],
    }
    assert {name: array.tolist() for name, array in inputs.items()} == rows
    # Where [CLS] comes last, it has a type of its own.
    last = model_inputs(lengths, Layout(12, 3, "uint16", cls_last=True))
    rows |= {
        "token_type_ids": [
            [0, 0, 1, 1, 2, 0, 2, 0, 0, 0, 0, 0],
            [0, 0, 0, 1, 1, 1, 2, 0, 1, 2, 1, 2],
        ],
        "cls_positions": [[4, 6, 0], [6, 9, 11]],
    }
    assert {name: array.tolist() for name, array in last.items()} == rows


def test_each_sequence_begins_with_cls_and_each_segment_ends_with_sep(folder):
    rows = PreparedRows(folder)
    batch = rows.gather(np.arange(len(rows)))
    ids, mask = batch["input_ids"], batch["attention_mask"]
    present = batch["pair_labels"] >= 0
    row, _ = np.nonzero(present)
    assert (ids[row, batch["cls_positions"][present]] == 1).all()
    assert (ids == 1).sum() == present.sum()
    assert (ids == 2).sum() == 2 * present.sum()
    assert ((ids == 0) == (mask == 0)).all()
    assert mask.max(1).tolist() == present.sum(1).tolist()
    assert {array.dtype for array in batch.values()} == {np.dtype("int32")}
    assert ids.shape[1] == RECIPE.sequence_length


def test_rows_come_in_the_requested_order(folder, monkeypatch):
    monkeypatch.setattr(source_module, "open_file_limit", lambda wanted: 2)
    rows = PreparedRows(folder)
    whole = rows.gather(np.arange(len(rows)))
    requested = np.array([len(rows) - 1, 0, 5, 0, len(rows) // 2, 5])
    for name, array in rows.gather(requested).items():
        assert (array == whole[name][requested]).all()


def test_a_process_may_open_every_shard_as_far_as_the_system_allows(monkeypatch):
    limits = {"now": (1024, 1536)}
    monkeypatch.setattr(resource, "getrlimit", lambda _: limits["now"])
    monkeypatch.setattr(resource, "setrlimit", lambda _, pair: limits.update(now=pair))
    assert source_module.open_file_limit(500) == 500
    assert limits["now"] == (1024, 1536)
    assert source_module.open_file_limit(600) == 600
    assert limits["now"] == (1112, 1536)
    assert source_module.open_file_limit(2000) == 1024
    assert limits["now"] == (1536, 1536)


def test_rows_outside_and_directories_of_others_are_refused(folder, tmp_path):
    rows = PreparedRows(folder)
    for index in (-1, len(rows)):
        with pytest.raises(IndexError, match=f"not all within the {len(rows)} rows"):
            rows.gather(np.array([0, index]))
    with pytest.raises(ValueError, match="is not a prepared dataset"):
        PreparedRows(tmp_path)


def test_a_damaged_shard_is_named(folder, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(folder, copy)
    for shard in copy.glob("*pretraining-train*"):
        content = bytearray(shard.read_bytes())
        content[300:400] = bytes(100)
        shard.write_bytes(content)
    rows = PreparedRows(copy)
    with pytest.raises(ValueError, match="row .* of .*train.* cannot be read"):
        rows.gather(np.arange(len(rows)))


def test_an_error_while_a_batch_is_made_reaches_the_caller_unchanged():
    class Failing(Numbers):
        def gather(self, indices):
            if 7 in indices:
                raise LookupError("row 7 is not here")
            return super().gather(indices)

    with pytest.raises(LookupError, match="row 7 is not here"):
        list(pipeline.eval_batches(Failing(9), batch_size=2))


def test_each_epoch_of_batches_visits_every_row_once():
    stream = taken(pipeline.batches(Numbers(21), batch_size=6, seed=0), 7)
    assert (stream["example"] == np.arange(42)).all()
    epochs = stream["row"].reshape(2, 21)
    assert (np.sort(epochs) == np.arange(21)).all()
    assert (epochs[0] != epochs[1]).any()
    assert (stream["row"] == order.epochs_and_rows(np.arange(42), 21, 0)[1]).all()
    assert stream["example"].dtype == np.uint64


@pytest.mark.parametrize(
    "shares",
    [
        np.arange(8).reshape(2, 4),
        np.arange(8).reshape(4, 2),
        np.array([[0, 1, 4, 5], [2, 3, 6, 7]]),
        np.array([[0, 1, 2, 3], [0, 1, 2, 3], [4, 5, 6, 7], [4, 5, 6, 7]]),
    ],
)
def test_each_host_reads_its_places_of_the_same_global_batches(folder, shares):
    rows = PreparedRows(folder)
    alone = list(itertools.islice(pipeline.batches(rows, batch_size=8, seed=3), 4))
    for share in shares:
        parts = pipeline.batches(rows, batch_size=8, seed=3, share=share)
        for whole, part in zip(alone, parts, strict=False):
            assert part.keys() == whole.keys()
            assert all((part[name] == whole[name][share]).all() for name in whole)


def test_a_stream_resumes_at_any_example_with_any_batch_size():
    whole = taken(pipeline.batches(Numbers(13), batch_size=4, seed=1), 10)
    for start, size in ((0, 4), (8, 4), (7, 3), (26, 2)):
        resumed = pipeline.batches(Numbers(13), batch_size=size, seed=1, start=start)
        for name, array in taken(resumed, 4).items():
            assert (array == whole[name][start : start + 4 * size]).all()


def test_resuming_reads_only_the_rows_of_its_batches():
    class Counted(Numbers):
        requested = 0

        def gather(self, indices):
            self.requested += len(indices)
            return super().gather(indices)

    source = Counted(10**9)
    next(pipeline.batches(source, batch_size=4, seed=1, start=10**15))
    # One batch is read for its types, and a few ahead.
    assert source.requested <= 6 * 4


def test_a_stream_ends_before_the_example_it_shall_stop_at():
    stream = pipeline.batches(Numbers(13), batch_size=4, seed=1, start=3, stop=16)
    assert taken(stream)["example"].tolist() == list(range(3, 15))


def test_examples_are_counted_beyond_32_bits():
    start = 2**32 - 1
    stream = pipeline.batches(Numbers(13), batch_size=2, seed=1, start=start)
    assert next(stream)["example"].tolist() == [start, start + 1]


def test_evaluation_reads_every_row_once_and_marks_the_filling():
    batches = taken(pipeline.eval_batches(Numbers(10), batch_size=4))
    assert batches["row"].tolist() == [*range(10), 0, 0]
    assert batches["valid"].tolist() == [True] * 10 + [False] * 2


def test_each_host_evaluates_its_places_of_every_batch():
    batches = taken(pipeline.eval_batches(Numbers(10), batch_size=4, share=[1, 3]))
    assert batches["row"].tolist() == [1, 3, 5, 7, 9, 0]
    assert batches["valid"].tolist() == [True] * 5 + [False]


def test_a_dataset_of_ones_own_is_batched_resumed_and_shared():
    tf = optional.tensorflow()
    dataset = tf.data.Dataset.range(23).map(lambda i: {"row": i})
    whole = taken(pipeline.from_dataset(dataset, batch_size=4))
    assert whole["row"].tolist() == whole["example"].tolist() == list(range(20))
    second = pipeline.from_dataset(
        dataset, batch_size=4, start=6, share=np.array([2, 3])
    )
    assert taken(second)["row"].tolist() == [8, 9, 12, 13, 16, 17, 20, 21]


def test_tensorflow_sees_no_accelerator():
    tf = optional.tensorflow()
    assert not tf.config.get_visible_devices("GPU")
    assert not tf.config.get_visible_devices("TPU")


@pytest.mark.parametrize(
    "options, message",
    [
        ({"batch_size": 0}, "batch_size=0"),
        ({"batch_size": 4, "share": [0, 4]}, r"share=\[0, 4\] .* from 0 to 3"),
        ({"batch_size": 4, "start": -4}, "start=-4"),
    ],
)
def test_batches_that_cannot_be_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        pipeline.batches(Numbers(13), seed=0, **options)


def test_a_source_without_rows_is_refused():
    with pytest.raises(ValueError, match="no row"):
        pipeline.batches(Numbers(0), batch_size=2, seed=0)
