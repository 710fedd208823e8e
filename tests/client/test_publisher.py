"""Publishing to a real broker: positions, batches, advertisements, names, limits."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

import gapless
from gapless import F, Position
from gapless.core.limits import BATCH_EVENTS_MAX
from gapless.errors import (
    AttributeValueError,
    ClosedError,
    DeadlineError,
    FencedError,
    RefusedError,
    UsageError,
)
from gapless.messages.clients import OpenPubend, OpenPublisher, Publish, RefusalCause, Refused
from gapless.testing import Overlay
from tests.client.proxy import Proxy
from tests.client.running import async_test, soon
from tests.client.scripted import ScriptedBroker


@async_test
async def test_publish_returns_the_position_of_the_event() -> None:
    async with Overlay(on_disk=False) as overlay, gapless.connect(overlay.url()) as session:
        async with session.publisher("quotes") as publisher:
            first = await publisher.publish({"n": 1}, b"one")
            second = await publisher.publish({"n": 2})
        assert isinstance(first, Position)
        assert [*first] == ["quotes"]
        assert second > first
        found = [event async for event in session.read("quotes")]
        assert [event.position for event in found] == [first, second]
        assert [event.payload for event in found] == [b"one", b""]


@async_test
async def test_publish_many_returns_the_position_of_the_last() -> None:
    async with Overlay(on_disk=False) as overlay, gapless.connect(overlay.url()) as session:
        async with session.publisher("quotes") as publisher:
            position = await publisher.publish_many(
                [{"n": 0}, ({"n": 1}, b"x"), *({"n": n} for n in range(2, 3_000))]
            )
            assert await publisher.publish_many([]) == Position()
        found = [event async for event in session.read("quotes")]
        assert [event.attributes["n"] for event in found] == [*range(3_000)]
        assert [event.sequence for event in found] == [*range(1, 3_001)]
        assert found[-1].position == position
        assert found[1].payload == b"x"


@async_test
async def test_publish_many_yields_to_other_tasks_between_batches() -> None:
    given = 0

    def events() -> Iterator[dict[str, int]]:
        nonlocal given
        for given in range(1, 5 * BATCH_EVENTS_MAX + 1):
            yield {"n": given}

    async with Overlay(on_disk=False) as overlay, gapless.connect(overlay.url()) as session:
        async with session.publisher("quotes") as publisher:
            publishing = asyncio.ensure_future(publisher.publish_many(events()))
            seen = set()
            while not publishing.done():
                seen.add(given)
                await asyncio.sleep(0)
        assert seen >= {BATCH_EVENTS_MAX * number for number in range(6)}


@async_test
async def test_receipts_can_be_awaited_in_any_order_or_not_at_all() -> None:
    async with Overlay(on_disk=False) as overlay, gapless.connect(overlay.url()) as session:
        async with session.publisher("quotes", in_flight_max=50) as publisher:
            receipts = [await publisher.send({"n": n}) for n in range(500)]
            late = await receipts[400]
            early = await receipts[3]
            assert late > early
            await publisher.flush()
            assert publisher.unanswered == 0
            assert all(receipt.is_done for receipt in receipts)
        assert len([event async for event in session.read("quotes")]) == 500


@async_test
async def test_a_lone_event_is_sent_at_once_and_events_that_wait_share_a_frame() -> None:
    async with (
        Overlay(on_disk=False) as overlay,
        Proxy(overlay.url()) as proxy,
        gapless.connect(proxy.url) as session,
        session.publisher("quotes") as publisher,
    ):
        await publisher.publish({"n": 0})
        assert len(proxy.requests_of(Publish)) == 1
        await asyncio.gather(*(publisher.publish({"n": n}) for n in range(1, 101)))
        first, *others = proxy.requests_of(Publish)
        assert len(first.events) == 1
        assert sum(len(each.events) for each in others) == 100
        assert len(others) <= 3


@async_test
async def test_no_more_batches_than_the_window_are_in_flight() -> None:
    async with ScriptedBroker() as broker, gapless.connect(broker.url) as session:
        broker.window = 2
        held: list[Publish] = []
        broker.answers[Publish] = lambda _, call: held.append(call)
        async with session.publisher("quotes") as publisher:
            work = asyncio.create_task(publisher.publish_many({"n": n} for n in range(5_000)))
            answered = 0
            while answered < 5_000:
                await soon(lambda: bool(held))
                await asyncio.sleep(0.005)
                assert len(held) <= 2
                call = held.pop(0)
                answered += len(call.events)
                broker.connection.notify(broker.published(call))
            await work


@async_test
async def test_sends_wait_while_in_flight_max_events_are_unanswered() -> None:
    async with ScriptedBroker() as broker, gapless.connect(broker.url) as session:
        held: list[Publish] = []
        broker.answers[Publish] = lambda _, call: held.append(call)
        async with session.publisher("quotes", in_flight_max=3) as publisher:
            for n in range(3):
                await publisher.send({"n": n})
            with pytest.raises(DeadlineError, match="no further event was accepted"):
                await publisher.send({"n": 3}, deadline_s=0.05)
            with pytest.raises(DeadlineError, match="no further event was accepted"):
                await publisher.publish({"n": 3}, deadline_s=0.05)
            waiting = asyncio.create_task(publisher.send({"n": 3}))
            broker.answers[Publish] = lambda connection, call: connection.notify(
                broker.published(call)
            )
            for call in held:
                broker.connection.notify(broker.published(call))
            assert await (await waiting) > Position()
        sent = [each for call in broker.requests_of(Publish) for each in call.events]
        assert [attributes["n"] for attributes, _ in sent] == [0, 1, 2, 3]


@async_test
async def test_a_named_publisher_continues_its_sequence_numbers() -> None:
    async with Overlay(on_disk=False) as overlay, gapless.connect(overlay.url()) as session:
        for _ in range(2):
            async with session.publisher("quotes", name="ticker") as publisher:
                await publisher.publish_many([{}, {}])
        found = [event async for event in session.read("quotes")]
        assert [(event.publisher, event.sequence) for event in found] == [
            ("ticker", sequence) for sequence in range(1, 5)
        ]


@async_test
async def test_publishers_without_a_name_are_distinct() -> None:
    async with Overlay(on_disk=False) as overlay, gapless.connect(overlay.url()) as session:
        async with session.publisher("q") as one, session.publisher("q") as other:
            assert one.name != other.name
            await asyncio.gather(one.publish({}), other.publish({}))


@async_test
async def test_opening_a_publisher_name_again_fences_the_older_publisher() -> None:
    async with Overlay(on_disk=False) as overlay, gapless.connect(overlay.url()) as session:
        old = session.publisher("quotes", name="ticker")
        await old.__aenter__()
        await old.publish({"n": 1})
        async with session.publisher("quotes", name="ticker") as new:
            await new.publish({"n": 2})
            with pytest.raises(FencedError):
                await old.publish({"n": 3})
            with pytest.raises(FencedError):
                await old.publish({"n": 4})
            await new.publish({"n": 5})
        found = [event async for event in session.read("quotes")]
        assert [event.attributes["n"] for event in found] == [1, 2, 5]


@async_test
async def test_a_publisher_unknown_to_its_broker_is_reopened() -> None:
    async with ScriptedBroker() as broker, gapless.connect(broker.url) as session:
        async with session.publisher("quotes") as publisher:
            await publisher.publish({"n": 1})
            answer = broker.answers[Publish]

            def refuse(connection: object, call: Publish) -> None:
                del connection
                broker.answers[Publish] = answer
                broker.session, broker.last_sequence = 10**9, 0
                notice = Refused(call.request, "not open here", RefusalCause.NOT_OPEN)
                broker.connection.notify(notice)

            broker.answers[Publish] = refuse
            assert await publisher.publish({"n": 2}) > Position()
        assert len(broker.requests_of(OpenPublisher)) == 2
        assert [call.first for call in broker.requests_of(Publish)] == [1, 2, 2]


@async_test
async def test_only_the_event_outside_the_advertisement_is_refused() -> None:
    async with Overlay(on_disk=False) as overlay, gapless.connect(overlay.url()) as session:
        async with session.publisher("quotes", advertisement=F.price > 0) as publisher:
            outcomes = await asyncio.gather(
                publisher.publish({"price": 1}),
                publisher.publish({"price": -1}),
                publisher.publish({"price": 2}),
                return_exceptions=True,
            )
            assert [isinstance(each, RefusedError) for each in outcomes] == [False, True, False]
            with pytest.raises(RefusedError, match="advertises"):
                await publisher.publish_many([{"price": 3}, {"price": -1}, {"price": 4}])
        found = [event async for event in session.read("quotes")]
        assert [event.attributes["price"] for event in found] == [1, 2, 3]


@async_test
async def test_an_advertisement_of_an_existing_pubend_only_widens() -> None:
    async with Overlay(on_disk=False) as overlay, gapless.connect(overlay.url()) as session:
        async with session.publisher("quotes", advertisement="price > 0"):
            pass
        async with session.publisher("quotes") as publisher:
            await publisher.publish({"price": -1})
        with pytest.raises(RefusedError, match="only widens"):
            async with session.publisher("other", advertisement="a = 1"):
                async with session.publisher("other", advertisement="b = 1"):
                    pass


@async_test
async def test_a_best_effort_pubend_has_no_positions() -> None:
    async with Overlay(on_disk=False) as overlay, gapless.connect(overlay.url()) as session:
        async with (
            session.publisher("best effort", guaranteed=False) as publisher,
            session.subscribe("") as events,
        ):
            coming = asyncio.create_task(events.get())
            while not coming.done():  # events before the start of the subscription are lost
                assert await publisher.publish({"n": 1}, b"x") == Position()
                await asyncio.sleep(0.01)
            event = await coming
            assert event.pubend == "best effort"
            assert event.position == Position()
        with pytest.raises(RefusedError, match="cannot be changed"):
            async with session.publisher("best effort"):
                pass
        with pytest.raises(RefusedError, match="no log"):
            _ = [event async for event in session.read("best effort")]


@async_test
async def test_an_invalid_event_is_an_error_of_the_caller() -> None:
    async with Overlay(on_disk=False) as overlay, gapless.connect(overlay.url()) as session:
        async with session.publisher("quotes") as publisher:
            wrong = [{"a": [1]}, {1: 2}, {"a": 2**63}, {"a": "\ud800"}, {"\ud800": 1}, 7]
            for attributes in wrong:
                with pytest.raises(AttributeValueError):
                    await publisher.publish(attributes)  # type: ignore[arg-type]
            with pytest.raises(UsageError, match="payload"):
                await publisher.publish({}, "text")  # type: ignore[arg-type]
            with pytest.raises(UsageError, match="does not fit"):
                await publisher.publish({}, bytes(2_000_000))
            await publisher.publish({"a": None, "b": True, "c": -(2**63), "é": "ü"})  # type: ignore[dict-item]
        (event,) = [event async for event in session.read("quotes")]
        assert event.attributes == {"b": True, "c": -(2**63), "é": "ü"}


@async_test
async def test_changing_the_attributes_after_send_does_not_change_the_event() -> None:
    async with Overlay(on_disk=False) as overlay, gapless.connect(overlay.url()) as session:
        attributes = {"n": 1}
        async with session.publisher("quotes") as publisher:
            await publisher.send(attributes)
            attributes["n"] = 2
        (event,) = [event async for event in session.read("quotes")]
        assert event.attributes == {"n": 1}


@async_test
async def test_large_events_are_sent_in_several_frames() -> None:
    async with Overlay(on_disk=False) as overlay, gapless.connect(overlay.url()) as session:
        async with session.publisher("quotes") as publisher:
            await publisher.publish_many(({"n": n}, bytes(300_000)) for n in range(40))
        found = [event async for event in session.read("quotes")]
        assert [event.attributes["n"] for event in found] == [*range(40)]


@async_test
async def test_a_publisher_is_used_once_and_inside_async_with() -> None:
    async with Overlay(on_disk=False) as overlay, gapless.connect(overlay.url()) as session:
        publisher = session.publisher("quotes")
        with pytest.raises(ClosedError):
            await publisher.publish({})
        async with publisher:
            pass
        with pytest.raises(ClosedError):
            await publisher.publish({})
        with pytest.raises(ClosedError):
            await publisher.__aenter__()


@async_test
async def test_invalid_names_are_refused_with_a_reason() -> None:
    async with Overlay(on_disk=False) as overlay, gapless.connect(overlay.url()) as session:
        with pytest.raises(UsageError, match="name"):
            session.publisher("a#b")
        with pytest.raises(UsageError, match="name"):
            session.publisher("a", name="n" * 300)
        # a broker that gets such a name from another program refuses it too
        with pytest.raises(RefusedError, match="name"):
            await session.request(OpenPubend(0, "a#b"))
        with pytest.raises(UsageError):
            session.publisher("a", in_flight_max=0)


@async_test
async def test_an_exception_in_the_block_does_not_wait_for_replies_and_is_not_hidden() -> None:
    async with ScriptedBroker() as broker, gapless.connect(broker.url) as session:
        del broker.answers[Publish]
        with pytest.raises(KeyError):
            async with session.publisher("quotes") as publisher:
                receipt = await publisher.send({"n": 1})
                raise KeyError
        assert receipt.is_done


@async_test
async def test_a_refused_batch_shows_in_its_receipts_or_in_flush() -> None:
    async with ScriptedBroker() as broker, gapless.connect(broker.url) as session:
        broker.answers[Publish] = lambda connection, call: connection.notify(
            Refused(call.request, "full")
        )
        async with session.publisher("quotes") as publisher:
            await publisher.send({"n": 1})
            with pytest.raises(RefusedError, match="full"):
                await publisher.flush()
            await publisher.flush()
            seen = await publisher.send({"n": 2})
            with pytest.raises(RefusedError, match="full"):
                await seen
            await publisher.flush()
            broker.answers[Publish] = lambda connection, call: connection.notify(
                broker.published(call)
            )
            await publisher.publish({"n": 3})
