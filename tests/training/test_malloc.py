"""Laws of a process that does not return freed memory to the system."""

import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="glibc's settings")

SCRIPT = """
import resource, sys
from bert_jax.training import malloc
malloc.keep()
def touched():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    b"x" * 100_000_000
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
print(sys.argv[1:], touched(), touched())
"""


def run(**env):
    """Arguments as the script sees them, and pages touched by two equal blocks."""
    clean = {k: v for k, v in os.environ.items() if k != "GLIBC_TUNABLES"}
    command = [sys.executable, "-c", SCRIPT, "--a=b c", "$d"]
    done = subprocess.run(command, env=clean | env, capture_output=True, check=True)
    argv, counts = done.stdout.decode().strip().rsplit("]", 1)
    return argv + "]", [int(x) for x in counts.split()]


def test_a_freed_block_is_reused_without_new_pages():
    argv, (first, second) = run()
    assert argv == "['--a=b c', '$d']"
    assert second < 10 and second < first


def test_settings_of_the_user_take_precedence():
    _, (_, second) = run(GLIBC_TUNABLES="glibc.malloc.check=0")
    assert second > 40  # pages of 2 MB, if not of 4 KB
