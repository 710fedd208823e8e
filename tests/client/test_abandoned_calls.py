"""Calls that their callers abandon: other calls continue, and no state remains."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import gapless
from gapless.client.batches import PublishBatch
from gapless.errors import (
    DeadlineError,
    FencedError,
    OutcomeUnknownError,
    RefusedError,
)
from gapless.messages.clients import (
    Publish,
    RefusalCause,
    Refused,
    SetFilter,
    Subscribe,
    Unsubscribe,
)
from gapless.testing import Overlay
from tests.client.running import async_test, soon
from tests.client.scripted import ScriptedBroker, ScriptedConnection


def be_silent(connection: ScriptedConnection, call: Any) -> None:
    """Do not reply."""


async def fill_window(publisher: gapless.client.Publisher, broker: ScriptedBroker) -> list[Any]:
    """Have four batches in flight, so that the next events are batched."""
    tasks = []
    for n in range(4):
        tasks.append(asyncio.create_task(publisher.publish({"n": n})))
        await soon(lambda: len(broker.requests_of(Publish)) == len(tasks))
    return tasks


def answer_all(broker: ScriptedBroker) -> None:
    for call in broker.requests_of(Publish):
        broker.connection.notify(broker.published(call))
    broker.answers[Publish] = lambda connection, call: connection.notify(broker.published(call))


@async_test
async def test_an_abandoned_publish_many_removes_only_its_own_events() -> None:
    async with ScriptedBroker() as broker, gapless.connect(broker.url) as session:
        broker.answers[Publish] = be_silent
        async with session.publisher("quotes", in_flight_max=10) as publisher:
            first = await fill_window(publisher, broker)

            async def expire_and_publish() -> gapless.Position:
                with pytest.raises(DeadlineError):
                    await publisher.publish({"short": 1}, deadline_s=0.05)
                return await publisher.publish_many([{"n": 100}])

            # four more events fit: two of the many, then two whose deadlines pass and admit another,
            # whose event comes between two of the many
            other = asyncio.create_task(expire_and_publish())
            with_it = asyncio.create_task(publisher.publish({"short": 2}, deadline_s=0.05))
            await asyncio.sleep(0)
            with pytest.raises(DeadlineError):
                await publisher.publish_many([{"many": n} for n in range(20)], deadline_s=0.5)
            assert isinstance(with_it.exception(), DeadlineError)
            answer_all(broker)
            await asyncio.gather(*first)
            position = await other
        sent = [event for call in broker.requests_of(Publish) for event in call.events]
        assert [event[0] for event in sent[4:]] == [{"n": 100}]
        assert position == {"quotes": broker.tick}


def test_events_of_an_answered_or_failed_batch_cannot_be_removed() -> None:
    answered, failed = PublishBatch(), PublishBatch()
    for batch in (answered, failed):
        batch.add(b"...")
    answered.seal(1, 1)
    answered.succeed((17,), "quotes", is_logged=True)
    failed.fail(DeadlineError("too late"))
    assert not answered.take_out(0)
    assert not failed.take_out(0)


@async_test
async def test_a_cancelled_publish_frees_its_place_in_flight_at_once() -> None:
    async with ScriptedBroker() as broker, gapless.connect(broker.url) as session:
        broker.answers[Publish] = be_silent
        async with session.publisher("quotes", in_flight_max=5) as publisher:
            first = await fill_window(publisher, broker)
            waiting = asyncio.create_task(publisher.publish({"n": 5}))
            await asyncio.sleep(0)
            sending = asyncio.create_task(publisher.send({"n": 6}))
            await asyncio.sleep(0)
            waiting.cancel()
            await sending
            answer_all(broker)
            await asyncio.gather(*first)


@async_test
async def test_awaiting_one_receipt_twice_does_not_hide_the_error_of_another() -> None:
    async with ScriptedBroker() as broker, gapless.connect(broker.url) as session:
        broker.answers[Publish] = lambda connection, call: connection.notify(
            Refused(call.request, "no", RefusalCause.UNAVAILABLE)
        )
        async with session.publisher("quotes") as publisher:
            one = await publisher.send({"n": 1})
            await publisher.send({"n": 2})
            for _ in range(2):
                with pytest.raises(RefusedError):
                    await one
            with pytest.raises(RefusedError):
                await publisher.flush()


@async_test
async def test_a_durable_subscription_whose_set_filter_times_out_is_not_reopened() -> None:
    async with ScriptedBroker() as broker, gapless.connect(broker.url) as session:
        broker.answers[SetFilter] = be_silent
        failing = session.subscribe("n > 1", durable="desk", deadline_s=0.05)
        with pytest.raises(OutcomeUnknownError):
            async with failing:
                pytest.fail("it is not open")
        assert failing.is_over
        broker.cut()
        await soon(lambda: len(broker.connections) == 2)
        await soon(lambda: session.broker is not None)
        assert len(broker.requests_of(Subscribe)) == 1


@async_test
async def test_an_abandoned_subscribe_is_unsubscribed_at_the_broker() -> None:
    async with ScriptedBroker() as broker, gapless.connect(broker.url) as session:
        broker.answers[Subscribe] = be_silent
        with pytest.raises(DeadlineError):
            await session.subscribe("n > 1", deadline_s=0.05).__aenter__()
        await soon(lambda: bool(broker.requests_of(Unsubscribe)))
        assert (
            broker.requests_of(Unsubscribe)[0].subscription
            == broker.requests_of(Subscribe)[0].subscription
        )


@async_test
async def test_an_unsubscribe_without_a_reply_ends_the_subscription_with_that_error() -> None:
    async with ScriptedBroker() as broker, gapless.connect(broker.url) as session:
        async with session.subscribe("n > 1", durable="desk") as events:
            with pytest.raises(OutcomeUnknownError):
                await events.unsubscribe(deadline_s=0.05)
            with pytest.raises(OutcomeUnknownError):
                await anext(events)


@async_test
async def test_a_filter_that_was_never_sent_is_not_the_filter_after_a_reconnect() -> None:
    async with ScriptedBroker() as broker, gapless.connect(broker.url) as session:
        async with session.subscribe("n = 1") as events:
            accept, broker.on_connect = broker.on_connect, lambda _: None
            broker.cut()
            await soon(lambda: session.broker is None)
            with pytest.raises(DeadlineError):
                await events.set_filter("n = 2", deadline_s=0.05)
            assert str(events.filter) == "n = 1"
            broker.on_connect = accept
            broker.cut()
            await soon(lambda: len(broker.requests_of(Subscribe)) == 2)
            assert [each.filter for each in broker.requests_of(Subscribe)] == ["n = 1"] * 2


@async_test
async def test_opening_a_durable_name_twice_in_a_session_fences_the_older_subscription() -> None:
    async with (
        Overlay(on_disk=False) as overlay,
        gapless.connect(overlay.url()) as session,
        session.publisher("quotes") as publisher,
        session.subscribe("", durable="desk") as older,
    ):
        waiting = asyncio.create_task(older.get(deadline_s=5))
        await asyncio.sleep(0)
        async with session.subscribe("", durable="desk") as newer:
            with pytest.raises(FencedError):
                await waiting
            await publisher.publish({"n": 1})
            assert (await newer.get()).attributes == {"n": 1}
