"""Tests attention: python -m examples.explanation --config=...config.py:changed"""

from pathlib import Path

from examples import command

if __name__ == "__main__":
    command.run(str(Path(__file__).parent / "config.py"))
