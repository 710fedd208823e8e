"""A client whose broker dies: its durable subscriptions go on at another, from what was received."""

from __future__ import annotations

import pytest

import gapless
from gapless.client.options import Backoff
from gapless.testing import Overlay
from tests.client.running import soon, story

QUICK = Backoff(first_s=0.002, longest_s=0.02)


@story
async def test_a_durable_subscription_goes_on_at_another_broker_when_its_own_is_dead() -> None:
    # MV-13: no loss, no duplicate
    async with (
        Overlay("line:3") as overlay,
        gapless.connect(overlay.url("b3")) as there,
        there.publisher("quotes") as publisher,
        gapless.connect(overlay.url("b1", "b2"), backoff=QUICK, flee_after=0.05) as session,
        session.subscribe("n > 0", durable="desk", start="earliest") as events,
    ):
        await publisher.publish_many({"n": n} for n in range(1, 20))
        assert (await events.get()).attributes["n"] == 1
        await overlay.kill("b1")
        await publisher.publish_many({"n": n} for n in range(20, 40))
        assert [(await events.get()).attributes["n"] for _ in range(38)] == [*range(2, 40)]
        await soon(lambda: "desk" in overlay.node("b2").broker.host.subscriptions)
        await overlay.restart("b1")
        await soon(lambda: "desk" not in overlay.node("b1").broker.host.subscriptions)
        await publisher.publish({"n": 40})
        assert (await events.get()).attributes["n"] == 40


@story
async def test_a_filter_can_be_changed_after_a_flight() -> None:
    async with (
        Overlay("line:3") as overlay,
        gapless.connect(overlay.url("b3")) as there,
        there.publisher("quotes") as publisher,
        gapless.connect(overlay.url("b1", "b2"), backoff=QUICK, flee_after=0.05) as session,
        session.subscribe("n > 0", durable="desk", start="earliest") as events,
    ):
        await publisher.publish({"n": 1})
        assert (await events.get()).attributes["n"] == 1
        await overlay.kill("b1")
        position = await events.set_filter("n > 10")
        assert await publisher.publish({"n": 5}) > position
        await publisher.publish({"n": 11})
        assert (await events.get()).attributes["n"] == 11


@pytest.mark.parametrize("flee_after", [None, 60.0])
@story
async def test_a_restart_is_waited_for(flee_after: float | None) -> None:
    async with (
        Overlay("line:2") as overlay,
        gapless.connect(overlay.url("b2")) as there,
        there.publisher("quotes") as publisher,
        gapless.connect(overlay.url("b1", "b2"), backoff=QUICK, flee_after=flee_after) as session,
        session.subscribe("n > 0", durable="desk", start="earliest") as events,
    ):
        await overlay.restart("b1")
        await publisher.publish({"n": 1})
        assert (await events.get()).attributes["n"] == 1
        assert "desk" not in overlay.node("b2").broker.host.subscriptions


@story
async def test_a_time_to_flee_after_is_checked() -> None:
    with pytest.raises(gapless.errors.UsageError, match="above 0"):
        gapless.connect("gapless://b1", flee_after=-1)
