"""The leaf table of an SHB: R15, R16, R17, R26."""

from __future__ import annotations

import random

import pytest

from gapless import Filter
from gapless.content import Conjunction
from gapless.content.merging import merge
from gapless.core.ids import ShbId, VectorEntry, VirtualTime
from gapless.propagation import LeafTable
from tests.cases import scaled
from tests.propagation.oracle import FILTERS, of_conjunction, of_filter

SHB = ShbId("b", "c")


def leaf(incarnation: int = 1, *, budget: int = 100) -> LeafTable:
    return LeafTable(SHB, incarnation, budget=budget, merge=merge, log_max=8, bytes_max=10_000)


def of(text: str) -> tuple[Conjunction, ...]:
    return Filter(text).conjunctions


def sent(table: LeafTable) -> set[str]:
    return set(table.sender.table.conjunctions)


def at(counter: int, incarnation: int = 1) -> VirtualTime:
    return VirtualTime(incarnation, counter)


def test_the_first_version_contains_the_incarnation_even_without_subscribers() -> None:
    table = leaf(7)
    delta = table.flush()
    assert delta is not None
    assert delta.entries == ((SHB, VectorEntry(VirtualTime(7, 1))),)
    assert not table.dirty
    assert table.flush() is None


def test_changes_of_one_batch_are_one_version() -> None:
    table = leaf()
    table.own("x", of("a > 5"))
    table.own("y", of("b = 1 OR c = 2"))
    table.flush()
    assert sent(table) == {"a > 5", "b = 1", "c = 2"}
    assert table.time == at(1)


def test_a_covered_conjunction_starts_with_its_coverer_and_is_not_sent() -> None:
    table = leaf()
    table.own("wide", of("a > 1"))
    table.flush()
    assert table.own("narrow", of("a > 5")) == at(1)
    assert not table.dirty


def test_an_equal_conjunction_starts_with_the_existing_one() -> None:
    table = leaf()
    table.own("x", of("a > 1"))
    table.flush()
    assert table.own("y", of("a > 1")) == at(1)
    table.disown("x")
    assert not table.dirty


def test_the_least_start_of_the_covering_conjunctions_is_used() -> None:
    table = leaf()
    table.own("old", of("a > 5"))
    table.flush()
    table.own("wide", of("a > 1"))  # covers the old one, but is not sent yet
    assert table.conjunction_start(of("a > 1")[0]) == at(2)
    assert table.own("narrow", of("a > 9")) == at(1)


def test_a_subscription_starts_with_the_last_of_its_conjunctions() -> None:
    table = leaf()
    table.own("x", of("a > 1"))
    table.flush()
    assert table.own("y", of("a > 3 OR b = 1")) == at(2)


def test_removing_a_root_exposes_its_children_in_the_same_version() -> None:
    table = leaf()
    table.own("wide", of("a > 1"))
    table.own("narrow", of("a > 5"))
    table.flush()
    table.disown("wide")
    delta = table.flush()
    assert delta is not None
    assert (delta.added, delta.removed) == (("a > 5",), ("a > 1",))


def test_a_conjunction_stays_until_its_last_owner_is_removed() -> None:
    table = leaf()
    table.own(("x", "segment 1"), of("a > 1"))
    table.own(("x", "segment 2"), of("a > 1"))
    table.flush()
    table.disown(("x", "segment 1"))
    assert table.flush() is None
    table.disown(("x", "segment 2"))
    table.flush()
    assert sent(table) == set()


def test_a_conjunction_dropped_and_added_within_one_batch_starts() -> None:
    """The roots end up unchanged, but a start time was assigned (R15)."""
    table = leaf()
    table.own("x", of("a > 1"))
    table.flush()
    table.disown("x")
    start = table.own("y", of("a > 1"))
    assert start == at(2)
    delta = table.flush()
    assert delta is not None, "the start time would never be reached"
    assert table.time >= start
    assert (delta.added, delta.removed) == ((), ())


def test_an_owner_without_conjunctions_starts_wherever_the_host_is_served() -> None:
    assert leaf().own("x", of("FALSE")) == at(1)


def test_in_a_new_incarnation_all_conjunctions_start_again() -> None:
    table = leaf(2)
    assert table.own("x", of("a > 1")) == table.own("y", of("b > 1")) == VirtualTime(2, 1)
    assert VirtualTime(2, 1) > VirtualTime(1, 999)


def test_a_newer_control_version_is_a_version_of_the_table() -> None:
    table = leaf()
    table.flush()
    table.restrict(11)
    delta = table.flush()
    assert delta is not None
    assert delta.entries == ((SHB, VectorEntry(at(2), 11)),)


def test_the_table_of_a_retired_host_is_empty_and_has_the_retired_flag() -> None:
    table = leaf()
    table.own("x", of("a > 1"))
    table.flush()
    table.retire()
    table.flush()
    assert sent(table) == set()
    assert table.sender.table.entries[SHB] == VectorEntry(at(2), 0, retired=True)


def test_roots_above_the_budget_are_merged_and_still_cover() -> None:
    table = leaf(budget=4)
    for number in range(12):
        table.own(number, of(f"a = {10 * number} AND b > {number}"))
        table.flush()
        assert len(sent(table)) <= 4
    matched = Filter.of(table.sender.table.conjunctions.values())
    for number in range(12):
        assert matched.matches({"a": 10 * number, "b": 50})
    for number in range(12):
        table.disown(number)
    table.flush()
    assert sent(table) == set()


def test_an_owner_cannot_own_twice() -> None:
    table = leaf()
    table.own("x", of("a > 1"))
    with pytest.raises(AssertionError, match="owns conjunctions already"):
        table.own("x", of("a > 2"))


def test_every_version_from_an_owners_start_on_covers_it() -> None:
    """The induction behind R16, by brute force over random batches."""
    for seed in range(scaled(150)):
        dice = random.Random(seed)
        table = leaf(budget=dice.choice((2, 5, 100)))
        filters: dict[int, str] = {}
        for step in range(60):
            if filters and dice.random() < 0.4:
                removed = dice.choice(sorted(filters))
                table.disown(removed)
                del filters[removed]
            else:
                filters[step] = dice.choice(FILTERS)
                table.own(step, of(filters[step]))
            check_monotone(table)
            if dice.random() < 0.4:
                table.flush()
            check_covered(table, filters)


def check_covered(table: LeafTable, filters: dict[int, str]) -> None:
    """The last sent version covers the owners that have started."""
    covered = 0
    for conjunction in table.sender.table.conjunctions.values():
        covered |= of_conjunction(conjunction)
    for owner, text in filters.items():
        if table.start(owner) <= table.time:
            assert not of_filter(text) & ~covered
        else:
            assert table.dirty, "a start time in the future needs a version that reaches it"


def check_monotone(table: LeafTable) -> None:
    """VT 4.1.2: going down the forest, start times never grow."""
    forest = table._cover.forest
    for conjunction in forest:
        parent = forest.parent(conjunction)
        assert table.conjunction_start(conjunction).counter <= table.sender.table.version + 1
        if parent is not None:
            assert table.conjunction_start(parent) >= table.conjunction_start(conjunction)
            assert conjunction in table._below[parent]
