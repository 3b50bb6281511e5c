"""The files of a run, by what they are for."""

from collections.abc import Sequence
from pathlib import Path


def by_split(
    train: str, dev: str, test: Sequence[str], field: str = "test"
) -> dict[str, str]:
    """Files by split: "train", "eval", and `test` by the names of its files.

    Raises ValueError where two have one name; `field` is where they are given.
    """
    found = {"train": train, "eval": dev}
    for file in test:
        name = Path(file).stem
        if name in found:
            raise ValueError(
                f"{field} has a file named {name!r}, which another split is named too; "
                "rename it"
            )
        found[name] = file
    return found
