"""Clients with several addresses continue when a broker dies: real processes, kill -9.

A subscription that is not durable continues at another broker from its position. A publisher waits for its
PHB, which recognizes a repeated batch by its sequence numbers.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

import gapless
from gapless.client import Publisher
from gapless.errors import DeadlineError
from gapless.messages.operating import ListPubends
from gapless.testing import Overlay as Brokers
from tests.cli.overlays import Overlay, overlay
from tests.client.running import async_test, soon

QUICK = gapless.Backoff(first_s=0.01, longest_s=0.1)


def addresses(brokers: Overlay, *names: str) -> list[str]:
    """Return the addresses of some brokers, in this order."""
    urls = {each["name"]: each["url"] for each in brokers.brokers}
    return [urls[name] for name in names]


def kill(brokers: Overlay, name: str) -> None:
    """Kill a broker of an overlay."""
    brokers.kill([each["name"] for each in brokers.brokers].index(name))


@asynccontextmanager
async def publishing(publisher: Publisher, *, count: int) -> AsyncIterator[None]:
    """Publish numbers one after the other inside the block."""

    async def publish() -> None:
        for number in range(count):
            await publisher.publish({"n": number}, deadline_s=60)
            await asyncio.sleep(0.002)

    task = asyncio.create_task(publish())
    yield
    await task


@async_test
async def test_a_subscription_continues_at_another_broker_without_loss_or_repetition() -> None:
    with overlay(topology="line:2x2") as brokers:
        async with (
            gapless.connect(addresses(brokers, "b1a"), backoff=QUICK) as near,
            near.publisher("quotes") as publisher,
            gapless.connect(addresses(brokers, "b2a", "b2b", "b1b"), backoff=QUICK) as far,
            far.subscribe("n >= 0", start="earliest") as events,
            publishing(publisher, count=400),
        ):
            seen = []
            async for event in events:
                seen.append(event.attributes["n"])
                if len(seen) == 100:
                    assert far.broker == "b2a"
                    kill(brokers, "b2a")
                if len(seen) == 400:
                    break
        assert seen == [*range(400)]


@async_test
async def test_a_subscription_continues_through_the_loss_of_a_whole_cell() -> None:
    with overlay("--no-restart", topology="line:3x2") as brokers:
        async with (
            gapless.connect(addresses(brokers, "b1a"), backoff=QUICK) as near,
            near.publisher("quotes") as publisher,
            gapless.connect(addresses(brokers, "b3a", "b3b"), backoff=QUICK) as far,
            far.subscribe("n >= 0", start="earliest") as events,
            publishing(publisher, count=300),
        ):
            seen = []
            async for event in events:
                seen.append(event.attributes["n"])
                if len(seen) == 100:
                    for name in ("b2a", "b2b", "b3a"):  # the cell between, and the hosting broker
                        kill(brokers, name)
                if len(seen) == 300:
                    break
            await soon(lambda: far.broker == "b3b")
        assert seen == [*range(300)]


@async_test
async def test_a_publisher_waits_for_its_phb_and_publishes_no_event_twice() -> None:
    with overlay(topology="line:2x2") as brokers:
        async with (
            gapless.connect(addresses(brokers, "b1a", "b1b"), backoff=QUICK) as near,
            near.publisher("quotes") as publisher,
            gapless.connect(addresses(brokers, "b2a", "b2b"), backoff=QUICK) as far,
            far.subscribe("n >= 0", start="earliest") as events,
            publishing(publisher, count=300),
        ):
            seen = []
            async for event in events:
                seen.append(event.attributes["n"])
                if len(seen) == 100:
                    kill(brokers, "b1a")
                if len(seen) == 300:
                    break
            shown = await far.request(ListPubends(0), changes=False)
            phbs = [(str(each.pubend), each.broker) for each in shown.entries]
        assert seen == [*range(300)]
        assert phbs == [("quotes", "b1a")], "it was not created at another broker"


@async_test
async def test_opening_a_publisher_while_its_phb_is_down_waits_for_the_phb() -> None:
    async with Brokers("line:1x2") as brokers:
        async with (
            gapless.connect(brokers.url("b1a")) as session,
            session.publisher("quotes") as at,
        ):
            await at.publish({"n": 1})
            await soon(lambda: bool(brokers.node("b1b").broker.components.announcements.pubends()))
        await brokers.kill("b1a")
        async with gapless.connect(brokers.url("b1a", "b1b"), backoff=QUICK) as session:
            with pytest.raises(DeadlineError, match="b1a is responsible and cannot be reached"):
                async with session.publisher("quotes", deadline_s=0.2):
                    pass
            opening = asyncio.create_task(session.publisher("quotes").__aenter__())
            await asyncio.sleep(0.05)
            assert not opening.done()
            await brokers.restart("b1a")
            publisher = await opening
            await publisher.publish({"n": 2})
            await publisher.close()
            numbers = [event.attributes["n"] async for event in session.read("quotes")]
        assert numbers == [1, 2]


@async_test
async def test_fetch_pending_names_the_streams_without_a_route_and_the_reason() -> None:
    async with Brokers("line:2", on_disk=False) as brokers:
        async with (
            gapless.connect(brokers.url("b1")) as near,
            near.publisher("quotes") as publisher,
            gapless.connect(brokers.url("b2")) as far,
            far.subscribe("n >= 0", start="earliest") as events,
        ):
            await publisher.publish({"n": 1})
            await events.get()
            assert await events.fetch_pending() == {}
            await brokers.kill("b1")
            pending: dict[str, str] = {}
            while not pending:
                pending = await events.fetch_pending()
            assert "there is no route to its broker b1 in cell c1" in pending["quotes"]
            assert "b2/1: cells c1" in pending["quotes"]
            with pytest.raises(DeadlineError):
                await publisher.publish({"n": 2}, deadline_s=0.05)
