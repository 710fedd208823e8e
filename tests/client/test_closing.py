"""Closing pubends at real brokers: what publishers, subscriptions and readers get (RS-32 to RS-34)."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

import gapless
from gapless.core.parameters import Parameters
from gapless.errors import DeadlineError, PubendClosedError, RefusedError
from gapless.testing import Overlay
from tests.client.running import async_test, soon

QUICK = Parameters(retention_s=0, ack_ms=50, ack_report_ttl_ms=200)


def quick(retention_s: int = 0) -> Overlay:
    """Return an overlay that keeps nothing for replay."""
    return Overlay(on_disk=False, parameters=replace(QUICK, retention_s=retention_s))


@async_test
async def test_a_closed_pubend_is_drained_and_its_subscription_goes_on() -> None:
    async with quick() as overlay, gapless.connect(overlay.url()) as session:
        async with (
            session.publisher("a") as first,
            session.publisher("b") as second,
            session.subscribe("TRUE", durable="desk", order="total") as events,
        ):
            await first.publish({"n": 1})
            assert (await events.get()).attributes["n"] == 1
            sealed = await session.close_pubend("a")
            with pytest.raises(PubendClosedError, match="closed and accepts nothing"):
                await first.publish({"n": 2})
            await second.publish({"n": 3})
            assert (await events.get()).attributes["n"] == 3
            await events.ack()
            closing = await session.close_pubend("a", wait=True)
            assert (closing.is_closed, closing.last) == (True, sealed.last)
            await second.publish({"n": 4})
            assert (await events.get()).attributes["n"] == 4
            assert events.closed == {"a": sealed.last}
        async with session.publisher("a") as later:
            assert later.pubend.startswith("a#")


@async_test
async def test_a_subscription_without_events_acknowledges_the_end() -> None:
    async with quick() as overlay, gapless.connect(overlay.url()) as session:
        async with (
            session.publisher("a") as publisher,
            session.subscribe("n = 7", durable="desk", ack="manual") as events,
        ):
            await publisher.publish({"n": 1})
            await session.close_pubend("a")
            with pytest.raises(DeadlineError):
                await events.get(deadline_s=0.5)
            assert [*events.closed] == ["a"]
            assert (await session.close_pubend("a", wait=True)).is_closed


@async_test
async def test_the_deadline_names_those_that_are_waited_for() -> None:
    async with quick() as overlay, gapless.connect(overlay.url()) as session:
        async with session.publisher("a") as publisher:
            async with session.subscribe("TRUE", durable="desk"):
                await publisher.publish({"n": 1})
        shown: list[tuple[str, ...]] = []
        with pytest.raises(DeadlineError, match="durable subscriptions, above the tick"):
            await session.close_pubend(
                "a", wait=True, deadline_s=2, on_progress=lambda each: shown.append(each.waits_for)
            )
        assert shown


@async_test
async def test_a_reconnected_client_is_not_told_twice() -> None:
    async with quick(retention_s=3_600) as overlay, gapless.connect(overlay.url()) as session:
        async with session.publisher("a") as publisher, session.subscribe("TRUE") as events:
            await publisher.publish({"n": 1})
            await events.get()
            await session.close_pubend("a")
            with pytest.raises(DeadlineError):
                await events.get(deadline_s=0.3)
            assert [*events.closed] == ["a"]
            events.closed.clear()
            connections = session.main.connections
            session.main._connection.abort("the test cuts the connection")  # type: ignore[union-attr]
            await soon(lambda: session.main.connections > connections)
            with pytest.raises(DeadlineError):
                await events.get(deadline_s=0.5)
            assert events.closed == {}


@async_test
async def test_another_broker_redirects_the_client() -> None:
    overlay = Overlay("line:2", on_disk=False, parameters=QUICK)
    async with overlay, gapless.connect(overlay.url("b1")) as session:
        async with session.publisher("stocks"):
            pass
        async with gapless.connect(overlay.url("b2")) as other:
            async with other.subscribe("TRUE"):
                assert (await other.close_pubend("stocks", wait=True)).is_closed
            with pytest.raises(RefusedError, match="there is no pubend nothing"):
                await other.close_pubend("nothing")


@async_test
async def test_a_read_of_a_closed_pubend_is_refused() -> None:
    async with quick() as overlay, gapless.connect(overlay.url()) as session:
        async with session.publisher("a") as publisher:
            await publisher.publish({"n": 1})
        await session.close_pubend("a", wait=True)
        with pytest.raises(PubendClosedError, match="nothing is left of it"):
            [event async for event in session.read("a")]


def test_the_synchronous_session_closes_too() -> None:
    from gapless.testing import SyncOverlay

    with (
        SyncOverlay(on_disk=False, parameters=QUICK) as overlay,
        gapless.connect_sync(overlay.url()) as session,
        session.publisher("a") as publisher,
    ):
        publisher.publish({"n": 1})
        assert session.close_pubend("a", wait=True).is_closed
