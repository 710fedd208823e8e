"""Which streams flow, and how long after a fault they flow again.

A stream is one pubend as one subscriber receives it. It flows again when the subscriber receives an
event whose tick is above the time of the fault: brokers and clients on one computer share a clock.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable
from statistics import median
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from gapless_lab.demo.clients import now_us

if TYPE_CHECKING:
    from gapless.client import Event

__all__ = ["Counts", "Failover", "FailoverRow", "ObservedStream", "StreamRecovery", "tabulate"]

LOOK_S: Final = 0.05


class ObservedStream(NamedTuple):
    """A pubend as one subscriber receives it."""

    subscriber: str
    pubend: str

    def __str__(self) -> str:
        return f"{self.subscriber} from {self.pubend}"


class StreamRecovery:
    """When each stream first flowed again after a fault or a heal."""

    def __init__(self) -> None:
        self._since_us = 0
        self._later_us: dict[str, int] = {}
        """When subscribers started that started later."""
        self._again: dict[ObservedStream, int] = {}
        """How long after that each stream flowed for the first time, in microseconds."""

    def took(self, subscriber: str, batch: list[Event], at_us: int) -> None:
        """Record that a subscriber received events."""
        since_us = self._later_us.get(subscriber, self._since_us)
        for event in batch:
            if event.tick > since_us:
                self._again.setdefault(ObservedStream(subscriber, event.pubend), at_us - since_us)

    def reset(self) -> None:
        """Start measuring: streams that flow from now on flow again."""
        self._since_us = now_us()
        self._later_us.clear()
        self._again.clear()

    def reset_for(self, subscribers: Iterable[str]) -> None:
        """Start measuring for some subscribers: earlier events do not count for them."""
        self._later_us.update(dict.fromkeys(subscribers, now_us()))

    async def await_all(
        self, wanted: Collection[ObservedStream], timeout_s: float
    ) -> list[ObservedStream]:
        """Wait until streams flow again; return those that did not in time."""
        loop = asyncio.get_running_loop()
        limit = loop.time() + timeout_s
        while loop.time() < limit:
            if not self.still(wanted):
                break
            await asyncio.sleep(LOOK_S)
        return sorted(self.still(wanted))

    def still(self, streams: Iterable[ObservedStream]) -> set[ObservedStream]:
        """Return those of some streams that have not flowed since."""
        return set(streams) - self._again.keys()

    def slowest_s(self, wanted: Collection[ObservedStream]) -> float | None:
        """Return how many seconds the slowest of some streams took to flow; None if none has."""
        taken = [after_us for stream, after_us in self._again.items() if stream in wanted]
        return max(taken) / 1e6 if taken else None


class Counts(NamedTuple):
    """How many streams a fault affected."""

    streams: int = 0
    """All streams."""
    connected: int = 0
    """Streams that had to flow during the fault."""
    waited: int = 0
    """Streams on which nothing published since had arrived at the heal."""


class Failover(msgspec.Struct, frozen=True):
    """How long one fault stopped streams."""

    kind: str
    connected_s: float | None
    """Until all streams with a route flowed, for subscribers whose broker runs; None if there were
    none."""
    healed_s: float | None
    """From the heal until all streams flowed."""
    moved_s: float | None = None
    """The same for subscribers that had to fail over, which includes the detection."""
    joined_s: float | None = None
    """From the start of temporary subscribers until each received an event of every pubend with a
    route."""
    counts: Counts = Counts()

    @property
    def story(self) -> str:
        """Describe the times in a sentence."""
        text = f"{self.counts.connected} of {self.counts.streams} streams had a route"
        if self.connected_s is not None:
            text += f", and flowed again after {self.connected_s:.2f} s"
        if self.moved_s is not None:
            text += f"; failovers took {self.moved_s:.2f} s"
        if self.joined_s is not None:
            text += f"; new subscriptions flowed after {self.joined_s:.2f} s"
        if self.counts.waited:
            text += f"; {self.counts.waited} waited until it was over"
        if self.healed_s is not None:
            text += f"; all flowed {self.healed_s:.2f} s after healing"
        return text


class FailoverRow(msgspec.Struct, frozen=True):
    """The times of one kind of fault."""

    kind: str
    count: int
    median_s: float | None
    worst_s: float | None
    healed_median_s: float | None
    healed_worst_s: float | None
    moved_median_s: float | None = None
    moved_worst_s: float | None = None
    joined_median_s: float | None = None
    joined_worst_s: float | None = None
    waited_most: int = 0
    """The greatest number of streams that waited until the heal."""


def tabulate(found: Iterable[Failover]) -> list[FailoverRow]:
    """Return a row for every kind of fault."""
    by_kind: dict[str, list[Failover]] = {}
    for each in found:
        by_kind.setdefault(each.kind, []).append(each)
    rows = []
    for kind, members in sorted(by_kind.items()):
        spreads = (
            *_spread(each.connected_s for each in members),
            *_spread(each.healed_s for each in members),
            *_spread(each.moved_s for each in members),
            *_spread(each.joined_s for each in members),
        )
        waited = max(each.counts.waited for each in members)
        rows.append(FailoverRow(kind, len(members), *spreads, waited_most=waited))
    return rows


def _spread(found: Iterable[float | None]) -> tuple[float | None, float | None]:
    """Return the median and the maximum."""
    seconds = [each for each in found if each is not None]
    return (round(median(seconds), 2), round(max(seconds), 2)) if seconds else (None, None)
