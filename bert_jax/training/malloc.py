"""Settings of malloc for training on CPUs: large pages, which the process keeps."""

import os
import sys

# Of glibc's malloc: pages of 2 MB where the system has them, blocks of any size from
# the heap, and nothing of the heap given back.
SETTINGS = {"hugetlb": 1, "mmap_max": 0, "trim_threshold": 2**40}


def keep() -> None:
    """Starts the program again under `SETTINGS`, which glibc reads at the start alone.

    XLA allocates a step's temporaries again at every step. By default the
    last step's went back to the system, which hands out pages of 4 KB, zeroed one by
    one as they are touched: half a million of them in a step of BERT-base.

    To be called before anything is imported that takes time. Does nothing where
    `GLIBC_TUNABLES` is set, as it is the second time, and elsewhere than on Linux.
    """
    if sys.platform != "linux" or "GLIBC_TUNABLES" in os.environ:
        return
    named = (f"glibc.malloc.{name}={value}" for name, value in SETTINGS.items())
    os.environ["GLIBC_TUNABLES"] = ":".join(named)
    os.execv(sys.executable, sys.orig_argv)
