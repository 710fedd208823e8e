"""Brokers on real sockets deliver as the simulated ones do."""

from __future__ import annotations

from pathlib import Path

import pytest

from gapless.core.ids import PubendId
from gapless.messages.clients import Ack, OpenPubend, Refused
from tests.runtime.nodes import LOOPS, run, world
from tests.runtime.raw_client import RawClient


@pytest.mark.parametrize("loop", LOOPS)
def test_events_published_at_one_end_of_a_line_are_delivered_at_the_other(loop: str) -> None:
    async def scenario() -> None:
        async with (
            world("line:3") as brokers,
            RawClient(brokers["b1"].url) as publisher,
            RawClient(brokers["b3"].url) as subscriber,
        ):
            opened = await publisher.open("trades")
            await brokers.knows("b3", "trades")
            await subscriber.subscribe("half", "n > 50")
            for first in range(1, 101, 20):
                await publisher.publish("trades", opened.session, first, count=20)
            assert await subscriber.events(50) == list(range(51, 101))

    run(scenario(), loop)


def test_a_lone_event_is_delivered_without_waiting_for_others() -> None:
    async def scenario() -> None:
        async with world() as brokers, RawClient(brokers["b1"].url) as client:
            opened = await client.open("trades")
            await client.subscribe("all")
            for number in (1, 2, 3):
                await client.publish("trades", opened.session, number)
                assert await client.events(1) == [number]

    run(scenario())


@pytest.mark.parametrize("loop", LOOPS)
def test_a_restart_of_all_brokers_keeps_the_log_and_durable_subscriptions(
    loop: str, tmp_path: Path
) -> None:
    async def first_incarnation() -> int:
        async with (
            world("line:3", tmp_path) as brokers,
            RawClient(brokers["b1"].url) as publisher,
            RawClient(brokers["b3"].url) as subscriber,
        ):
            opened = await publisher.open("trades")
            await brokers.knows("b3", "trades")
            await subscriber.subscribe("all", durable=True)
            published = await publisher.publish("trades", opened.session, 1, count=10)
            assert await subscriber.events(10) == list(range(1, 11))
            subscriber.send(Ack("all", ((PubendId("trades"), published.ticks[4]),)))
            await subscriber.subscribe("sync")  # the acknowledgement has arrived before this
            return opened.session

    async def second_incarnation(session: int) -> None:
        async with (
            world("line:3", tmp_path) as brokers,
            RawClient(brokers["b1"].url) as publisher,
            RawClient(brokers["b3"].url) as subscriber,
        ):
            opened = await publisher.open("trades")
            assert opened.last_sequence == 10
            assert opened.session > session
            await publisher.publish("trades", opened.session, 11, count=5)
            await brokers.knows("b3", "trades")
            await subscriber.subscribe("all", durable=True)
            assert await subscriber.events(10) == list(range(6, 16))

    session = run(first_incarnation(), loop)
    run(second_incarnation(session), loop)


def test_killing_a_broker_in_the_middle_loses_no_event(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with (
            world("line:3", tmp_path) as brokers,
            RawClient(brokers["b1"].url) as publisher,
            RawClient(brokers["b3"].url) as subscriber,
        ):
            opened = await publisher.open("trades")
            await brokers.knows("b3", "trades")
            await subscriber.subscribe("all")
            await publisher.publish("trades", opened.session, 1, count=10)
            await brokers["b2"].kill()
            await publisher.publish("trades", opened.session, 11, count=10)
            await brokers.start("b2")
            await publisher.publish("trades", opened.session, 21, count=10)
            assert await subscriber.events(30) == list(range(1, 31))

    run(scenario())


def test_opening_a_pubend_of_another_broker_is_refused_with_its_phb() -> None:
    async def scenario() -> None:
        async with (
            world("line:2") as brokers,
            RawClient(brokers["b1"].url) as here,
            RawClient(brokers["b2"].url) as there,
        ):
            await here.open("trades")
            await brokers.knows("b2", "trades")
            refused = await there.request(Refused, OpenPubend(there.number(), "trades"))
            assert "b1" in refused.reason

    run(scenario())
