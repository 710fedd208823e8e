"""The order of a durable subscription stays; it has one client, and each learns when it loses it."""

from __future__ import annotations

import pytest

import gapless
from gapless.errors import ClosedError, FencedError, RefusedError, UsageError
from gapless.testing import Overlay, SyncOverlay
from tests.client.running import async_test


@async_test
async def test_a_durable_subscription_continues_in_its_order() -> None:
    async with Overlay(on_disk=False) as overlay, gapless.connect(overlay.url()) as session:
        async with session.subscribe("", durable="desk", order="total") as events:
            assert events.order == "total"
        async with session.subscribe(durable="desk") as events:
            assert events.order == "total"
        async with session.subscribe("", durable="desk", order="total") as events:
            assert events.order == "total"


@async_test
async def test_another_order_than_a_durable_subscription_has_is_a_usage_error() -> None:
    async with Overlay(on_disk=False) as overlay, gapless.connect(overlay.url()) as session:
        async with session.subscribe("", durable="desk"):
            pass
        with pytest.raises(UsageError, match="'desk' has the order 'publisher'"):
            await session.subscribe("", durable="desk", order="total").__aenter__()
        async with session.subscribe("", order="total") as events:
            assert events.order == "total"


def test_the_synchronous_client_shows_the_order() -> None:
    with SyncOverlay(on_disk=False) as overlay, gapless.connect_sync(overlay.url()) as session:
        with session.subscribe("", durable="desk", order="total") as events:
            assert events.order == "total"
        with session.subscribe(durable="desk") as events:
            assert events.order == "total"


@async_test
async def test_a_session_does_not_take_a_subscription_over_from_itself_unless_it_may() -> None:
    async with Overlay(on_disk=False) as overlay, gapless.connect(overlay.url()) as session:
        async with (
            session.publisher("quotes") as publisher,
            session.subscribe("", durable="desk") as events,
        ):
            with pytest.raises(RefusedError, match="this session has the subscription 'desk'"):
                await session.subscribe("", durable="desk", take_over=False).__aenter__()
            await publisher.publish({"n": 1})
            assert (await events.get()).attributes == {"n": 1}
            async with session.subscribe("", durable="desk"):
                with pytest.raises(FencedError):
                    await events.get()


@async_test
async def test_a_closed_durable_subscription_is_free_while_its_session_continues() -> None:
    async with Overlay(on_disk=False) as overlay, gapless.connect(overlay.url()) as session:
        async with session.publisher("quotes") as publisher:
            async with session.subscribe("", durable="desk") as events:
                await publisher.publish_many({"n": n} for n in range(3))
                assert (await events.get()).attributes == {"n": 0}
            async with gapless.connect(overlay.url()) as other:
                async with other.subscribe(durable="desk", take_over=False) as events:
                    assert (await events.get()).attributes == {"n": 1}
            await publisher.publish({"n": 3})
            async with session.subscribe(durable="desk", take_over=False) as events:
                assert (await events.get()).attributes == {"n": 2}


@pytest.mark.parametrize("own", [True, False])
@async_test
async def test_a_consumer_is_told_that_its_subscription_was_unsubscribed(own: bool) -> None:
    async with (
        Overlay(on_disk=False) as overlay,
        gapless.connect(overlay.url()) as session,
        gapless.connect(overlay.url()) as other,
        session.subscribe("", durable="desk") as events,
    ):
        await (session if own else other).unsubscribe("desk")
        with pytest.raises(FencedError, match="'desk' was unsubscribed"):
            await events.get(deadline_s=5)


@async_test
async def test_a_consumer_that_unsubscribes_is_closed() -> None:
    async with Overlay(on_disk=False) as overlay, gapless.connect(overlay.url()) as session:
        async with session.subscribe("", durable="desk") as events:
            await events.unsubscribe()
            with pytest.raises(ClosedError):
                await events.get()
