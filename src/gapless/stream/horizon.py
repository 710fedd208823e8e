"""The doubt horizon: up to where a stream was handed over, in order and once (GD 2.3).

All ticks up to the horizon are known and were passed, or lie before the stream's base. A
publication above a Q waits, because what the Q hides may come before it. The pieces that may go
next are those from the horizon to the first Q; whoever delivers them may stop at any of them, as
when the regime of one is not known yet, and goes on from there later.
"""

from __future__ import annotations

from gapless.core.ticks import Tick, TickRange
from gapless.messages.streams import KnowledgeRange
from gapless.stream.istream import IStream

__all__ = ["DoubtHorizon"]


class DoubtHorizon:
    """The highest tick up to which a stream was handed over; it never falls."""

    __slots__ = ("tick",)

    def __init__(self, base: Tick) -> None:
        self.tick = base

    def next_ranges(self, stream: IStream) -> list[KnowledgeRange]:
        """Return what may be handed over now, in order; the first begins just above the horizon."""
        return stream.run(self.tick + 1)

    def unknown_ranges(self, stream: IStream, high: Tick) -> list[TickRange]:
        """Return the ranges above the horizon, up to a tick, that are still Q."""
        return stream.gaps(self.tick + 1, high)

    def pass_over(self, knowledge: KnowledgeRange) -> None:
        """Note that a piece was handed over; it must be the next one."""
        assert knowledge.low == self.tick + 1, (
            f"{knowledge.low} does not follow the horizon {self.tick}"
        )
        self.tick = knowledge.high

    def skip_to(self, tick: Tick) -> None:
        """Give up what lies up to a tick: it is before the base, or its log is gone (R42, R45).

        What is skipped is a gap that subscribers must be told of; that is the caller's duty.
        """
        self.tick = max(self.tick, tick)
