"""The records that an operation gives its participants (HA III.A; RS-2, RS-15)."""

from __future__ import annotations

from msgspec.structs import replace

from gapless.messages.overlay import (
    FIRST_SHAPE,
    CellMember,
    CellRecord,
    ShapeVersion,
    Term,
)
from gapless.overlay.neighbourhood import Topology
from gapless.reshape.changes import appended, detached, shifted
from tests.shape_versions import shape

LINE = Topology.of(
    {"i": ["i1"], "j": ["j1"], "k": ["k1"], "x": ["x1"]}, [("x", "i"), ("i", "j"), ("j", "k")]
)
CELLS = {each.name: each for each in LINE.cells}


def live(*records: CellRecord) -> set[str]:
    """Return the live edges of some records."""
    by_name = {each.name: each for each in records}
    return {
        each.name + edge.cell
        for each in records
        for edge in each.edges
        if edge.cell in by_name and by_name[edge.cell].epoch(each.name) == edge.epoch
    }


def test_shift_replaces_one_edge_and_renews_the_epoch_of_the_edge_that_gains() -> None:
    i, j, k = shifted(CELLS["i"], CELLS["j"], CELLS["k"])
    assert [each.neighbours for each in (i, j, k)] == [("k", "x"), ("k",), ("i", "j")]
    assert live(i, j, k) == {"ik", "ki", "jk", "kj"}
    assert {each.shape_version for each in (i, j, k)} == {shape(2)}
    assert i.epoch("k") == k.epoch("i") == shape(2)
    assert j.epoch("k") == k.epoch("j") == shape(2), "more lies behind it (HA III.A)"


def test_shift_leaves_the_epochs_of_all_other_edges() -> None:
    i, *_ = shifted(CELLS["i"], CELLS["j"], CELLS["k"])
    assert i.epoch("x") == CELLS["x"].epoch("i") == FIRST_SHAPE


def test_an_edge_is_live_only_if_both_records_list_it_with_one_epoch() -> None:
    i, j, k = shifted(CELLS["i"], CELLS["j"], CELLS["k"])
    assert live(CELLS["i"], j, k) == {"jk", "kj"}, "i has not switched"
    assert live(i, CELLS["j"], k) == {"ik", "ki"}, "j has not switched"


def test_an_epoch_is_the_greater_shape_version_of_its_cells() -> None:
    later = replace(CELLS["k"], shape_version=shape(7))
    i, j, k = shifted(CELLS["i"], CELLS["j"], later)
    assert i.shape_version == shape(2)
    assert i.epoch("k") == k.epoch("i") == j.epoch("k") == k.shape_version == shape(8)


def test_a_shape_version_of_a_later_term_is_greater_whatever_it_counts() -> None:
    led_again = replace(CELLS["j"], term=Term(1, "j2"), shape_version=shape(9))
    assert shifted(CELLS["i"], led_again, CELLS["k"])[1].shape_version == ShapeVersion(
        Term(1, "j2"), 10
    )
    assert ShapeVersion(Term(1, "j2"), 10) > shape(11)


def test_append_joins_a_new_cell_by_one_edge() -> None:
    new, k = appended("n", (CellMember("n1"),), CELLS["k"])
    assert (new.neighbours, k.neighbours) == (("k",), ("j", "n"))
    assert live(new, k, CELLS["j"]) == {"nk", "kn", "jk", "kj"}
    assert new.leader == "n1"
    assert k.epoch("j") == FIRST_SHAPE, "nothing that is not empty lies behind it now"


def test_detach_is_the_opposite_of_append() -> None:
    alone, k = detached(*appended("n", (CellMember("n1"),), CELLS["k"]))
    assert (alone.edges, k.neighbours) == ((), ("j",))
    assert k.shape_version == shape(3)
