"""A stream as far as one broker knows it: an interval map from ticks to pieces.

Theory of operation. Pieces that neither overlap nor need to be in any way complete stand in tick
order in parallel lists, found by bisection; what lies between them is Q. A frame at the top, the
ordinary case, is appended without a look at its publications.

A piece is joined with its neighbour where this costs next to nothing: where one of the two is
silence, so that an idle stream stays one piece, or where both are small, so that lone publications
do not pile up. Larger pieces stay as they came; joining them again and again would copy
publications once for every frame.

Forgetting lowers ticks to Q (GD 2.1) and never lowers ``top``: a broker that forgot how far a
stream has come would offer its past as its future.
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
"""What a piece takes beside its publications."""


class MemoryAccount:
    """How many bytes the streams that share it hold together."""

    __slots__ = ("bytes",)

    def __init__(self) -> None:
        self.bytes = 0


class IStream:
    """What is known of one pubend's stream.

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
        """What the pieces take, about; also booked on the account."""
        self.top: Tick = 0
        """The highest tick that is, or was once, known to have passed."""
        self._lows: list[Tick] = []
        self._highs: list[Tick] = []
        self._ranges: list[KnowledgeRange] = []
        self._sizes: list[int] = []

    def __len__(self) -> int:
        """Return the number of pieces."""
        return len(self._ranges)

    def __iter__(self) -> Iterator[KnowledgeRange]:
        """Return the pieces, lowest first."""
        return iter(self._ranges)

    # --- what is known -----------------------------------------------------------------------

    def state(self, tick: Tick) -> TickState:
        """Return what is known of one tick."""
        index = bisect_left(self._highs, tick)
        return state_of(self._ranges[index], tick) if index < len(self) else TickState.Q

    def known(self, low: Tick, high: Tick) -> list[KnowledgeRange]:
        """Return what is known between two ticks, lowest first."""
        first, last = self._indexes(low, high)
        found = self._ranges[first:last]
        if found:
            found[0] = cut(found[0], low, high)
            found[-1] = cut(found[-1], low, high)
        return found

    def around(self, low: Tick, high: Tick) -> list[KnowledgeRange]:
        """Return what is known between two ticks, with silence at both ends as far as it goes."""
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
        """Return the pieces from ``low`` up to the first Q; none if that is Q itself."""
        first, last = self._run_indexes(low)
        found = self._ranges[first:last]
        if found:
            found[0] = cut(found[0], low, found[0].high)
        return found

    def known_through(self, low: Tick) -> Tick:
        """Return the highest tick up to which all is known from ``low`` on, or ``low - 1``."""
        first, last = self._run_indexes(low)
        return self._highs[last - 1] if first < last else low - 1

    def stream_epochs(self) -> list[int]:
        """Return the regimes of the pieces, each once, in the order of their ticks."""
        return list(dict.fromkeys(knowledge.stream_epoch for knowledge in self._ranges))

    # --- accumulation ------------------------------------------------------------------------

    def accumulate(
        self, knowledge: KnowledgeRange, content: int | None = None
    ) -> list[KnowledgeRange]:
        """Take a piece in and return what was new: parts that were Q, and D over F, lowest first.

        A D over an F comes back as a piece of its one tick. ``content`` is how many bytes the
        publications hold, if the caller knows it; else they are measured one by one.
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
        """Note that the stream has come as far as a tick, of which nothing else is known (R8)."""
        self.top = max(self.top, tick)

    def _append(self, knowledge: KnowledgeRange, content: int | None) -> None:
        """Put a piece above all others."""
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
        """Put a piece between or over others."""
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
        """Put pieces in the place of those from ``first`` to ``last``, joined where it is cheap."""
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
        """Lower the lowest piece to Q and return it."""
        return self._forget_index(0)

    def forget_highest(self) -> KnowledgeRange:
        """Lower the highest piece to Q and return it."""
        return self._forget_index(len(self) - 1)

    def forget_all(self) -> None:
        """Lower everything to Q."""
        self._set(0, len(self), [], [])

    def _forget_index(self, index: int) -> KnowledgeRange:
        knowledge = self._ranges[index]
        self._set(index, index + 1, [], [])
        return knowledge

    # --- places ------------------------------------------------------------------------------

    def _indexes(self, low: Tick, high: Tick) -> tuple[int, int]:
        """Return where the pieces stand that overlap a range: the first, and behind the last."""
        first = bisect_left(self._highs, low)
        return first, bisect_right(self._lows, high, first) if low <= high else first

    def _run_indexes(self, low: Tick) -> tuple[int, int]:
        """Return where the pieces stand that reach from a tick up to the first Q."""
        first = last = bisect_left(self._highs, low)
        lows, highs = self._lows, self._highs
        if first < len(lows) and lows[first] <= low:
            last += 1
            while last < len(lows) and lows[last] == highs[last - 1] + 1:
                last += 1
        return first, last

    def _set(self, first: int, last: int, ranges: list[KnowledgeRange], sizes: list[int]) -> None:
        """Put pieces in the place of those from ``first`` to ``last``."""
        self._book(sum(sizes) - sum(self._sizes[first:last]))
        self._lows[first:last] = [knowledge.low for knowledge in ranges]
        self._highs[first:last] = [knowledge.high for knowledge in ranges]
        self._ranges[first:last] = ranges
        self._sizes[first:last] = sizes

    def _book(self, size: int) -> None:
        self.bytes += size
        self.account.bytes += size


def _is_cheap_to_join(left: KnowledgeRange, right: KnowledgeRange) -> bool:
    """Whether two neighbours can be one piece without much copying."""
    if (
        left.high + 1 != right.low
        or left.stream_epoch != right.stream_epoch
        or left.control_version != right.control_version
    ):
        return False
    count, more = len(left.publications), len(right.publications)
    return not count or not more or count + more <= JOIN_PUBLICATIONS_MAX


def _within_silence(knowledge: KnowledgeRange, low: Tick, high: Tick) -> tuple[Tick, Tick]:
    """Return a range of a piece, widened to the publications next to it."""
    publications = knowledge.publications
    before = bisect_left(publications, low, key=tick_of)
    behind = bisect_right(publications, high, key=tick_of)
    return (
        publications[before - 1].tick + 1 if before else knowledge.low,
        publications[behind].tick - 1 if behind < len(publications) else knowledge.high,
    )


def _size(knowledge: KnowledgeRange, content: int | None = None) -> int:
    """Return about how many bytes a piece takes."""
    content = content_bytes(knowledge) if content is None else content
    return RANGE_BYTES + PUBLICATION_BYTES * len(knowledge.publications) + content
