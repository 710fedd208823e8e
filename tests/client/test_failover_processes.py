"""Real processes, kill -9: durable subscriptions fail over, and new ones start with few brokers left."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

import gapless
from gapless.client import Publisher, Subscription
from gapless.messages.operating import ListSubscriptions
from gapless.runtime import Supervisor
from gapless.runtime.overlay_config import overlay_of
from tests.client.running import async_test, soon

QUICK = gapless.Backoff(first_s=0.01, longest_s=0.1)
FAIL_OVER_AFTER_S = 0.3


def urls(supervisor: Supervisor, *names: str) -> list[str]:
    """Return the URLs of some brokers, in this order."""
    return [supervisor[name].url for name in names]


async def kill_for_good(supervisor: Supervisor, names: Iterable[str]) -> None:
    """Kill brokers without restart, and wait until they are dead."""
    for name in names:
        supervisor.prevent_restart(name)
        supervisor.kill(name)
        await soon(lambda: supervisor[name].pid is None)  # noqa: B023


async def durables_at(url: str) -> list[str]:
    """Return the names of the durable subscriptions of a broker."""
    async with gapless.connect(url) as session:
        listed = await session.request(ListSubscriptions(0, durable=True), changes=False)
        return [each.name for each in listed.entries]


async def publish(publisher: Publisher, numbers: Iterable[int]) -> None:
    """Publish numbers one after the other, so that some are always in flight."""
    for number in numbers:
        await publisher.publish({"n": number})
        await asyncio.sleep(0.002)


async def take(events: Subscription, count: int) -> list[Any]:
    """Return the numbers of the next events."""
    return [(await events.get()).attributes["n"] for _ in range(count)]


@async_test
async def test_a_durable_subscription_fails_over_to_another_broker_of_its_cell(
    tmp_path: Path,
) -> None:
    # MV-13: the first hosting broker is restarted only after the other has delivered everything
    async with (
        Supervisor(overlay_of("line:2x2"), tmp_path, port=0) as supervisor,
        gapless.connect(urls(supervisor, "b1a")) as near,
        near.publisher("quotes") as publisher,
        gapless.connect(
            urls(supervisor, "b2a", "b2b"), backoff=QUICK, failover_after_s=FAIL_OVER_AFTER_S
        ) as far,
        far.subscribe("n >= 0", durable="desk", start="earliest") as events,
    ):
        publishing = asyncio.create_task(publish(publisher, range(300)))
        assert await take(events, 50) == [*range(50)]
        assert await durables_at(supervisor["b2a"].url) == ["desk"]
        await kill_for_good(supervisor, ["b2a"])
        assert await take(events, 250) == [*range(50, 300)]
        await publishing
        assert await durables_at(supervisor["b2b"].url) == ["desk"]
        supervisor.allow_restart("b2a")
        await supervisor["b2a"].settled.wait()
        while await durables_at(supervisor["b2a"].url):
            await asyncio.sleep(0.01)  # the former hosting broker learns of the failover
        await publish(publisher, [300])
        assert await take(events, 1) == [300]


@async_test
async def test_new_subscriptions_start_with_one_broker_left_in_each_cell(tmp_path: Path) -> None:
    # VT 6.3.8: "even in the absence of a majority of brokers in a tree node"
    left = {"b1a", "b2b", "b3a"}
    async with (
        Supervisor(overlay_of("line:3x2"), tmp_path, port=0) as supervisor,
        gapless.connect(urls(supervisor, "b1a")) as near,
        near.publisher("quotes") as publisher,
    ):
        await publish(publisher, range(20))
        await kill_for_good(
            supervisor, [each.name for each in supervisor.brokers if each.name not in left]
        )
        async with (
            gapless.connect(urls(supervisor, "b3b", "b3a"), backoff=QUICK) as far,
            far.subscribe("n < 60") as some,
            far.subscribe("n >= 0", durable="desk", create=True) as kept,
        ):
            await soon(lambda: "quotes" in some.position and "quotes" in kept.position)
            await publish(publisher, range(20, 100))
            assert await take(some, 40) == [*range(20, 60)]
            assert await take(kept, 80) == [*range(20, 100)]
            await kept.set_filter("n >= 110")
            await publish(publisher, range(100, 120))
            assert await take(kept, 10) == [*range(110, 120)]


@async_test
async def test_a_program_that_starts_again_after_a_failover_misses_nothing(tmp_path: Path) -> None:
    # MV-15: b3 is back and comes first in the list; the subscription is at b1, where b3 sends it
    async with Supervisor(overlay_of("line:3"), tmp_path, port=0) as supervisor:
        servers = urls(supervisor, "b3", "b1")
        async with (
            gapless.connect(urls(supervisor, "b2")) as near,
            near.publisher("q") as publisher,
        ):
            async with (
                gapless.connect(
                    servers, backoff=QUICK, failover_after_s=FAIL_OVER_AFTER_S
                ) as session,
                session.subscribe("", durable="desk") as events,
            ):
                await publish(publisher, range(10))
                assert await take(events, 10) == [*range(10)]
                await kill_for_good(supervisor, ["b3"])
                await publish(publisher, range(10, 20))
                assert await take(events, 10) == [*range(10, 20)]
            assert await durables_at(supervisor["b1"].url) == ["desk"]
            await publish(publisher, range(20, 30))
            supervisor.allow_restart("b3")
            await supervisor["b3"].settled.wait()
            async with (
                gapless.connect(servers, backoff=QUICK) as session,
                session.subscribe(durable="desk") as events,
            ):
                assert not events.is_new
                assert await take(events, 10) == [*range(20, 30)]


@async_test
async def test_a_program_that_starts_while_its_hosting_broker_is_dead_waits_for_it(
    tmp_path: Path,
) -> None:
    # MV-15: nothing is created elsewhere, so nothing is missed and nothing comes twice
    async with Supervisor(overlay_of("line:3"), tmp_path, port=0) as supervisor:
        servers = urls(supervisor, "b3", "b1")
        async with (
            gapless.connect(urls(supervisor, "b2")) as near,
            near.publisher("q") as publisher,
        ):
            async with (
                gapless.connect(servers, backoff=QUICK) as session,
                session.subscribe("", durable="desk") as events,
            ):
                await publish(publisher, range(10))
                assert await take(events, 10) == [*range(10)]
            await kill_for_good(supervisor, ["b3"])
            await publish(publisher, range(10, 20))
            async with gapless.connect(servers, backoff=QUICK) as session:
                with pytest.raises(gapless.errors.DeadlineError, match="did not answer: b3"):
                    async with session.subscribe(durable="desk", deadline_s=5.0):
                        pytest.fail("a second subscription was created")
                assert await durables_at(supervisor["b1"].url) == []
                supervisor.allow_restart("b3")
                async with session.subscribe(durable="desk") as events:
                    assert not events.is_new
                    found = await take(events, 1)
                    while found[-1] != 19:
                        found += await take(events, 1)
                    # kill -9 loses acknowledgements that are not on disk yet; their events come again
                    assert found == [*range(found[0], 20)]
                    assert found[0] <= 10
                    await publish(publisher, [20])
                    assert await take(events, 1) == [20]
            assert await durables_at(supervisor["b1"].url) == []
