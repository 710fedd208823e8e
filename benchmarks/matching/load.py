"""The cost of loading and keeping a million filters, measured in a process of its own.

``python -m benchmarks.matching.load W1 1000000 compiled`` prints one JSON object. Memory is the
growth of the resident set around adding; the filters are made from their texts on the fly, so only
the index remains. The keys are ints.
"""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.matching.timing import Stopwatch
from benchmarks.workloads import FAMILIES, Workload
from gapless import Filter, MatchIndex

__all__ = ["Load", "in_own_process"]

_PARSE_SAMPLE = 50_000


@dataclass(frozen=True, slots=True)
class Load:
    """The cost of loading."""

    filters: int
    seconds: float
    """CPU time of parsing and adding all."""
    parse_microseconds: float
    add_microseconds: float
    bytes_per_filter: float


def _resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def _parse_seconds(workload: Workload) -> float:
    """Return the seconds for making the filters alone, estimated from a part of them."""
    sample = min(workload.size, _PARSE_SAMPLE)
    texts = workload.texts()
    watch = Stopwatch()
    for _ in range(sample):
        Filter(next(texts))
    return watch.seconds / sample * workload.size


def load(name: str, size: int, kernel: str) -> Load:
    """Load a workload into an empty index."""
    workload = FAMILIES[name](size, 1)
    gc.disable()
    parse_s = _parse_seconds(workload)
    gc.collect()
    before = _resident_bytes()
    index = MatchIndex(kernel=kernel)
    watch = Stopwatch()
    for number, text in enumerate(workload.texts()):
        index.add(number, Filter(text))
    seconds = watch.seconds
    gc.collect()
    grown = _resident_bytes() - before
    assert len(index) == size
    return Load(size, seconds, parse_s / size * 1e6, (seconds - parse_s) / size * 1e6, grown / size)


def in_own_process(name: str, size: int, kernel: str) -> Load:
    """Load in a fresh process, so that memory does not include earlier measurements."""
    command = [sys.executable, "-m", "benchmarks.matching.load", name, str(size), kernel]
    done = subprocess.run(command, check=True, capture_output=True, text=True)  # noqa: S603 - ours
    return Load(**json.loads(done.stdout))


if __name__ == "__main__":
    print(json.dumps(asdict(load(sys.argv[1], int(sys.argv[2]), sys.argv[3]))))
