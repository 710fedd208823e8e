"""Publishing while connections break: every event once, in order, or an error."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import gapless
from gapless import Position
from gapless.core.backoff import Backoff
from gapless.errors import (
    ClosedError,
    DeadlineError,
    FencedError,
    OutcomeUnknownError,
)
from gapless.messages.clients import (
    OpenPubend,
    OpenPublisher,
    PubendOpened,
    Publish,
    Published,
    PublisherOpened,
    RefusalCause,
    Refused,
)
from gapless.testing import Overlay
from tests.client.proxy import Proxy
from tests.client.running import async_test, soon
from tests.client.scripted import ScriptedBroker

QUICK = Backoff(first_s=0.002, longest_s=0.02)


async def numbers(session: gapless.client.Session) -> list[object]:
    """Return the numbers in the log of quotes."""
    return [event.attributes["n"] async for event in session.read("quotes")]


@pytest.mark.parametrize(
    "fault",
    [
        ("cut_before", Publish),
        ("cut_after", Publish),
        ("cut_before", Published),
        ("cut_before", OpenPublisher),
        ("cut_after", OpenPublisher),
        ("cut_before", PublisherOpened),
        ("cut_before", OpenPubend),
        ("cut_before", PubendOpened),
        ("repeat", Published),
    ],
)
@async_test
async def test_every_event_is_published_once_wherever_the_connection_breaks(
    fault: tuple[str, type],
) -> None:
    async with Overlay(on_disk=False) as overlay, Proxy(overlay.url()) as proxy:
        getattr(proxy, fault[0])(fault[1])
        async with gapless.connect(proxy.url, backoff=QUICK) as session:
            async with session.publisher("quotes") as publisher:
                for n in range(5):
                    await publisher.publish({"n": n})
            assert await numbers(session) == [0, 1, 2, 3, 4]
        assert not proxy.rules


@async_test
async def test_an_unanswered_batch_is_resent_under_the_same_sequence() -> None:
    async with Overlay(on_disk=False) as overlay, Proxy(overlay.url()) as proxy:
        async with gapless.connect(proxy.url, backoff=QUICK) as session:
            async with session.publisher("quotes") as publisher:
                proxy.cut_before(Published)
                position = await publisher.publish({"n": 1})
            first, again = proxy.requests_of(Publish)
            assert (first.first, first.request) == (again.first, again.request)
            assert first.session < again.session
            (event,) = [event async for event in session.read("quotes")]
            assert event.position == position


@async_test
async def test_many_events_survive_many_cuts_in_order() -> None:
    async with Overlay(on_disk=False) as overlay, Proxy(overlay.url()) as proxy:
        async with gapless.connect(proxy.url, backoff=QUICK) as session:
            async with session.publisher("quotes", in_flight_max=200) as publisher:
                for n in range(2_000):
                    await publisher.send({"n": n})
                    if n % 150 == 70:
                        proxy.cut_before(Published if n % 300 == 70 else Publish)
                        await asyncio.sleep(0)
                    if n % 400 == 399:
                        proxy.cut()
                await publisher.flush()
            assert await numbers(session) == [*range(2_000)]


@async_test
async def test_every_event_is_published_once_across_a_crash_of_the_broker() -> None:
    async with Overlay() as overlay:
        async with gapless.connect(overlay.url(), backoff=QUICK) as session:
            async with session.publisher("quotes") as publisher:
                sent = 0
                for _ in range(3):
                    for _ in range(200):
                        await publisher.send({"n": sent})
                        sent += 1
                    await asyncio.sleep(0)
                    await overlay.restart("b1")
                await publisher.flush()
            assert await numbers(session) == [*range(sent)]


@async_test
async def test_a_best_effort_event_is_not_repeated_when_its_reply_is_lost() -> None:
    async with Overlay(on_disk=False) as overlay, Proxy(overlay.url()) as proxy:
        async with gapless.connect(proxy.url, backoff=QUICK) as session:
            async with session.publisher("best effort", guaranteed=False) as publisher:
                await publisher.publish({"n": 1})
                proxy.cut_before(Published)
                with pytest.raises(OutcomeUnknownError, match="best effort"):
                    await publisher.publish({"n": 2})
                await publisher.publish({"n": 3})
        assert [call.events[0][0]["n"] for call in proxy.requests_of(Publish)] == [1, 2, 3]


# --- deadlines ------------------------------------------------------------------------------------


@async_test
async def test_a_deadline_that_passes_after_sending_leaves_the_outcome_unknown() -> None:
    async with Overlay(on_disk=False) as overlay, Proxy(overlay.url()) as proxy:
        async with gapless.connect(proxy.url, backoff=QUICK) as session:
            async with session.publisher("quotes") as publisher:
                proxy.swallow(Published)
                with pytest.raises(OutcomeUnknownError, match="may be published"):
                    await publisher.publish({"n": 1}, deadline_s=0.05)
                proxy.cut()  # then the batch is sent again and answered
                await publisher.publish({"n": 2})
            assert await numbers(session) == [1, 2]


@async_test
async def test_a_deadline_that_passes_before_sending_removes_the_event() -> None:
    async with Overlay(on_disk=False) as overlay, Proxy(overlay.url()) as proxy:
        async with gapless.connect(proxy.url, backoff=QUICK) as session:
            async with session.publisher("quotes") as publisher:
                await publisher.publish({"n": 0})
                proxy.closed = True
                proxy.cut()
                await soon(lambda: not session.main.is_up)
                kept = asyncio.create_task(publisher.publish({"n": 2}))
                with pytest.raises(DeadlineError, match="will not be"):
                    await publisher.publish({"n": 1}, deadline_s=0.05)
                with pytest.raises(DeadlineError, match="publish_many was not done"):
                    await publisher.publish_many([{"n": 7}, {"n": 8}], deadline_s=0.05)
                with pytest.raises(OutcomeUnknownError, match="will be published"):
                    await publisher.flush(deadline_s=0.05)
                assert publisher.unanswered == 1
                proxy.closed = False
                assert await kept > Position()
            assert await numbers(session) == [0, 2]


@async_test
async def test_a_cancelled_publish_that_was_not_sent_is_not_published() -> None:
    async with Overlay(on_disk=False) as overlay, Proxy(overlay.url()) as proxy:
        async with gapless.connect(proxy.url, backoff=QUICK) as session:
            async with session.publisher("quotes") as publisher:
                proxy.closed = True
                proxy.cut()
                await soon(lambda: not session.main.is_up)
                tasks = [asyncio.create_task(publisher.publish({"n": n})) for n in range(4)]
                many = asyncio.create_task(publisher.publish_many([{"n": 9}]))
                await asyncio.sleep(0.01)
                tasks[1].cancel()
                many.cancel()
                proxy.closed = False
                found = await asyncio.gather(*tasks, many, return_exceptions=True)
                cancelled = [isinstance(each, asyncio.CancelledError) for each in found]
                assert cancelled == [False, True, False, False, True]
            assert await numbers(session) == [0, 2, 3]


@async_test
async def test_a_cancelled_publish_that_was_sent_does_not_disturb_the_next() -> None:
    async with ScriptedBroker() as broker, gapless.connect(broker.url) as session:
        held: list[Publish] = []
        broker.answers[Publish] = lambda _, call: held.append(call)
        async with session.publisher("quotes") as publisher:
            task = asyncio.create_task(publisher.publish({"n": 1}))
            await soon(lambda: bool(held))
            task.cancel()
            broker.answers[Publish] = lambda connection, call: connection.notify(
                broker.published(call)
            )
            broker.connection.notify(broker.published(held[0]))
            await publisher.publish({"n": 2})
            assert publisher.unanswered == 0


@async_test
async def test_closing_reports_events_without_a_reply() -> None:
    async with ScriptedBroker() as broker, gapless.connect(broker.url) as session:
        del broker.answers[Publish]
        publisher = session.publisher("quotes", deadline_s=0.1)
        await publisher.__aenter__()
        receipt = await publisher.send({"n": 1})
        with pytest.raises(OutcomeUnknownError):
            await publisher.close()
        with pytest.raises(OutcomeUnknownError, match="ended"):
            await receipt


@async_test
async def test_closing_the_session_fails_publishers_that_wait() -> None:
    async with ScriptedBroker() as broker:
        del broker.answers[Publish]
        session = gapless.connect(broker.url)
        await session.open()
        publisher = session.publisher("quotes")
        await publisher.__aenter__()
        task = asyncio.create_task(publisher.publish({"n": 1}))
        await soon(lambda: bool(broker.requests_of(Publish)))
        await session.close()
        with pytest.raises(OutcomeUnknownError):
            await task
        with pytest.raises(ClosedError):
            await publisher.publish({"n": 2})


@async_test
async def test_opening_a_publisher_has_a_deadline() -> None:
    async with ScriptedBroker() as broker, gapless.connect(broker.url) as session:
        del broker.answers[OpenPublisher]
        with pytest.raises(DeadlineError):
            async with session.publisher("quotes", deadline_s=0.05):
                pass
        del broker.answers[OpenPubend]
        with pytest.raises(OutcomeUnknownError):
            async with session.publisher("quotes", deadline_s=0.05):
                pass


# --- a name that another publisher has opened -----------------------------------------------------


@async_test
async def test_a_batch_of_another_publisher_of_the_name_is_not_taken_for_ours() -> None:
    async with ScriptedBroker() as broker:
        async with gapless.connect(broker.url, backoff=QUICK) as session:
            held: list[Publish] = []
            broker.answers[Publish] = lambda _, call: held.append(call)
            publisher = session.publisher("quotes", name="ticker")
            await publisher.__aenter__()
            task = asyncio.create_task(publisher.publish({"n": 1}))
            await soon(lambda: bool(held))
            broker.session += 1  # another publisher opens the name and uses our sequence
            broker.last_sequence = 1
            broker.cut()
            with pytest.raises(OutcomeUnknownError, match="another publisher"):
                await task
            with pytest.raises(FencedError):
                await publisher.publish({"n": 2})


@async_test
async def test_a_late_open_request_of_the_same_publisher_does_not_end_it() -> None:
    async with ScriptedBroker() as broker:
        async with gapless.connect(broker.url, backoff=QUICK) as session:
            publisher = session.publisher("quotes", name="ticker")
            await publisher.__aenter__()
            await publisher.publish({"n": 1})
            opened, published = broker.answers[OpenPublisher], broker.answers[Publish]
            lost: list[OpenPublisher] = []
            broker.answers[OpenPublisher] = lambda _, call: lost.append(call)
            broker.cut()
            await soon(lambda: bool(lost))
            broker.answers[OpenPublisher] = opened
            broker.cut()
            await soon(lambda: len(broker.requests_of(OpenPublisher)) == 3)
            broker.session += 1  # only now the lost request is handled and fences us

            def fence(connection: object, call: Publish) -> None:
                del connection
                broker.answers[Publish] = published
                reason = "opened by a newer session"
                broker.connection.notify(Refused(call.request, reason, RefusalCause.FENCED))

            broker.answers[Publish] = fence
            assert await publisher.publish({"n": 2}) > Position()
            await publisher.close()
            assert [call.first for call in broker.requests_of(Publish)] == [1, 2, 2]


# --- invalid replies ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "answer",
    [
        lambda call: Published(call.request, ()),
        lambda call: Published(call.request, (1, 2, 3)),
        lambda call: PubendOpened(call.request, call.pubend),
    ],
)
@async_test
async def test_an_invalid_reply_ends_the_connection_and_the_batch_is_resent(
    answer: object,
) -> None:
    assert callable(answer)
    async with ScriptedBroker() as broker:
        right = broker.answers[Publish]

        def wrong(connection: object, call: Publish) -> None:
            del connection
            broker.answers[Publish] = right
            broker.connection.notify(answer(call))

        broker.answers[Publish] = wrong
        async with gapless.connect(broker.url, backoff=QUICK) as session:
            async with session.publisher("quotes") as publisher:
                assert await publisher.publish({"n": 1}) == {"quotes": 1_001}
        assert len(broker.connections) == 2


@async_test
async def test_a_deadline_that_passes_at_once_does_not_disturb_the_next_event() -> None:
    # some loops return a handle without a time if the deadline is now
    loop = asyncio.get_running_loop()
    at_once = loop.call_at

    def call_at(when: float, *action: Any, **options: Any) -> asyncio.Handle:
        if when <= loop.time():
            return loop.call_soon(*action, **options)
        return at_once(when, *action, **options)

    async with Overlay(on_disk=False) as overlay, gapless.connect(overlay.url()) as session:
        async with session.publisher("quotes") as publisher:
            loop.call_at = call_at  # type: ignore[method-assign,assignment]
            late, position = await asyncio.gather(
                publisher.publish({"n": 1}, deadline_s=1e-9),
                publisher.publish({"n": 2}),
                return_exceptions=True,
            )
            assert isinstance(late, DeadlineError | OutcomeUnknownError)
            assert isinstance(position, Position)
        assert (await numbers(session))[-1] == 2
