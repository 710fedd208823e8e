"""Processor time of processes, as the system counts it."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["processor_seconds"]

_TICKS = os.sysconf("SC_CLK_TCK")


def processor_seconds(pid: int | None) -> float:
    """Return the time of a process, or with None of this process and all its descendants."""
    if pid is not None:
        return _facts(pid)[1]
    parents: dict[int, int] = {}
    used: dict[int, float] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parent, seconds = _facts(int(entry.name))
            except OSError:
                continue  # it has ended meanwhile
            parents[int(entry.name)], used[int(entry.name)] = parent, seconds
    return sum(seconds for each, seconds in used.items() if _is_below(each, parents))


def _facts(pid: int) -> tuple[int, float]:
    """Return the parent of a process and the time of it and its ended children."""
    text = Path(f"/proc/{pid}/stat").read_text()
    fields = text.rpartition(")")[2].split()
    return int(fields[1]), sum(int(each) for each in fields[11:15]) / _TICKS


def _is_below(pid: int, parents: dict[int, int]) -> bool:
    own = os.getpid()
    while pid not in {0, own}:
        pid = parents.get(pid, 0)
    return pid == own
