r"""A run on a TPU slice, analysed by the TPU compiler on a machine without a TPU.

    pip install -e '.[tpu]'
    python -m benchmarks.tpu_aot --topology=v5e:4x4 \\
        --config=configs/bert_large_phase2.py

Any field can be set as in train.py: --config.layout=fsdp --config.batch_size=128. The
program is the run's own, compiled for the slice from shapes alone. Memory, FLOPs and
exchanges are those that the compiler reports. Times are an estimate, by the model
that benchmarks/roofline.py states.
"""

import json
import math
import os
import re
import sys
import time
from pathlib import Path

# Before jax: the host computes nothing, and asks nobody which TPU it is part of.
os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("TPU_SKIP_MDS_QUERY", "1")
os.environ.setdefault("ALLOW_MULTIPLE_LIBTPU_LOAD", "1")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import jax
from absl import app, flags
from jax.experimental import topologies
from ml_collections import config_flags

from benchmarks import report
from benchmarks.abstract import abstract
from benchmarks.roofline import CHIPS

TOPOLOGY = flags.DEFINE_string("topology", "v5e:2x4", "The slice: chip:AxBxC.")
JSON = flags.DEFINE_bool("json", False, "Prints one JSON object.")
TEXT = flags.DEFINE_string("text", None, "A file for the compiled program's text.")

# What XLA says where a program does not fit.
MEMORY = re.compile(r"Used ([\d.]+)([KMG]) of ([\d.]+)([KMG]) hbm")
UNITS = {"K": 2**10, "M": 2**20, "G": 2**30}


def main(argv: list[str]) -> None:
    """Compiles and prints; ends with status 1 where the program does not fit."""
    config = flags.FLAGS.config
    try:
        chip, devices = slice_of(TOPOLOGY.value)
        config, program, batch = abstract(config, devices)
        rows = report.rows_of(config, batch)
        lowered = program.lower(batch)
    except ValueError as error:
        sys.exit(f"tpu_aot: {error}")
    began = time.perf_counter()
    try:
        compiled = lowered.compile()
    except jax.errors.JaxRuntimeError as error:
        if not (lack := MEMORY.search(str(error))):
            raise
        used, limit = (float(lack[i]) * UNITS[lack[i + 1]] for i in (1, 3))
        result = report.too_large(config, TOPOLOGY.value, rows, used, limit)
    else:
        if TEXT.value:
            Path(TEXT.value).write_text(compiled.as_text())
        where = TOPOLOGY.value, CHIPS[chip]
        result = report.describe(config, *where, program, rows, compiled)
    result["seconds_to_compile"] = round(time.perf_counter() - began, 1)
    print(json.dumps(result, indent=1) if JSON.value else report.in_table(result))
    sys.exit(not result["fits"])


def slice_of(topology: str, slices: int = 1) -> tuple[str, list[jax.Device]]:
    """The chip of a topology such as "v5e:4x4", and the devices of so many slices.

    Raises:
      ValueError: for a chip that is not known or a slice that cannot be.
    """
    chip, _, shape = topology.partition(":")
    if chip not in CHIPS or not re.fullmatch(r"\d+(x\d+){1,2}", shape):
        raise ValueError(
            f"topology={topology!r} is unknown; write v5e:4x4 or v4:2x2x4, "
            f"with one of {', '.join(CHIPS)}"
        )
    # A v4 chip has two cores, which by default would be two devices.
    more = {"chip_config_name": "megacore"} if chip == "v4" else {}
    if math.prod(int(n) for n in shape.split("x")) == 1:
        more["chips_per_host_bounds"] = (1, 1, 1)
    try:
        topology_description = topologies.get_topology_desc(
            topology, platform="tpu", num_slices=slices, **more
        )
    except (jax.errors.JaxRuntimeError, ModuleNotFoundError, NotImplementedError) as e:
        first = str(e).splitlines()[0][:200]
        raise ValueError(
            f"topology={topology!r} was not made: {first}\n"
            "libtpu comes with pip install -e '.[tpu]'"
        ) from None
    return chip, topology_description.devices


if __name__ == "__main__":
    config_flags.DEFINE_config_file("config", None, "The recipe, as for train.py.")
    flags.mark_flag_as_required("config")
    app.run(main)
