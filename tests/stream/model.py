"""A stream as a dictionary from ticks to states: the model of the interval map.

The oracle is fixed: every tick has one stream epoch and one control version, and perhaps a publication.
Knowledge ranges are views of the oracle, in which a filter may have turned any D into F.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from random import Random

from gapless.core.ids import PubendId
from gapless.core.ticks import Tick, TickRange
from gapless.messages.streams import KnowledgeRange, Publication
from gapless.packed.encode import PUBLICATION_BYTES, content_bytes
from gapless.stream.istream import RANGE_BYTES, IStream, MemoryAccount
from gapless.stream.ranges import TickState, invalid_reason, joinable

PUBEND = PubendId("stocks")
TICKS = range(1, 17)
STREAM_EPOCH_ENDS = (6, 11)
"""Stream epoch 1 ends with tick 6, 2 with tick 11, and so on; the control version changes at 9."""


def stream_epoch_of(tick: Tick) -> int:
    return 1 + sum(end < tick for end in STREAM_EPOCH_ENDS)


def control_version_of(tick: Tick) -> int:
    return 4 if tick >= 9 else 3


def publication(tick: Tick, text: str = "") -> Publication:
    return Publication(tick, "exchange", tick, {"symbol": text}, bytes(tick % 5))


def silence(
    low: Tick, high: Tick, stream_epoch: int = 1, control_version: int = 0
) -> KnowledgeRange:
    return KnowledgeRange(low, high, stream_epoch, control_version)


def knowledge_range(
    low: Tick, high: Tick, *ticks: Tick, stream_epoch: int = 1, control_version: int = 0
) -> KnowledgeRange:
    """Return a knowledge range with publications at these ticks."""
    return KnowledgeRange(low, high, stream_epoch, control_version, tuple(map(publication, ticks)))


def true_range(low: Tick, high: Tick, ticks: Iterable[Tick]) -> KnowledgeRange:
    """Return the range from ``low`` with its stream epoch, cut where that ends."""
    stamp = stream_epoch_of(low), control_version_of(low)
    while (stream_epoch_of(high), control_version_of(high)) != stamp:
        high -= 1
    inside = sorted(tick for tick in set(ticks) if low <= tick <= high)
    return KnowledgeRange(low, high, *stamp, tuple(map(publication, inside)))


def random_range(chance: Random) -> KnowledgeRange:
    """Return a view of the oracle in which every odd tick may be D."""
    low = chance.choice(TICKS)
    high = min(TICKS[-1], low + chance.choice((0, 1, 3, 9)))
    return true_range(low, high, [tick for tick in TICKS[::2] if chance.random() < 0.5])


def states(ranges: Iterable[KnowledgeRange]) -> Iterator[tuple[Tick, TickState]]:
    """Return every tick of the ranges with its state."""
    for part in ranges:
        data = {one.tick for one in part.publications}
        for tick in range(part.low, part.high + 1):
            yield tick, TickState.D if tick in data else TickState.F


def ranges(ticks: Iterable[Tick]) -> list[TickRange]:
    """Return sorted ticks as ranges."""
    found: list[TickRange] = []
    for tick in ticks:
        if found and found[-1].high + 1 == tick:
            found[-1] = TickRange(found[-1].low, tick)
        else:
            found.append(TickRange(tick, tick))
    return found


class CheckedStream:
    """A stream and its model; every operation is done to both and compared."""

    def __init__(self) -> None:
        self.account = MemoryAccount()
        self.stream = IStream(PUBEND, self.account)
        self.model: dict[Tick, TickState] = {}
        self.top = 0

    def state(self, tick: Tick) -> TickState:
        return self.model.get(tick, TickState.Q)

    def accumulate(self, part: KnowledgeRange) -> None:
        risen = [(tick, state) for tick, state in states([part]) if state > self.state(tick)]
        new = self.stream.accumulate(part)
        assert list(states(new)) == risen
        assert all(
            (one.stream_epoch, one.control_version) == (part.stream_epoch, part.control_version)
            for one in new
        )
        self.model.update(risen)
        self.top = max(self.top, part.high)

    def forget(self, low: Tick, high: Tick) -> None:
        self.stream.forget(low, high)
        self._lower(low, high)

    def forget_up_to(self, high: Tick) -> None:
        self.stream.forget_up_to(high)
        self._lower(0, high)

    def forget_all(self) -> None:
        self.stream.forget_all()
        self.model.clear()

    def forget_lowest(self) -> None:
        if self.model:
            part = self.stream.forget_lowest()
            assert part.low == min(self.model)
            self._lower(part.low, part.high)

    def forget_highest(self) -> None:
        if self.model:
            part = self.stream.forget_highest()
            assert part.high == max(self.model)
            self._lower(part.low, part.high)

    def raise_top(self, tick: Tick) -> None:
        self.stream.raise_top(tick)
        self.top = max(self.top, tick)

    def _lower(self, low: Tick, high: Tick) -> None:
        for tick in range(low, high + 1):
            self.model.pop(tick, None)

    def check_range(self, low: Tick, high: Tick) -> None:
        """Check that stream and model agree on a range."""
        inside = range(low, high + 1)
        known = self.stream.known(low, high)
        assert dict(states(known)) == {
            tick: self.state(tick) for tick in inside if tick in self.model
        }
        self.check_ranges(known)
        assert self.stream.gaps(low, high) == ranges(t for t in inside if t not in self.model)
        through = low - 1
        while through + 1 in self.model:
            through += 1
        assert self.stream.known_through(low) == through
        run = self.stream.run(low)
        assert [tick for tick, _ in states(run)] == list(range(low, through + 1))
        assert dict(states(run)) == {tick: self.state(tick) for tick in range(low, through + 1)}

    def check(self) -> None:
        """Check that the stream is valid, equal to the model, and as small as it should be."""
        ranges = list(self.stream)
        self.check_ranges(ranges)
        assert dict(states(ranges)) == self.model
        assert {tick: self.stream.state(tick) for tick in (0, *TICKS, TICKS[-1] + 1)} == {
            tick: self.state(tick) for tick in (0, *TICKS, TICKS[-1] + 1)
        }
        assert self.stream.top == self.top
        weight = sum(
            RANGE_BYTES + len(one.publications) * PUBLICATION_BYTES + content_bytes(one)
            for one in ranges
        )
        assert self.stream.bytes == weight == self.account.bytes
        assert self.stream.stream_epochs() == sorted({stream_epoch_of(tick) for tick in self.model})
        for left, right in itertools.pairwise(ranges):
            assert not joinable(left, right), "these few publications fit into one range"

    def check_ranges(self, ranges: list[KnowledgeRange]) -> None:
        for one in ranges:
            assert invalid_reason(one) is None
            for tick in range(one.low, one.high + 1):
                assert one.stream_epoch == stream_epoch_of(tick)
                assert one.control_version == control_version_of(tick)
        for left, right in itertools.pairwise(ranges):
            assert left.high < right.low
