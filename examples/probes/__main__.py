"""Fits a linear probe: python -m examples.probes --config=examples/probes/sst2.py"""

from pathlib import Path

from examples import command

if __name__ == "__main__":
    command.run(str(Path(__file__).parent / "sst2.py"))
