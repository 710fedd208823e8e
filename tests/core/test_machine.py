"""The context of a broker: effects as values, timers, and actions that wait for a write."""

from __future__ import annotations

from random import Random

import pytest

from gapless.core.context import Context, Identity, Timer
from gapless.core.effects import Fetch, Notify, Write
from gapless.core.events import Fetched, Written
from gapless.core.ids import ShbId
from gapless.core.parameters import DEFAULTS


def new_context() -> Context:
    return Context(Identity("b1", "west", 7), DEFAULTS)


def test_a_broker_is_also_an_shb() -> None:
    shb = new_context().identity.shb
    assert shb == ShbId("b1", "west")
    assert str(shb) == "b1@west"


# --- writes -------------------------------------------------------------------------------------


def test_an_action_that_waits_for_a_write_runs_when_it_is_on_disk_and_not_before() -> None:
    """I13."""
    context = new_context()
    done: list[str] = []
    context.write(("row",), lambda: done.append("acknowledged"))
    context.now = 10**9
    context.run_timers()
    assert done == []
    (write,) = context.effects
    assert write == Write(1, ("row",))
    context.resume(Written(1))
    assert done == ["acknowledged"]


def test_writes_are_numbered_in_the_order_of_their_requests() -> None:
    context = new_context()
    done: list[str] = []
    for row in "abc":
        context.write((row,), lambda row=row: done.append(row))  # type: ignore[misc]
    assert context.effects == [Write(1, ("a",)), Write(2, ("b",)), Write(3, ("c",))]
    for write_id in (1, 2, 3):
        context.resume(Written(write_id))
    assert done == ["a", "b", "c"]


def test_a_write_is_resumed_once() -> None:
    context = new_context()
    context.write((), lambda: None)
    context.resume(Written(1))
    with pytest.raises(KeyError):
        context.resume(Written(1))


def test_the_action_of_a_write_may_start_the_next_write() -> None:
    context = new_context()
    done: list[str] = []
    context.write(("a",), lambda: context.write(("b",), lambda: done.append("both")))
    context.resume(Written(1))
    assert done == []
    context.resume(Written(2))
    assert done == ["both"]


def test_the_action_of_a_fetch_gets_the_rows_and_the_corruption() -> None:
    context = new_context()
    got: list[Fetched] = []
    context.write((), lambda: None)
    context.fetch("stocks", 5, 9, 1_000, got.append)
    assert context.effects[-1] == Fetch(2, "stocks", 5, 9, 1_000)
    reply = Fetched(2, ("row",), "row 7 has a wrong checksum")
    context.resume(reply)
    assert got == [reply]


# --- messages -----------------------------------------------------------------------------------


def test_messages_are_collected_by_peer_in_order_and_taken_once() -> None:
    context = new_context()
    for peer, message in [("b2", 1), ("b3", 2), ("b2", 3)]:
        context.send(peer, message)
    assert context.take_messages() == [("b2", [1, 3]), ("b3", [2])]
    assert context.take_messages() == []


def test_notices_to_clients_are_effects_and_coverage_marks_are_counted() -> None:
    context = new_context()
    context.notify("ann", "hello")
    assert context.effects == [Notify("ann", "hello")]
    context.mark("gap")
    context.mark("gap")
    assert context.coverage_marks == {"gap": 2}


# --- timers -------------------------------------------------------------------------------------


def test_timers_run_when_they_are_due_in_the_order_of_their_times() -> None:
    context = new_context()
    calls: list[str] = []
    for delay, name in [(30, "c"), (10, "a"), (20, "b")]:
        context.call_later(delay, lambda name=name: calls.append(name))  # type: ignore[misc]
    assert context.next_timer() == 10
    context.run_timers()
    assert calls == []
    context.now = 20
    context.run_timers()
    assert calls == ["a", "b"]
    assert context.next_timer() == 30


def test_timers_of_one_time_run_in_the_order_they_were_set() -> None:
    context = new_context()
    calls: list[int] = []
    for number in range(20):
        context.call_later(5, lambda number=number: calls.append(number))  # type: ignore[misc]
    context.now = 5
    context.run_timers()
    assert calls == list(range(20))


def test_a_cancelled_timer_does_not_run_and_is_not_the_next_timer() -> None:
    context = new_context()
    calls: list[str] = []
    first = context.call_later(5, lambda: calls.append("first"))
    context.call_later(9, lambda: calls.append("second"))
    first.cancel()
    assert context.next_timer() == 9
    context.now = 9
    context.run_timers()
    assert calls == ["second"]
    assert context.next_timer() is None


def test_a_timer_may_cancel_one_that_is_due_at_the_same_time() -> None:
    context = new_context()
    calls: list[str] = []
    timers: list[Timer] = []

    def cancel_the_other() -> None:
        timers[0].cancel()

    context.call_later(5, cancel_the_other)
    timers.append(context.call_later(5, lambda: calls.append("cancelled too late")))
    context.now = 5
    context.run_timers()
    assert calls == []


def nothing() -> None:
    """Do nothing."""


def test_a_timer_that_is_set_by_a_timer_waits_for_a_later_time() -> None:
    context = new_context()
    calls: list[str] = []

    def first() -> None:
        context.call_later(1, lambda: calls.append("later"))

    context.call_later(5, first)
    context.now = 5
    context.run_timers()
    assert calls == []
    assert context.next_timer() == 6


def test_a_timer_without_delay_is_refused_as_it_could_repeat_for_ever() -> None:
    with pytest.raises(AssertionError, match="without delay"):
        new_context().call_later(0, nothing)


def test_cancelled_timers_do_not_accumulate() -> None:
    context = new_context()
    kept = context.call_later(7, nothing)
    for _ in range(10_000):
        context.call_later(1_000_000, nothing).cancel()
    assert len(context._timers) < 3_000
    assert context.next_timer() == kept.at


@pytest.mark.parametrize("seed", range(10))
def test_a_run_of_timers_is_a_sorted_list(seed: int) -> None:
    chance = Random(seed)
    context = new_context()
    expected: list[tuple[int, int]] = []
    calls: list[tuple[int, int]] = []
    for order in range(200):
        context.now += chance.randrange(3)
        context.run_timers()
        at = context.now + chance.randrange(1, 50)
        timer = context.call_later(at - context.now, lambda item=(at, order): calls.append(item))  # type: ignore[misc]
        if chance.random() < 0.3:
            timer.cancel()
        else:
            expected.append((at, order))
    context.now += 100
    context.run_timers()
    assert calls == sorted(expected)
