"""Laws of progress bars: names of compilation, times left, ends."""

import io

import jax
import pytest

from bert_jax.data import progress
from bert_jax.data.progress import Bar, Part


class Terminal(io.StringIO):
    def isatty(self):
        return True

    def screen(self):
        """Its lines as one sees them: what follows a carriage return overwrites."""
        lines = []
        for line in self.getvalue().split("\n"):
            text = ""
            for part in line.split("\r"):
                text = part + text[len(part) :]
            lines.append(text.rstrip())
        return lines


@pytest.fixture
def clock(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    monkeypatch.setattr("tqdm.std.time", lambda: now[0])
    return now


def compile_for(clock, seconds):
    """Reports a compilation as JAX does."""
    jax.monitoring.record_event_duration_secs(progress.LOWERED, 0.1)
    clock[0] += seconds
    jax.monitoring.record_event_duration_secs(progress.COMPILED, seconds)


def test_jax_reports_a_compilation_and_no_second_one():
    heard = []
    double = jax.jit(lambda x: x * 2)
    with progress.Compilations(lambda: heard.append(1)) as compilations:
        double(1.0)
        assert compilations.take() and heard
        double(2.0)
        assert not compilations.take()
    count = len(heard)
    jax.jit(lambda x: x * 3)(1.0)
    assert len(heard) == count


def test_compilation_is_named_and_not_counted_into_the_time_left(clock):
    stream = Terminal()
    with Bar(625, "texts", stream=stream) as bar:
        clock[0] += 4.0
        compile_for(clock, 8.0)
        assert stream.screen()[-1].endswith("0/625 texts, compiling …")
        clock[0] += 0.5
        bar.update()
        assert stream.screen()[-1].endswith("1/625 texts, compiling …")
        for _ in range(3):
            clock[0] += 0.5
            bar.update()
            compile_for(clock, 9.0)
            clock[0] += 0.5
            bar.update()
        assert stream.screen()[-1].endswith("7/625 texts, 05:09 left")


def test_a_part_of_a_bar_moves_with_the_batches_of_other_units(clock):
    stream = Terminal()
    with Bar(20, "texts", "answering", stream=stream) as bar:
        shown = []
        for windows in (25, 0):
            part = Part(bar, 10)
            with progress.opened(part, windows, "windows") as inner:
                for _ in range(windows // 5):
                    clock[0] += 4.0
                    inner.update(5)
                    shown.append(stream.screen()[-1].split("| ")[1])
            part.finish()
            assert not stream.getvalue().endswith("\n")
    done = ("2/20", "4/20", "6/20", "8/20", "10/20")
    left = ("00:36", "00:32", "00:28", "00:24", "00:20")
    times = zip(done, left, strict=True)
    assert shown == [f"{n} texts, {time} left" for n, time in times]
    assert stream.screen()[-2].startswith("answering: 100%|")


def test_time_left_is_that_of_units_and_not_of_updates(clock):
    stream = Terminal()
    with Bar(1000, "texts", stream=stream) as bar:
        for _ in range(4):
            clock[0] += 6.4
            bar.update(64)
        assert stream.screen()[-1].endswith("256/1000 texts, 01:14 left")


def test_a_bar_ends_at_all_that_was_done_with_its_name_and_time(clock):
    stream = Terminal()
    with Bar(11, "texts", "embedding", stream=stream) as bar:
        for _ in range(10):
            clock[0] += 1.0
            bar.update()
    assert stream.screen()[-2:] == [
        "embedding: 100%|##########| 10/10 texts, done in 00:10",
        "",
    ]


def test_a_bar_of_an_unknown_number_ends_too(clock):
    stream = Terminal()
    with Bar(None, "texts", stream=stream) as bar:
        clock[0] += 10.0
        bar.update(5)
    assert stream.screen()[-2].endswith("5/5 texts, done in 00:10")


def test_short_work_shows_no_bar(clock):
    stream = Terminal()
    with Bar(3, "texts", stream=stream) as bar:
        compile_for(clock, 2.0)
        bar.update(3)
    assert stream.getvalue() == ""


@pytest.mark.parametrize("updates", [0, 2])
def test_an_interrupted_bar_is_drawn_once(clock, updates):
    stream = Terminal()
    with pytest.raises(KeyboardInterrupt), Bar(9, "texts", stream=stream) as bar:
        clock[0] += 4.0
        for _ in range(updates):
            bar.update()
        compile_for(clock, 1.0)
        drawn = stream.getvalue()
        raise KeyboardInterrupt
    after = stream.getvalue().removeprefix(drawn)
    assert after.startswith("\n") and not after.strip()


def test_a_bar_leaves_room_for_the_characters_of_an_interrupt(monkeypatch, clock):
    monkeypatch.setattr("tqdm.std._screen_shape_wrapper", lambda: lambda _: (60, 24))
    stream = Terminal()
    with Bar(100, "texts", stream=stream) as bar:
        clock[0] += 4.0
        bar.update(50)
        assert len(stream.screen()[-1]) == 60 - progress.ROOM


def test_notebooks_have_a_bar_on_standard_output(clock, monkeypatch):
    out, err = io.StringIO(), io.StringIO()
    monkeypatch.setattr("sys.stdout", out)
    monkeypatch.setattr("sys.stderr", err)
    for notebook in (False, True):
        monkeypatch.setattr(progress, "in_notebook", lambda shown=notebook: shown)
        with Bar(2, "texts") as bar:
            clock[0] += 4.0
            bar.update(2)
        assert bool(out.getvalue()) is notebook and not err.getvalue()


def test_a_bar_over_items_counts_each_when_it_is_done(clock):
    stream = Terminal()
    with Bar(3, "batches", "eval", leave=False, stream=stream) as bar:
        for _ in bar.over("abc"):
            clock[0] += 5.0
    assert "eval:  67%" in stream.getvalue()
    assert stream.screen() == [""]


def test_what_is_printed_stands_on_lines_of_its_own_above_a_bar(clock):
    stream = Terminal()
    with Bar(9, "texts", stream=stream) as bar:
        with progress.above_bars():  # it has not appeared
            print("first", file=stream)
        clock[0] += 4.0
        bar.update(3)
        with progress.above_bars():
            print("second", file=stream)
        assert [x.strip() for x in stream.screen()[:2]] == ["first", "second"]
        assert "3/9 texts" in stream.screen()[2]
    assert len(stream.screen()) == 4
