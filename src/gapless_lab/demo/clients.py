"""Feeds and watchers: the clients of the demo, each with a file for what happens to it."""

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
    TooSlowError,
)
from gapless_lab.demo.records import (
    Delivered,
    GapMet,
    Opened,
    Outcome,
    Published,
    RecordFile,
    Switched,
)
from gapless_lab.demo.workload import FeedPart, Mark, WatcherPart, Wish, quotes

if TYPE_CHECKING:
    from gapless.client import Event, Publisher, Session, Subscription
    from gapless.client.starts import Start

__all__ = ["Feed", "Tally", "Watcher"]

BURST_S: Final = 0.02
"""How often a feed publishes what is due."""

BACKOFF: Final = Backoff(longest_s=0.5)
"""Clients of the same computer may look often whether their broker is back."""

LOOK_S: Final = 0.25
"""How often a watcher to which nothing comes looks whether it is to leave."""

PATIENCE_S: Final = 60.0
"""How long anything may take that ends in the end."""


def now_us() -> int:
    """Return the clock, in microseconds."""
    return time.time_ns() // 1_000


def _connect(where: str | Sequence[str], name: str, audit: Path | None) -> Session:
    return connect(where, name=name, deadline=PATIENCE_S, backoff=BACKOFF, audit=audit)


class Tally:
    """What has happened so far, for people who watch."""

    def __init__(self) -> None:
        self.published = 0
        self.delivered = 0
        self.kills = 0
        self.restarts = 0


class Feed:
    """Publishes quotes, and writes down what became of each."""

    def __init__(
        self,
        part: FeedPart,
        url: str,
        rate: float,
        seed: int,
        tally: Tally,
        audit: Path | None = None,
    ) -> None:
        self.part = part
        self._audit = audit
        self.ready = asyncio.Event()
        """Set when something is published."""
        self._url = url
        self._rate = rate * part.share
        self._random = Random(f"{part.name} {seed}")  # noqa: S311  # quotes are no secret
        self._tally = tally

    async def run(self, record: RecordFile, end: asyncio.Event) -> None:
        """Publish until the end, then wait for what is not answered."""
        part = self.part
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
        stream = quotes(self.part.exchange, self._random)
        began, number = time.monotonic(), 0
        while not end.is_set():
            due = int((time.monotonic() - began) * self._rate)
            while number < due and not end.is_set():
                number += 1
                quote, sent_us = next(stream), now_us()
                payload = msgspec.json.encode(Mark(self.part.name, number))
                answer: Awaitable[Any]
                if self.part.deadline_s is None:
                    answer = await publisher.send(quote, payload)
                else:
                    # its place among the others is taken when it is first run, so in order
                    answer = publisher.publish(quote, payload, deadline=self.part.deadline_s)
                answers.create_task(self._note(record, number, quote, sent_us, answer))
            await asyncio.sleep(BURST_S)

    async def _note(
        self, record: RecordFile, number: int, quote: Any, sent_us: int, answer: Awaitable[Any]
    ) -> None:
        """Wait for an answer, and write down what it is."""
        outcome, tick = await _outcome(answer)
        part = self.part
        done = Published(part.name, number, part.pubend, quote, sent_us, outcome, tick)
        record.write(done)
        self.ready.set()
        self._tally.published += outcome == "ok"


async def _outcome(answer: Awaitable[Any]) -> tuple[Outcome, int]:
    """Wait for an answer; return which of three it is, and the tick if there is one."""
    try:
        position = await answer
    except OutcomeUnknownError:
        return "unknown", 0
    except GaplessError:
        return "failed", 0  # all others say that it was not published
    (tick,) = position.values()
    return "ok", tick


def _ignore(watcher: str, batch: list[Event], at_us: int) -> None:
    del watcher, batch, at_us


class Watcher:
    """Subscribes, and writes down what it is given."""

    def __init__(
        self,
        part: WatcherPart,
        urls: Sequence[str],
        tally: Tally,
        audit: Path | None = None,
        *,
        on_batch: Callable[[str, list[Event], int], None] = _ignore,
    ) -> None:
        """``on_batch`` hears of all that comes: the watcher's name, events, the clock."""
        self.part = part
        self.session: Session | None = None
        """What it has with the brokers, while it is there."""
        self._audit = audit
        self._on_batch = on_batch
        self.ready = asyncio.Event()
        """Set when the subscription has begun on all streams."""
        self._urls = urls
        self._tally = tally
        self._wish = part.wish
        self._start: Start = part.start
        self._leaving = asyncio.Event()
        self._returning = asyncio.Event()
        self._is_over = False
        self._events: Subscription | None = None
        self._record: RecordFile | None = None

    async def run(self, record: RecordFile) -> None:
        """Subscribe and take events; leave and return as told."""
        self._record = record
        while not self._is_over:
            async with _connect(self._urls, self.part.name, self._audit) as session:
                self.session = session
                try:
                    await self._visit(session, record)
                except TooSlowError:
                    # on a busy computer; nothing is lost, it goes on from where it was
                    assert self._events is not None
                    self._start = self._events.position
                    continue
            await self._returning.wait()
            self._returning.clear()

    def leave(self) -> None:
        """Go away; what is published meanwhile waits, if the subscription is durable."""
        self._leaving.set()

    def come_back(self) -> None:
        """Return after leaving."""
        self._returning.set()

    def end(self) -> None:
        """Go away for good."""
        self._is_over = True
        self._leaving.set()
        self._returning.set()

    async def switch(self, wish: Wish) -> None:
        """Change the filter; write down from where on the new one governs."""
        assert self._events is not None
        assert self._record is not None
        position = await self._events.set_filter(wish.text)
        self._wish = wish
        self._record.write(Switched(wish.text, dict(position)))

    async def _visit(self, session: Session, record: RecordFile) -> None:
        part = self.part
        subscription = session.subscribe(
            self._wish.text,
            durable=part.name if part.is_durable else None,
            order=part.order,
            start=self._start,
        )
        async with subscription as events:
            self._events = events
            await self._started(events)
            where = dict(events.position)
            record.write(Opened(self._wish.text, part.order, where, now_us()))
            self.ready.set()
            while not self._leaving.is_set():
                await self._take(events, record)
        if part.is_durable:
            # its last acknowledgements may be lost with a broker; who says what it has seen gets it once
            self._start = events.position
        self._leaving.clear()

    async def _started(self, events: Subscription) -> None:
        """Wait until the subscription has begun on all streams: what is owed counts from there."""
        async with asyncio.timeout(PATIENCE_S):
            while not self._wish.pubends <= events.position.keys():  # noqa: ASYNC110  # nobody tells
                await asyncio.sleep(0.01)

    async def _take(self, events: Subscription, record: RecordFile) -> None:
        try:
            batch = await events.next_batch(deadline=LOOK_S)
        except DeadlineError:
            return
        except GapError as gap:
            record.write(GapMet(gap.pubend, gap.low, gap.high))
            return
        at_us = now_us()
        for event in batch:
            record.write(_delivered(event, at_us))
        self._tally.delivered += len(batch)
        self._on_batch(self.part.name, batch, at_us)


def _delivered(event: Event, at_us: int) -> Delivered:
    mark = msgspec.json.decode(event.payload, type=Mark)
    return Delivered(mark.publisher, mark.number, event.pubend, event.tick, event.attributes, at_us)
