"""Runs an ablation: python -m examples.ablations --config=...config.py:nsp"""

from pathlib import Path

from examples import command

if __name__ == "__main__":
    command.run(str(Path(__file__).parent / "config.py"))
