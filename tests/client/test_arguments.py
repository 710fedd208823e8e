"""Wrong arguments raise UsageError before anything is sent; NumPy scalars are the values they are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import gapless
from gapless import F, Filter, Position
from gapless.client import Session
from gapless.content.values import Value
from gapless.core.limits import BATCH_EVENTS_MAX
from gapless.errors import (
    AttributeValueError,
    FilterWarning,
    RefusedError,
    UsageError,
)
from gapless.messages.clients import OpenPubend, Publish, Refused
from gapless.messages.operating import ListPartitions
from gapless.testing import Overlay, SyncOverlay
from tests.client.running import async_test
from tests.client.scripted import ScriptedBroker

NP: Any = np
"""Without its types: they are not those of the arguments, but stand for them."""

NOWHERE = "gapless://127.0.0.1:1"


@pytest.mark.parametrize(
    "options",
    [
        {"servers": None},
        {"servers": 5},
        {"servers": [None]},
        {"name": 5},
        {"name": None},
        {"name": "\ud800"},
        {"deadline_s": "5"},
        {"deadline_s": True},
        {"deadline_s": float("nan")},
        {"deadline_s": float("inf")},
        {"connect_deadline_s": -1},
        {"failover_after_s": "soon"},
        {"backoff": 5},
        {"audit": 5},
        {"token": 5},
        {"token_file": 5},
    ],
)
def test_connect_refuses_a_wrong_argument(options: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        gapless.connect(**{"servers": NOWHERE, **options})


def test_a_backoff_takes_only_numbers() -> None:
    wrong: Any = "5"
    with pytest.raises(UsageError):
        gapless.Backoff(first_s=wrong)


Call = Callable[[Session], Any]

WRONG_CALLS: dict[str, Call] = {
    "publisher(None)": lambda s: s.publisher(None),  # type: ignore[arg-type]
    "publisher('')": lambda s: s.publisher(""),
    "publisher('#5')": lambda s: s.publisher("#5"),
    "publisher('q#many digits')": lambda s: s.publisher("q#" + "9" * 30),
    "publisher name=5": lambda s: s.publisher("q", name=5),  # type: ignore[arg-type]
    "publisher name=surrogate": lambda s: s.publisher("q", name="\ud800"),
    "publisher guaranteed='no'": lambda s: s.publisher("q", guaranteed="no"),  # type: ignore[arg-type]
    "publisher in_flight_max='a'": lambda s: s.publisher("q", in_flight_max="a"),  # type: ignore[arg-type]
    "publisher in_flight_max=True": lambda s: s.publisher("q", in_flight_max=True),
    "publisher in_flight_max=1.5": lambda s: s.publisher("q", in_flight_max=1.5),  # type: ignore[arg-type]
    "publisher advertisement=5": lambda s: s.publisher("q", advertisement=5),  # type: ignore[arg-type]
    "publisher deadline_s='a'": lambda s: s.publisher("q", deadline_s="a"),  # type: ignore[arg-type]
    "subscribe(5)": lambda s: s.subscribe(5),  # type: ignore[arg-type]
    "subscribe(None)": lambda s: s.subscribe(None, durable=5),  # type: ignore[arg-type]
    "subscribe durable=long": lambda s: s.subscribe("", durable="x" * 300),
    "subscribe start=5": lambda s: s.subscribe("", start=5),  # type: ignore[arg-type]
    "subscribe start={q: 2**70}": lambda s: s.subscribe("", start={"q": 2**70}),
    "subscribe start={q#9…: 1}": lambda s: s.subscribe("", start={"q#" + "9" * 30: 1}),
    "subscribe start=[..]": lambda s: s.subscribe("", start=[1]),  # type: ignore[arg-type]
    "subscribe order=[]": lambda s: s.subscribe("", order=[]),  # type: ignore[arg-type]
    "subscribe ack=[]": lambda s: s.subscribe("", ack=[]),  # type: ignore[arg-type]
    "subscribe on_gap=None": lambda s: s.subscribe("", on_gap=None),  # type: ignore[arg-type]
    "read(None)": lambda s: s.read(None),  # type: ignore[arg-type]
    "read low='a'": lambda s: s.read("q", "a"),  # type: ignore[arg-type]
    "read high=2**70": lambda s: s.read("q", 1, 2**70),
    "read filter=5": lambda s: s.read("q", filter=5),  # type: ignore[arg-type]
    "staged_writer batch='a'": lambda s: s.staged_writer("q", writer="w", batch="a"),  # type: ignore[arg-type]
    "staged_writer writer=None": lambda s: s.staged_writer("q", writer=None, batch=1),  # type: ignore[arg-type]
    "staged_writer partition=-1": lambda s: s.staged_writer("q", writer="w", batch=1, partition=-1),
    "unsubscribe(None)": lambda s: s.unsubscribe(None),  # type: ignore[arg-type]
    "unsubscribe('')": lambda s: s.unsubscribe(""),
    "drop_staged batch=None": lambda s: s.drop_staged("q", "w", None),  # type: ignore[arg-type]
    "commit_staged(5)": lambda s: s.commit_staged(5),  # type: ignore[arg-type]
    "commit_staged([5])": lambda s: s.commit_staged([5]),  # type: ignore[list-item]
    "request(None)": lambda s: s.request(None),
    "request('x')": lambda s: s.request("x"),
    "request name=None": lambda s: s.request(OpenPubend(0, None)),  # type: ignore[arg-type]
    "request number": lambda s: s.request(ListPartitions("x")),  # type: ignore[arg-type]
    "request changes='no'": lambda s: s.request(ListPartitions(0), changes="no"),  # type: ignore[arg-type]
    "partitions deadline": lambda s: s.partitions(deadline_s=-1),
}


@async_test
async def test_a_wrong_argument_is_refused_before_anything_is_sent() -> None:
    async with Overlay(on_disk=False) as overlay, gapless.connect(overlay.url()) as session:
        async with session.publisher("quotes") as publisher:
            connections = session.main.connections
            for what, call in WRONG_CALLS.items():
                with pytest.raises(UsageError):
                    made = call(session)
                    if hasattr(made, "__await__"):
                        await made
                    pytest.fail(f"{what} was accepted")
            assert session.main.connections == connections
            await publisher.publish({"n": 1})


@async_test
async def test_calls_of_publishers_and_subscriptions_check_their_arguments() -> None:
    wrong: Any
    async with Overlay(on_disk=False) as overlay, gapless.connect(overlay.url()) as session:
        async with session.publisher("quotes") as publisher:
            for wrong in (None, 5, "text", {"n": 1}):
                with pytest.raises(UsageError):
                    await publisher.publish_many(wrong)
            for wrong in (None, 5, [("n", 1)]):
                with pytest.raises(UsageError):
                    await publisher.publish(wrong)
            for wrong in (None, "text", 5, [1]):
                with pytest.raises(UsageError):
                    await publisher.send({}, wrong)
            for wrong in ("5", 0, True):
                with pytest.raises(UsageError):
                    await publisher.send({}, deadline_s=wrong)
                with pytest.raises(UsageError):
                    await publisher.flush(deadline_s=wrong)
            await publisher.publish({"n": 1})
        async with session.subscribe("", durable="desk", start="earliest") as events:
            for wrong in ("a b", 1.5, True, None):
                if wrong is not None:
                    with pytest.raises(UsageError):
                        await events.next_batch(wrong)
                with pytest.raises(UsageError):
                    await events.set_filter(wrong)
                with pytest.raises(UsageError):
                    await events.seek(wrong)
            for wrong in ("a", 5, [1]):
                with pytest.raises(UsageError):
                    await events.ack(wrong)
            assert (await events.get()).attributes == {"n": 1}


def test_the_synchronous_client_checks_arguments_when_it_is_called() -> None:
    wrong: Any = None
    with SyncOverlay(on_disk=False) as overlay, gapless.connect_sync(overlay.url()) as session:
        for call in (session.publisher, session.unsubscribe, session.read, session.request):
            with pytest.raises(UsageError):
                call(wrong)
        with session.publisher("quotes") as publisher, pytest.raises(UsageError):
            publisher.publish_many(wrong)


ATTRIBUTES: dict[str, Any] = {
    "n": NP.int64(7),
    "small": NP.int8(-3),
    "flag": NP.bool_(True),
    "price": NP.float64(91.5),
    "half": NP.float32(0.5),
    "symbol": NP.str_("IBM"),
}
NUMPY_BOUNDS: Any = (NP.int8(1), NP.uint8(9))
NUMPY_EVENT: Any = ({NP.str_("n"): NP.int64(7)}, NP.bytes_(b"x"))
PLAIN = {"n": 7, "small": -3, "flag": True, "price": 91.5, "half": 0.5, "symbol": "IBM"}


@async_test
async def test_numpy_scalars_are_published_as_the_values_that_they_are() -> None:
    async with Overlay(on_disk=False) as overlay, gapless.connect(overlay.url()) as session:
        async with session.publisher("quotes", advertisement="n > 0") as publisher:
            await publisher.publish(ATTRIBUTES)
            await publisher.publish_many([ATTRIBUTES, NUMPY_EVENT])
        found = [event async for event in session.read("quotes")]
        assert [event.attributes for event in found] == [PLAIN, PLAIN, {"n": 7}]
        assert found[2].payload == b"x"
        for name, value in found[0].attributes.items():
            assert type(value) is type(PLAIN[name])


@async_test
async def test_numpy_scalars_are_accepted_as_arguments() -> None:
    wide: Any = NP.int64
    narrow: Any = NP.float32
    yes: Any = NP.bool_(True)
    async with Overlay(on_disk=False) as overlay:
        url: Any = NP.str_(overlay.url())
        async with gapless.connect(url, deadline_s=narrow(20)) as session:
            async with session.publisher(
                NP.str_("quotes"),
                guaranteed=yes,
                in_flight_max=wide(5),
            ) as publisher:
                last = await publisher.publish({"n": 1})
                await publisher.publish({"n": 2})
            start = Position({"quotes": wide(last["quotes"])})
            assert start == last
            async with session.subscribe("", start=start, prefetch=wide(3)) as events:
                assert (await events.get()).attributes == {"n": 2}
                assert await events.seek({"quotes": wide(0)})
                assert len(await events.next_batch(wide(1))) == 1
            low = wide(last["quotes"])
            assert len([event async for event in session.read("quotes", low)]) == 2


def test_numpy_scalars_in_built_filters_are_the_values_that_they_are() -> None:
    assert (F.n > NP.int64(5)) == Filter("n > 5")
    assert (NP.int64(5) < F.n) == Filter("n > 5")
    assert (F.flag == NP.bool_(True)) == Filter("flag = TRUE")
    assert F.n.in_(NP.array([1, 2])) == Filter("n IN (1, 2)")
    assert (F.symbol == NP.str_("IBM")) == Filter("symbol = 'IBM'")
    assert (NP.float64(2) * F.price > NP.float32(3)) == Filter("2.0 * price > 3")
    low, high = NUMPY_BOUNDS
    assert F.n.between(low, high) == Filter("n BETWEEN 1 AND 9")
    assert Filter("n > 5 AND flag = TRUE AND half < 1").matches(ATTRIBUTES)
    with pytest.raises(AttributeValueError):
        Filter("n > 5").matches({"n": NP.array([7])})


@pytest.mark.parametrize("advertisement", ["TRUE", "n >= 0"])
def test_publish_many_names_the_refused_event_and_counts_the_published_ones(
    advertisement: str,
) -> None:
    wrong: Any = {"n": 3, "list": [1]}

    @async_test
    async def scenario() -> None:
        async with Overlay(on_disk=False) as overlay, gapless.connect(overlay.url()) as session:
            async with session.publisher("quotes", advertisement=advertisement) as publisher:
                events: list[dict[str, Value]] = [{"n": n} for n in range(3)]
                with pytest.raises(AttributeValueError, match="event 3 is refused") as caught:
                    await publisher.publish_many([*events, wrong, {"n": 4}])
                assert (caught.value.event_number, caught.value.published) == (3, 3)
                assert "3 events published" in str(caught.value)
            found = [event async for event in session.read("quotes")]
            assert [event.attributes["n"] for event in found] == [0, 1, 2]

    scenario()


def test_publish_many_without_an_event_loop_counts_over_all_its_parts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("gapless.client.sync_publisher.IN_FLIGHT_EVENTS_MAX", 4)
    wrong: Any = 5
    with (
        SyncOverlay(on_disk=False) as overlay,
        gapless.connect_sync(overlay.url()) as session,
        session.publisher("quotes") as publisher,
    ):
        with pytest.raises(AttributeValueError, match="event 10 is refused") as caught:
            publisher.publish_many([*({"n": n} for n in range(10)), wrong])
        assert caught.value.published == 10


@async_test
async def test_publish_many_tells_which_events_of_a_batch_the_broker_refused() -> None:
    async with ScriptedBroker() as broker, gapless.connect(broker.url) as session:

        def answer(connection: Any, call: Publish) -> None:
            is_refused = call.first == BATCH_EVENTS_MAX + 1
            refused = Refused(call.request, "full")
            connection.notify(refused if is_refused else broker.published(call))

        broker.answers[Publish] = answer
        async with session.publisher("quotes") as publisher:
            events = [{"n": n} for n in range(3 * BATCH_EVENTS_MAX)]
            with pytest.raises(RefusedError, match="events 500 to 999 not published") as caught:
                await publisher.publish_many(events)
            assert (caught.value.event_number, caught.value.published) == (500, 1_000)


@pytest.mark.parametrize(
    "text", ['symbol = "IBM"', "symbol = IBM", "Symbol = IBM", "n > 5 AND NOT (city <> London)"]
)
def test_a_name_that_was_probably_meant_as_a_string_is_warned_of(text: str) -> None:
    session = gapless.connect(NOWHERE)
    for call in (
        lambda: session.subscribe(text),
        lambda: session.subscribe(Filter(text)),
        lambda: session.publisher("q", advertisement=text),
    ):
        with pytest.warns(FilterWarning, match="write '(IBM|London)' if") as caught:
            call()
        assert caught[0].filename == __file__


@pytest.mark.parametrize(
    "text", ["symbol = 'IBM'", "bid = ask", "Bid = Ask", "price = ask + 1", '"unit price" = price']
)
def test_an_ordinary_filter_is_not_warned_of(text: str) -> None:
    gapless.connect(NOWHERE).subscribe(text)  # warnings are errors
    gapless.connect(NOWHERE).subscribe(F.symbol == F.IBM)
