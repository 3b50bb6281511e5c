"""Scores a translator: python -m examples.translation --config.model=runs/multi30k"""

from pathlib import Path

from examples import command

if __name__ == "__main__":
    command.run(str(Path(__file__).parent / "evaluation_config.py"))
