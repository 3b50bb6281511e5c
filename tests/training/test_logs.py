import io
import itertools
import json
import math
import struct
import subprocess
import sys
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tensorboard.plugins.hparams import plugin_data_pb2
from tqdm import tqdm

from bert_jax.data import progress
from bert_jax.training import logs, tensorboard
from bert_jax.training.logs import MetricsWriter, ProgressBar


def lines(workdir):
    text = (workdir / "metrics.jsonl").read_text()
    return [json.loads(line) for line in text.splitlines()]


def read_events(workdir, run):
    """TensorBoard's own reader of a run's events."""
    # Unlike its writer, it takes TensorFlow where it finds it: 10 s.
    sys.modules.setdefault("tensorboard.compat.notf", types.ModuleType("notf"))
    accumulator = pytest.importorskip(
        "tensorboard.backend.event_processing.event_accumulator"
    )
    events = accumulator.EventAccumulator(str(workdir / "tensorboard" / run))
    return events.Reload()


def scalars(workdir, run, tag):
    events = read_events(workdir, run).Scalars(tag)
    return [(e.step, pytest.approx(e.value)) for e in events]


def test_both_log_files_have_the_same_numbers(tmp_path):
    with MetricsWriter(tmp_path) as metrics:
        metrics.write(20, "train", {"loss": jnp.float32(9.5), "seconds": 3})
        metrics.write(20, "eval", {"loss": np.float64(9.25)})
        metrics.write(40, "train", {"loss": 8.5, "seconds": 2})
    assert lines(tmp_path) == [
        {"step": 20, "split": "train", "loss": 9.5, "seconds": 3.0},
        {"step": 20, "split": "eval", "loss": 9.25},
        {"step": 40, "split": "train", "loss": 8.5, "seconds": 2.0},
    ]
    assert scalars(tmp_path, "train", "loss") == [(20, 9.5), (40, 8.5)]
    assert scalars(tmp_path, "eval", "loss") == [(20, 9.25)]


def test_a_number_that_is_not_finite_stays_valid_json(tmp_path):
    with MetricsWriter(tmp_path) as metrics:
        metrics.write(1, "train", {"loss": math.nan, "grad_norm": math.inf, "a": 1})
    (line,) = lines(tmp_path)
    assert line == {
        "step": 1,
        "split": "train",
        "loss": None,
        "grad_norm": None,
        "a": 1.0,
    }


def test_a_line_can_be_read_as_soon_as_it_is_written(tmp_path):
    with MetricsWriter(tmp_path) as metrics:
        metrics.write(1, "train", {"loss": 1})
        assert len(lines(tmp_path)) == 1
        assert scalars(tmp_path, "train", "loss") == [(1, 1.0)]


def test_scores_in_percent_are_shares_in_tensorboard_and_stay_in_metrics(tmp_path):
    with MetricsWriter(tmp_path) as metrics:
        metrics.write(1, "eval", {"exact_match": 50.0, "f1": 75.0, "total": 8.0})
        metrics.write(2, "eval", {"f1": 0.75})
    assert [line["f1"] for line in lines(tmp_path)] == [75.0, 0.75]
    assert scalars(tmp_path, "eval", "exact_match") == [(1, 0.5)]
    assert scalars(tmp_path, "eval", "f1") == [(1, 0.75), (2, 0.75)]
    assert scalars(tmp_path, "eval", "total") == [(1, 8.0)]


def test_tensorboard_has_the_config_beside_the_scores(tmp_path):
    config = {"batch_size": 8, "optimizer.name": "adamw", "remat": True, "init": None}
    MetricsWriter(tmp_path, config).close()
    summary = read_events(tmp_path, "").summary_metadata["_hparams_/session_start_info"]
    assert summary.plugin_data.plugin_name == "hparams"
    content = plugin_data_pb2.HParamsPluginData.FromString(summary.plugin_data.content)
    hparams = content.session_start_info.hparams
    assert hparams["batch_size"].number_value == 8
    assert hparams["optimizer.name"].string_value == "adamw"
    assert hparams["remat"].bool_value is True and "init" not in hparams


def test_tensorboard_has_pictures_and_texts_of_the_end_of_a_run(tmp_path):
    # A picture of 3 x 2 pixels, as far as its size.
    png = b"\x89PNG\r\n\x1a\n" + struct.pack(">I4sII", 13, b"IHDR", 3, 2) + bytes(9)
    (tmp_path / "confusion.png").write_bytes(png)
    with MetricsWriter(tmp_path) as metrics:
        metrics.write(9, "eval", {"loss": 1.0})
    pictures = {"confusion": tmp_path / "confusion.png", "none": tmp_path / "none.png"}
    tensorboard.write_results(tmp_path, 9, pictures, {"samples": "a *b*\nc", "no": ""})
    events = read_events(tmp_path, "eval")
    assert events.Tags()["images"] == ["confusion"]
    (image,) = events.Images("confusion")
    assert (image.step, image.width, image.height) == (9, 3, 2)
    assert image.encoded_image_string == png
    (text,) = events.Tensors("samples")
    # Indented, so that it is no Markdown.
    assert text.tensor_proto.string_val[0].decode() == "    a *b*\n    c"
    metadata = events.summary_metadata["samples"]
    assert metadata.plugin_data.plugin_name == "text" and "no" not in events.Tags()
    assert scalars(tmp_path, "eval", "loss") == [(9, 1.0)]


@pytest.mark.parametrize("evaluated", [True, False])
def test_tensorboard_forgets_an_evaluation_that_is_repeated(tmp_path, evaluated):
    with MetricsWriter(tmp_path) as metrics:
        for step in (2, 4, 6):
            metrics.write(step, "eval", {"loss": step})
        metrics.truncate_after(4, evaluated=evaluated)
        metrics.write(4 + 2 * evaluated, "eval", {"loss": 9.0})
    losses = scalars(tmp_path, "eval", "loss")
    expected = [(2, 2.0), (4, 4.0), (6, 9.0)] if evaluated else [(2, 2.0), (4, 9.0)]
    assert losses == expected


def write_run(workdir, first, last, value=1.0):
    with MetricsWriter(workdir) as metrics:
        metrics.truncate_after(first - 1)
        for step in range(first, last + 1):
            metrics.write(step, "train", {"loss": value * step})


def test_a_resumed_run_leaves_the_files_of_an_uninterrupted_one(tmp_path):
    write_run(tmp_path / "whole", 1, 7)
    # Killed at 5, saved at 3; what was written at 4 and 5 was something else.
    write_run(tmp_path / "killed", 1, 3)
    with MetricsWriter(tmp_path / "killed") as metrics:
        metrics.write(4, "train", {"loss": -4})
        metrics.write(5, "train", {"loss": -5})
    write_run(tmp_path / "killed", 4, 7)
    whole, killed = ((tmp_path / d / "metrics.jsonl") for d in ("whole", "killed"))
    assert killed.read_bytes() == whole.read_bytes()
    assert scalars(tmp_path / "killed", "train", "loss") == [
        (s, float(s)) for s in range(1, 8)
    ]


def test_a_line_that_was_cut_off_is_dropped(tmp_path):
    write_run(tmp_path, 1, 3)
    path = tmp_path / "metrics.jsonl"
    for cut in ('{"step": 2, "spl', '{"step": 2}', "[1]\n", "null\n"):
        path.write_text(path.read_text() + cut)
        write_run(tmp_path, 4, 4)
        assert [line["step"] for line in lines(tmp_path)] == [1, 2, 3, 4]


def test_only_process_0_writes(tmp_path, monkeypatch):
    monkeypatch.setattr("jax.process_index", lambda: 1)
    write_run(tmp_path / "run", 1, 3)
    stream = io.StringIO()
    with ProgressBar(10, stream=stream) as bar:
        bar.update()
        bar.report(1, 2.0, 3.0)
        bar.note("hello")
    assert not (tmp_path / "run").exists() and stream.getvalue() == ""


def test_writing_metrics_does_not_import_tensorflow(tmp_path):
    code = (
        "import sys; from bert_jax.training.logs import MetricsWriter\n"
        f"with MetricsWriter({str(tmp_path)!r}) as m: m.write(1, 'train', {{'a': 1}})\n"
        "assert not {'tensorflow', 'torch', 'keras'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def clock(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(logs.time, "monotonic", lambda: now[0])
    return now


def test_without_a_terminal_progress_is_an_occasional_line(clock):
    stream = io.StringIO()
    with ProgressBar(100, stream=stream) as bar:
        for step in range(1, 101):
            clock[0] += 1.0
            bar.update()
            bar.report(step, 9.5, 31234.5)
    printed = stream.getvalue().splitlines()
    assert [int(line.split()[1].split("/")[0]) for line in printed] == [
        *range(1, 100, 15),
        100,
    ]
    assert printed[1] == "step 16/100: loss 9.500, 31,234 tokens/s, 01:24 left"
    assert "\r" not in stream.getvalue()


def test_without_a_terminal_one_line_names_compilation(clock):
    stream = io.StringIO()
    with ProgressBar(9, stream=stream) as bar:
        assert not stream.getvalue()
        for _ in range(2):
            jax.monitoring.record_event_duration_secs(progress.LOWERED, 0.1)
            assert stream.getvalue() == "compiling …\n"
            bar.update()


def test_a_speed_that_is_not_known_is_not_shown(clock):
    stream = io.StringIO()
    with ProgressBar(10, stream=stream) as bar:
        bar.report(1, 9.5, None)
    assert stream.getvalue() == "step 1/10: loss 9.500\n"


@pytest.mark.parametrize("terminal", [False, True])
def test_lines_go_to_standard_output_and_a_bar_to_standard_error(monkeypatch, terminal):
    out, err = io.StringIO(), Terminal() if terminal else io.StringIO()
    monkeypatch.setattr("sys.stdout", out)
    monkeypatch.setattr("sys.stderr", err)
    with ProgressBar(3) as bar:
        bar.update()
        bar.note("held out")
    shown, empty = (err, out) if terminal else (out, err)
    assert "held out\n" in shown.getvalue() and not empty.getvalue()


def test_the_time_left_excludes_compilation(clock):
    stream = io.StringIO()
    with ProgressBar(100, start=50, stream=stream) as bar:
        for step, now in ((51, 300.0), (61, 320.0)):
            clock[0] = now
            bar.report(step, 1.0, 1.0)
    assert stream.getvalue().splitlines()[1].endswith(", 01:18 left")


def test_steps_that_compile_are_named_and_left_out_of_the_time_left(clock):
    stream = Terminal()
    with ProgressBar(50, stream=stream) as bar:
        assert "0/50 |" in stream.getvalue()
        assert stream.getvalue().rstrip().endswith("compiling …")
        for step in range(1, 31):
            compiles = step in (1, 13)
            if compiles:
                jax.monitoring.record_event_duration_secs(progress.LOWERED, 0.1)
                assert stream.getvalue().rstrip().endswith("compiling …")
            clock[0] += 300.0 if compiles else 2.0
            bar.update()
            if step % 10 == 0:
                bar.report(step, 1.0, 1.0)
                left = tqdm.format_interval(2 * (50 - step))
                assert stream.getvalue().rstrip().endswith(f"1 tokens/s, {left} left")


def test_an_interrupted_run_draws_its_bar_once():
    stream = Terminal()
    with pytest.raises(SystemExit), ProgressBar(50, stream=stream) as bar:
        bar.update()
        drawn = stream.getvalue()
        raise SystemExit
    after = stream.getvalue().removeprefix(drawn)
    assert after.startswith("\n") and not after.strip()


def test_on_a_terminal_there_is_a_bar_with_the_same_numbers():
    stream = Terminal()
    with ProgressBar(100, start=50, stream=stream) as bar:
        bar.update()
        bar.report(51, 9.0, 31234.5)
        bar.update()
        bar.report(52, 9.5, 31234.5)
        bar.note("eval: loss 9.1")
    shown = stream.getvalue()
    assert "52/100" in shown and "left" in shown
    assert "loss 9.500, 31,234 tokens/s" in shown
    assert "eval: loss 9.1\n" in shown


def test_speed_and_input_wait_are_measured_after_the_first_step(monkeypatch):
    clock = {"now": 0.0}
    monkeypatch.setattr(logs.time, "perf_counter", lambda: clock["now"])
    speed = logs.Throughput()

    def batches():
        for wait in (50, 2, 1):
            clock["now"] += wait
            yield wait

    totals = {"tokens": (46.0, 1.0), "flops": (9000.0, 1.0)}
    for _ in speed.waiting(batches()):
        clock["now"] += 10
        speed.add(totals)
    report = speed.take()
    assert report["seconds"] == pytest.approx((2 + 10 + 1 + 10) / 2)
    assert report["input_wait"] == pytest.approx((2 + 1) / (2 + 10 + 1 + 10))
    assert report["tokens_per_second"] == pytest.approx(2 * 46 / (2 + 10 + 1 + 10))


@pytest.mark.parametrize(
    "kind, peak",
    [
        ("TPU v5 lite", 197e12),
        ("TPU v5", 459e12),
        ("TPU7x", 1153.5e12),
        ("NVIDIA H100 PCIe", 756e12),
        ("NVIDIA H100 80GB HBM3", 989e12),
        ("NVIDIA H100 80GB HBM3 MIG 1g.10gb", None),
        ("NVIDIA L40S", None),
    ],
)
def test_mfu_is_the_share_of_the_peak_of_exactly_this_kind(monkeypatch, kind, peak):
    device = types.SimpleNamespace(device_kind=kind)
    monkeypatch.setattr(logs.jax, "devices", lambda: [device] * 2)
    monkeypatch.setattr(logs.jax, "device_count", lambda: 2)
    clock = itertools.count()
    monkeypatch.setattr(logs.time, "perf_counter", lambda: float(next(clock)))
    speed = logs.Throughput()
    for _ in range(2):
        speed.add({"tokens": (46.0, 1.0), "flops": (9e12, 1.0)})
    assert speed.take().get("mfu") == (peak and pytest.approx(9e12 / (2 * peak)))
