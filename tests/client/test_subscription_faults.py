"""Subscribing while connections break and brokers send unexpected messages: no loss, no duplicate."""

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
async def test_every_event_is_delivered_once_wherever_the_connection_breaks(
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
async def test_every_event_is_delivered_once_across_crashes_of_the_broker(
    durable: str | None,
) -> None:
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
async def test_a_reconnect_keeps_the_queued_events_and_requests_the_rest() -> None:
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
async def test_a_subscription_that_has_not_started_keeps_its_start_option_after_a_reconnect() -> (
    None
):
    async with ScriptedBroker() as broker, gapless.connect(broker.url, backoff=QUICK) as session:
        broker.answers[Subscribe] = lambda connection, call: connection.notify(
            Subscribed(call.request, ())
        )
        async with session.subscribe("", start="earliest"):
            broker.cut()
            await soon(lambda: len(broker.requests_of(Subscribe)) == 2)
            assert broker.requests_of(Subscribe)[-1].start.kind is StartKind.EARLIEST


@async_test
async def test_in_total_order_all_streams_resume_at_the_tick_of_the_last_event() -> None:
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
async def test_in_total_order_an_excluded_stream_resumes_where_it_was_excluded() -> None:
    # its PHB was retired: if the PHB returns, the hosting broker knows the lost range
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
async def test_an_excluded_stream_keeps_its_position_until_its_gap_is_received() -> None:
    # the connection may be lost between the end of the exclusion and the gap
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
async def test_events_in_flight_for_a_closed_subscription_do_not_reach_the_next_one() -> None:
    # P2, P3: the session closes a durable subscription and reopens it while events are in flight
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
async def test_an_acknowledgement_is_repeated_after_a_reconnect() -> None:
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
async def test_credit_is_renewed_when_half_of_it_is_free() -> None:
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
            await soon(lambda: broker.credit == 24)  # the credit of duplicates is given back
            with pytest.raises(DeadlineError):
                await events.get(deadline_s=0.01)


# --- gaps -----------------------------------------------------------------------------------------


@async_test
async def test_a_gap_is_raised_in_order_and_the_iteration_continues() -> None:
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
async def test_a_gap_divides_two_batches() -> None:
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
async def test_gaps_can_be_reported_instead_of_raised() -> None:
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


# --- notices about the subscription ---------------------------------------------------------------


@async_test
async def test_a_stream_that_starts_later_joins_the_position() -> None:
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
async def test_a_fenced_subscription_ends_with_that_error() -> None:
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


# --- the filter with which a durable subscription is opened ------------------------------------------


@pytest.mark.parametrize(
    ("is_new", "has", "changes"), [(True, "n = 1", 0), (True, "n = 2", 1), (False, "n = 1", 1)]
)
@async_test
async def test_opening_sets_the_filter_unless_it_has_created_the_subscription_with_it(
    is_new: bool, has: str, changes: int
) -> None:
    # each call is a round trip and waits for the disk
    async with ScriptedBroker() as broker, gapless.connect(broker.url, backoff=QUICK) as session:
        broker.answers[Subscribe] = lambda connection, call: connection.notify(
            Subscribed(call.request, ((Q, 5),), filter=has, is_new=is_new)
        )
        async with session.subscribe("n = 1", durable="desk") as events:
            assert len(broker.requests_of(SetFilter)) == changes
            assert events.filter_changed_at == Position({"quotes": 0 if changes else 5})
            assert str(events.filter) == "n = 1"


# --- changes while connections break --------------------------------------------------------------


@pytest.mark.parametrize("durable", [None, "desk"])
@pytest.mark.parametrize("kind", [SetFilter, FilterSet])
@async_test
async def test_a_filter_change_is_repeated_after_a_reconnect(
    kind: type, durable: str | None
) -> None:
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
async def test_a_reconnect_does_not_undo_a_seek_back_of_a_durable_subscription() -> None:
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
            for n in range(5, 9):
                assert (await events.get()).attributes["n"] == n
            proxy.cut()
            for n in range(9, 30):
                assert (await events.get()).attributes["n"] == n
            assert len(proxy.requests_of(Seek)) >= 2


@async_test
async def test_a_seek_while_the_connection_is_lost_overrides_an_earlier_seek() -> None:
    # the client repeats the earlier seek when its Subscribe is answered; the broker must not end there
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
async def test_a_seek_is_repeated_when_its_reply_is_lost() -> None:
    async with Overlay(on_disk=False) as overlay, Proxy(overlay.url()) as proxy:
        async with (
            gapless.connect(proxy.url, backoff=QUICK) as session,
            session.publisher("quotes") as publisher,
            session.subscribe("") as events,
        ):
            positions = [await publisher.publish({"n": n}) for n in range(10)]
            assert (await events.get()).attributes["n"] == 0
            proxy.cut_before(Seek)
            assert await events.seek(positions[5]) == positions[5]
            assert (await events.get()).attributes["n"] == 6
            with pytest.raises(TypeError):
                await events.seek(Position(), wrong=1)  # type: ignore[call-arg]


@async_test
async def test_notices_of_a_closed_subscription_are_ignored() -> None:
    async with ScriptedBroker() as broker, gapless.connect(broker.url) as session:
        async with session.subscribe("") as events:
            name = name_of(broker)
        broker.connection.notify(
            Delivery(name, (event(5),)), SubscriptionEnded(name, "x"), Gap(name, Q, 1, 2)
        )
        await soon(lambda: bool(broker.requests_of(Unsubscribe)))
        assert events.is_over
        assert session.main.is_up
