"""Invalid calls of programs: they fail at once and disturb nothing else."""

from __future__ import annotations

from decimal import Decimal
from enum import Enum
from typing import Any

import pytest

import gapless
from gapless.content.values import Value
from gapless.errors import (
    AttributeValueError,
    ClosedError,
    ConnectionLostError,
    RefusedError,
    UsageError,
)
from gapless.messages.clients import OpenPubend
from gapless.messages.operating import ListPartitions
from gapless.testing import Overlay
from tests.client.running import async_test

NOWHERE = "gapless://127.0.0.1:1"


class Money(float):
    """Like the floats of numerical libraries."""


class Count(int):
    """A subclass of int."""


class Side(str, Enum):  # noqa: UP042  # its text is not its value
    """A subclass of str."""

    BUY = "buy"


@async_test
async def test_calls_on_a_session_that_was_not_opened_fail_at_once() -> None:
    session = gapless.connect(NOWHERE)
    with pytest.raises(ClosedError, match="not open"):
        await session.publisher("quotes").__aenter__()
    with pytest.raises(ClosedError, match="not open"):
        await session.subscribe("").__aenter__()
    with pytest.raises(ClosedError, match="not open"):
        await session.request(ListPartitions(0))
    with pytest.raises(ClosedError, match="not open"):
        await anext(session.read("quotes"))
    await session.close()


@async_test
async def test_a_session_is_opened_once() -> None:
    async with Overlay(on_disk=False) as overlay, gapless.connect(overlay.url()) as session:
        with pytest.raises(UsageError, match="opened already"):
            await session.open()
        assert session.broker == "b1"


@async_test
async def test_an_invalid_host_name_is_an_ordinary_connection_error() -> None:
    session = gapless.connect("gapless://a..b", connect_deadline_s=0.2)
    with pytest.raises(ConnectionLostError, match=r"a\.\.b:7400"):
        await session.open()


@async_test
async def test_a_batch_size_below_one_is_refused() -> None:
    async with Overlay(on_disk=False) as overlay, gapless.connect(overlay.url()) as session:
        async with session.publisher("quotes") as publisher:
            await publisher.publish({"n": 1})
        async with session.subscribe("", start="earliest") as events:
            for most in (0, -1):
                with pytest.raises(UsageError):
                    await events.next_batch(most)
            assert [event.attributes["n"] for event in await events.next_batch(1)] == [1]


@pytest.mark.parametrize(
    "options",
    [
        {"prefetch": 0},
        {"prefetch": 1.5},
        {"prefetch": 2**70},
        {"expiry_s": 0},
        {"expiry_s": 1.5},
        {"expiry_s": 2**70},
        {"durable": 5},
        {"durable": ""},
        {"order": "any"},
        {"ack": "never"},
        {"on_gap": "hide"},
        {"deadline_s": 0},
        {"deadline_s": "5"},
    ],
)
def test_an_invalid_option_is_refused_before_it_is_sent(
    options: dict[str, Any],
) -> None:
    session = gapless.connect(NOWHERE)
    with pytest.raises(UsageError):
        session.subscribe("", **options)


@async_test
async def test_values_of_derived_types_are_published_as_their_base_types() -> None:
    attributes: dict[str, Value] = {"price": Money(91.5), "n": Count(7), "side": Side.BUY}
    async with Overlay(on_disk=False) as overlay, gapless.connect(overlay.url()) as session:
        async with session.publisher("quotes") as publisher:
            await publisher.publish(attributes)
            await publisher.publish_many([attributes, (attributes, b"")])
        found = [event async for event in session.read("quotes")]
        assert [event.attributes for event in found] == [{"price": 91.5, "n": 7, "side": "buy"}] * 3


@async_test
async def test_publish_many_refuses_the_values_that_publish_refuses() -> None:
    async with Overlay(on_disk=False) as overlay, gapless.connect(overlay.url()) as session:
        async with session.publisher("quotes") as publisher:
            wrong: Any = {"price": Decimal("91.5")}
            with pytest.raises(AttributeValueError):
                await publisher.publish(wrong)
            with pytest.raises(AttributeValueError):
                await publisher.publish_many([({"n": 1}, b""), (wrong, b"")])
        found = [event async for event in session.read("quotes")]
        assert [event.attributes for event in found] == [{"n": 1}]


@pytest.mark.parametrize("wrong", [({"n": 2}, b"", 3), ({"n": 2},), [{"n": 2}, b""], None])
def test_an_invalid_pair_is_refused_and_the_events_before_it_are_published(wrong: Any) -> None:
    @async_test
    async def scenario() -> None:
        async with Overlay(on_disk=False) as overlay, gapless.connect(overlay.url()) as session:
            async with session.publisher("quotes") as publisher:
                with pytest.raises(UsageError):
                    await publisher.publish_many([({"n": 1}, b""), wrong])
            found = [event async for event in session.read("quotes")]
            assert [event.attributes for event in found] == [{"n": 1}]

    scenario()


def test_opening_a_synchronous_session_twice_fails_and_keeps_it_open() -> None:
    from gapless.testing import SyncOverlay

    with SyncOverlay(on_disk=False) as overlay, gapless.connect_sync(overlay.url()) as session:
        with pytest.raises(UsageError, match="opened already"):
            session.open()
        assert session.partitions() == ()


@async_test
async def test_a_refused_request_does_not_disturb_the_publisher_of_its_session() -> None:
    nameless: Any = OpenPubend(0, None)  # type: ignore[arg-type]
    async with Overlay(on_disk=False) as overlay, gapless.connect(overlay.url()) as session:
        async with session.publisher("quotes") as publisher:
            await publisher.publish({"n": 1})
            with pytest.raises(RefusedError, match="Expected `str`"):
                # past the checks of the session, as a program in another language would send it
                await session.main.call(nameless, 5.0)
            await publisher.publish({"n": 2})
        assert session.main.connections == 1
