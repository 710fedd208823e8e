"""A pubend of best effort: what is published goes out at once, and nothing of it is kept (R33).

Theory of operation. There is no log, so nothing can be asked for again: no silence is told, no regime
opens, nobody is a member and nobody acknowledges. What remains of the promises is order and no
duplicates. Where a guaranteed piece has its regime, a piece of best effort has the *life* of this
broker. Ticks grow within a life; a receiver drops what is not above the last tick of that life, and
takes any tick of a greater one, for a clock that was set back between two lives may give lower ticks.

Publishers are known in memory only. A sequence that is not above the last one is answered and not sent
again: its tick is not kept, so the answer says 0. After a restart a publisher begins anew, and what it
repeats is sent again, in another life. Session numbers grow across lives, so that a session of an
earlier life is fenced off.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from gapless.content.filter import Filter
from gapless.core.machine import Context
from gapless.core.parameters import microseconds
from gapless.core.ticks import Tick
from gapless.messages.overlay import Quality
from gapless.messages.records import PubendRecord, PublisherRecord
from gapless.messages.streams import Events, KnowledgeRange, Member
from gapless.pubend.protocols import Outlet
from gapless.pubend.publishers import Publishers, refuse_unadvertised, with_ticks

__all__ = ["BestEffortPubend"]

SESSIONS_PER_INCARNATION: Final = 1_024
"""By so much a life moves session numbers on. More sessions in a life than that are no harm unless
the next life is the very next number, as after a clock was set back."""

UNKNOWN_TICK: Final = 0
"""The tick of an event that was sent before."""


class BestEffortPubend:
    """One stream of this broker that promises order and no duplicates, and nothing else."""

    def __init__(self, context: Context, record: PubendRecord, outlet: Outlet) -> None:
        assert record.properties.quality is Quality.BEST_EFFORT
        self._context = context
        self._outlet = outlet
        self._advertised = Filter(record.properties.advertisement)
        self._publishers = Publishers(record.pubend, 0)
        self._sessions = context.identity.incarnation * SESSIONS_PER_INCARNATION
        self.record = record
        """The pubend as it is on disk."""
        self.top: Tick = 0
        """The last tick that was given."""
        context.call_later(self._review_us, self._review)

    # --- publishing --------------------------------------------------------------------------

    def open_publisher(self, publisher: str, then: Callable[[PublisherRecord], None]) -> None:
        """Fence older sessions of a publisher and say how far it has come in this life (R28)."""
        self._sessions += 1
        then(self._publishers.open(publisher, self._context.clock, self._sessions))

    def session_of(self, publisher: str) -> int | None:
        """Return the session of a publisher that may publish, None if it is not open."""
        return self._publishers.session_of(publisher)

    def publish(
        self,
        publisher: str,
        session: int,
        first: int,
        events: Events,
        then: Callable[[tuple[Tick, ...]], None],
        refused: Callable[[str], None],
    ) -> None:
        """Send a batch out, but for what was sent before, and call back with its ticks."""
        del refused  # what is refused is refused at once, and raises
        held = self._publishers.get(publisher, session)
        refuse_unadvertised(self._advertised, events)
        repeated = min(len(events), max(0, held.last_sequence + 1 - first))
        fresh = events[repeated:]
        tick = max(self.top + 1, self._context.clock)
        self.top = max(self.top, tick + len(fresh) - 1)
        new = with_ticks(tick, publisher, first + repeated, fresh)
        then((UNKNOWN_TICK,) * repeated + tuple(each.tick for each in new))
        if new:
            self._publishers.append(held, new, self._context.clock)
            knowledge = KnowledgeRange(
                new[0].tick, new[-1].tick, self._context.identity.incarnation, 0, new
            )
            self._outlet.forward(self.record.pubend, knowledge, None)

    # --- what a router asks of a log: there is none ------------------------------------------

    corruption: Final = None
    last_log_tick: Final = 0

    def ranges_between(
        self, low: Tick, high: Tick, then: Callable[[list[KnowledgeRange], Tick], None]
    ) -> None:
        """Nothing is kept, so nothing can be read."""
        del high
        then([], low - 1)

    def advance(self, tick: Tick) -> None:
        """No silence is told: nobody can wait for it."""

    def set_eager(self, eager: bool) -> None:
        """No silence is told: everything goes out at once as it is."""

    def report(self, member: Member, tick: Tick) -> bool:
        """There are no members, so nothing is acknowledged."""
        del member, tick
        return False

    # --- publishers that are gone ------------------------------------------------------------

    @property
    def _review_us(self) -> int:
        return microseconds(s=self._context.parameters.publisher_ttl_s) // 8

    def _review(self) -> None:
        self._context.call_later(self._review_us, self._review)
        limit = microseconds(s=self._context.parameters.publisher_ttl_s)
        self._publishers.forget_unused(self._context.clock - limit)
