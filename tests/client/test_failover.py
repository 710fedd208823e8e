"""Failover: durable subscriptions of a client continue at another broker from what was received."""

from __future__ import annotations

import pytest

import gapless
from gapless.core.backoff import Backoff
from gapless.messages.operating import SetDurableFilter
from gapless.testing import Overlay
from tests.client.running import async_test, soon

QUICK = Backoff(first_s=0.002, longest_s=0.02)


@async_test
async def test_a_durable_subscription_continues_at_another_broker_when_its_own_is_dead() -> None:
    # MV-13: no loss, no duplicate
    async with (
        Overlay("line:3") as overlay,
        gapless.connect(overlay.url("b3")) as there,
        there.publisher("quotes") as publisher,
        gapless.connect(overlay.url("b1", "b2"), backoff=QUICK, failover_after_s=0.05) as session,
        session.subscribe("n > 0", durable="desk", start="earliest") as events,
    ):
        await publisher.publish_many({"n": n} for n in range(1, 20))
        assert (await events.get()).attributes["n"] == 1
        await overlay.kill("b1")
        await publisher.publish_many({"n": n} for n in range(20, 40))
        assert [(await events.get()).attributes["n"] for _ in range(38)] == [*range(2, 40)]
        await soon(lambda: "desk" in overlay.node("b2").broker.components.registry.subscriptions)
        await overlay.restart("b1")
        await soon(
            lambda: "desk" not in overlay.node("b1").broker.components.registry.subscriptions
        )
        await publisher.publish({"n": 40})
        assert (await events.get()).attributes["n"] == 40


@async_test
async def test_a_filter_can_be_changed_after_a_failover() -> None:
    async with (
        Overlay("line:3") as overlay,
        gapless.connect(overlay.url("b3")) as there,
        there.publisher("quotes") as publisher,
        gapless.connect(overlay.url("b1", "b2"), backoff=QUICK, failover_after_s=0.05) as session,
        session.subscribe("n > 0", durable="desk", start="earliest") as events,
    ):
        await publisher.publish({"n": 1})
        assert (await events.get()).attributes["n"] == 1
        await overlay.kill("b1")
        position = await events.set_filter("n > 10")
        assert await publisher.publish({"n": 5}) > position
        await publisher.publish({"n": 11})
        assert (await events.get()).attributes["n"] == 11


@pytest.mark.parametrize("failover_after_s", [None, 60.0])
@async_test
async def test_a_client_waits_for_a_quick_restart_of_its_broker(
    failover_after_s: float | None,
) -> None:
    async with (
        Overlay("line:2") as overlay,
        gapless.connect(overlay.url("b2")) as there,
        there.publisher("quotes") as publisher,
        gapless.connect(
            overlay.url("b1", "b2"), backoff=QUICK, failover_after_s=failover_after_s
        ) as session,
        session.subscribe("n > 0", durable="desk", start="earliest") as events,
    ):
        await overlay.restart("b1")
        await publisher.publish({"n": 1})
        assert (await events.get()).attributes["n"] == 1
        assert "desk" not in overlay.node("b2").broker.components.registry.subscriptions


@async_test
async def test_an_invalid_failover_after_s_is_refused() -> None:
    with pytest.raises(gapless.errors.UsageError, match="above 0"):
        gapless.connect("gapless://b1", failover_after_s=-1)


@async_test
async def test_events_that_are_not_acknowledged_are_delivered_again_after_a_failover() -> None:
    # the program ends after the failover; the next one does not know what the first received
    async with (
        Overlay("line:3") as overlay,
        gapless.connect(overlay.url("b3")) as there,
        there.publisher("quotes") as publisher,
    ):
        async with (
            gapless.connect(
                overlay.url("b1", "b2"), backoff=QUICK, failover_after_s=0.05
            ) as session,
            session.subscribe("n > 0", durable="desk", start="earliest", ack="manual") as events,
        ):
            await publisher.publish_many({"n": n} for n in range(1, 4))
            first = await events.get()
            await events.get()
            await events.ack(first)
            await overlay.kill("b1")
            await soon(
                lambda: "desk" in overlay.node("b2").broker.components.registry.subscriptions
            )
            assert (await events.get()).attributes["n"] == 3
        async with (
            gapless.connect(overlay.url("b2")) as session,
            session.subscribe("n > 0", durable="desk") as events,
        ):
            assert [(await events.get()).attributes["n"] for _ in range(2)] == [2, 3]


@async_test
async def test_a_filter_set_by_an_operator_survives_a_failover() -> None:
    async with (
        Overlay("line:3") as overlay,
        gapless.connect(overlay.url("b3")) as there,
        there.publisher("quotes") as publisher,
        gapless.connect(overlay.url("b1", "b2"), backoff=QUICK, failover_after_s=0.05) as session,
        session.subscribe("n > 0", durable="desk", start="earliest") as events,
    ):
        async with gapless.connect(overlay.url("b1")) as operator:
            await operator.request(SetDurableFilter(0, "desk", "n > 10"))
        await soon(lambda: events.filter == gapless.Filter("n > 10"))
        await overlay.kill("b1")
        await publisher.publish_many({"n": n} for n in (5, 11))
        assert (await events.get()).attributes["n"] == 11


@async_test
async def test_past_filters_that_still_apply_survive_a_failover() -> None:
    # R47: the events before the change are not read yet when the broker dies
    async with (
        Overlay("line:3") as overlay,
        gapless.connect(overlay.url("b3")) as there,
        there.publisher("quotes") as publisher,
        gapless.connect(overlay.url("b1", "b2"), backoff=QUICK, failover_after_s=0.05) as session,
        session.subscribe("n > 0", durable="desk", start="earliest", prefetch=1) as events,
    ):
        await publisher.publish_many({"n": n} for n in (1, 2, 3))
        assert (await events.get()).attributes["n"] == 1
        await events.set_filter("n > 10")
        await overlay.kill("b1")
        await publisher.publish_many({"n": n} for n in (4, 11))
        assert [(await events.get()).attributes["n"] for _ in range(3)] == [2, 3, 11]
