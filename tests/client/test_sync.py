"""The client without an event loop, and brokers for tests."""

from __future__ import annotations

import asyncio
import signal
import threading
import time
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import gapless
from gapless.client.loop_thread import EventLoopThread
from gapless.errors import (
    ClosedError,
    ConnectionLostError,
    DeadlineError,
    GapError,
    RefusedError,
    UsageError,
)
from gapless.testing import SyncOverlay
from gapless.testing.fixtures import gapless_overlay, gapless_session

__all__ = ["gapless_overlay", "gapless_session"]

Session = gapless.client.SyncSession
DESK: Any = {"durable": "desk", "start": "earliest"}


def until(happened: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not happened():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.001)


def test_published_events_are_delivered_and_read(gapless_session: Session) -> None:
    with gapless_session.publisher("quotes") as publisher:
        position = publisher.publish({"n": 1}, b"x")
        receipts = [publisher.send({"n": n}) for n in range(2, 5)]
        publisher.flush()
        assert receipts[0].result() > position
        assert receipts[2].is_done
        assert publisher.unanswered == 0
        last = publisher.publish_many(({"n": n}, b"") for n in range(5, 9_000))
    assert publisher.pubend == "quotes"
    with gapless_session.subscribe("n < 500", start="earliest") as events:
        found = [next(events).attributes["n"] for _ in range(499)]
        assert found == [*range(1, 500)]
        with pytest.raises(DeadlineError):
            events.get(deadline_s=0.02)
    read = [event.position for event in gapless_session.read("quotes", filter="n > 8990")]
    assert len(read) == 9
    assert read[-1] == last
    assert gapless_session.partitions() == ()
    assert [cell.brokers for cell in gapless_session.overlay.tree().cells] == [("b1",)]
    assert gapless_session.broker == "b1"


def test_a_durable_subscription_continues_after_the_events_handed_out(
    gapless_session: Session,
) -> None:
    with gapless_session.publisher("quotes") as publisher:
        publisher.publish_many({"n": n} for n in range(10))
        with gapless_session.subscribe("", durable="desk", start="earliest") as events:
            for event in events:
                if event.attributes["n"] == 3:
                    break
            assert events.position == event.position
        with gapless_session.subscribe("", durable="desk") as events:
            assert next(events).attributes["n"] == 4
            assert events.filter == gapless.Filter("")
            assert events.pending == {}
            assert events.gaps == []
        with gapless_session.subscribe("", durable="desk", ack="manual") as events:
            five, six = next(events), next(events)
            events.ack(five)
        with gapless_session.subscribe("", durable="desk", ack="manual") as events:
            assert next(events) == six
            events.ack()
            events.unsubscribe()
        gapless_session.unsubscribe("desk")


def test_a_subscription_can_change_its_filter_and_seek(gapless_session: Session) -> None:
    with gapless_session.publisher("quotes") as publisher:
        positions = [publisher.publish({"n": n}) for n in range(10)]
        with gapless_session.subscribe("", start="earliest") as events:
            assert events.position < positions[0]
            assert [next(events).attributes["n"] for _ in range(6)] == [*range(6)]
            assert events.seek(positions[1]) == positions[1]
            assert next(events).attributes["n"] == 2
            events.seek("latest")
            switch = events.set_filter("n > 100")
            assert switch >= positions[1]
            publisher.publish_many([{"n": 50}, {"n": 150}])
            assert next(events).attributes["n"] == 150


def test_a_thread_that_waits_for_an_event_gets_the_events_of_a_seek_in_another_thread(
    gapless_session: Session,
) -> None:
    with gapless_session.publisher("quotes") as publisher:
        publisher.publish_many({"n": n} for n in range(3))
        with (
            gapless_session.subscribe("", start="earliest") as events,
            ThreadPoolExecutor(1) as one,
        ):
            first, _, last = (next(events) for _ in range(3))
            waiting = one.submit(lambda: [next(events).attributes["n"] for _ in range(3)])
            until(lambda: events._coming is not None)
            assert events.position == last.position
            events.seek(first.position)
            publisher.publish({"n": 3})
            assert waiting.result() == [1, 2, 3]


def test_a_thread_that_waits_loses_no_event_over_seeks_to_the_same_position(
    gapless_session: Session,
) -> None:
    with (
        gapless_session.publisher("quotes") as publisher,
        gapless_session.subscribe("") as events,
        ThreadPoolExecutor(1) as one,
    ):
        waiting = one.submit(lambda: [next(events).attributes["n"] for _ in range(200)])
        for n in range(200):
            publisher.publish({"n": n})
            if n % 10 == 0:
                events.seek({})
        assert waiting.result() == [*range(200)]


def test_several_threads_share_a_session(gapless_session: Session) -> None:
    with gapless_session.publisher("quotes") as publisher:

        def work(k: int) -> list[int]:
            with gapless_session.subscribe(f"k = {k}") as events:
                for n in range(20):
                    publisher.publish({"k": k, "n": n})
                return [int(next(events).attributes["n"]) for _ in range(20)]

        with ThreadPoolExecutor(4) as threads:
            assert [*threads.map(work, range(4))] == [[*range(20)]] * 4


def test_closing_ends_an_iteration_in_another_thread(gapless_session: Session) -> None:
    events = gapless_session.subscribe("")
    events.__enter__()
    found: list[object] = []
    thread = threading.Thread(target=lambda: found.extend(events))
    thread.start()
    events.close()
    thread.join()
    assert found == []
    with pytest.raises(ClosedError):
        events.get()


def test_an_interrupt_while_waiting_loses_no_event(gapless_session: Session) -> None:
    with gapless_session.publisher("quotes") as publisher, gapless_session.subscribe("") as events:
        main = threading.main_thread().ident
        assert main is not None
        timer = threading.Timer(0.1, lambda: signal.pthread_kill(main, signal.SIGINT))
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            next(events)
        timer.join()
        publisher.publish_many({"n": n} for n in range(5))
        assert [next(events).attributes["n"] for _ in range(5)] == [*range(5)]


def test_the_synchronous_client_raises_the_errors_of_the_asynchronous_one(
    gapless_session: Session,
) -> None:
    with pytest.raises(RefusedError), gapless_session.publisher("nowhere#81402361"):
        pass
    with pytest.raises(UsageError):
        gapless_session.publisher("a#b")
    with pytest.raises(ConnectionLostError):
        gapless.connect_sync("gapless://127.0.0.1:1", connect_deadline_s=0.05).open()
    with pytest.raises(KeyError), gapless_session.publisher("quotes"):
        raise KeyError


def test_calls_on_a_session_that_is_not_open_fail() -> None:
    session = gapless.connect_sync("gapless://127.0.0.1:1")
    with pytest.raises(ClosedError):
        session.partitions()
    session.close()


@pytest.mark.gapless_topology("line:2")
def test_brokers_of_a_test_can_be_killed_and_started_again(gapless_overlay: SyncOverlay) -> None:
    assert gapless_overlay.brokers == ("b1", "b2")
    with gapless.connect_sync(gapless_overlay.url("b1")) as one:
        with one.publisher("quotes") as publisher:
            publisher.publish({"n": 1})
            gapless_overlay.kill("b1")
            with pytest.raises(ClosedError):
                gapless_overlay.kill("b1")
            gapless_overlay.restart("b1")
            publisher.publish({"n": 2})
        with gapless.connect_sync(gapless_overlay.url("b2")) as two:
            with two.subscribe("", start="earliest") as events:
                assert [next(events).attributes["n"] for _ in range(2)] == [1, 2]
    with pytest.raises(UsageError):
        gapless_overlay.url("b9")


def test_closing_the_session_ends_a_call_in_another_thread() -> None:
    loop_thread = EventLoopThread()
    started = threading.Event()

    async def wait() -> None:
        started.set()
        await asyncio.Event().wait()

    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(lambda: loop_thread.run(wait()))
        started.wait()
        loop_thread.stop()
        assert isinstance(waiting.exception(), ClosedError)


def test_a_subscription_of_a_closed_session_may_be_closed_too(gapless_overlay: SyncOverlay) -> None:
    session = gapless.connect_sync(gapless_overlay.url())
    session.open()
    with session.subscribe("") as events:
        session.close()
        with pytest.raises(ClosedError):
            events.get()


def test_events_read_before_an_error_are_returned_before_it(gapless_session: Session) -> None:
    async def broken(*_: object, **__: object) -> AsyncIterator[int]:
        yield 1
        yield 2
        raise GapError("quotes", 3, 4)

    found: list[object] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gapless.client.Session, "read", broken)
        with pytest.raises(GapError):
            for each in gapless_session.read("quotes"):
                found.append(each)  # noqa: PERF402  # the events before the error count
    assert found == [1, 2]


def test_processed_events_are_acknowledged_before_the_next_part_is_fetched(
    gapless_session: Session,
) -> None:
    with gapless_session.publisher("quotes") as publisher:
        publisher.publish_many({"n": n} for n in range(10))
    with pytest.raises(KeyError), gapless_session.subscribe("", **DESK) as events:
        assert [next(events).attributes["n"] for _ in range(5)] == [*range(5)]
        raise KeyError
    with gapless_session.subscribe("", **DESK) as events:
        # the number of acknowledged events depends on timing; the first was processed when the second came
        assert next(events).attributes["n"] != 0


def test_an_event_loop_thread_that_starts_slowly_can_be_used_and_stopped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    original = asyncio.set_event_loop

    def set_event_loop_late(loop: asyncio.AbstractEventLoop | None) -> None:
        time.sleep(0.05)
        original(loop)

    monkeypatch.setattr(asyncio, "set_event_loop", set_event_loop_late)
    loop_thread = EventLoopThread()
    assert loop_thread.run(asyncio.sleep(0, "done")) == "done"
    loop_thread.stop()
