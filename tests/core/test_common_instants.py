"""Calls that need not be exact fall on common instants."""

from __future__ import annotations

from gapless.core.context import Context, Identity
from gapless.core.parameters import Parameters, microseconds

DELAY = microseconds(s=10)


def called_at(count: int, now: int = 12_345_678) -> list[int]:
    """Set calls at one instant; return the times at which they happen."""
    context, found = Context(Identity("b", "b", 1), Parameters()), list[int]()
    context.now = now
    for _ in range(count):
        context.call_about(DELAY, lambda: found.append(context.now))
    while (due := context.next_timer()) is not None:
        context.now = due
        context.run_timers()
    return [at - now for at in found]


def test_a_call_is_at_most_a_quarter_early_and_never_late() -> None:
    assert all(DELAY * 3 // 4 <= each <= DELAY for each in called_at(200))


def test_many_calls_are_made_in_few_steps_and_none_has_most_of_them() -> None:
    found = called_at(1_000)
    instants = {each: found.count(each) for each in set(found)}
    assert len(instants) == 4
    assert max(instants.values()) <= 400


def test_a_call_after_the_shortest_delay_is_made() -> None:
    context, found = Context(Identity("b", "b", 1), Parameters()), list[str]()
    context.call_about(1, lambda: found.append("called"))
    context.now += 1
    context.run_timers()
    assert found == ["called"]
