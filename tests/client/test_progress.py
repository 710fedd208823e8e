"""A subscription for which nothing matches advances with its streams and loses nothing."""

from __future__ import annotations

import pytest

import gapless
from gapless.core.backoff import Backoff
from gapless.core.ids import PubendId
from gapless.core.parameters import Parameters
from gapless.messages.clients import (
    Ack,
    Delivery,
    Progress,
    Seek,
    StartKind,
    Subscribe,
    Subscribed,
)
from gapless.messages.streams import Publication
from gapless.pubend.pubend import Pubend
from gapless.testing import Overlay
from tests.client.proxy import Proxy
from tests.client.running import async_test, soon
from tests.client.scripted import Q, ScriptedBroker, ScriptedConnection

QUICK = Backoff(first_s=0.002, longest_s=0.02)
R = PubendId("rates")


def delivery(name: str, *ticks: int, pubend: PubendId = Q) -> Delivery:
    publications = tuple(Publication(tick, "p", tick, {"n": tick}, b"") for tick in ticks)
    return Delivery(name, ((pubend, publications),))


@pytest.mark.parametrize("durable", [None, "desk"])
@async_test
async def test_after_a_lost_connection_a_subscription_resumes_at_its_progress(
    durable: str | None,
) -> None:
    async with (
        ScriptedBroker() as broker,
        gapless.connect(broker.url, backoff=QUICK) as session,
        session.subscribe("n > 0", durable=durable) as events,
    ):
        broker.connection.notify(Progress(events.name, ((Q, 70),)))
        await soon(lambda: events.position.get("quotes") == 70)
        broker.connection.notify(Progress(events.name, ((Q, 60),)))
        broker.cut()
        await soon(lambda: len(broker.requests_of(Subscribe)) == 2)
        start = broker.requests_of(Subscribe)[-1].start
        assert start.kind is StartKind.POSITION
        assert start.position == ((Q, 70),)


@async_test
async def test_the_position_does_not_pass_events_that_were_not_handed_out() -> None:
    async with (
        ScriptedBroker() as broker,
        gapless.connect(broker.url, backoff=QUICK) as session,
        session.subscribe("n > 0") as events,
    ):
        name = events.name
        broker.connection.notify(
            delivery(name, 10, 20), Progress(name, ((Q, 70),)), delivery(name, 80)
        )
        await soon(lambda: len(events._prefetch.queue) == 3)
        assert events.position["quotes"] == 0
        first, second = await events.get(), await events.get()
        assert (first.position["quotes"], second.position["quotes"]) == (10, 20)
        assert events.position["quotes"] == 20
        assert (await events.get()).position["quotes"] == 80


@async_test
async def test_the_position_after_an_event_has_the_progress_of_the_other_streams() -> None:
    async with (
        ScriptedBroker() as broker,
        gapless.connect(broker.url, backoff=QUICK) as session,
    ):
        broker.answers[Subscribe] = lambda connection, call: connection.notify(
            Subscribed(call.request, ((Q, 0), (R, 0)))
        )
        async with session.subscribe("n > 0") as events:
            name = events.name
            broker.connection.notify(
                delivery(name, 10), Progress(name, ((R, 50),)), delivery(name, 20)
            )
            await soon(lambda: len(events._prefetch.queue) == 2)
            assert dict((await events.get()).position) == {"quotes": 10, "rates": 0}
            assert dict((await events.get()).position) == {"quotes": 20, "rates": 50}


@async_test
async def test_progress_of_the_position_before_a_seek_does_not_count() -> None:
    def answer_seek(connection: ScriptedConnection, call: Seek) -> None:
        connection.notify(
            Progress(call.subscription, ((Q, 70),)), Subscribed(call.request, ((Q, 5),))
        )

    async with (
        ScriptedBroker() as broker,
        gapless.connect(broker.url, backoff=QUICK) as session,
        session.subscribe("n > 0") as events,
    ):
        broker.answers[Seek] = answer_seek
        await events.seek({"quotes": 5})
        assert events.position["quotes"] == 5


@pytest.mark.parametrize("order", ["publisher", "total"])
@async_test
async def test_a_subscription_idle_for_longer_than_the_retention_gets_no_gap(order: str) -> None:
    parameters = Parameters(progress_ms=20, retention_s=0)
    async with (
        Overlay(parameters=parameters, on_disk=False) as overlay,
        Proxy(overlay.url()) as proxy,
    ):
        async with (
            gapless.connect(overlay.url()) as other,
            other.publisher("quotes") as publisher,
            gapless.connect(proxy.url, backoff=QUICK) as session,
            session.subscribe("n > 100", order=order) as events,  # type: ignore[arg-type]
        ):
            last = await publisher.publish_many({"n": n} for n in range(10))
            pubend = overlay.node("b1").broker.components.hosted[Q]
            assert isinstance(pubend, Pubend)
            await soon(lambda: pubend.record.last_released_event >= last["quotes"])
            await soon(lambda: events.position["quotes"] >= last["quotes"])
            proxy.cut()
            await soon(lambda: not events._inbox.is_answered)
            await soon(lambda: events._inbox.is_answered)
            await publisher.publish({"n": 101})
            assert (await events.get()).attributes["n"] == 101


@async_test
async def test_a_durable_subscription_acknowledges_progress_without_events() -> None:
    # MV-13: until then the log is kept, because no other broker knows that the range had no events
    async with (
        ScriptedBroker() as broker,
        gapless.connect(broker.url, backoff=QUICK) as session,
        session.subscribe("n > 0", durable="desk", ack="manual") as events,
    ):
        broker.connection.notify(Progress("desk", ((Q, 70),)))
        await soon(lambda: [each.position for each in broker.requests_of(Ack)] == [((Q, 70),)])
        broker.connection.notify(delivery("desk", 80), Progress("desk", ((Q, 90),)))
        event = await events.get()
        broker.connection.notify(Progress("desk", ((Q, 100),)))
        await soon(lambda: events.position.get("quotes") == 100)
        assert len(broker.requests_of(Ack)) == 1, (
            "80 is not acknowledged, so neither is what follows"
        )
        await events.ack(event)
        broker.connection.notify(Progress("desk", ((Q, 110),)))
        await soon(lambda: broker.requests_of(Ack)[-1].position == ((Q, 110),))
