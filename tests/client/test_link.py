"""Connections: how they begin, how they break, and how long anybody waits for them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from random import Random

import pytest

import gapless
from gapless.client.addresses import parse_addresses
from gapless.client.link import Link, Numbers
from gapless.client.options import Backoff, Options
from gapless.errors import (
    ClosedError,
    ConnectionLostError,
    DeadlineError,
    OutcomeUnknownError,
    UsageError,
)
from gapless.messages.clients import (
    ListPartitions,
    OpenPubend,
    PartitionTable,
    ReadLog,
    ReadPart,
)
from gapless.testing import Overlay
from gapless.wire import Beat, Farewell, Goodbye, Welcome
from tests.client.running import soon, story
from tests.client.scripted import ScriptedBroker, Visit

QUICK = Backoff(first_s=0.002, longest_s=0.02)


@story
async def test_nobody_there_is_said_within_the_deadline() -> None:
    async with ScriptedBroker() as broker:
        url = broker.url
    with pytest.raises(ConnectionLostError, match="no broker greeted"):
        async with gapless.connect(url, connect_deadline=0.3, backoff=QUICK):
            pass


@story
async def test_a_broker_of_another_version_is_said_at_once() -> None:
    async with ScriptedBroker() as broker:
        broker.greet = lambda visit: visit.greet(
            Goodbye(Farewell.NO_COMMON_VERSION, "this broker speaks 7")
        )
        with pytest.raises(ConnectionLostError, match="speaks 7"):
            async with gapless.connect(broker.url):
                pass
        assert len(broker.visits) == 1


@pytest.mark.parametrize(
    "greeting",
    [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\0\0\0\1x", b"\0\0\0\0", b"\xff\xff\xff\xff"],
)
@story
async def test_what_is_no_broker_is_not_believed(greeting: bytes) -> None:
    async with ScriptedBroker() as broker:
        broker.greet = lambda visit: visit.transport.write(greeting)
        with pytest.raises(ConnectionLostError, match="cannot be understood"):
            async with gapless.connect(broker.url, connect_deadline=0.3, backoff=QUICK):
                pass


@story
async def test_a_welcome_of_a_version_nobody_asked_for_is_not_believed() -> None:
    async with ScriptedBroker() as broker:
        broker.greet = lambda visit: visit.greet(Welcome(9, "b1", "c1", 1, 1))
        with pytest.raises(ConnectionLostError, match="expected a welcome"):
            async with gapless.connect(broker.url, connect_deadline=0.3, backoff=QUICK):
                pass


@story
async def test_a_broker_that_stops_is_waited_for() -> None:
    async with ScriptedBroker() as broker, gapless.connect(broker.url, backoff=QUICK) as session:
        broker.visit.tell(Goodbye(Farewell.STOPPING, "the broker stops"))
        await soon(lambda: len(broker.visits) == 2 and session.main.is_up)
        assert "the broker stops" in session.main.trouble


@story
async def test_a_malformed_notice_ends_the_connection_and_the_next_one_is_good() -> None:
    async with ScriptedBroker() as broker, gapless.connect(broker.url, backoff=QUICK) as session:
        broker.visit.transport.write(b"\0\0\0\1\xc1")
        await soon(lambda: len(broker.visits) == 2 and session.main.is_up)
        broker.answers[ListPartitions] = lambda visit, call: visit.tell(
            PartitionTable(call.request, ())
        )
        assert await session.partitions() == ()


@story
async def test_each_side_says_something_now_and_then_and_a_silent_broker_is_given_up() -> None:
    async with ScriptedBroker(beat_ms=20) as broker:
        async with gapless.connect(broker.url, backoff=QUICK) as session:
            await soon(lambda: bool(broker.asked(Beat)))
            await soon(lambda: len(broker.visits) > 1)
            assert "nothing was heard" in session.main.trouble


@story
async def test_a_broker_that_beats_is_kept() -> None:
    async with ScriptedBroker(beat_ms=20) as broker, gapless.connect(broker.url) as session:
        for _ in range(30):
            broker.visit.tell(Beat())
            await asyncio.sleep(0.01)
        assert session.main.connections == 1


@story
async def test_a_request_is_asked_again_under_its_number() -> None:
    async with ScriptedBroker() as broker, gapless.connect(broker.url, backoff=QUICK) as session:
        asked = asyncio.create_task(session.request(ListPartitions(0), changes=False))
        await soon(lambda: bool(broker.requests))
        broker.answers[ListPartitions] = lambda visit, call: visit.tell(
            PartitionTable(call.request, ())
        )
        broker.cut()
        assert await asked == broker_answer(broker)
        first, again = broker.asked(ListPartitions)
        assert first == again


def broker_answer(broker: ScriptedBroker) -> PartitionTable:
    return PartitionTable(broker.requests[-1].request, ())


@story
async def test_a_question_that_changes_nothing_has_a_plain_deadline() -> None:
    async with ScriptedBroker() as broker, gapless.connect(broker.url, deadline=0.02) as session:
        with pytest.raises(DeadlineError):
            await session.partitions()
        with pytest.raises(UsageError):
            await session.partitions(deadline=-1)


@story
async def test_a_session_that_is_closed_says_so() -> None:
    async with ScriptedBroker() as broker:
        async with gapless.connect(broker.url) as session:
            waiting = asyncio.create_task(session.partitions())
            await soon(lambda: bool(broker.requests))
        with pytest.raises(ClosedError):
            await waiting
        for call in (session.partitions(), session.open()):
            with pytest.raises(ClosedError):
                await call
        with pytest.raises(ClosedError):
            session.publisher("quotes")
        await session.close()


# --- several addresses ----------------------------------------------------------------------------


@story
async def test_the_first_broker_that_greets_is_taken_and_another_when_it_is_gone() -> None:
    async with Overlay("line:2") as overlay:
        url = overlay.url("b1", "b2")
        async with gapless.connect(url, backoff=QUICK) as session:
            assert session.broker == "b1"
            await overlay.kill("b1")
            await soon(lambda: session.broker == "b2")


@story
async def test_a_publisher_waits_for_the_broker_of_its_pubend() -> None:
    async with Overlay("line:2") as overlay:
        async with gapless.connect(overlay.url("b1", "b2"), backoff=QUICK) as session:
            async with session.publisher("quotes") as publisher:
                await publisher.publish({"n": 1})
                await overlay.kill("b1")
                await soon(lambda: session.broker == "b2")
                waiting = asyncio.create_task(publisher.publish({"n": 2}))
                await asyncio.sleep(0.05)
                assert not waiting.done()
                await overlay.restart("b1")
                await waiting
            found = [event.attributes["n"] async for event in session.read("quotes")]
            assert found == [1, 2]


@story
async def test_a_pubend_is_found_at_whichever_address_it_is() -> None:
    async with Overlay("line:2", on_disk=False) as overlay:
        async with (
            gapless.connect(overlay.url("b2")) as there,
            there.publisher("quotes") as publisher,
            gapless.connect(overlay.url("b1")) as narrow,
            gapless.connect(overlay.url("b1", "b2")) as wide,
        ):
            await publisher.publish({"n": 1})
            async with narrow.subscribe("", start="earliest") as events:  # b1 knows the pubend
                await events.get()
            with pytest.raises(gapless.errors.ElsewhereError) as found:
                async with narrow.publisher("quotes"):
                    pass
            assert found.value.broker == "b2"
            async with wide.publisher("quotes") as other:
                await other.publish({"n": 2})
            assert wide.broker == "b1"
            read = [event.attributes["n"] async for event in narrow.read("quotes")]
            assert read == [1, 2]


@story
async def test_a_subscription_that_is_not_durable_goes_on_at_another_broker() -> None:
    async with Overlay("line:2") as overlay:
        async with (
            gapless.connect(overlay.url("b2")) as there,
            there.publisher("quotes") as publisher,
            gapless.connect(overlay.url("b1", "b2"), backoff=QUICK) as session,
        ):
            await publisher.publish({"n": 0})
            async with session.subscribe("", start="earliest") as events:
                assert (await events.get()).attributes["n"] == 0
                await publisher.publish_many({"n": n} for n in range(1, 20))
                await overlay.kill("b1")
                await publisher.publish({"n": 20})
                found = [(await events.get()).attributes["n"] for _ in range(20)]
                assert found == [*range(1, 21)]


@story
async def test_reading_a_range_ends_and_reads_only_that() -> None:
    async with Overlay(on_disk=False) as overlay, gapless.connect(overlay.url()) as session:
        async with session.publisher("quotes") as publisher:
            places = [await publisher.publish({"n": n}) for n in range(50)]
        low, high = places[10]["quotes"], places[20]["quotes"]
        found = [event async for event in session.read("quotes", low, high, "n <> 15")]
        assert [event.attributes["n"] for event in found] == [n for n in range(10, 21) if n != 15]
        assert found[0].position == places[10]
        with pytest.raises(gapless.errors.RefusedError):
            _ = [event async for event in session.read("nothing")]
        assert [event async for event in session.read("quotes", high + 1000, high + 10)] == []


@story
async def test_a_read_of_what_the_log_has_lost_is_a_gap() -> None:
    async with ScriptedBroker() as broker, gapless.connect(broker.url) as session:
        broker.answers[ReadLog] = lambda visit, call: visit.tell(
            ReadPart(call.request, (), max(call.low, 20), 20, 10)
        )
        with pytest.raises(gapless.errors.GapError) as found:
            _ = [event async for event in session.read("quotes", 5)]
        assert (found.value.low, found.value.high) == (5, 10)
        assert [event async for event in session.read("quotes")] == []
        del broker.answers[ReadLog]
        with pytest.raises(DeadlineError, match="did not answer"):
            _ = [event async for event in session.read("quotes", deadline=0.02)]


class Counted(gapless.Backoff, frozen=True, kw_only=True):
    """Says how often waits began anew."""

    starts: list[int]

    def waits(self, random: Random) -> Iterator[float]:
        self.starts.append(len(self.starts))
        return super().waits(random)


@story
async def test_a_broker_that_greets_and_sends_away_is_waited_for_longer_each_time() -> None:
    backoff = Counted(first_s=0.001, longest_s=60.0, starts=[])
    async with ScriptedBroker() as broker, gapless.connect(broker.url, backoff=backoff):
        for number in range(1, 4):
            broker.visit.tell(Goodbye(Farewell.DISMISSED, "not you"))
            await soon(lambda: len(broker.visits) == number + 1)  # noqa: B023 - awaited at once
        assert backoff.starts == [0]


def say_nothing(visit: Visit) -> None:
    """Hang: connections are accepted, and that is all."""
    del visit


@story
async def test_after_a_broker_fell_silent_others_are_asked_before_it() -> None:
    async with ScriptedBroker("b1", beat_ms=20) as first, ScriptedBroker("b2") as second:
        async with gapless.connect([first.url, second.url], backoff=QUICK) as session:
            assert session.broker == "b1"
            first.greet = say_nothing
            await soon(lambda: session.broker == "b2")
            assert len(first.visits) == 1, "it was not asked again"


@story
async def test_after_a_broker_broke_off_it_is_asked_first() -> None:
    async with ScriptedBroker("b1") as first, ScriptedBroker("b2") as second:
        async with gapless.connect([second.url, first.url], backoff=QUICK) as session:
            second.cut()
            await soon(lambda: session.main.connections == 2 and session.main.is_up)
            assert session.broker == "b2", "it may be back, and has what lingers there"


@story
async def test_a_broker_that_hangs_does_not_use_up_the_time_of_the_others() -> None:
    async with ScriptedBroker("b1") as first, ScriptedBroker("b2") as second:
        first.greet = say_nothing
        async with gapless.connect([first.url, second.url], connect_deadline=10) as session:
            assert session.broker == "b2"


def both(one: ScriptedBroker, other: ScriptedBroker) -> str:
    """Return the addresses of two brokers as one url."""
    return f"{one.url},{other.url.removeprefix('gapless://')}"


@story
async def test_who_waits_for_its_broker_waits_no_longer_than_it_said() -> None:
    # the next try would come after half a minute
    slow = Backoff(first_s=60.0, longest_s=60.0)
    async with ScriptedBroker("b2") as other:
        async with ScriptedBroker("b1") as one:
            link = Link(
                parse_addresses(both(one, other)), Options(backoff=slow), Numbers(), flee_after=0.3
            )
            link.start()
            assert (await link.up()).broker == "b1"
        await soon(lambda: link.welcome is not None and link.welcome.broker == "b2")
        await link.close(ClosedError("the test is over"))


@story
async def test_among_several_brokers_too_it_is_unknown_what_became_of_what_was_sent() -> None:
    async with ScriptedBroker("b1") as one, ScriptedBroker("b2") as other:
        one.answers.pop(OpenPubend)
        async with gapless.connect(both(one, other), deadline=0.1, backoff=QUICK) as session:
            with pytest.raises(OutcomeUnknownError, match="OpenPubend was sent"):
                async with session.publisher("quotes"):
                    pass
