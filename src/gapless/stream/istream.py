"""What one broker knows of a stream: an interval map from ticks to knowledge ranges.

Theory of operation. Ranges that do not overlap are kept in tick order in parallel lists, and found
by bisection. Ticks between them are Q. A range at the top, the ordinary case, is appended without
examining its publications.

A range is joined with its neighbour if that is cheap: if one of the two is silence, so that an idle
stream remains one range, or if both are small, so that ranges of single publications do not
accumulate. Larger ranges are not joined: repeated joins would copy their publications each time.

Forgetting lowers ticks to Q (GD 2.1) and never lowers ``top``: a broker that forgot the top of a
stream would offer its past as its future.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from typing import Final

from gapless.core.ids import PubendId
from gapless.core.limits import JOIN_PUBLICATIONS_MAX
from gapless.core.ticks import Tick, TickRange
from gapless.messages.streams import KnowledgeRange
from gapless.packed.encode import PUBLICATION_BYTES, content_bytes
from gapless.stream.ranges import (
    TickState,
    cut,
    join,
    overlaid,
    state_of,
    tick_of,
)

__all__ = ["RANGE_BYTES", "IStream", "MemoryAccount"]

RANGE_BYTES: Final = 128
"""The size of a range without its publications."""


class MemoryAccount:
    """The bytes of all streams that share the account."""

    __slots__ = ("bytes",)

    def __init__(self) -> None:
        self.bytes = 0

    def add(self, size: int) -> None:
        """Add the bytes that a stream has taken, or subtract those that it has given back."""
        self.bytes += size


class IStream:
    """The known ranges of one pubend's stream.

    >>> stream = IStream(PubendId("stocks"))
    >>> for ticks in [(1, 4), (8, 9), (3, 8)]:
    ...     print([(new.low, new.high) for new in stream.accumulate(KnowledgeRange(*ticks, 1, 0))])
    [(1, 4)]
    [(8, 9)]
    [(5, 7)]
    >>> len(stream), stream.known_through(1), stream.top
    (1, 9, 9)
    """

    __slots__ = ("_highs", "_lows", "_ranges", "_sizes", "account", "bytes", "pubend", "top")

    def __init__(self, pubend: PubendId, account: MemoryAccount | None = None) -> None:
        self.pubend = pubend
        self.account = MemoryAccount() if account is None else account
        self.bytes = 0
        """The approximate size of the ranges; also counted on the account."""
        self.top: Tick = 0
        """The highest tick that is or was known to exist."""
        self._lows: list[Tick] = []
        self._highs: list[Tick] = []
        self._ranges: list[KnowledgeRange] = []
        self._sizes: list[int] = []

    def __len__(self) -> int:
        """Return the number of ranges."""
        return len(self._ranges)

    def __iter__(self) -> Iterator[KnowledgeRange]:
        """Return the ranges, lowest first."""
        return iter(self._ranges)

    # --- what is known -----------------------------------------------------------------------

    def state(self, tick: Tick) -> TickState:
        """Return the state of one tick."""
        index = bisect_left(self._highs, tick)
        return state_of(self._ranges[index], tick) if index < len(self) else TickState.Q

    def known(self, low: Tick, high: Tick) -> list[KnowledgeRange]:
        """Return the known ranges between two ticks, lowest first."""
        first, last = self._indexes(low, high)
        found = self._ranges[first:last]
        if found:
            found[0] = cut(found[0], low, high)
            found[-1] = cut(found[-1], low, high)
        return found

    def around(self, low: Tick, high: Tick) -> list[KnowledgeRange]:
        """Return the known ranges between two ticks, extended by the silence at both ends."""
        first, last = self._indexes(low, high)
        return [
            cut(knowledge, *_within_silence(knowledge, low, high))
            for knowledge in self._ranges[first:last]
        ]

    def gaps(self, low: Tick, high: Tick) -> list[TickRange]:
        """Return the ranges between two ticks that are Q."""
        missing = []
        for index in range(*self._indexes(low, high)):
            if low < self._lows[index]:
                missing.append(TickRange(low, self._lows[index] - 1))
            low = self._highs[index] + 1
        if low <= high:
            missing.append(TickRange(low, high))
        return missing

    def run(self, low: Tick) -> list[KnowledgeRange]:
        """Return the ranges from ``low`` up to the first Q; none if ``low`` is Q."""
        first, last = self._run_indexes(low)
        found = self._ranges[first:last]
        if found:
            found[0] = cut(found[0], low, found[0].high)
        return found

    def known_through(self, low: Tick) -> Tick:
        """Return the tick before the first Q at or above ``low``."""
        first, last = self._run_indexes(low)
        return self._highs[last - 1] if first < last else low - 1

    def stream_epochs(self) -> list[int]:
        """Return the stream epochs of the ranges, each once, in the order of their ticks."""
        return list(dict.fromkeys(knowledge.stream_epoch for knowledge in self._ranges))

    # --- accumulation ------------------------------------------------------------------------

    def accumulate(
        self, knowledge: KnowledgeRange, content: int | None = None
    ) -> list[KnowledgeRange]:
        """Add a range and return what was new: parts that were Q, and D over F, lowest first.

        A D over an F is returned as a range of one tick. ``content`` is the size of the
        publications in bytes, if the caller knows it; otherwise they are measured one by one.
        """
        low, high = knowledge.low, knowledge.high
        assert low <= high, f"pubend {self.pubend}: [{low}, {high}] is no range"
        if self._highs and low <= self._highs[-1]:
            new = self._merge(knowledge, content)
        else:
            self._append(knowledge, content)
            new = [knowledge]
        self.top = max(self.top, high)
        return new

    def raise_top(self, tick: Tick) -> None:
        """Note that a tick exists, of which nothing else is known (R8)."""
        self.top = max(self.top, tick)

    def _append(self, knowledge: KnowledgeRange, content: int | None) -> None:
        """Add a range above all others."""
        size = _size(knowledge, content)
        if self._ranges and _is_cheap_to_join(self._ranges[-1], knowledge):
            self._ranges[-1] = join(self._ranges[-1], knowledge)
            self._highs[-1] = knowledge.high
            size -= RANGE_BYTES
            self._sizes[-1] += size
        else:
            self._lows.append(knowledge.low)
            self._highs.append(knowledge.high)
            self._ranges.append(knowledge)
            self._sizes.append(size)
        self._book(size)

    def _merge(self, knowledge: KnowledgeRange, content: int | None) -> list[KnowledgeRange]:
        """Add a range between or over others."""
        first, last = self._indexes(knowledge.low, knowledge.high)
        if first == last:
            self._replace(first, last, [knowledge], [_size(knowledge, content)])
            return [knowledge]
        new: list[KnowledgeRange] = []
        ranges: list[KnowledgeRange] = []
        sizes: list[int] = []
        low = knowledge.low
        for index in range(first, last):
            known = self._ranges[index]
            if low < known.low:
                part = cut(knowledge, low, known.low - 1)
                new.append(part)
                ranges.append(part)
                sizes.append(_size(part))
            low = known.high + 1
            richer, added = overlaid(self.pubend, known, knowledge)
            ranges.append(richer)
            sizes.append(_size(richer) if added else self._sizes[index])
            new += [
                KnowledgeRange(
                    one.tick, one.tick, knowledge.stream_epoch, knowledge.control_version, (one,)
                )
                for one in added
            ]
        if low <= knowledge.high:
            part = cut(knowledge, low, knowledge.high)
            new.append(part)
            ranges.append(part)
            sizes.append(_size(part))
        if new:
            self._replace(first, last, ranges, sizes)
        return new

    def _replace(
        self, first: int, last: int, ranges: list[KnowledgeRange], sizes: list[int]
    ) -> None:
        """Replace the ranges from ``first`` to ``last``, and join where that is cheap."""
        if first:  # the neighbours may be joined too
            first -= 1
            ranges.insert(0, self._ranges[first])
            sizes.insert(0, self._sizes[first])
        if last < len(self):
            ranges.append(self._ranges[last])
            sizes.append(self._sizes[last])
            last += 1
        kept = [ranges[0]]
        kept_sizes = [sizes[0]]
        for knowledge, size in zip(ranges[1:], sizes[1:], strict=True):
            if _is_cheap_to_join(kept[-1], knowledge):
                kept[-1] = join(kept[-1], knowledge)
                kept_sizes[-1] += size - RANGE_BYTES
            else:
                kept.append(knowledge)
                kept_sizes.append(size)
        self._set(first, last, kept, kept_sizes)

    # --- forgetting --------------------------------------------------------------------------

    def forget(self, low: Tick, high: Tick) -> None:
        """Lower the ticks between two to Q."""
        first, last = self._indexes(low, high)
        if first == last:
            return
        left, right = self._ranges[first], self._ranges[last - 1]
        kept = []
        if left.low < low:
            kept.append(cut(left, left.low, low - 1))
        if high < right.high:
            kept.append(cut(right, high + 1, right.high))
        self._set(first, last, kept, [_size(knowledge) for knowledge in kept])

    def forget_up_to(self, high: Tick) -> None:
        """Lower everything up to a tick to Q."""
        if self._lows and self._lows[0] <= high:
            self.forget(self._lows[0], high)

    def forget_lowest(self) -> KnowledgeRange:
        """Lower the lowest range to Q and return it."""
        return self._forget_index(0)

    def forget_highest(self) -> KnowledgeRange:
        """Lower the highest range to Q and return it."""
        return self._forget_index(len(self) - 1)

    def forget_all(self) -> None:
        """Lower everything to Q."""
        self._set(0, len(self), [], [])

    def _forget_index(self, index: int) -> KnowledgeRange:
        knowledge = self._ranges[index]
        self._set(index, index + 1, [], [])
        return knowledge

    # --- indexes -----------------------------------------------------------------------------

    def _indexes(self, low: Tick, high: Tick) -> tuple[int, int]:
        """Return the index of the first range that overlaps, and the one after the last."""
        first = bisect_left(self._highs, low)
        return first, bisect_right(self._lows, high, first) if low <= high else first

    def _run_indexes(self, low: Tick) -> tuple[int, int]:
        """Return the indexes of the ranges from a tick up to the first Q."""
        first = last = bisect_left(self._highs, low)
        lows, highs = self._lows, self._highs
        if first < len(lows) and lows[first] <= low:
            last += 1
            while last < len(lows) and lows[last] == highs[last - 1] + 1:
                last += 1
        return first, last

    def _set(self, first: int, last: int, ranges: list[KnowledgeRange], sizes: list[int]) -> None:
        """Replace the ranges from ``first`` to ``last``."""
        self._book(sum(sizes) - sum(self._sizes[first:last]))
        self._lows[first:last] = [knowledge.low for knowledge in ranges]
        self._highs[first:last] = [knowledge.high for knowledge in ranges]
        self._ranges[first:last] = ranges
        self._sizes[first:last] = sizes

    def _book(self, size: int) -> None:
        self.bytes += size
        self.account.add(size)


def _is_cheap_to_join(left: KnowledgeRange, right: KnowledgeRange) -> bool:
    """Return whether two neighbours can be one range without much copying."""
    if (
        left.high + 1 != right.low
        or left.stream_epoch != right.stream_epoch
        or left.control_version != right.control_version
    ):
        return False
    count, more = len(left.publications), len(right.publications)
    return not count or not more or count + more <= JOIN_PUBLICATIONS_MAX


def _within_silence(knowledge: KnowledgeRange, low: Tick, high: Tick) -> tuple[Tick, Tick]:
    """Return two ticks, widened by the silence of a range around them."""
    publications = knowledge.publications
    before = bisect_left(publications, low, key=tick_of)
    behind = bisect_right(publications, high, key=tick_of)
    return (
        publications[before - 1].tick + 1 if before else knowledge.low,
        publications[behind].tick - 1 if behind < len(publications) else knowledge.high,
    )


def _size(knowledge: KnowledgeRange, content: int | None = None) -> int:
    """Return the approximate size of a range in bytes."""
    content = content_bytes(knowledge) if content is None else content
    return RANGE_BYTES + PUBLICATION_BYTES * len(knowledge.publications) + content
