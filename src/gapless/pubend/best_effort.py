"""A best-effort pubend: it sends publications at once and stores nothing (R33).

Theory of operation. There is no log, so nothing can be sent again. There is no silence, no stream
epoch, no member and no acknowledgement. Order and "no duplicates" remain of the promises. A
knowledge range of best effort has the *incarnation* of this broker in place of a stream epoch.
Ticks grow within an incarnation. A receiver drops a tick that is not above the last one of its
incarnation, and accepts any tick of a greater incarnation: if the clock was set back between the
two, its ticks may be lower.

One step sends one row. The further rows of a large batch, and batches behind them, wait for later
steps. The reply does not wait, and rows beyond a limit are dropped.

Publishers are known in memory only. A sequence that is not above the last one is acknowledged and
not sent again. Its tick is not kept, so the reply has 0 in its place. After a restart a publisher
starts anew, and events that it repeats are sent again, in the new incarnation. Session numbers grow
across incarnations, so that a session of an earlier incarnation is fenced.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

from gapless.content.filter import Filter
from gapless.content.plain import size_bound
from gapless.core.context import Context
from gapless.core.limits import BEST_EFFORT_ROWS_MAX, ROW_BYTES_MAX, ROW_EVENTS_MAX
from gapless.core.parameters import microseconds
from gapless.core.ticks import Tick
from gapless.messages.overlay import Quality
from gapless.messages.records import DeleteRecord, PubendRecord, PublisherRecord, StorageChange
from gapless.messages.streams import Events, KnowledgeRange, Member, Publication
from gapless.packed.encode import in_rows
from gapless.pubend.drain import sealed_reason
from gapless.pubend.protocols import Outlet
from gapless.pubend.publishers import (
    ClosedRefusalError,
    Publishers,
    refuse_unadvertised,
    with_ticks,
)

__all__ = ["BestEffortPubend"]

SESSIONS_PER_INCARNATION: Final = 1_024
"""The distance of the session numbers of consecutive incarnations. More sessions in one incarnation
do no harm unless the next incarnation is greater by one only, as after a clock was set back."""

UNKNOWN_TICK: Final = 0
"""The tick in the reply for an event that was sent before."""


_HEADS_BYTES: Final = 32
"""More than the numbers of a publication and the heads of its fields have together."""


def _rows(
    publisher: str, events: Events, publications: tuple[Publication, ...]
) -> list[tuple[Publication, ...]]:
    """Divide a batch into rows; one that surely fits is not encoded to measure it."""
    bound = (_HEADS_BYTES + 4 * len(publisher)) * len(events) + size_bound(events)
    if len(events) <= ROW_EVENTS_MAX and bound <= ROW_BYTES_MAX:
        return [publications]
    return [row.publications for row in in_rows(publications)]


class BestEffortPubend:
    """One best-effort stream of this broker."""

    def __init__(self, context: Context, record: PubendRecord, outlet: Outlet) -> None:
        assert record.properties.quality is Quality.BEST_EFFORT
        self._context = context
        self._outlet = outlet
        self._advertised = Filter(record.properties.advertisement)
        self._publishers = Publishers(record.pubend, 0)
        self._sessions = context.identity.incarnation * SESSIONS_PER_INCARNATION
        self.record = record
        """The record on disk."""
        self._unsent: deque[tuple[Publication, ...]] = deque()
        """The row of this step and those of later steps."""
        self.top: Tick = 0
        """The last tick that was assigned."""
        self.sealed: Tick | None = None
        """0 when the pubend is closed: it has no positions."""
        self._review_timer = context.call_later(self._review_us, self._review)

    # --- the end -----------------------------------------------------------------------------

    def refuse_when_sealed(self) -> None:
        """Refuse everything when the pubend is closed (RS-32)."""
        if self.sealed is not None:
            raise ClosedRefusalError(sealed_reason(self.record.pubend))

    def erase(self) -> tuple[StorageChange, ...]:
        """End the pubend; return the changes that erase its records (RS-33)."""
        self.sealed = 0
        self._review_timer.cancel()
        return (DeleteRecord(self.record.key),)

    # --- publishing --------------------------------------------------------------------------

    def open_publisher(self, publisher: str, then: Callable[[PublisherRecord], None]) -> None:
        """Fence older sessions of a publisher; call back with its record in memory (R28)."""
        self._sessions += 1
        then(self._publishers.open(publisher, self._context.clock, self._sessions))

    def session_of(self, publisher: str) -> int | None:
        """Return the current session of a publisher, or None if the publisher is not open."""
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
        """Send the events of a batch that were not sent before, and call back with its ticks."""
        del refused  # every refusal raises PublishRefusedError
        self.refuse_when_sealed()
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
            self._send(_rows(publisher, fresh, new))

    def _send(self, rows: list[tuple[Publication, ...]]) -> None:
        """Send rows, one per step, behind those that wait; drop what is beyond the limit."""
        is_sending = bool(self._unsent)
        room = BEST_EFFORT_ROWS_MAX - len(self._unsent)
        if len(rows) > room:
            self._context.mark("best effort dropped")
        self._unsent.extend(rows[: max(0, room)])
        if not is_sending:
            self._send_row()

    def _send_row(self) -> None:
        """Send the next row. The others wait for later steps, because one step sends one packet."""
        part = self._unsent[0]
        knowledge = KnowledgeRange(
            part[0].tick, part[-1].tick, self._context.identity.incarnation, 0, part
        )
        self._outlet.forward(self.record.pubend, knowledge, None)
        if len(self._unsent) > 1:
            self._context.write((), self._row_sent)
        else:
            self._unsent.clear()

    def _row_sent(self) -> None:
        """The step of a row is over."""
        self._unsent.popleft()
        self._send_row()

    # --- the log that a router expects: there is none ----------------------------------------

    corruption: Final = None
    last_log_tick: Final = 0

    def ranges_between(
        self, low: Tick, high: Tick, then: Callable[[list[KnowledgeRange], Tick], None]
    ) -> None:
        """Call back with nothing: there is no log."""
        del high
        then([], low - 1)

    def advance(self, tick: Tick) -> None:
        """Do nothing: there is no silence, and no receiver waits for it."""

    def set_eager(self, eager: bool) -> None:
        """Do nothing: there is no silence."""

    def report(self, member: Member, tick: Tick) -> bool:
        """Return False: there are no members."""
        del member, tick
        return False

    # --- unused publishers -------------------------------------------------------------------

    @property
    def _review_us(self) -> int:
        return microseconds(s=self._context.parameters.publisher_ttl_s) // 8

    def _review(self) -> None:
        self._review_timer = self._context.call_later(self._review_us, self._review)
        limit = microseconds(s=self._context.parameters.publisher_ttl_s)
        self._publishers.forget_unused(self._context.clock - limit)
