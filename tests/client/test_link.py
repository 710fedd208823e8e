"""Connections of a client: handshakes, losses, reconnects and deadlines."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

import gapless
from gapless.client.link import ReconnectingLink
from gapless.client.options import SessionOptions
from gapless.client.requests import RequestNumbers
from gapless.core.address import parse_addresses
from gapless.core.backoff import Backoff, BackoffWaits
from gapless.errors import (
    ClosedError,
    ConnectionLostError,
    DeadlineError,
    OutcomeUnknownError,
    UsageError,
)
from gapless.messages.clients import OpenPubend
from gapless.messages.operating import ListPartitions, PartitionTable
from gapless.messages.reading import ReadLog, ReadPart
from gapless.testing import Overlay
from gapless.wire import Connected, Disconnect, DisconnectReason, KeepAlive
from tests.client.running import async_test, soon
from tests.client.scripted import ScriptedBroker, ScriptedConnection

QUICK = Backoff(first_s=0.002, longest_s=0.02)


@async_test
async def test_connecting_without_a_broker_fails_at_the_deadline() -> None:
    async with ScriptedBroker() as broker:
        url = broker.url
    with pytest.raises(ConnectionLostError, match="no handshake with a broker"):
        async with gapless.connect(url, connect_deadline_s=0.3, backoff=QUICK):
            pass


@async_test
async def test_connecting_to_a_broker_of_another_version_fails_at_once() -> None:
    async with ScriptedBroker() as broker:
        broker.on_connect = lambda connection: connection.send_handshake(
            Disconnect(DisconnectReason.NO_COMMON_VERSION, "this broker speaks 7")
        )
        with pytest.raises(ConnectionLostError, match="speaks 7"):
            async with gapless.connect(broker.url):
                pass
        assert len(broker.connections) == 1


@pytest.mark.parametrize(
    "handshake",
    [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\0\0\0\1x", b"\0\0\0\0", b"\xff\xff\xff\xff"],
)
@async_test
async def test_an_invalid_handshake_is_refused(handshake: bytes) -> None:
    async with ScriptedBroker() as broker:
        broker.on_connect = lambda connection: connection.transport.write(handshake)
        with pytest.raises(ConnectionLostError, match="sent an invalid frame"):
            async with gapless.connect(broker.url, connect_deadline_s=0.3, backoff=QUICK):
                pass


@async_test
async def test_a_handshake_with_a_version_that_was_not_offered_is_refused() -> None:
    async with ScriptedBroker() as broker:
        broker.on_connect = lambda connection: connection.send_handshake(
            Connected(9, "b1", "c1", 1, 1)
        )
        with pytest.raises(ConnectionLostError, match="expected Connected"):
            async with gapless.connect(broker.url, connect_deadline_s=0.3, backoff=QUICK):
                pass


@async_test
async def test_a_client_reconnects_to_a_broker_that_stops() -> None:
    async with ScriptedBroker() as broker, gapless.connect(broker.url, backoff=QUICK) as session:
        broker.connection.notify(Disconnect(DisconnectReason.STOPPING, "the broker stops"))
        await soon(lambda: len(broker.connections) == 2 and session.main.is_up)
        assert "the broker stops" in session.main.trouble


@async_test
async def test_a_malformed_notice_ends_the_connection_and_the_client_reconnects() -> None:
    async with ScriptedBroker() as broker, gapless.connect(broker.url, backoff=QUICK) as session:
        broker.connection.transport.write(b"\0\0\0\1\xc1")
        await soon(lambda: len(broker.connections) == 2 and session.main.is_up)
        broker.answers[ListPartitions] = lambda connection, call: connection.notify(
            PartitionTable(call.request, ())
        )
        assert await session.partitions() == ()


@async_test
async def test_a_client_sends_keepalives_and_disconnects_from_a_silent_broker() -> None:
    async with ScriptedBroker(keepalive_ms=20) as broker:
        async with gapless.connect(broker.url, backoff=QUICK) as session:
            await soon(lambda: bool(broker.requests_of(KeepAlive)))
            await soon(lambda: len(broker.connections) > 1)
            assert "has sent nothing for too long" in session.main.trouble


@async_test
async def test_the_connection_to_a_broker_that_sends_keepalives_is_kept() -> None:
    async with ScriptedBroker(keepalive_ms=20) as broker, gapless.connect(broker.url) as session:
        for _ in range(30):
            broker.connection.notify(KeepAlive())
            await asyncio.sleep(0.01)
        assert session.main.connections == 1


@async_test
async def test_a_request_is_repeated_under_its_number_after_a_reconnect() -> None:
    async with ScriptedBroker() as broker, gapless.connect(broker.url, backoff=QUICK) as session:
        pending = asyncio.create_task(session.request(ListPartitions(0), changes=False))
        await soon(lambda: bool(broker.requests))
        broker.answers[ListPartitions] = lambda connection, call: connection.notify(
            PartitionTable(call.request, ())
        )
        broker.cut()
        assert await pending == broker_answer(broker)
        first, again = broker.requests_of(ListPartitions)
        assert first == again


def broker_answer(broker: ScriptedBroker) -> PartitionTable:
    return PartitionTable(broker.requests[-1].request, ())


@async_test
async def test_a_request_that_changes_nothing_fails_at_its_deadline() -> None:
    async with ScriptedBroker() as broker, gapless.connect(broker.url, deadline_s=0.02) as session:
        with pytest.raises(DeadlineError):
            await session.partitions()
        with pytest.raises(UsageError):
            await session.partitions(deadline_s=-1)


@async_test
async def test_calls_on_a_closed_session_fail() -> None:
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


@async_test
async def test_a_session_uses_the_first_broker_that_accepts_and_another_after_its_crash() -> None:
    async with Overlay("line:2") as overlay:
        url = overlay.url("b1", "b2")
        async with gapless.connect(url, backoff=QUICK) as session:
            assert session.broker == "b1"
            await overlay.kill("b1")
            await soon(lambda: session.broker == "b2")


@async_test
async def test_a_publisher_waits_for_its_phb() -> None:
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


@async_test
async def test_a_session_finds_the_phb_of_a_pubend_among_its_addresses() -> None:
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
            with pytest.raises(gapless.errors.WrongBrokerError) as found:
                async with narrow.publisher("quotes"):
                    pass
            assert found.value.broker == "b2"
            async with wide.publisher("quotes") as other:
                await other.publish({"n": 2})
            assert wide.broker == "b1"
            read = [event.attributes["n"] async for event in narrow.read("quotes")]
            assert read == [1, 2]


@async_test
async def test_a_subscription_that_is_not_durable_continues_at_another_broker() -> None:
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


@async_test
async def test_a_read_returns_the_events_of_its_range_and_ends() -> None:
    async with Overlay(on_disk=False) as overlay, gapless.connect(overlay.url()) as session:
        async with session.publisher("quotes") as publisher:
            positions = [await publisher.publish({"n": n}) for n in range(50)]
        low, high = positions[10]["quotes"], positions[20]["quotes"]
        found = [event async for event in session.read("quotes", low, high, "n <> 15")]
        assert [event.attributes["n"] for event in found] == [n for n in range(10, 21) if n != 15]
        assert found[0].position == positions[10]
        with pytest.raises(gapless.errors.RefusedError):
            _ = [event async for event in session.read("nothing")]
        assert [event async for event in session.read("quotes", high + 1000, high + 10)] == []


@async_test
async def test_a_read_of_a_released_range_raises_a_gap() -> None:
    async with ScriptedBroker() as broker, gapless.connect(broker.url) as session:
        broker.answers[ReadLog] = lambda connection, call: connection.notify(
            ReadPart(call.request, (), max(call.low, 20), 20, 10)
        )
        with pytest.raises(gapless.errors.GapError) as found:
            _ = [event async for event in session.read("quotes", 5)]
        assert (found.value.low, found.value.high) == (5, 10)
        assert [event async for event in session.read("quotes")] == []
        del broker.answers[ReadLog]
        with pytest.raises(DeadlineError, match="was not read"):
            _ = [event async for event in session.read("quotes", deadline_s=0.02)]


class RecordedWaits(BackoffWaits):
    """Waits that count how often they are reset."""

    resets = 0

    def reset(self) -> None:
        self.resets += 1
        super().reset()


class RecordedBackoff(Backoff, frozen=True, kw_only=True):
    """A back-off that records the waits it gave."""

    given: list[RecordedWaits]

    def waits(self, draw: Callable[[], float]) -> BackoffWaits:
        self.given.append(RecordedWaits(self, draw))
        return self.given[-1]


@async_test
async def test_a_disconnect_after_the_handshake_does_not_reset_the_back_off() -> None:
    backoff = RecordedBackoff(first_s=0.001, longest_s=60.0, given=[])
    async with ScriptedBroker() as broker, gapless.connect(broker.url, backoff=backoff):
        for number in range(1, 4):
            broker.connection.notify(Disconnect(DisconnectReason.CLOSED_BY_BROKER, "not you"))
            await soon(lambda: len(broker.connections) == number + 1)  # noqa: B023 - awaited at once
        assert [each.resets for each in backoff.given] == [0]


def hang(connection: ScriptedConnection) -> None:
    """Hang: accept the connection and send nothing."""
    del connection


@async_test
async def test_after_a_broker_became_silent_others_are_dialled_first() -> None:
    async with ScriptedBroker("b1", keepalive_ms=20) as first, ScriptedBroker("b2") as second:
        async with gapless.connect([first.url, second.url], backoff=QUICK) as session:
            assert session.broker == "b1"
            first.on_connect = hang
            await soon(lambda: session.broker == "b2")
            assert len(first.connections) == 1, "it was not dialled again"


@async_test
async def test_after_a_broker_closed_the_connection_it_is_dialled_first() -> None:
    async with ScriptedBroker("b1") as first, ScriptedBroker("b2") as second:
        async with gapless.connect([second.url, first.url], backoff=QUICK) as session:
            second.cut()
            await soon(lambda: session.main.connections == 2 and session.main.is_up)
            assert session.broker == "b2", "it may be back, and the interest grace is there"


@async_test
async def test_a_broker_that_hangs_does_not_use_up_the_connect_deadline() -> None:
    async with ScriptedBroker("b1") as first, ScriptedBroker("b2") as second:
        first.on_connect = hang
        async with gapless.connect([first.url, second.url], connect_deadline_s=10) as session:
            assert session.broker == "b2"


def both(one: ScriptedBroker, other: ScriptedBroker) -> str:
    """Return the addresses of two brokers as one URL."""
    return f"{one.url},{other.url.removeprefix('gapless://')}"


@async_test
async def test_a_long_back_off_does_not_delay_the_failover() -> None:
    # the next attempt would come after half a minute
    slow = Backoff(first_s=60.0, longest_s=60.0)
    async with ScriptedBroker("b2") as other:
        async with ScriptedBroker("b1") as one:
            link = ReconnectingLink(
                parse_addresses(both(one, other)),
                SessionOptions(backoff=slow),
                RequestNumbers(),
                failover_after_s=0.3,
            )
            link.start()
            assert (await link.up()).broker == "b1"
        await soon(lambda: link.handshake is not None and link.handshake.broker == "b2")
        await link.close(ClosedError("the test is over"))


@async_test
async def test_a_request_without_a_reply_has_an_unknown_outcome_also_with_several_brokers() -> None:
    async with ScriptedBroker("b1") as one, ScriptedBroker("b2") as other:
        one.answers.pop(OpenPubend)
        async with gapless.connect(both(one, other), deadline_s=0.1, backoff=QUICK) as session:
            with pytest.raises(OutcomeUnknownError, match="OpenPubend was sent"):
                async with session.publisher("quotes"):
                    pass
