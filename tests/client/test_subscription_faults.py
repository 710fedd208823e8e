"""Subscribing while connections break and brokers say odd things: nothing lost, nothing twice."""

from __future__ import annotations

import asyncio

import pytest

import gapless
from gapless import Position
from gapless.core.backoff import Backoff
from gapless.core.ids import PubendId
from gapless.errors import (
    DeadlineError,
    FencedError,
    GapError,
    OutcomeUnknownError,
    RefusedError,
)
from gapless.messages.clients import (
    Ack,
    Delivery,
    FilterSet,
    Gap,
    RefusalCause,
    Refused,
    Seek,
    SetFilter,
    Stalled,
    StartKind,
    Subscribe,
    Subscribed,
    SubscriptionEnded,
    SubscriptionStarted,
    Unsubscribe,
)
from gapless.messages.streams import Publication
from gapless.testing import Overlay
from tests.client.proxy import Proxy
from tests.client.running import async_test, soon
from tests.client.scripted import Q, ScriptedBroker

QUICK = Backoff(first_s=0.002, longest_s=0.02)
R = PubendId("rates")


def event(tick: int, pubend: PubendId = Q) -> tuple[PubendId, tuple[Publication, ...]]:
    """Return a run of one event."""
    return (pubend, (Publication(tick, "p", tick, {"n": tick}, b""),))


def name_of(broker: ScriptedBroker) -> str:
    """Return the name of the newest subscription."""
    found: str = broker.requests_of(Subscribe)[-1].subscription
    return found


# --- lost connections -----------------------------------------------------------------------------


@pytest.mark.parametrize("order", ["publisher", "total"])
@pytest.mark.parametrize("durable", [None, "desk"])
@pytest.mark.parametrize(
    "fault",
    [
        ("cut_before", Subscribe),
        ("cut_after", Subscribe),
        ("cut_before", Subscribed),
        ("cut_before", Delivery),
        ("repeat", Delivery),
        ("cut_before", Ack),
    ],
)
@async_test
async def test_every_event_comes_once_whatever_message_the_connection_breaks_at(
    fault: tuple[str, type], durable: str | None, order: str
) -> None:
    async with Overlay(on_disk=False) as overlay, Proxy(overlay.url()) as proxy:
        async with (
            gapless.connect(overlay.url()) as other,
            other.publisher("a") as a,
            other.publisher("b") as b,
            gapless.connect(proxy.url, backoff=QUICK) as session,
        ):
            await a.publish({"n": -1})
            if fault[1] is not Delivery:
                getattr(proxy, fault[0])(fault[1])
            async with session.subscribe(
                "n >= 0",
                durable=durable,
                order=order,  # type: ignore[arg-type]
                prefetch=7,
            ) as events:
                seen = []
                for n in range(60):
                    await (a if n % 3 else b).publish({"n": n})
                    if n % 20 == 7:
                        getattr(proxy, fault[0])(fault[1])
                    if n % 2:
                        seen.append(await events.get())
                while len(seen) < 60:
                    seen.append(await events.get())
                assert sorted(each.attributes["n"] for each in seen) == [*range(60)]
                for pubend in "ab":
                    ticks = [each.tick for each in seen if each.pubend == pubend]
                    assert ticks == sorted(set(ticks))
                if order == "total":
                    assert seen == sorted(seen, key=lambda each: (each.tick, each.pubend))


@pytest.mark.parametrize("durable", [None, "desk"])
@async_test
async def test_every_event_comes_once_across_crashes_of_the_broker(durable: str | None) -> None:
    async with Overlay() as overlay:
        async with gapless.connect(overlay.url(), backoff=QUICK) as session:
            async with (
                session.publisher("quotes") as publisher,
                session.subscribe("", durable=durable) as events,
            ):
                for incarnation in range(3):
                    await publisher.publish_many({"n": 50 * incarnation + n} for n in range(50))
                    for n in range(25):
                        assert (await events.get()).attributes["n"] == 25 * incarnation + n
                    await overlay.restart("b1")
                rest = [(await events.get()).attributes["n"] for _ in range(75)]
                assert rest == [*range(75, 150)]


@async_test
async def test_what_waits_in_the_client_is_kept_and_the_rest_is_asked_for() -> None:
    async with ScriptedBroker() as broker, gapless.connect(broker.url, backoff=QUICK) as session:
        async with session.subscribe("", prefetch=10) as events:
            broker.connection.notify(Delivery(name_of(broker), (event(5), event(7))))
            await soon(lambda: len(events._prefetch.queue) == 2)
            broker.cut()
            await soon(lambda: len(broker.requests_of(Subscribe)) == 2)
            again = broker.requests_of(Subscribe)[-1]
            assert again.start.kind is StartKind.POSITION
            assert again.start.position == ((Q, 7),)
            assert again.credit == 8
            assert events.position == {"quotes": 0}
            assert (await events.get()).tick == 5
            assert events.position == {"quotes": 5}
            assert (await events.get()).tick == 7


@async_test
async def test_a_subscription_that_has_begun_nowhere_begins_again_as_it_was_told() -> None:
    async with ScriptedBroker() as broker, gapless.connect(broker.url, backoff=QUICK) as session:
        broker.answers[Subscribe] = lambda connection, call: connection.notify(
            Subscribed(call.request, ())
        )
        async with session.subscribe("", start="earliest"):
            broker.cut()
            await soon(lambda: len(broker.requests_of(Subscribe)) == 2)
            assert broker.requests_of(Subscribe)[-1].start.kind is StartKind.EARLIEST


@async_test
async def test_in_total_order_all_streams_go_on_where_the_last_event_was() -> None:
    async with ScriptedBroker() as broker, gapless.connect(broker.url, backoff=QUICK) as session:
        start = ((Q, 1), (R, 1), (PubendId("a"), 1))
        broker.answers[Subscribe] = lambda connection, call: connection.notify(
            Subscribed(call.request, start)
        )
        async with session.subscribe("", order="total") as events:
            broker.connection.notify(Delivery(name_of(broker), (event(5, R), event(9))))
            await soon(lambda: len(events._prefetch.queue) == 2)
            broker.cut()
            await soon(lambda: len(broker.requests_of(Subscribe)) == 2)
            again = dict(broker.requests_of(Subscribe)[-1].start.position)
            assert again == {Q: 9, R: 8, PubendId("a"): 9}


@async_test
async def test_in_total_order_a_stream_that_was_passed_by_goes_on_where_it_stood() -> None:
    # its broker was retired: should it be back, the broker of the subscription knows what was lost
    async with ScriptedBroker() as broker, gapless.connect(broker.url, backoff=QUICK) as session:
        start = ((Q, 1), (R, 1))
        broker.answers[Subscribe] = lambda connection, call: connection.notify(
            Subscribed(call.request, start)
        )
        async with session.subscribe("", order="total") as events:
            broker.connection.notify(
                Delivery(name_of(broker), (event(5, R),)),
                Stalled(name_of(broker), R, "retired", excluded=True),
                Delivery(name_of(broker), (event(9),)),
            )
            await soon(lambda: len(events._prefetch.queue) == 2)
            assert events.pending == {"rates": "retired"}
            broker.cut()
            await soon(lambda: len(broker.requests_of(Subscribe)) == 2)
            assert dict(broker.requests_of(Subscribe)[-1].start.position) == {Q: 9, R: 5}


@async_test
async def test_a_stream_that_was_passed_by_is_where_it_stood_until_its_gap_is_told() -> None:
    # the connection may be lost between the answer, or that it goes on, and the gap
    async with ScriptedBroker() as broker, gapless.connect(broker.url, backoff=QUICK) as session:
        start = ((Q, 1), (R, 1))
        broker.answers[Subscribe] = lambda connection, call: connection.notify(
            Subscribed(call.request, start)
        )
        async with session.subscribe("", order="total") as events:
            name = name_of(broker)
            broker.connection.notify(
                Delivery(name, (event(5),)),
                Stalled(name, R, "retired", excluded=True),
                Delivery(name, (event(9),)),
                Stalled(name, R, ""),
            )
            await soon(lambda: len(events._prefetch.queue) == 2 and not events.pending)
            broker.cut()
            await soon(lambda: len(broker.requests_of(Subscribe)) == 2)
            assert dict(broker.requests_of(Subscribe)[-1].start.position) == {Q: 9, R: 4}
            await soon(lambda: events._inbox.is_answered)
            broker.cut()
            await soon(lambda: len(broker.requests_of(Subscribe)) == 3)
            assert dict(broker.requests_of(Subscribe)[-1].start.position) == {Q: 9, R: 4}
            await soon(lambda: events._inbox.is_answered)
            broker.connection.notify(Gap(name, R, 5, 9), Delivery(name, (event(12),)))
            await soon(lambda: len(events._prefetch.queue) == 4)
            broker.cut()
            await soon(lambda: len(broker.requests_of(Subscribe)) == 4)
            assert dict(broker.requests_of(Subscribe)[-1].start.position) == {Q: 12, R: 11}


@async_test
async def test_what_was_under_way_for_an_earlier_connection_is_not_of_the_next_one() -> None:
    # P2, P3: the session closes a durable subscription and opens it again while events are under way
    async with ScriptedBroker() as broker, gapless.connect(broker.url) as session:
        async with session.subscribe("", durable="desk"):
            pass
        broker.answers[Subscribe] = lambda connection, call: connection.notify(
            Delivery("desk", (event(7),)),
            Gap("desk", Q, 8, 9),
            Subscribed(call.request, ((Q, 4),)),
            Delivery("desk", (event(5), event(7))),
        )
        async with session.subscribe("", durable="desk") as events:
            assert [(await events.get()).tick for _ in range(2)] == [5, 7]


@async_test
async def test_an_acknowledgement_that_may_be_lost_is_said_again() -> None:
    async with ScriptedBroker() as broker, gapless.connect(broker.url, backoff=QUICK) as session:
        async with session.subscribe("", durable="desk", ack="manual") as events:
            broker.connection.notify(Delivery("desk", (event(5),)))
            await events.ack(await events.get())
            await soon(lambda: bool(broker.requests_of(Ack)))
            broker.cut()
            await soon(lambda: len(broker.requests_of(Ack)) == 2)
            first, again = broker.requests_of(Ack)
            assert first == again == Ack("desk", ((Q, 5),))


@async_test
async def test_credit_is_given_again_when_half_of_it_is_free() -> None:
    async with ScriptedBroker() as broker, gapless.connect(broker.url) as session:
        async with session.subscribe("", prefetch=8) as events:
            name = name_of(broker)
            broker.connection.notify(Delivery(name, tuple(event(tick) for tick in range(1, 9))))
            for _ in range(3):
                await events.get()
            await asyncio.sleep(0.01)
            assert broker.credit == 8
            await events.get()
            await soon(lambda: broker.credit == 12)
            assert len(await events.next_batch()) == 4
            await soon(lambda: broker.credit == 16)
            broker.connection.notify(Delivery(name, tuple(event(tick) for tick in range(1, 9))))
            await soon(lambda: broker.credit == 24)  # what came twice took room that is free again
            with pytest.raises(DeadlineError):
                await events.get(deadline_s=0.01)


# --- gaps -----------------------------------------------------------------------------------------


@async_test
async def test_a_gap_is_raised_in_its_place_and_the_iteration_goes_on() -> None:
    async with ScriptedBroker() as broker, gapless.connect(broker.url) as session:
        async with session.subscribe("") as events:
            name = name_of(broker)
            broker.connection.notify(
                Delivery(name, (event(5),)), Gap(name, Q, 6, 9), Delivery(name, (event(10),))
            )
            assert (await events.get()).tick == 5
            with pytest.raises(GapError) as found:
                await events.get()
            assert (found.value.pubend, found.value.low, found.value.high) == ("quotes", 6, 9)
            assert events.position == {"quotes": 9}
            assert (await events.get()).position == {"quotes": 10}


@async_test
async def test_gaps_in_batches_stand_between_batches() -> None:
    async with ScriptedBroker() as broker, gapless.connect(broker.url) as session:
        async with session.subscribe("") as events:
            name = name_of(broker)
            broker.connection.notify(
                Delivery(name, (event(5),)), Gap(name, Q, 6, 9), Delivery(name, (event(10),))
            )
            await soon(lambda: len(events._prefetch.queue) == 3)
            assert [each.tick for each in await events.next_batch()] == [5]
            with pytest.raises(GapError):
                await events.next_batch()
            assert [each.tick for each in await events.next_batch()] == [10]


@async_test
async def test_gaps_can_be_reported_instead() -> None:
    async with ScriptedBroker() as broker, gapless.connect(broker.url) as session:
        async with session.subscribe("", on_gap="report") as events:
            name = name_of(broker)
            broker.connection.notify(Gap(name, Q, 1, 9), Delivery(name, (event(10),)))
            assert (await events.get()).tick == 10
            assert [(gap.low, gap.high) for gap in events.gaps] == [(1, 9)]


@async_test
async def test_a_gap_is_acknowledged_like_an_event() -> None:
    async with ScriptedBroker() as broker, gapless.connect(broker.url) as session:
        async with session.subscribe("", durable="desk") as events:
            broker.connection.notify(Gap("desk", Q, 1, 9))
            with pytest.raises(GapError):
                await events.get()
        await soon(lambda: bool(broker.requests_of(Ack)))
        assert broker.requests_of(Ack)[-1].position == ((Q, 9),)


# --- what the broker says of the subscription -----------------------------------------------------


@async_test
async def test_a_stream_that_starts_later_is_in_the_position_from_then_on() -> None:
    async with ScriptedBroker() as broker, gapless.connect(broker.url) as session:
        async with session.subscribe("") as events:
            name = name_of(broker)
            broker.connection.notify(
                Delivery(name, (event(5),)),
                SubscriptionStarted(name, R, 40),
                Delivery(name, (event(50, R),)),
            )
            first, second = await events.get(), await events.get()
            assert first.position == {"quotes": 5}
            assert second.position == {"quotes": 5, "rates": 50}
            assert events.position == second.position


@async_test
async def test_a_subscription_that_is_taken_over_ends_with_that_error() -> None:
    async with ScriptedBroker() as broker, gapless.connect(broker.url) as session:
        async with session.subscribe("", durable="desk") as events:
            broker.connection.notify(
                Delivery("desk", (event(5),)), SubscriptionEnded("desk", "a newer connection")
            )
            await soon(lambda: events.is_over)
            with pytest.raises(FencedError, match="newer"):
                await events.get()
        assert not broker.requests_of(Ack)
        assert not broker.requests_of(Unsubscribe)


@async_test
async def test_a_subscription_that_is_refused_after_a_reconnect_ends_with_the_reason() -> None:
    async with ScriptedBroker() as broker, gapless.connect(broker.url, backoff=QUICK) as session:
        async with session.subscribe("") as events:
            broker.answers[Subscribe] = lambda connection, call: connection.notify(
                Refused(call.request, "somebody else's", RefusalCause.FENCED)
            )
            broker.cut()
            with pytest.raises(FencedError, match="somebody"):
                await events.get()


# --- changing while connections break -------------------------------------------------------------


@pytest.mark.parametrize("durable", [None, "desk"])
@pytest.mark.parametrize("kind", [SetFilter, FilterSet])
@async_test
async def test_a_filter_change_is_asked_for_again(kind: type, durable: str | None) -> None:
    async with Overlay(on_disk=False) as overlay, Proxy(overlay.url()) as proxy:
        async with (
            gapless.connect(proxy.url, backoff=QUICK) as session,
            session.publisher("quotes") as publisher,
            session.subscribe("n < 5", durable=durable) as events,
        ):
            await publisher.publish({"n": 1})
            assert (await events.get()).attributes["n"] == 1
            proxy.cut_before(kind)
            switch = await events.set_filter("n > 5")
            assert switch >= events.position
            await publisher.publish_many([{"n": 2}, {"n": 9}])
            assert (await events.get()).attributes["n"] == 9


@async_test
async def test_a_refused_filter_change_changes_nothing() -> None:
    async with ScriptedBroker() as broker, gapless.connect(broker.url, backoff=QUICK) as session:
        async with session.subscribe("n = 1") as events:
            broker.answers[SetFilter] = lambda connection, call: connection.notify(
                Refused(call.request, "too many", RefusalCause.UNAVAILABLE)
            )
            with pytest.raises(RefusedError, match="too many"):
                await events.set_filter("n = 2")
            broker.cut()
            await soon(lambda: len(broker.requests_of(Subscribe)) == 2)
            assert broker.requests_of(Subscribe)[-1].filter == "n = 1"
            del broker.answers[SetFilter]
            with pytest.raises(OutcomeUnknownError):
                await events.set_filter("n = 2", deadline_s=0.02)


@async_test
async def test_a_durable_subscription_that_was_sought_back_stays_back_after_a_reconnect() -> None:
    async with Overlay(on_disk=False) as overlay, Proxy(overlay.url()) as proxy:
        async with (
            gapless.connect(proxy.url, backoff=QUICK) as session,
            session.publisher("quotes") as publisher,
            session.subscribe("", durable="desk", prefetch=4) as events,
        ):
            places = [await publisher.publish({"n": n}) for n in range(30)]
            for n in range(20):
                assert (await events.get()).attributes["n"] == n
            await events.ack()
            await events.seek(places[4])
            for n in range(5, 9):
                assert (await events.get()).attributes["n"] == n
            proxy.cut()
            for n in range(9, 30):
                assert (await events.get()).attributes["n"] == n
            assert len(proxy.requests_of(Seek)) >= 2


@async_test
async def test_a_seek_while_the_connection_is_lost_overrides_the_seek_before() -> None:
    # the client repeats the seek before when its Subscribe is answered; the broker must not end there
    async with Overlay(on_disk=False) as overlay, Proxy(overlay.url()) as proxy:
        async with (
            gapless.connect(proxy.url, backoff=QUICK) as session,
            session.publisher("quotes") as publisher,
            session.subscribe("", durable="desk", prefetch=4) as events,
        ):
            positions = [await publisher.publish({"n": n}) for n in range(30)]
            for n in range(20):
                assert (await events.get()).attributes["n"] == n
            await events.ack()
            await events.seek(positions[4])
            proxy.cut()
            assert await events.seek(positions[1]) == positions[1]
            for n in range(2, 30):
                assert (await events.get()).attributes["n"] == n


@async_test
async def test_a_seek_whose_answer_is_lost_is_asked_for_again() -> None:
    async with Overlay(on_disk=False) as overlay, Proxy(overlay.url()) as proxy:
        async with (
            gapless.connect(proxy.url, backoff=QUICK) as session,
            session.publisher("quotes") as publisher,
            session.subscribe("") as events,
        ):
            places = [await publisher.publish({"n": n}) for n in range(10)]
            assert (await events.get()).attributes["n"] == 0
            proxy.cut_before(Seek)
            assert await events.seek(places[5]) == places[5]
            assert (await events.get()).attributes["n"] == 6
            with pytest.raises(TypeError):
                await events.seek(Position(), wrong=1)  # type: ignore[call-arg]


@async_test
async def test_what_comes_for_a_subscription_that_is_gone_is_let_go() -> None:
    async with ScriptedBroker() as broker, gapless.connect(broker.url) as session:
        async with session.subscribe("") as events:
            name = name_of(broker)
        broker.connection.notify(
            Delivery(name, (event(5),)), SubscriptionEnded(name, "x"), Gap(name, Q, 1, 2)
        )
        await soon(lambda: bool(broker.requests_of(Unsubscribe)))
        assert events.is_over
        assert session.main.is_up
