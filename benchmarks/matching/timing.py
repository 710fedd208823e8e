"""Timing: CPU time of this process, the best of several repeats."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from benchmarks.matching.contenders import Contender

__all__ = ["Cell", "Stopwatch", "measure", "without_gc"]

_TIMEOUT_S: Final = 4.0
"""A contender gets fewer events if a pass over all of them would take longer."""
_ENOUGH_S: Final = 1.0
_REPEATS_MIN: Final = 3
_REPEATS_MAX: Final = 25
_EVENTS_MIN: Final = 5


@dataclass(frozen=True, slots=True)
class Cell:
    """One number of the table: a contender with a workload."""

    microseconds: float
    """Per event, the best pass."""
    events: int
    repeats: int


@contextmanager
def without_gc() -> Iterator[None]:
    """Disable the garbage collector during a measurement."""
    was_enabled = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


class Stopwatch:
    """CPU seconds of this process since it was made."""

    __slots__ = ("_start",)

    def __init__(self) -> None:
        self._start = time.process_time()

    @property
    def seconds(self) -> float:
        """The seconds since the start."""
        return time.process_time() - self._start


def _seconds(action: Callable[[], None]) -> float:
    watch = Stopwatch()
    action()
    return watch.seconds


def measure(contender: Contender, events: int) -> Cell:
    """Time the first events, or fewer if that takes too long, several times."""
    few = min(events, _EVENTS_MIN)
    with without_gc():
        contender.run(few)
        each = _seconds(lambda: contender.run(few)) / few
        count = max(few, min(events, int(_TIMEOUT_S / each) if each else events))
        best, spent, repeats = float("inf"), 0.0, 0
        while repeats < _REPEATS_MIN or (spent < _ENOUGH_S and repeats < _REPEATS_MAX):
            took = _seconds(lambda: contender.run(count))
            best, spent, repeats = min(best, took), spent + took, repeats + 1
    return Cell(best / count * 1e6, count, repeats)
