"""Progress bars that name compilation, and leave it out of the time left."""

import collections
import contextlib
import statistics
import sys
import time
import weakref
from collections.abc import Callable, Iterable, Iterator
from types import TracebackType
from typing import Self, TextIO, TypeVar

import jax
from tqdm import tqdm

# JAX reports each part of a compilation at its end: XLA begins where lowering ends.
LOWERED = "/jax/core/compile/jaxpr_to_mlir_module_duration"
COMPILED = "/jax/core/compile/backend_compile_duration"

# Seconds before a bar appears, steps whose time counts, columns in a notebook.
DELAY = 3.0
RECENT = 64
NOTEBOOK_COLUMNS = 80

# Columns on the right of a bar that stay empty, for ^C.
ROOM = 4

COMPILING = "compiling …"

T = TypeVar("T")

# Bars that are in use.
_open: "weakref.WeakSet[Bar]" = weakref.WeakSet()


class Bar:
    """A progress bar on a terminal or in a notebook, which appears after three seconds.

    Args:
      total: units in all; None if it is not known. It may be too large: a bar that ends
        without an error ends at 100 %.
      unit: name of the units.
      name: of the work.
      shown: False shows nothing.
      leave: False removes the bar at the end.
      stream: where it is shown; None takes standard error where that is a terminal, and
        standard output in a notebook, which paints the other one red.
      start: units done before.
    """

    # The bar in tqdm's terms, when it appears, and if notebooks have it.
    _format = "{l_bar}{bar}| {n_fmt}/{total_fmt}{unit}{postfix}"
    _delay = DELAY
    _in_notebooks = True

    def __init__(
        self,
        total: int | None,
        unit: str,
        name: str = "",
        *,
        shown: bool = True,
        leave: bool = True,
        stream: TextIO | None = None,
        start: int = 0,
    ):
        self._stream = stream or (
            sys.stderr if sys.stderr.isatty() or not in_notebook() else sys.stdout
        )
        on_terminal = self._stream.isatty()
        in_cell = self._in_notebooks and in_notebook()
        self._times = StepTimes()
        self._began = self._last = time.monotonic()
        self._bar = tqdm(
            total=total,
            desc=name,
            unit=f" {unit}",
            initial=start,
            leave=leave,
            delay=self._delay,
            file=self._stream,
            disable=not (shown and (on_terminal or in_cell)),
            dynamic_ncols=on_terminal,
            ncols=None if on_terminal else NOTEBOOK_COLUMNS,
            bar_format=self._format,
        )
        _leave_room(self._bar)
        self._compilations = Compilations(self._show_compiling)

    def __enter__(self) -> Self:
        self._compilations.__enter__()
        _open.add(self)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._compilations.__exit__(kind, error, trace)
        _open.discard(self)
        if not self._bar.disable and error is None:
            self._show_end()
        _close(self._bar, error)

    def update(self, n: int = 1) -> None:
        """`n` more units are done."""
        now = time.monotonic()
        self._times.add((now - self._last) / max(n, 1), self._compilations.take())
        self._last = now
        if self._bar.disable:
            return
        if self._bar.total:
            left = self._times.left(self._bar.total - self._bar.n - n)
            self._bar.set_postfix_str(left or COMPILING, refresh=False)
        self._bar.update(n)

    def over(self, items: Iterable[T]) -> Iterator[T]:
        """The items; each counts as one unit when the next one is asked for."""
        for item in items:
            yield item
            self.update()

    def _show_end(self) -> None:
        self._bar.total = self._bar.n
        elapsed = tqdm.format_interval(time.monotonic() - self._began)
        self._bar.set_postfix_str(f"done in {elapsed}", refresh=False)

    def _show_compiling(self) -> None:
        if time.monotonic() - self._began >= DELAY and not self._bar.disable:
            self._bar.set_postfix_str(COMPILING)
            # For tqdm, which does not count this as having drawn the bar.
            self._bar.last_print_t = max(
                self._bar.last_print_t, self._bar.start_t + DELAY
            )


@contextlib.contextmanager
def above_bars() -> Iterator[None]:
    """Context for printing on a terminal: bars are cleared, and drawn again below."""
    bars = [bar._bar for bar in _open if not bar._bar.disable]
    bars = [bar for bar in bars if bar.last_print_t >= bar.start_t + bar.delay]
    for bar in bars:
        bar.clear()
    try:
        yield
    finally:
        if bars:
            sys.stdout.flush()
        for bar in bars:
            bar.refresh()


class Part:
    """A part of a bar that other work moves, which counts in units of its own.

    Args:
      bar: the whole.
      units: of the bar in this part.
    """

    def __init__(self, bar: Bar, units: int):
        self._bar, self._units, self._shown = bar, units, 0
        self._total = self._done = 0

    def of(self, total: int) -> "Part":
        """The part as a context in which `total` updates by one fill it."""
        self._total, self._done = total, 0
        return self

    def __enter__(self) -> "Part":
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def update(self, n: int = 1) -> None:
        """`n` more units of the other work are done."""
        self._done += n
        self._show(self._units * self._done // self._total)

    def finish(self) -> None:
        """All is done, whatever the other work counted."""
        self._show(self._units)

    def _show(self, units: int) -> None:
        if units > self._shown:
            self._bar.update(units - self._shown)
            self._shown = units


def opened(shown: bool | Part, total: int, unit: str) -> Bar | Part:
    """A bar over `total` units as a context, or the part of another bar for them."""
    return shown.of(total) if isinstance(shown, Part) else Bar(total, unit, shown=shown)


class StepTimes:
    """Times of the recent steps, for an estimate of the time left.

    The estimate takes their median, without the steps that compiled.
    """

    def __init__(self) -> None:
        self._recent: collections.deque[float] = collections.deque(maxlen=RECENT)

    def add(self, seconds: float, compiled: bool) -> None:
        """A step of `seconds`, in which something `compiled` or nothing did."""
        if not compiled:
            self._recent.append(seconds)

    def left(self, steps: int) -> str:
        """The time of `steps` more steps; "" while no step is timed."""
        if not self._recent:
            return ""
        seconds = statistics.median(self._recent) * max(steps, 0)
        return f"{tqdm.format_interval(seconds)} left"


class Compilations:
    """Context that notices when XLA compiles.

    Args:
      on_start: called when a compilation begins.
    """

    def __init__(self, on_start: Callable[[], None]):
        self._on_start = on_start
        self._compiled = False

    def __enter__(self) -> "Compilations":
        jax.monitoring.register_event_duration_secs_listener(self._hear)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        jax.monitoring.unregister_event_duration_listener(self._hear)

    def take(self) -> bool:
        """True if something compiled since the last call."""
        compiled, self._compiled = self._compiled, False
        return compiled

    def _hear(self, event: str, duration_secs: float, **kwargs: str | int) -> None:
        if event == LOWERED:
            self._compiled = True
            self._on_start()


def _close(bar: tqdm, error: BaseException | None) -> None:
    """Ends a bar; after an error the line stays as it is, and is not printed again."""
    if error is not None and not bar.disable:
        if bar.leave and bar.last_print_t >= bar.start_t + bar.delay:
            bar.fp.write("\n")
        bar.leave = False
    bar.close()


def _leave_room(bar: tqdm) -> None:
    """Keeps a bar off the last columns of the terminal.

    There the terminal's ^C would wrap, and the bar would be drawn on two lines.
    """
    if shape := not bar.disable and bar.dynamic_ncols:

        def narrower(stream: TextIO) -> tuple[int | None, int | None]:
            columns, rows = shape(stream)
            return columns and columns - ROOM, rows

        bar.dynamic_ncols = narrower


def in_notebook() -> bool:
    """True in a notebook or a shell of Python, which a run must not end."""
    return hasattr(sys, "ps1")
