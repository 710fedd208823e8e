"""The newest best-effort publications of a pubend that a router has received (RS-14).

A receiver that attaches again names the position up to which it has everything. If the buffer is
complete above that position, the receiver gets the publications above it, then the live ones.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import NamedTuple

from gapless.content.plain import size_bound
from gapless.core.parameters import Parameters, microseconds
from gapless.messages.streams import BestEffortPosition, KnowledgeRange
from gapless.packed.encode import PUBLICATION_BYTES

__all__ = ["ReplayAccount", "ReplayBuffer", "above"]


class ReplayAccount:
    """The bytes of all replay buffers of a broker."""

    __slots__ = ("bytes",)

    def __init__(self) -> None:
        self.bytes = 0

    def change(self, size: int) -> None:
        """Add the bytes that a buffer has taken, or subtract those that it has given back."""
        self.bytes += size


class _Entry(NamedTuple):
    knowledge: KnowledgeRange
    size: int
    at: int


def above(knowledge: KnowledgeRange, position: BestEffortPosition) -> KnowledgeRange | None:
    """Return the part of a best-effort range above a position, or None if there is none.

    The stream epoch of the range is the incarnation of the PHB. An older one is over.
    """
    incarnation = knowledge.stream_epoch
    if incarnation != position.incarnation:
        return knowledge if incarnation > position.incarnation else None
    if knowledge.low > position.tick:
        return knowledge
    new = tuple(each for each in knowledge.publications if each.tick > position.tick)
    if not new:
        return None
    return KnowledgeRange(new[0].tick, new[-1].tick, incarnation, knowledge.control_version, new)


class ReplayBuffer:
    """The newest publications of one pubend, up to a position, complete above another."""

    __slots__ = ("_account", "_asked_at", "_entries", "begins", "bytes", "floor", "top")

    def __init__(self, account: ReplayAccount) -> None:
        self._account = account
        self._entries: deque[_Entry] | None = None
        self.bytes = 0
        self.begins: BestEffortPosition | None = None
        """It is complete above this position; None if nothing was ever received."""
        self.top: BestEffortPosition | None = None
        """The position up to which everything was received."""
        self.floor: BestEffortPosition | None = None
        """The PHB has nothing between any lower position and this one."""
        self._asked_at: tuple[int, ...] = ()
        """When the stream was lately requested anew from a lower position."""

    def begin(self, position: BestEffortPosition, *, is_floor: bool = False) -> None:
        """Forget everything; what is received from now on is above a position.

        The position is a floor if a lower one was asked for.
        """
        self.clear()
        self.begins = self.top = position
        if is_floor:
            self.floor = position

    def note_asked(self, now: int) -> None:
        """Note that the stream is requested anew from a lower position."""
        self._asked_at = (*self._asked_at, now)

    def asked_since(self, oldest: int) -> int:
        """Return how often that was done since a time; forget what was before."""
        self._asked_at = tuple(at for at in self._asked_at if at > oldest)
        return len(self._asked_at)

    def take(
        self, knowledge: KnowledgeRange, now: int, parameters: Parameters
    ) -> KnowledgeRange | None:
        """Add a range; return the new part of it, or None if there is none (R33).

        What is not above the top arrived twice, from an old feeder and a new one.
        """
        new = knowledge if self.top is None else above(knowledge, self.top)
        if new is None or not new.publications:
            return None
        if self.top is None:
            self.begins = BestEffortPosition(new.stream_epoch, new.low - 1)
        self.top = BestEffortPosition(new.stream_epoch, new.publications[-1].tick)
        contents = [(each.attributes, each.payload) for each in new.publications]
        size = PUBLICATION_BYTES * len(contents) + size_bound(contents)
        if self._entries is None:
            self._entries = deque()
        self._entries.append(_Entry(new, size, now))
        self._count(size)
        self.trim(now, parameters, parameters.replay_buffer_bytes)
        return new

    def trim(self, now: int, parameters: Parameters, bytes_max: int) -> None:
        """Drop the oldest publications: those beyond a size, and those that are too old."""
        oldest = now - microseconds(ms=parameters.replay_buffer_ms)
        while self._entries and (self.bytes > bytes_max or self._entries[0].at < oldest):
            dropped = self._entries.popleft()
            self._count(-dropped.size)
            last = dropped.knowledge.publications[-1]
            self.begins = BestEffortPosition(dropped.knowledge.stream_epoch, last.tick)

    def after(self, position: BestEffortPosition) -> Iterable[KnowledgeRange]:
        """Yield what was received above a position, in order."""
        for entry in self._entries or ():
            part = above(entry.knowledge, position)
            if part is not None:
                yield part

    def clear(self) -> None:
        """Drop all publications."""
        self._count(-self.bytes)
        self._entries = None

    def _count(self, size: int) -> None:
        self.bytes += size
        self._account.change(size)
