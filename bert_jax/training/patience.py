"""When to stop early: how many evaluations there were since the best one."""

from collections.abc import Sequence


class Patience:
    """Counts the evaluations in a row that are no better than the best before.

    Args:
      limit: so many exhaust it; 0 is never exhausted.
      said: what `state` gave when the run was interrupted.
    """

    def __init__(self, limit: int, said: Sequence | None = None):
        self.limit = limit
        self._best, self._stale = said or (None, 0)

    def add(self, score: float) -> None:
        """Takes the score of one evaluation; higher is better."""
        if self._best is None or score > self._best:
            self._best, self._stale = score, 0
        else:
            self._stale += 1

    @property
    def exhausted(self) -> bool:
        """Whether to stop."""
        return 0 < self.limit <= self._stale

    @property
    def state(self) -> list:
        """What a checkpoint holds of it."""
        return [self._best, self._stale]
