"""The order of records, distances over live edges, and the form of a record (RS-1, RS-2)."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from gapless.core.limits import CELL_BROKERS_MAX
from gapless.core.overlay_limits import MEMBER_ADDRESSES_MAX
from gapless.messages.overlay import (
    CellEdge,
    CellMember,
    CellRecord,
    CellRole,
    ShapeVersion,
    Term,
)
from gapless.overlay.cell_records import by_name, merged, within, wrong_form
from gapless.overlay.neighbourhood import Neighbourhood, Topology
from tests.shape_versions import shape

# --- merging ----------------------------------------------------------------------------------------

TERMS = st.builds(Term, st.integers(0, 2), st.sampled_from(["", "b1", "b2"]))
VERSIONS = st.tuples(TERMS, st.builds(ShapeVersion, TERMS, st.integers(1, 3)), st.integers(1, 3))


@st.composite
def records(draw: st.DrawFn) -> CellRecord:
    """Make a record whose content follows from its version: only the leader of a term writes it."""
    name = draw(st.sampled_from("abc"))
    term, shape_version, member_version = draw(VERSIONS)
    member = CellMember(f"{name} {term} {shape_version} {member_version}")
    return CellRecord(name, (member,), (), "", term, shape_version, member_version)


@given(st.lists(records(), max_size=8), st.randoms(use_true_random=False))
def test_brokers_that_hear_of_records_in_any_order_hold_the_same(
    heard: list[CellRecord], chance: Random
) -> None:
    shuffled = list(heard)
    chance.shuffle(shuffled)
    assert merged({}, heard) == merged({}, shuffled)


@given(st.lists(records(), max_size=8), st.integers(0, 8))
def test_records_that_are_heard_twice_or_in_parts_change_nothing(
    heard: list[CellRecord], cut: int
) -> None:
    whole = merged({}, heard)
    assert merged(whole, heard) == whole
    assert merged(merged({}, heard[:cut]), heard[cut:]) == whole


@given(records(), records())
def test_of_two_records_of_a_cell_the_one_of_the_greater_version_is_kept_as_a_whole(
    one: CellRecord, other: CellRecord
) -> None:
    other = replace(other, name=one.name)
    (kept,) = merged({}, (one, other)).values()
    assert kept in (one, other)
    assert kept.version == max(one.version, other.version)


@pytest.mark.parametrize(
    "newer",
    [
        {"term": Term(1)},
        {"term": Term(0, "b")},
        {"shape_version": shape(3)},
        {"shape_version": ShapeVersion(Term(1), 1)},
        {"member_version": 2},
    ],
)
def test_terms_count_before_shapes_and_shapes_before_members(newer: dict[str, object]) -> None:
    base = replace(CellRecord.first("a", ["a1"], ["b"]), shape_version=shape(2))
    assert replace(base, **newer).version > base.version
    lower = replace(base, shape_version=shape(1), member_version=9)
    assert lower.version < base.version


# --- live edges -------------------------------------------------------------------------------------

LINE = by_name(Topology.of({c: [c] for c in "abcd"}, [("a", "b"), ("b", "c"), ("c", "d")]).cells)


def test_the_cells_within_a_distance_are_found_over_live_edges() -> None:
    assert [*within(LINE, "a", 2)] == ["a", "b", "c"]
    assert [*within(LINE, "b", 1)] == ["b", "a", "c"]
    assert within(LINE, "z", 2) == {}


def test_an_edge_that_the_records_list_with_different_epochs_is_not_live() -> None:
    newer = replace(LINE["b"], edges=(CellEdge("a", shape(2)), CellEdge("c")))
    held = merged(LINE, (replace(newer, shape_version=shape(2)),))
    assert [*within(held, "a", 3)] == ["a"]
    assert [*within(held, "d", 3)] == ["d", "c", "b"]


def test_at_the_border_the_one_record_that_is_held_decides() -> None:
    near = Neighbourhood("a", 1, (LINE["a"], LINE["b"]))
    assert near.extended_path("c") == ("b", "c")


def test_a_neighbour_whose_record_is_missing_is_no_neighbour() -> None:
    alone = Neighbourhood("b", 1, (LINE["b"], LINE["a"]))
    assert alone.neighbours == ("a",)
    assert alone.extended_path("c") is None


def test_replaced_members_are_no_active_brokers() -> None:
    # RS-3
    members = (CellMember("b1"), CellMember("b2", CellRole.REPLACED))
    near = Neighbourhood("a", 1, (LINE["a"], replace(LINE["b"], members=members)))
    assert near.brokers("b") == ("b1", "b2")
    assert near.active_brokers("b") == ("b1",)


# --- form -------------------------------------------------------------------------------------------

FINE = CellRecord.first("a", ["a1", "a2"], ["b", "c"])


def test_a_record_of_the_right_form_has_no_fault() -> None:
    addressed = CellMember("a1", addresses=("b1.example:7400", "[::1]:7400"))
    assert wrong_form(FINE, 2) is None
    assert wrong_form(replace(FINE, members=(addressed,), leader=""), 2) is None


@pytest.mark.parametrize(
    ("forged", "what"),
    [
        ({"name": ""}, "names"),
        ({"name": "a@b"}, "names"),
        ({"members": (CellMember("x@y"),)}, "names"),
        ({"edges": (CellEdge(""),)}, "names"),
        ({"members": ()}, "no members"),
        (
            {"members": tuple(CellMember(f"a{n}") for n in range(CELL_BROKERS_MAX + 1))},
            "too many members",
        ),
        ({"members": (CellMember("a1"), CellMember("a1"))}, "a member twice"),
        ({"members": (CellMember("a1", addresses=("no port:x",)),)}, "addresses"),
        (
            {"members": (CellMember("a1", addresses=("b:1",) * (MEMBER_ADDRESSES_MAX + 1)),)},
            "addresses",
        ),
        ({"leader": "z"}, "a foreign leader"),
        ({"edges": tuple(CellEdge(f"c{n}") for n in range(3))}, "too many edges"),
        ({"edges": (CellEdge("b"), CellEdge("b"))}, "an edge twice"),
        ({"edges": (CellEdge("a"),)}, "an edge to itself"),
    ],
)
def test_a_record_of_a_wrong_form_is_found(forged: dict[str, object], what: str) -> None:
    assert wrong_form(replace(FINE, **forged), 2) == what
