"""Which streams flow, and how long after a fault they flow again.

A stream is one pubend, as one watcher sees it. It flows again when the watcher is given an event whose
tick is above the clock at the fault: brokers and clients of one computer have one clock.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable
from statistics import median
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from gapless.demo.players import now_us

if TYPE_CHECKING:
    from gapless.client import Event

__all__ = ["FailOver", "FailOverRow", "Flow", "Stream", "tabulate"]

LOOK_S: Final = 0.05


class Stream(NamedTuple):
    """A pubend, as one watcher sees it."""

    watcher: str
    pubend: str

    def __str__(self) -> str:
        return f"{self.watcher} from {self.pubend}"


class Flow:
    """The streams of all watchers, and when each first flowed again."""

    def __init__(self, streams: Iterable[Stream]) -> None:
        self._streams = frozenset(streams)
        self._since_us = 0
        self._again: dict[Stream, int] = {}
        """When each stream flowed for the first time since then."""

    def took(self, watcher: str, batch: list[Event], at_us: int) -> None:
        """A watcher was given events."""
        for event in batch:
            if event.tick > self._since_us:
                self._again.setdefault(Stream(watcher, event.pubend), at_us)

    def begin(self) -> None:
        """Something happens now: what flows from now on flows again."""
        self._since_us = now_us()
        self._again.clear()

    async def await_all(self, wanted: Collection[Stream], patience_s: float) -> list[Stream]:
        """Wait until streams flow again; return those that did not in time."""
        loop = asyncio.get_running_loop()
        limit = loop.time() + patience_s
        while loop.time() < limit:
            if self._again.keys() >= set(wanted):
                break
            await asyncio.sleep(LOOK_S)
        return sorted(set(wanted) - self._again.keys())

    def slowest(self, wanted: Collection[Stream]) -> tuple[float, Stream] | None:
        """Return the stream that took longest to flow again, and how many seconds that was."""
        taken = [
            ((at_us - self._since_us) / 1e6, stream)
            for stream, at_us in self._again.items()
            if stream in wanted
        ]
        return max(taken, default=None)

    @property
    def streams(self) -> frozenset[Stream]:
        """All streams that there are."""
        return self._streams


class FailOver(msgspec.Struct, frozen=True):
    """How long one fault kept streams from flowing."""

    kind: str
    with_way_s: float | None
    """Until all streams flowed that had a way; None if there were none."""
    healed_s: float | None
    """From the healing on, until all flowed."""


class FailOverRow(msgspec.Struct, frozen=True):
    """What is to be said of a kind of fault."""

    kind: str
    count: int
    median_s: float | None
    worst_s: float | None
    healed_median_s: float | None
    healed_worst_s: float | None


def tabulate(found: Iterable[FailOver]) -> list[FailOverRow]:
    """Return a row for every kind of fault."""
    by_kind: dict[str, list[FailOver]] = {}
    for each in found:
        by_kind.setdefault(each.kind, []).append(each)
    rows = []
    for kind, members in sorted(by_kind.items()):
        during = [each.with_way_s for each in members if each.with_way_s is not None]
        after = [each.healed_s for each in members if each.healed_s is not None]
        rows.append(FailOverRow(kind, len(members), *_spread(during), *_spread(after)))
    return rows


def _spread(seconds: list[float]) -> tuple[float | None, float | None]:
    return (round(median(seconds), 2), round(max(seconds), 2)) if seconds else (None, None)
