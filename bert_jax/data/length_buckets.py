"""The few lengths that rows are padded to, as each costs a compilation."""

from collections.abc import Sequence


def padded(length: int, steps: Sequence[int], longest: int) -> int:
    """The length, at most `longest`, that rows of `length` tokens are padded to.

    That is one of `steps`, which ascend, or a multiple of the last.
    """
    for n in steps:
        if length <= n:
            return min(n, longest)
    return min(-(-length // steps[-1]) * steps[-1], longest)
