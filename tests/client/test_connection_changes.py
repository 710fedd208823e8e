"""A client that has lost its broker says so: log lines, a callback, ``connected``, error texts."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

import gapless
from gapless.client import ConnectionChange
from gapless.core.backoff import Backoff
from gapless.errors import (
    ClosedError,
    DeadlineError,
    OutcomeUnknownError,
    RefusedError,
    UsageError,
)
from gapless.messages.clients import Publish, Refused
from gapless.testing import Overlay, SyncOverlay
from tests.client.proxy import Proxy
from tests.client.running import async_test, soon
from tests.client.scripted import ScriptedBroker

QUICK = Backoff(first_s=0.002, longest_s=0.02)


def lines(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    return [
        (record.levelname, record.getMessage())
        for record in caplog.records
        if record.name == "gapless.client"
    ]


@async_test
async def scenario_of_a_lost_broker(changes: list[ConnectionChange]) -> None:
    async with Overlay(on_disk=False) as overlay, Proxy(overlay.url()) as proxy:
        session = gapless.connect(
            proxy.url, name="desk", backoff=QUICK, on_connection=changes.append
        )
        assert [session.connected] == [False]
        async with session:
            assert [session.connected] == [True]
            proxy.closed = True
            proxy.cut()
            await soon(lambda: not session.connected)
            await asyncio.sleep(0.1)
            proxy.closed = False
            await soon(lambda: session.connected)
        assert [session.connected] == [False]


def test_a_lost_connection_is_logged_once_and_passed_to_the_callback(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, logger="gapless")
    changes: list[ConnectionChange] = []
    scenario_of_a_lost_broker(changes)
    assert [change.connected for change in changes] == [True, False, True]
    assert {change.broker for change in changes} == {"b1"}
    assert changes[1].reason
    found = lines(caplog)
    assert [level for level, _ in found] == ["INFO", "WARNING", "WARNING", "INFO"]
    assert found[0][1].startswith("desk: connected to the broker b1 at 127.0.0.1:")
    assert "lost the connection to the broker b1" in found[1][1]
    assert "no broker can be reached" in found[2][1]


@async_test
async def test_a_failing_callback_is_logged_and_the_session_works() -> None:
    def fail(change: ConnectionChange) -> None:
        raise KeyError(change.broker)

    async with (
        Overlay(on_disk=False) as overlay,
        gapless.connect(overlay.url(), on_connection=fail) as session,
        session.publisher("quotes") as publisher,
    ):
        await publisher.publish({"n": 1})


def test_the_callback_of_a_synchronous_session_is_called() -> None:
    changes: list[ConnectionChange] = []
    wrong: Any = 5
    with pytest.raises(UsageError):
        gapless.connect_sync("gapless://127.0.0.1:1", on_connection=wrong)
    with (
        SyncOverlay(on_disk=False) as overlay,
        gapless.connect_sync(overlay.url(), on_connection=changes.append) as session,
    ):
        assert session.connected
        assert [change.connected for change in changes] == [True]


@async_test
async def test_a_session_is_not_connected_while_one_of_its_publishers_is_not() -> None:
    async with Overlay("line:2", on_disk=False) as overlay:
        async with gapless.connect(overlay.url("b2")) as other, other.publisher("quotes"):
            pass
        urls = [overlay.url("b1"), overlay.url("b2")]
        async with gapless.connect(urls, backoff=QUICK) as session:
            async with session.publisher("quotes"):
                assert session.connected
                await overlay.kill("b2")
                await soon(lambda: not session.connected)
                assert session.broker == "b1"
            assert session.connected


@async_test
async def test_deadline_errors_say_whether_a_broker_was_connected() -> None:
    async with Overlay(on_disk=False) as overlay, Proxy(overlay.url()) as proxy:
        async with gapless.connect(proxy.url, backoff=QUICK, deadline_s=5.0) as session:
            async with (
                session.publisher("quotes", in_flight_max=1) as publisher,
                session.subscribe("") as events,
            ):
                connected = "the broker b1 is connected"
                with pytest.raises(DeadlineError, match=connected):
                    await events.get(deadline_s=0.02)
                with pytest.raises(DeadlineError, match=connected):
                    await events.next_batch(deadline_s=0.02)
                proxy.closed = True
                proxy.cut()
                await soon(lambda: not session.connected)
                alone = "no broker is connected"
                waiting = asyncio.create_task(publisher.publish({"n": 0}))
                await asyncio.sleep(0)
                for call in (
                    lambda: events.get(deadline_s=0.02),
                    lambda: events.next_batch(deadline_s=0.02),
                    lambda: events.seek("earliest", deadline_s=0.02),
                    lambda: publisher.publish({"n": 1}, deadline_s=0.02),
                    lambda: publisher.send({"n": 1}, deadline_s=0.02),
                    lambda: session.partitions(deadline_s=0.02),
                    lambda: anext(session.read("quotes", deadline_s=0.02)),
                ):
                    with pytest.raises(DeadlineError, match=alone):
                        await call()
                with pytest.raises(OutcomeUnknownError, match=alone):
                    await publisher.flush(deadline_s=0.02)
                proxy.closed = False
                await waiting


@async_test
async def test_closing_without_a_broker_says_that_unsent_events_are_not_published() -> None:
    async with Overlay(on_disk=False) as overlay, Proxy(overlay.url()) as proxy:
        async with gapless.connect(proxy.url, backoff=QUICK) as session:
            publisher = session.publisher("quotes", deadline_s=2.0)
            await publisher.__aenter__()
            await publisher.publish({"n": 0})
            proxy.closed = True
            proxy.cut()
            await soon(lambda: not session.connected)
            receipts = [await publisher.send({"n": n}) for n in (1, 2)]
            with pytest.raises(
                DeadlineError, match="2 events not sent and not published: no broker is connected"
            ):
                await publisher.close(deadline_s=0.05)
            for receipt in receipts:
                with pytest.raises(ClosedError, match="not published"):
                    await receipt
            proxy.closed = False
            await soon(lambda: session.connected)
            found = [event.attributes["n"] async for event in session.read("quotes")]
            assert found == [0]


@async_test
async def test_closing_tells_sent_events_from_those_that_were_not_sent() -> None:
    async with ScriptedBroker() as broker, gapless.connect(broker.url) as session:
        answer = broker.answers.pop(Publish)
        publisher = session.publisher("quotes", deadline_s=2.0)
        await publisher.__aenter__()
        publishing = [asyncio.create_task(publisher.publish({"n": n})) for n in range(9)]
        await soon(lambda: len(broker.requests) >= 4)
        assert answer is not None
        with pytest.raises(OutcomeUnknownError) as caught:
            await publisher.close(deadline_s=0.05)
        outcomes = await asyncio.gather(*publishing, return_exceptions=True)
        unknown = sum(isinstance(each, OutcomeUnknownError) for each in outcomes)
        lost = sum(isinstance(each, ClosedError) for each in outcomes)
        assert unknown + lost == 9
        assert unknown
        assert f"{unknown} event" in str(caught.value)
        assert "which may be published" in str(caught.value)
        assert f"(sequences 1{f' to {unknown}' if unknown > 1 else ''})" in str(caught.value)
        assert ("not sent and not published" in str(caught.value)) == bool(lost)


@async_test
async def test_the_end_of_a_block_counts_all_events_that_were_refused() -> None:
    async with ScriptedBroker() as broker, gapless.connect(broker.url) as session:
        broker.answers[Publish] = lambda connection, call: connection.notify(
            Refused(call.request, "full")
        )
        with pytest.raises(
            RefusedError, match=r"3 events not published \(sequences 1 to 3\): full"
        ):
            async with session.publisher("quotes") as publisher:
                for n in range(3):
                    await publisher.send({"n": n})


@async_test
async def test_after_an_exception_unsent_events_are_reported_as_not_published() -> None:
    async with Overlay(on_disk=False) as overlay, Proxy(overlay.url()) as proxy:
        async with gapless.connect(proxy.url, backoff=QUICK) as session:
            with pytest.raises(KeyError):
                async with session.publisher("quotes") as publisher:
                    proxy.closed = True
                    proxy.cut()
                    await soon(lambda: not session.connected)
                    receipt = await publisher.send({"n": 1})
                    raise KeyError
            with pytest.raises(ClosedError, match="not sent, and not published"):
                await receipt
