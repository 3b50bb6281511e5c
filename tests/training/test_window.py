"""What is said of the steps between two log lines."""

import pytest

from bert_jax.training import window


def test_speed_and_input_wait_begin_behind_the_first_step(monkeypatch):
    clock = {"now": 0.0}
    monkeypatch.setattr(window.time, "perf_counter", lambda: clock["now"])
    measured = window.Window(lambda totals: {})

    def batches():
        for wait in (50, 2, 1):
            clock["now"] += wait
            yield wait

    totals = {name: (1.0, 1.0) for name in ("tokens", "flops", "grad_norm", "skipped")}
    for _ in measured.received(batches()):
        clock["now"] += 10
        measured.add(totals)
    report = measured.report()
    assert report["seconds"] == pytest.approx((2 + 10 + 1 + 10) / 2)
    assert report["input_wait"] == pytest.approx((2 + 1) / (2 + 10 + 1 + 10))
