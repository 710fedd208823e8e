"""Publishers and subscribers: the clients of the demo, each with a record file."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, Final

import msgspec

from gapless.client import Backoff, connect
from gapless.core.errors import (
    DeadlineError,
    GapError,
    GaplessError,
    OutcomeUnknownError,
    SlowConsumerError,
)
from gapless_lab.demo.records import (
    DemoDelivered,
    DemoFilterChanged,
    DemoGap,
    DemoOpened,
    DemoPublished,
    PublishOutcome,
    RecordFile,
)
from gapless_lab.demo.workload import (
    DemoFilter,
    PayloadHeader,
    PublisherRole,
    SubscriberRole,
    quotes,
)

if TYPE_CHECKING:
    from gapless.client import Event, Publisher, Session, Subscription
    from gapless.client.starts import Start

__all__ = ["DemoCounters", "DemoPublisher", "DemoSubscriber"]

BURST_S: Final = 0.02
"""How often a publisher sends the quotes that are due."""

BACKOFF: Final = Backoff(longest_s=0.5)
"""Clients on the same computer may reconnect often."""

LOOK_S: Final = 0.25
"""How often an idle subscriber checks whether it has to leave."""

TIMEOUT_S: Final = 60.0
"""The deadline of everything that should end."""


def now_us() -> int:
    """Return the time in microseconds."""
    return time.time_ns() // 1_000


def _connect(where: str | Sequence[str], name: str, audit: Path | None) -> Session:
    return connect(where, name=name, deadline_s=TIMEOUT_S, backoff=BACKOFF, audit=audit)


class DemoCounters:
    """Counters for the screen."""

    def __init__(self) -> None:
        self.published = 0
        self.delivered = 0
        self.kills = 0
        self.restarts = 0


class DemoPublisher:
    """Publishes quotes, and records the outcome of each."""

    def __init__(
        self,
        role: PublisherRole,
        url: str,
        rate: float,
        seed: int,
        tally: DemoCounters,
        audit: Path | None = None,
    ) -> None:
        self.role = role
        self._audit = audit
        self.ready = asyncio.Event()
        """Set after the first event is published."""
        self._url = url
        self._rate = rate * role.share
        self._random = Random(f"{role.name} {seed}")  # noqa: S311  # quotes are no secret
        self._tally = tally

    async def run(self, record: RecordFile, end: asyncio.Event) -> None:
        """Publish until the end, then wait for the outstanding replies."""
        part = self.role
        async with (
            _connect(self._url, part.name, self._audit) as session,
            session.publisher(
                part.pubend,
                name=part.name,
                advertisement=f"exchange = '{part.exchange}'",
            ) as publisher,
            asyncio.TaskGroup() as answers,
        ):
            await self._publish(publisher, record, answers, end)

    async def _publish(
        self,
        publisher: Publisher,
        record: RecordFile,
        answers: asyncio.TaskGroup,
        end: asyncio.Event,
    ) -> None:
        stream = quotes(self.role.exchange, self._random)
        started_at, number = time.monotonic(), 0
        while not end.is_set():
            due = int((time.monotonic() - started_at) * self._rate)
            while number < due and not end.is_set():
                number += 1
                quote, sent_us = next(stream), now_us()
                payload = msgspec.json.encode(PayloadHeader(self.role.name, number))
                answer: Awaitable[Any]
                if self.role.deadline_s is None:
                    answer = await publisher.send(quote, payload)
                else:
                    # the call gets its position in the order when its task first runs, so in order
                    answer = publisher.publish(quote, payload, deadline_s=self.role.deadline_s)
                answers.create_task(self._note(record, number, quote, sent_us, answer))
            await asyncio.sleep(BURST_S)

    async def _note(
        self, record: RecordFile, number: int, quote: Any, sent_us: int, answer: Awaitable[Any]
    ) -> None:
        """Wait for a reply and record the outcome."""
        outcome, tick = await _outcome(answer)
        part = self.role
        done = DemoPublished(part.name, number, part.pubend, quote, sent_us, outcome, tick)
        record.write(done)
        self.ready.set()
        self._tally.published += outcome == "ok"


async def _outcome(answer: Awaitable[Any]) -> tuple[PublishOutcome, int]:
    """Wait for a reply; return the outcome, and the tick if there is one."""
    try:
        position = await answer
    except OutcomeUnknownError:
        return "unknown", 0
    except GaplessError:
        return "failed", 0  # all other errors mean that it was not published
    (tick,) = position.values()
    return "ok", tick


def _ignore(subscriber: str, batch: list[Event], at_us: int) -> None:
    del subscriber, batch, at_us


class DemoSubscriber:
    """Subscribes, and records what it receives."""

    def __init__(
        self,
        role: SubscriberRole,
        urls: Sequence[str],
        tally: DemoCounters,
        audit: Path | None = None,
        *,
        on_batch: Callable[[str, list[Event], int], None] = _ignore,
    ) -> None:
        """Create a subscriber; ``on_batch`` gets its name, each batch of events, and the time."""
        self.role = role
        self.session: Session | None = None
        """The session while the subscriber is connected."""
        self._audit = audit
        self._on_batch = on_batch
        self.ready = asyncio.Event()
        """Set when the subscription has started on all streams."""
        self._urls = urls
        self._tally = tally
        self._filter = role.filter
        self._start: Start = role.start
        self._leaving = asyncio.Event()
        self._returning = asyncio.Event()
        self._is_over = False
        self._events: Subscription | None = None
        self._record: RecordFile | None = None

    async def run(self, record: RecordFile) -> None:
        """Subscribe and receive events; leave and return as requested."""
        self._record = record
        while not self._is_over:
            async with _connect(self._urls, self.role.name, self._audit) as session:
                self.session = session
                try:
                    await self._run_session(session, record)
                except SlowConsumerError:
                    # on a busy computer; nothing is lost, it continues from its position
                    assert self._events is not None
                    self._start = self._events.position
                    continue
            await self._returning.wait()
            self._returning.clear()

    def leave(self) -> None:
        """Disconnect; a durable subscription keeps what is published meanwhile."""
        self._leaving.set()

    def come_back(self) -> None:
        """Connect again after leaving."""
        self._returning.set()

    def end(self) -> None:
        """Disconnect for good."""
        self._is_over = True
        self._leaving.set()
        self._returning.set()

    async def switch(self, new_filter: DemoFilter) -> None:
        """Change the filter; record the position from which the new one applies."""
        assert self._events is not None
        assert self._record is not None
        position = await self._events.set_filter(new_filter.text)
        self._filter = new_filter
        self._record.write(DemoFilterChanged(new_filter.text, dict(position)))

    async def _run_session(self, session: Session, record: RecordFile) -> None:
        part = self.role
        subscription = session.subscribe(
            self._filter.text,
            durable=part.name if part.is_durable else None,
            order=part.order,
            start=self._start,
        )
        async with subscription as events:
            self._events = events
            await self._started(events)
            where = dict(events.position)
            record.write(DemoOpened(self._filter.text, part.order, where, now_us()))
            self.ready.set()
            while not self._leaving.is_set():
                await self._take(events, record)
        if part.is_durable:
            # the last acknowledgements may be lost with a broker; a client that presents its
            # position gets each event once
            self._start = events.position
        self._leaving.clear()

    async def _started(self, events: Subscription) -> None:
        """Wait until the subscription has started on all streams: events must be received from
        there on.
        """
        async with asyncio.timeout(TIMEOUT_S):
            while not self._filter.pubends <= events.position.keys():  # noqa: ASYNC110
                await asyncio.sleep(0.01)

    async def _take(self, events: Subscription, record: RecordFile) -> None:
        try:
            batch = await events.next_batch(deadline_s=LOOK_S)
        except DeadlineError:
            return
        except GapError as gap:
            record.write(DemoGap(gap.pubend, gap.low, gap.high))
            return
        at_us = now_us()
        for event in batch:
            record.write(_delivered(event, at_us))
        self._tally.delivered += len(batch)
        self._on_batch(self.role.name, batch, at_us)


def _delivered(event: Event, at_us: int) -> DemoDelivered:
    header = msgspec.json.decode(event.payload, type=PayloadHeader)
    return DemoDelivered(
        header.publisher, header.number, event.pubend, event.tick, event.attributes, at_us
    )
