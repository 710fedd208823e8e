"""Subscribers under chaos: permanent ones, and temporary ones that start during a fault.

A *permanent* subscriber that is durable and knows several brokers fails over soon when its broker
is down. A *temporary* subscriber makes a new subscription during a fault. It receives events at
once, because streams that are cut off start later than others. It records its start when the last
stream has started.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gapless.client import connect
from gapless.core.errors import SlowConsumerError
from gapless_lab.demo.clients import BACKOFF, TIMEOUT_S, DemoSubscriber, now_us
from gapless_lab.demo.records import DemoOpened, RecordFile

if TYPE_CHECKING:
    from gapless.client import Session, Subscription

__all__ = ["FAILOVER_AFTER_S", "PermanentSubscriber", "TemporarySubscriber"]

FAILOVER_AFTER_S: Final = 1.0
"""How long a durable subscriber waits for its broker: mostly less than a fault lasts, so that it
fails over."""


class PermanentSubscriber(DemoSubscriber):
    """A subscriber that fails over soon and has no deadline for connecting."""

    async def run(self, record: RecordFile) -> None:
        """Subscribe and receive events; leave and return as requested."""
        self._record = record
        while not self._is_over:
            session = connect(
                self._urls,
                name=self.role.name,
                deadline_s=TIMEOUT_S,
                connect_deadline_s=None,
                backoff=BACKOFF,
                failover_after_s=FAILOVER_AFTER_S,
            )
            async with session:
                self.session = session
                try:
                    await self._run_session(session, record)
                except SlowConsumerError:
                    self._continue_from_here()
                    continue
            self.session = None
            await self._returning.wait()
            self._returning.clear()

    def _continue_from_here(self) -> None:
        """Start the next subscription at the position of this one."""
        assert self._events is not None
        self._start = self._events.position


class TemporarySubscriber(PermanentSubscriber):
    """A subscriber with a new subscription for every session; it misses nothing between two
    sessions.
    """

    _start_ticks: dict[str, int] | None = None
    """After which tick it first started on each stream."""
    _reached: dict[str, int] | None = None
    """Its position on each stream, also on those that wait now."""

    async def _run_session(self, session: Session, record: RecordFile) -> None:
        part = self.role
        assert not part.is_durable, "a durable subscription is not new when it returns"
        subscription = session.subscribe(self._filter.text, order=part.order, start=self._start)
        async with subscription as events:
            self._events = events
            while not self._leaving.is_set():
                self._note_started(events, record)
                await self._take(events, record)
        self._continue_from_here()
        self._leaving.clear()

    def _note_started(self, events: Subscription, record: RecordFile) -> None:
        """Record the starts of all streams, once."""
        if self.ready.is_set():
            return
        self._start_ticks = {**events.position_after(None), **(self._start_ticks or {})}
        if self._filter.pubends <= self._start_ticks.keys():
            record.write(
                DemoOpened(self._filter.text, self.role.order, self._start_ticks, now_us())
            )
            self.ready.set()

    def _continue_from_here(self) -> None:
        assert self._events is not None
        self._reached = {**(self._reached or {}), **self._events.position}
        self._start = self._reached
