"""Delivery runs keep the order of events and are split into parts of a bounded size."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gapless.core.ids import PubendId
from gapless.messages.streams import Publication
from gapless.subscribers.delivery import DeliveryRuns


def event(tick: int) -> Publication:
    return Publication(tick, "ann", tick, {}, b"")


@given(st.lists(st.tuples(st.sampled_from("pq"), st.integers(0, 5))), st.integers(1, 4))
def test_parts_hold_all_events_in_order_and_none_exceeds_the_limit(
    added: list[tuple[str, int]], most: int
) -> None:
    runs = DeliveryRuns()
    expected: list[tuple[str, int]] = []
    for name, count in added:
        events = [event(len(expected) + place) for place in range(count)]
        runs.add(PubendId(name), list(events))
        expected += [(name, each.tick) for each in events]
    parts = [*runs.take(most)]
    assert [(p.name, e.tick) for part in parts for p, run in part for e in run] == expected
    sizes = [sum(len(run) for _, run in part) for part in parts]
    assert all(size == most for size in sizes[:-1])
    assert all(0 < size <= most for size in sizes)
    assert [*runs.take(most)] == [], "taken events are removed"


def test_consecutive_events_of_one_pubend_form_one_run() -> None:
    runs = DeliveryRuns()
    runs.add(PubendId("p"), [event(1)])
    runs.add(PubendId("p"), [event(2)])
    runs.add(PubendId("q"), [event(1)])
    (part,) = runs.take(10)
    assert [(pubend.name, len(run)) for pubend, run in part] == [("p", 2), ("q", 1)]
