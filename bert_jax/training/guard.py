"""Steps that were skipped because something was not finite."""

import collections
from typing import Any

import jax

from bert_jax.data import pipeline
from bert_jax.training.config import TrainConfig

# So many in a row end the run, and so many steps run ahead of what is read of them.
LIMIT = 3
BEHIND = 2
# Rows of a batch that are named.
NAMED = 8


class Guard:
    """Counts skipped steps in a row, without waiting for the step that runs."""

    def __init__(self):
        self._running = collections.deque()
        self._skipped: list[int] = []

    def add(self, step: int, skipped: tuple[jax.Array, jax.Array]) -> None:
        """Takes `totals["skipped"]` of a step."""
        self._running.append((step, skipped[0]))
        if len(self._running) > BEHIND:
            step, flag = self._running.popleft()
            self._skipped = [*self._skipped, step] if float(flag) else []

    @property
    def exhausted(self) -> bool:
        """Whether there were too many."""
        return len(self._skipped) >= LIMIT

    def explain(self, config: TrainConfig, source: Any) -> str:
        """What happened, with the rows of the first skipped step, and what to do."""
        first, last = self._skipped[0], self._skipped[-1]
        size, stop = config.batch_size, config.num_steps * config.batch_size
        _, rows = pipeline.examples_and_rows(
            source, size, config.seed, (first - 1) * size, stop
        )
        named = ", ".join(map(str, sorted(rows)[:NAMED]))
        more = f" and {size - NAMED} more" if size > NAMED else ""
        return (
            f"loss or gradients of steps {first} to {last} are not finite; all were "
            f"skipped, and the newest checkpoint is intact\nstep {first} held the rows "
            f"{named}{more} of the training data\nlook at them, or lower "
            f"optimizer.learning_rate={config.optimizer.learning_rate}"
        )
