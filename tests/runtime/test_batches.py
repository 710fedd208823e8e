"""Events that are handled in one step: the promises hold as they do one by one."""

from __future__ import annotations

import msgspec
import pytest

from gapless.core.ids import PubendId
from gapless.core.parameters import Parameters
from gapless.messages.clients import Delivery
from gapless.messages.streams import Publication
from gapless.packed import encode as contents
from gapless.runtime.clients import halves, reuse_encoding
from gapless.wire import CLIENT_NOTICES, FRAME_BYTES_MAX
from gapless_lab.sim.runner import run_seed
from tests.cases import scaled
from tests.runtime.nodes import run, world
from tests.runtime.raw_client import RawClient


@pytest.mark.parametrize("seed", range(1_000, 1_000 + scaled(15)))
def test_no_promise_is_broken_when_writes_are_handled_together(seed: int) -> None:
    result = run_seed(seed, "tests.runtime.batching:BatchingBroker")
    assert not result.violations, f"{result.line()}\n{result.options.line()}"


def test_publications_that_arrive_together_are_acknowledged_one_by_one() -> None:
    async def scenario() -> None:
        async with world() as brokers, RawClient(brokers["b1"].url) as client:
            opened = await client.open("trades")
            await client.subscribe("all")
            steps = brokers["b1"].driver.steps
            for number in range(1, 201):
                client.send_publish("trades", opened.session, number)
            assert await client.published(200) == 200
            assert await client.events(200) == list(range(1, 201))
            assert brokers["b1"].driver.steps - steps < 200

    run(scenario())


def test_a_refused_publication_does_not_affect_its_neighbours() -> None:
    async def scenario() -> None:
        async with world() as brokers, RawClient(brokers["b1"].url) as client:
            opened = await client.open("trades")
            await client.subscribe("all")
            client.send_publish("trades", opened.session, 1)
            client.send_publish("trades", opened.session + 1, 2)
            client.send_publish("trades", opened.session, 3)
            assert await client.published(2) == 2
            assert await client.events(2) == [1, 3]

    run(scenario())


def publication(tick: int) -> Publication:
    return Publication(tick, "desk", tick, {"n": tick}, b"")


def test_a_delivery_is_divided_in_the_order_of_its_events() -> None:
    trades, quotes = PubendId("trades"), PubendId("quotes")
    runs = (
        (trades, (publication(1), publication(2), publication(3))),
        (quotes, (publication(4),)),
        (trades, (publication(5),)),
    )
    whole = Delivery("all", runs)
    first, second = halves(whole)
    assert first.events + second.events == whole.events
    assert (first.count, second.count) == (2, 3)
    assert second.runs == ((trades, (publication(3),)), *runs[1:])


def test_a_delivery_is_encoded_alike_with_and_without_cached_events() -> None:
    one = tuple(map(publication, range(1, 9)))
    other = tuple(map(publication, range(20, 29)))
    contents.encode_publications(one)
    contents.encode_publications(other)
    trades, quotes = PubendId("trades"), PubendId("quotes")
    delivery = Delivery(
        "all", ((trades, (*one, *other)), (quotes, one[2:5]), (trades, (*one, *other[:3])))
    )
    encoded = reuse_encoding(delivery)
    assert [type(run) for _, run in encoded.runs] == [msgspec.Raw, tuple, msgspec.Raw]
    assert CLIENT_NOTICES.encode(encoded) == CLIENT_NOTICES.encode(delivery)


def test_events_beyond_one_frame_are_delivered_in_several() -> None:
    size = 900_000
    count = FRAME_BYTES_MAX // size + 4

    async def scenario() -> None:
        async with (
            world() as brokers,
            RawClient(brokers["b1"].url) as publisher,
            RawClient(brokers["b1"].url) as subscriber,
        ):
            opened = await publisher.open("trades")
            await subscriber.subscribe("all", credit=0)
            for number in range(1, count + 1):
                await publisher.publish("trades", opened.session, number, payload=bytes(size))
            subscriber.give_credit("all", 1_000)
            assert await subscriber.events(count) == list(range(1, count + 1))

    run(scenario())


def test_a_packet_larger_than_a_frame_is_delivered() -> None:
    size = 900_000
    count = FRAME_BYTES_MAX // size + 4
    parameters = Parameters(redial_ms=500)

    async def scenario() -> None:
        async with (
            world("line:2", parameters=parameters) as brokers,
            RawClient(brokers["b1"].url) as publisher,
            RawClient(brokers["b2"].url) as subscriber,
        ):
            opened = await publisher.open("trades")
            await brokers.knows("b2", "trades")
            await subscriber.subscribe("all")
            link = brokers["b1"].links.link("b2")
            assert link is not None
            link.connection.abort()
            for number in range(1, count + 1):
                await publisher.publish("trades", opened.session, number, payload=bytes(size))
            assert await subscriber.events(count) == list(range(1, count + 1))

    run(scenario())
