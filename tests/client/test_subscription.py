"""Subscribing at a real broker: starts, order, acknowledgements, filters, seeks, many at once."""

from __future__ import annotations

import asyncio
import pickle
from datetime import UTC, datetime

import pytest

import gapless
from gapless import F, Position
from gapless.errors import (
    ClosedError,
    DeadlineError,
    FencedError,
    FilterSyntaxError,
    RefusedError,
    UsageError,
)
from gapless.messages.clients import Ack
from gapless.testing import Overlay
from tests.client.proxy import Proxy
from tests.client.running import async_test, soon


async def take(events: gapless.client.Subscription, count: int) -> list[object]:
    """Return the numbers of the next events."""
    return [(await events.get()).attributes["n"] for _ in range(count)]


@async_test
async def test_the_example_of_the_readme_runs() -> None:
    async with Overlay(on_disk=False) as overlay, gapless.connect(overlay.url()) as session:
        async with session.publisher("quotes") as publisher:
            async with session.subscribe("symbol = 'IBM'", durable="desk") as events:
                position = await publisher.publish({"symbol": "IBM", "price": 91.5}, b"...")
                await publisher.publish({"symbol": "HP", "price": 1.5})
                async for event in events:
                    assert event.attributes == {"symbol": "IBM", "price": 91.5}
                    assert event.payload == b"..."
                    assert event.pubend == "quotes"
                    assert event.publisher == publisher.name
                    assert event.sequence == 1
                    assert event.position == position == {"quotes": event.tick}
                    break
                switch = await events.set_filter("symbol = 'IBM' AND price > 90")
                assert [*switch] == ["quotes"]
                await publisher.publish({"symbol": "IBM", "price": 80})
                await publisher.publish({"symbol": "IBM", "price": 95})
                assert (await events.get()).attributes["price"] == 95


@async_test
async def test_a_subscription_starts_where_its_start_option_says() -> None:
    async with Overlay(on_disk=False) as overlay, gapless.connect(overlay.url()) as session:
        async with session.publisher("quotes") as publisher:
            await publisher.publish({"n": 0})
            middle = await publisher.publish({"n": 1})
            await asyncio.sleep(0.01)
            time = datetime.now(UTC)
            await asyncio.sleep(0.01)
            await publisher.publish({"n": 2})
            async with (
                session.subscribe(start="latest") as latest,
                session.subscribe(start="earliest") as earliest,
                session.subscribe(start=middle) as after,
                session.subscribe(start=dict(middle)) as mapped,
                session.subscribe(start=time) as since,
            ):
                await publisher.publish({"n": 3})
                assert await take(latest, 1) == [3]
                assert await take(earliest, 4) == [0, 1, 2, 3]
                assert await take(after, 2) == [2, 3]
                assert await take(mapped, 2) == [2, 3]
                assert await take(since, 2) == [2, 3]


@async_test
async def test_starting_at_a_stored_event_position_neither_loses_nor_repeats_events() -> None:
    async with Overlay(on_disk=False) as overlay, gapless.connect(overlay.url()) as session:
        async with session.publisher("a") as a, session.publisher("b") as b:
            for n in range(20):
                await (a if n % 3 else b).publish({"n": n})
            async with session.subscribe(start="earliest") as events:
                whole = [await events.get() for _ in range(20)]
            whole = [pickle.loads(pickle.dumps(event)) for event in whole]
            assert len(set(whole)) == 20
            for cut in (0, 7, 13, 18):
                position = Position.parse(str(whole[cut].position))
                async with session.subscribe(start=position) as events:
                    rest = [await events.get() for _ in range(19 - cut)]
                    assert {event.sequence for event in rest if event.pubend == "a"} == {
                        event.sequence for event in whole[cut + 1 :] if event.pubend == "a"
                    }
                    assert set(rest) == set(whole[cut + 1 :])


@async_test
async def test_in_total_order_all_subscribers_see_one_order() -> None:
    async with Overlay(on_disk=False) as overlay, gapless.connect(overlay.url()) as session:
        async with (
            session.publisher("a") as a,
            session.publisher("b") as b,
            session.subscribe(order="total", start="earliest") as one,
            session.subscribe(order="total", start="earliest", prefetch=3) as two,
        ):
            await asyncio.gather(
                a.publish_many({"n": n} for n in range(100)),
                b.publish_many({"n": n} for n in range(100)),
            )
            seen = [await one.get() for _ in range(200)]
            assert seen == [await two.get() for _ in range(200)]
            assert seen == sorted(seen, key=lambda event: (event.tick, event.pubend))


@async_test
async def test_a_batch_has_all_events_that_are_ready() -> None:
    async with Overlay(on_disk=False) as overlay, gapless.connect(overlay.url()) as session:
        async with session.publisher("quotes") as publisher, session.subscribe("") as events:
            await publisher.publish_many({"n": n} for n in range(500))
            found: list[object] = []
            async for batch in events.batches(100):
                assert 0 < len(batch) <= 100
                found += [event.attributes["n"] for event in batch]
                if len(found) == 500:
                    break
            assert found == [*range(500)]
            with pytest.raises(DeadlineError):
                await events.next_batch(deadline_s=0.02)


@async_test
async def test_a_ready_event_is_handed_out_without_a_turn_of_the_loop() -> None:
    async with Overlay(on_disk=False) as overlay, gapless.connect(overlay.url()) as session:
        async with session.publisher("quotes") as publisher, session.subscribe("") as events:
            await publisher.publish_many({"n": n} for n in range(10))
            await soon(lambda: len(events._prefetch.queue) == 10)
            for _ in range(10):
                with pytest.raises(StopIteration):
                    events.__anext__().send(None)  # the coroutine ends at once: it awaited nothing


@async_test
async def test_no_more_than_the_prefetch_is_queued_in_the_client() -> None:
    async with Overlay(on_disk=False) as overlay, gapless.connect(overlay.url()) as session:
        async with (
            session.publisher("quotes") as publisher,
            session.subscribe("", durable="slow", prefetch=10) as events,
        ):
            await publisher.publish_many({"n": n} for n in range(200))
            found = []
            for _ in range(200):
                assert len(events._prefetch.queue) <= 10
                found += await take(events, 1)
            assert found == [*range(200)]


# --- durable subscriptions ------------------------------------------------------------------------


@async_test
async def test_a_durable_subscription_continues_after_the_processed_events() -> None:
    async with Overlay(on_disk=False) as overlay, gapless.connect(overlay.url()) as session:
        async with session.publisher("quotes") as publisher:
            async with session.subscribe("", durable="desk") as events:
                await publisher.publish_many({"n": n} for n in range(10))
                assert await take(events, 3) == [0, 1, 2]
            async with session.subscribe("", durable="desk") as events:
                assert await take(events, 2) == [3, 4]
                with pytest.raises(KeyError):
                    async with session.subscribe("", durable="other"):
                        raise KeyError


@async_test
async def test_after_an_exception_the_current_event_is_delivered_again() -> None:
    async with Overlay(on_disk=False) as overlay, gapless.connect(overlay.url()) as session:
        async with session.publisher("quotes") as publisher:
            with pytest.raises(KeyError):
                async with session.subscribe("", durable="desk") as events:
                    await publisher.publish_many({"n": n} for n in range(3))
                    assert await take(events, 2) == [0, 1]
                    raise KeyError
            async with session.subscribe("", durable="desk") as events:
                assert await take(events, 2) == [1, 2]


@async_test
async def test_processed_events_are_acknowledged_in_the_background() -> None:
    async with Overlay(on_disk=False) as overlay, Proxy(overlay.url()) as proxy:
        async with gapless.connect(proxy.url) as session:
            async with session.publisher("quotes") as publisher:
                async with session.subscribe("", durable="desk") as events:
                    await publisher.publish_many({"n": n} for n in range(3))
                    seen = [await events.get() for _ in range(3)]
                    await soon(lambda: bool(proxy.requests_of(Ack)))
                    (ack,) = proxy.requests_of(Ack)
                    assert Position.of(dict(ack.position)) == seen[1].position


@async_test
async def test_manual_acknowledgement_takes_an_event_a_position_or_nothing() -> None:
    async with Overlay(on_disk=False) as overlay, gapless.connect(overlay.url()) as session:
        async with session.publisher("quotes") as publisher:
            await publisher.publish_many({"n": n} for n in range(9))
            for begin, done in ((0, "event"), (1, "position"), (2, "all"), (4, "nothing"), (4, "")):
                options = {"durable": "desk", "start": "earliest", "ack": "manual"}
                async with session.subscribe("", **options) as events:  # type: ignore[arg-type]
                    first, second = await events.get(), await events.get()
                    assert first.attributes["n"] == begin
                    if done == "event":
                        await events.ack(first)
                    elif done == "position":
                        await events.ack(first.position)
                    elif done == "all":
                        await events.ack()
                        assert events.position == second.position
        async with session.subscribe("") as events:
            with pytest.raises(UsageError, match="durable"):
                await events.ack()


@async_test
async def test_reopening_a_durable_subscription_changes_its_filter() -> None:
    async with Overlay(on_disk=False) as overlay, gapless.connect(overlay.url()) as session:
        async with session.publisher("quotes") as publisher:
            async with session.subscribe("n < 5", durable="desk") as events:
                await publisher.publish_many([{"n": 1}, {"n": 9}])
                assert await take(events, 1) == [1]
            async with session.subscribe("n > 5", durable="desk") as events:
                assert events.filter == (F.n > 5)
                assert events.filter_changed_at is not None
                await publisher.publish_many([{"n": 2}, {"n": 8}])
                assert await take(events, 1) == [8]


@async_test
async def test_a_newer_connection_fences_the_older_one_of_a_durable_subscription() -> None:
    async with (
        Overlay(on_disk=False) as overlay,
        gapless.connect(overlay.url()) as one,
        gapless.connect(overlay.url()) as two,
    ):
        async with one.publisher("quotes") as publisher:
            async with one.subscribe("", durable="desk") as old:
                await publisher.publish({"n": 1})
                async with two.subscribe("", durable="desk") as new:
                    with pytest.raises(FencedError):
                        await old.get()
                    assert await take(new, 1) == [1]
                    with pytest.raises(FencedError):
                        await old.set_filter("n = 1")


@async_test
async def test_a_durable_subscription_can_be_ended() -> None:
    async with Overlay(on_disk=False) as overlay, gapless.connect(overlay.url()) as session:
        async with session.publisher("quotes") as publisher:
            async with session.subscribe("", durable="desk") as events:
                await publisher.publish({"n": 1})
                await events.unsubscribe()
                assert [event async for event in events] == []
            async with session.subscribe("", durable="desk") as events:
                await publisher.publish({"n": 2})
                assert await take(events, 1) == [2]
            await session.unsubscribe("desk")
            await session.unsubscribe("desk")


# --- filter changes and seeks ---------------------------------------------------------------------


@pytest.mark.parametrize("durable", [None, "desk"])
@async_test
async def test_a_filter_change_has_one_position(durable: str | None) -> None:
    async with Overlay(on_disk=False) as overlay, gapless.connect(overlay.url()) as session:
        async with (
            session.publisher("quotes") as publisher,
            session.subscribe("n % 2 = 0", durable=durable) as events,
        ):

            async def publish() -> None:
                for n in range(60):
                    await publisher.publish({"n": n})
                    await asyncio.sleep(0.001)

            work = asyncio.create_task(publish())
            await asyncio.sleep(0.02)
            switch = await events.set_filter(F.n % 3 == 0)
            await work
            whole = [event async for event in session.read("quotes")]
            expected = [
                event
                for event in whole
                if event.attributes["n"] % (2 if event.tick <= switch["quotes"] else 3) == 0
            ]
            assert [await events.get() for _ in expected] == expected
            with pytest.raises(DeadlineError):
                await events.get(deadline_s=0.05)


@pytest.mark.parametrize("durable", [None, "desk"])
@async_test
async def test_a_subscription_can_seek_back_and_forward(durable: str | None) -> None:
    async with Overlay(on_disk=False) as overlay, gapless.connect(overlay.url()) as session:
        async with (
            session.publisher("quotes") as publisher,
            session.subscribe("", durable=durable) as events,
        ):
            positions = [await publisher.publish({"n": n}) for n in range(10)]
            assert await take(events, 6) == [0, 1, 2, 3, 4, 5]
            assert await events.seek(positions[2]) == positions[2]
            assert events.position == positions[2]
            assert await take(events, 2) == [3, 4]
            await events.seek("earliest")
            assert await take(events, 2) == [0, 1]
            await events.seek("latest")
            await publisher.publish({"n": 10})
            assert await take(events, 1) == [10]


@async_test
async def test_many_subscriptions_share_one_session() -> None:
    async with (
        Overlay(on_disk=False) as overlay,
        Proxy(overlay.url()) as proxy,
        gapless.connect(proxy.url) as session,
        session.publisher("quotes") as publisher,
    ):
        async with asyncio.TaskGroup() as group:
            ready = asyncio.Barrier(21)

            async def watch(k: int) -> None:
                async with session.subscribe(F.n % 20 == k) as events:
                    await ready.wait()
                    assert await take(events, 5) == [k + 20 * each for each in range(5)]

            for k in range(20):
                group.create_task(watch(k))
            await ready.wait()
            await publisher.publish_many({"n": n} for n in range(100))
        assert len(proxy.pairs) == 1


# --- misuse ---------------------------------------------------------------------------------------


@async_test
async def test_an_invalid_subscription_is_an_error_of_the_caller() -> None:
    async with Overlay(on_disk=False) as overlay, gapless.connect(overlay.url()) as session:
        with pytest.raises(FilterSyntaxError):
            session.subscribe("price >")
        wrong: list[dict[str, object]] = [
            {"start": "yesterday"},
            {"start": datetime(2030, 1, 1)},  # noqa: DTZ001  # the missing time zone is the error
            {"order": "random"},
            {"ack": "never"},
            {"on_gap": "ignore"},
            {"prefetch": 0},
            {"durable": ""},
            {"deadline_s": 0},
        ]
        for options in wrong:
            with pytest.raises(UsageError):
                session.subscribe("", **options)  # type: ignore[arg-type]
        with pytest.raises(UsageError, match="256 characters"):
            session.subscribe("", durable="x" * 300)
        events = session.subscribe("")
        with pytest.raises(ClosedError):
            await events.get()
        async with events:
            with pytest.raises(FilterSyntaxError):
                await events.set_filter("price >")
            assert await events.set_filter("price > 1") == Position()
        with pytest.raises(ClosedError):
            await events.get()
        with pytest.raises(ClosedError):
            await events.__aenter__()


@async_test
async def test_a_cancelled_iteration_loses_no_event() -> None:
    async with Overlay(on_disk=False) as overlay, gapless.connect(overlay.url()) as session:
        async with session.publisher("quotes") as publisher, session.subscribe("") as events:
            found: list[object] = []
            for n in range(20):
                waiting = asyncio.create_task(events.get())
                await asyncio.sleep(0)
                waiting.cancel()
                done = (await asyncio.gather(waiting, return_exceptions=True))[0]
                if isinstance(done, gapless.Event):  # the event came before the cancellation
                    found.append(done.attributes["n"])
                await publisher.publish({"n": n})
            found += await take(events, 20 - len(found))
            assert found == [*range(20)]


@async_test
async def test_closing_a_subscription_ends_its_iteration() -> None:
    async with Overlay(on_disk=False) as overlay, gapless.connect(overlay.url()) as session:
        async with session.subscribe("") as events:
            seen = asyncio.create_task(_all(events))
            await asyncio.sleep(0.01)
            await events.close()
            assert await seen == []


async def _all(events: gapless.client.Subscription) -> list[object]:
    return [event async for event in events]


@async_test
async def test_a_durable_subscription_without_a_filter_continues_with_the_one_it_has() -> None:
    async with Overlay(on_disk=False) as overlay, gapless.connect(overlay.url()) as session:
        async with session.publisher("quotes") as publisher:
            async with session.subscribe("n > 1", durable="desk", start="earliest") as events:
                assert events.filter_changed_at is not None
            for n in range(4):
                await publisher.publish({"n": n})
            resumed = session.subscribe(durable="desk")
            with pytest.raises(ClosedError, match="its broker has its filter"):
                _ = resumed.filter
            async with resumed as events:
                assert str(events.filter) == "n > 1"
                assert not events.is_new
                assert events.filter_changed_at is None
                assert await take(events, 2) == [2, 3]
                await events.set_filter("n > 5")
            async with session.subscribe(durable="desk") as events:
                assert str(events.filter) == "n > 5"


@async_test
async def test_a_name_that_does_not_exist_asks_for_a_filter() -> None:
    async with Overlay(on_disk=False) as overlay, gapless.connect(overlay.url()) as session:
        with pytest.raises(UsageError, match="give a filter to create it"):
            async with session.subscribe(durable="desk"):
                pass
        async with session.subscribe("", durable="desk") as events:
            assert events.is_new
            assert str(events.filter) == "TRUE"


@async_test
async def test_without_a_filter_the_subscription_continues_over_lost_connections() -> None:
    async with Overlay(on_disk=False) as overlay, Proxy(overlay.url()) as proxy:
        quick = gapless.Backoff(first_s=0.001, longest_s=0.01)
        async with gapless.connect(proxy.url, backoff=quick) as session:
            async with session.publisher("quotes") as publisher:
                async with session.subscribe("n > 1", durable="desk", start="earliest"):
                    pass
                async with session.subscribe(durable="desk") as events:
                    proxy.cut()
                    await publisher.publish_many({"n": n} for n in range(4))
                    assert await take(events, 2) == [2, 3]


@async_test
async def test_a_subscription_that_is_in_use_is_not_taken_over_unless_it_may_be() -> None:
    async with (
        Overlay(on_disk=False) as overlay,
        gapless.connect(overlay.url(), name="consumer") as first,
        gapless.connect(overlay.url()) as second,
        first.publisher("quotes") as publisher,
        first.subscribe("n > 0", durable="desk") as events,
    ):
        with pytest.raises(RefusedError, match="in use by the client consumer"):
            async with second.subscribe(durable="desk", take_over=False):
                pass
        await publisher.publish({"n": 1})
        assert await take(events, 1) == [1]
        async with second.subscribe(durable="desk") as taken:
            assert str(taken.filter) == "n > 0"
            with pytest.raises(FencedError):
                await events.get()
