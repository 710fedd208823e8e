"""Memory settings of a broker process."""

from __future__ import annotations

import ctypes
import subprocess
import sys

import pytest

from gapless.runtime.process import keep_freed_memory

_READS = """
import resource
from gapless.runtime.process import keep_freed_memory
{before}
def faults_of_a_read():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    rows = [bytes(160_000) for _ in range(40)]
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
faults_of_a_read()
print(sum(faults_of_a_read() for _ in range(20)))
"""
"""A program that allocates and frees the rows of a log, read after read; the first read may fault."""


def _faults(before: str) -> int:
    code = _READS.format(before=before)
    return int(subprocess.run([sys.executable, "-c", code], check=True, capture_output=True).stdout)


@pytest.mark.skipif(
    not hasattr(ctypes.CDLL(None), "mallopt"), reason="this C library has no mallopt"
)
def test_the_memory_of_a_read_is_reused_by_the_next_read() -> None:
    assert _faults(keep_freed_memory.__name__ + "()") < _faults("pass") / 10
