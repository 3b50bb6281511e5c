"""Steps that were skipped because something was not finite."""

import collections

import jax
import numpy as np

# So many in a row end the run, and so many steps run ahead of what is read of them.
LIMIT = 3
BEHIND = 2
# Rows of a batch that are named.
NAMED = 8


class Guard:
    """Counts steps in a row that were not finite, without waiting for the newest."""

    def __init__(self):
        self._running = collections.deque()
        self._skipped: list[int] = []

    def add(self, step: int, not_finite: tuple[jax.Array, jax.Array]) -> None:
        """Takes `totals["not_finite"]` of a step."""
        self._running.append((step, not_finite[0]))
        if len(self._running) > BEHIND:
            step, flag = self._running.popleft()
            self._skipped = [*self._skipped, step] if float(flag) else []

    @property
    def exhausted(self) -> bool:
        """Whether there were too many."""
        return len(self._skipped) >= LIMIT

    @property
    def first(self) -> int:
        """The first step of those in a row."""
        return self._skipped[0]

    def explain(self, rows: np.ndarray, learning_rate: float) -> str:
        """What happened, with the rows of the first such step, and what to do."""
        first, last = self._skipped[0], self._skipped[-1]
        named = ", ".join(map(str, sorted(rows)[:NAMED]))
        more = f" and {len(rows) - NAMED} more" if len(rows) > NAMED else ""
        return (
            f"loss or gradients of steps {first} to {last} are not finite; all were "
            f"skipped, and the newest checkpoint is intact\nstep {first} held the rows "
            f"{named}{more} of the training data\nlook at them, or lower "
            f"optimizer.learning_rate={learning_rate}"
        )
