"""The doubt horizon: the tick up to which a stream was handed over, in order and once (GD 2.3).

All ticks up to the horizon were known and handed over, or are before the stream's base. A
publication above a Q waits, because the Q tick may be a publication that comes before it. The
ranges from the horizon to the first Q may be handed over next. The caller may stop at any of them,
for example if its stream epoch is not known yet, and continue from there later.
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
        """Return the ranges to hand over, in order; the first starts just above the horizon."""
        return stream.run(self.tick + 1)

    def unknown_ranges(self, stream: IStream, high: Tick) -> list[TickRange]:
        """Return the ranges above the horizon, up to a tick, that are still Q."""
        return stream.gaps(self.tick + 1, high)

    def pass_over(self, knowledge: KnowledgeRange) -> None:
        """Note that a range was handed over; it must be the next one."""
        assert knowledge.low == self.tick + 1, (
            f"{knowledge.low} does not follow the horizon {self.tick}"
        )
        self.tick = knowledge.high

    def skip_to(self, tick: Tick) -> None:
        """Skip the ticks up to a tick: they are before the base, or are released (R42, R45).

        The caller must report skipped ticks to subscribers as a gap.
        """
        self.tick = max(self.tick, tick)
