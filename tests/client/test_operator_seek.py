"""An operator seeks a durable subscription: its client continues from there and undoes nothing."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

import gapless
from gapless.client import Session, Subscription
from gapless.core.backoff import Backoff
from gapless.errors import FencedError
from gapless.messages.clients import StartKind, StartPoint, Subscribe
from gapless.messages.operating import DurableSeekDone, SeekDurable
from gapless.testing import Overlay
from tests.client.proxy import Proxy
from tests.client.running import async_test

QUICK = Backoff(first_s=0.002, longest_s=0.02)


@asynccontextmanager
async def stage() -> AsyncIterator[tuple[Session, Session, Proxy]]:
    """Yield a client behind a proxy, an operator that is not, and a proxy; quotes has three events."""
    async with (
        Overlay() as overlay,
        Proxy(overlay.url()) as proxy,
        gapless.connect(overlay.url()) as operator,
        gapless.connect(proxy.url, backoff=QUICK) as client,
    ):
        async with operator.publisher("quotes") as publisher:
            await publisher.publish_many([{"n": number} for number in (1, 2, 3)])
        yield client, operator, proxy


def desk(client: Session, **options: object) -> Subscription:
    settings = {"durable": "desk", "start": "earliest", "ack": "manual", **options}
    return client.subscribe("n > 0", **settings)  # type: ignore[arg-type]


async def take(events: Subscription, count: int) -> list[object]:
    return [(await events.get()).attributes["n"] for _ in range(count)]


async def move_back(operator: Session) -> None:
    start = StartPoint(StartKind.EARLIEST)
    answer = await operator.request(SeekDurable(0, "desk", start, force=True))
    assert isinstance(answer, DurableSeekDone)


@async_test
async def test_a_seek_while_the_client_is_disconnected_fences_it_and_loses_no_event() -> None:
    async with stage() as (client, operator, proxy):
        async with desk(client) as events:
            assert await take(events, 3) == [1, 2, 3]
            await events.ack()
            proxy.closed = True
            proxy.cut()
            await move_back(operator)
            proxy.closed = False
            with pytest.raises(FencedError, match="an operator moved the subscription 'desk'"):
                await events.get()
        async with desk(client) as events:
            assert await take(events, 3) == [1, 2, 3]


@async_test
async def test_a_forced_seek_fences_a_connected_client_at_once() -> None:
    async with stage() as (client, operator, _), desk(client) as events:
        await take(events, 3)
        await move_back(operator)
        with pytest.raises(FencedError, match="an operator moved the subscription 'desk'"):
            await events.get()


@async_test
async def test_a_position_that_the_application_has_stored_does_not_undo_a_seek() -> None:
    async with stage() as (client, operator, _):
        async with desk(client) as events:
            await take(events, 3)
            stored = events.position
            await events.ack()
        await move_back(operator)
        async with desk(client, start=stored) as events:
            assert await take(events, 3) == [1, 2, 3]


@async_test
async def test_after_an_operator_seek_a_lost_connection_repeats_no_event() -> None:
    async with stage() as (client, operator, proxy):
        async with desk(client) as events:
            await take(events, 3)
            await events.ack()
        await move_back(operator)
        async with desk(client) as events:
            assert await take(events, 2) == [1, 2]
            proxy.cut()
            assert await take(events, 1) == [3]
            async with operator.publisher("quotes") as publisher:
                await publisher.publish({"n": 4})
            assert await take(events, 1) == [4]
        assert proxy.requests_of(Subscribe)[-1].seek_count == 1
