"""Vectors of words: python -m examples.skip_gram --config=...config.py:train"""

from pathlib import Path

from examples import command

if __name__ == "__main__":
    command.run(str(Path(__file__).parent / "config.py"))
