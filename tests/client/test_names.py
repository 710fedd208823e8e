"""Programs that open a pubend of one name at several brokers (decision 13)."""

from __future__ import annotations

import asyncio

import gapless
from gapless.client import Session
from gapless.errors import WrongBrokerError
from gapless.testing import Overlay
from tests.client.running import async_test

EVENTS = 20


async def publish(session: Session, who: str) -> str:
    """Publish some events to quotes; return the pubend, or the broker that has the name."""
    try:
        async with session.publisher("quotes") as publisher:
            for number in range(EVENTS):
                await publisher.publish({"who": who, "n": number})
            return publisher.pubend
    except WrongBrokerError as error:
        return error.broker


@async_test
async def test_of_two_concurrent_opens_of_a_name_one_succeeds_and_the_other_gets_the_broker() -> (
    None
):
    async with (
        Overlay("line:3") as overlay,
        gapless.connect(overlay.url("b2")) as listener,
        gapless.connect(overlay.url("b1")) as one,
        gapless.connect(overlay.url("b3")) as other,
        listener.subscribe("TRUE") as events,
    ):
        answers = tuple(await asyncio.gather(publish(one, "one"), publish(other, "other")))
        assert answers in {("quotes", "b1"), ("b3", "quotes")}
        got = [await anext(events) for _ in range(EVENTS)]
        winner = ("one", "other")[answers.index("quotes")]
        assert {event.attributes["who"] for event in got} == {winner}


@async_test
async def test_a_session_with_all_addresses_publishes_at_the_broker_that_has_the_name() -> None:
    async with (
        Overlay("line:3") as overlay,
        gapless.connect(overlay.url("b2")) as listener,
        gapless.connect(overlay.url("b1", "b2", "b3")) as one,
        gapless.connect(overlay.url("b2", "b3", "b1")) as two,
        gapless.connect(overlay.url("b3", "b2", "b1")) as three,
        listener.subscribe("TRUE") as events,
    ):
        sessions = {"one": one, "two": two, "three": three}
        answers = await asyncio.gather(*(publish(sessions[who], who) for who in sessions))
        assert {*answers} == {"quotes"}
        got = [await anext(events) for _ in range(len(sessions) * EVENTS)]
        for who in sessions:
            numbers = [each.attributes["n"] for each in got if each.attributes["who"] == who]
            assert numbers == list(range(EVENTS))


@async_test
async def test_a_name_created_while_a_broker_is_down_has_a_number_and_is_announced_everywhere() -> (
    None
):
    async with Overlay("line:3") as overlay:
        await overlay.kill("b3")
        async with gapless.connect(overlay.url("b1")) as session:
            pubend = await publish(session, "one")
            assert pubend.startswith("quotes#")
            assert await publish(session, "one") == pubend, "the name means it there"
        await overlay.restart("b3")
        async with (
            gapless.connect(overlay.url("b3")) as session,
            session.subscribe("TRUE", start="earliest") as events,
        ):
            got = [await anext(events) for _ in range(2 * EVENTS)]
        assert {event.pubend for event in got} == {pubend}
