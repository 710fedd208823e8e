"""What a step of the tree means for one broker (R13, RS-13, RS-37, section "SHIFT" of the rules)."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from gapless.core.ids import CellId
from gapless.messages.overlay import CellMember, CellRecord, Term
from gapless.overlay.neighbourhood import Neighbourhood, Topology
from gapless.overlay.tree import TreeChange
from gapless.reshape.changes import appended, detached, shifted

EDGES = ("ij", "jk", "ix", "jy", "km")
"""SHIFT(i, j, k): x is behind i, y behind j, m behind k."""


class Overlay:
    """The records of all cells; operations change them."""

    def __init__(self, *edges: str) -> None:
        pairs = [(edge[0], edge[1]) for edge in edges]
        made = Topology.of({cell: [cell] for pair in pairs for cell in pair}, pairs)
        self.cells = {each.name: each for each in made.cells}

    def near(self, cell: CellId, radius: int = 1) -> Neighbourhood:
        return Topology(tuple(self.cells.values())).neighbourhood(cell, radius)

    def shift(self, moved: str, old: str, new: str) -> None:
        self._put(*shifted(self.cells[moved], self.cells[old], self.cells[new]))

    def append(self, name: str, neighbour: str) -> None:
        self._put(*appended(name, (CellMember(name),), self.cells[neighbour]))

    def detach(self, cell: str, neighbour: str) -> None:
        self._put(*detached(self.cells[cell], self.cells[neighbour]))

    def _put(self, *records: CellRecord) -> None:
        self.cells |= {each.name: each for each in records}


def step(cell: str, *operations: Callable[[Overlay], None], radius: int = 1) -> TreeChange:
    """Return the one step in which a cell hears of some operations."""
    overlay = Overlay(*EDGES)
    old = overlay.near(cell, radius)
    for operation in operations:
        operation(overlay)
    return TreeChange(old, overlay.near(cell, radius))


def to_k(overlay: Overlay) -> None:
    overlay.shift("i", "j", "k")


def to_m(overlay: Overlay) -> None:
    overlay.shift("i", "k", "m")


@pytest.mark.parametrize("radius", [1, 2])
@pytest.mark.parametrize("cell", "ijkxym")
def test_only_the_new_neighbour_of_a_moved_cell_gains(cell: str, radius: int) -> None:
    change = step(cell, to_k, radius=radius)
    assert change.gained == (("i",) if cell == "k" else ())
    assert change.narrowed == ({"j"} if cell == "k" else set())
    assert change.is_one_operation
    assert not change.forgets_everything


@pytest.mark.parametrize("cell", "ijkxym")
def test_only_the_cells_of_the_operation_have_changed_edges(cell: str) -> None:
    assert step(cell, to_k).changes_own_edges == (cell in "ijk")


def test_a_cell_that_gains_forgets_only_pubends_that_came_through_the_former_neighbour() -> None:
    change = step("k", to_k)
    assert change.forgets(("j", "y")), "a pubend of J is sent to i through k now"
    assert change.forgets(("i", "x")), "a pubend of I came through j"
    assert not change.forgets(("m",)), "what m sends was made for everything behind k, i included"
    assert not change.forgets(()), "nothing is filtered inside the cell of the PHB"
    assert change.forgets(None), "the direction is not known"


@pytest.mark.parametrize("cell", "ijxym")
def test_a_cell_that_gains_nothing_forgets_nothing(cell: str) -> None:
    change = step(cell, to_k)
    assert not any(change.forgets(path) for path in [None, ("i",), ("j",), ("k",), ("m",)])


def test_a_step_over_two_operations_forgets_everything() -> None:
    # run 67: k has no new neighbour, but the cells behind i went from behind j to behind m
    change = step("k", to_k, to_m)
    assert change.gained == ()
    assert not change.is_one_operation
    assert change.forgets(("m",))
    assert not change.forgets(())
    assert change.retouched == ("j", "m")


def test_a_step_in_another_term_forgets_everything() -> None:
    overlay = Overlay(*EDGES)
    old = overlay.near("k")
    overlay.cells["k"] = replace(overlay.cells["k"], term=Term(1, "m"))
    overlay.shift("i", "j", "k")
    change = TreeChange(old, overlay.near("k"))
    assert not change.is_one_operation, "operations of the former leader may have been undone"
    assert change.forgets(("m",))


def test_a_step_that_undoes_an_operation_forgets_everything() -> None:
    overlay = Overlay(*EDGES)
    new = overlay.near("k")
    overlay.shift("i", "j", "k")
    change = TreeChange(overlay.near("k"), new)
    assert not change.is_one_operation
    assert change.forgets(("j",))


def test_a_cell_that_gains_a_cell_of_unknown_location_forgets_everything() -> None:
    # m hears of both operations at once: it did not know that i was behind k
    change = step("m", to_k, to_m)
    assert change.gained == ("i",)
    assert change.is_one_operation
    assert change.forgets_everything
    assert change.forgets(("k",))


def test_an_appended_cell_has_nothing_behind_it() -> None:
    change = step("j", lambda overlay: overlay.append("new#j.1", "j"))
    assert "new#j.1" in change.new.neighbours
    assert (change.gained, change.forgets_everything) == ((), False)
    assert change.changes_own_edges


def test_an_appended_cell_that_was_moved_since_may_be_used() -> None:
    change = step(
        "k",
        lambda overlay: overlay.append("new#j.1", "j"),
        lambda overlay: overlay.shift("new#j.1", "j", "k"),
    )
    assert change.gained == ("new#j.1",)
    assert change.forgets_everything, "k did not know that it was behind j"


def test_a_cell_that_was_configured_is_never_taken_for_an_appended_one() -> None:
    overlay = Overlay("ij", "jk")
    old = overlay.near("k")
    overlay.shift("i", "j", "k")
    assert overlay.cells["i"].shape_version.count == 2
    assert TreeChange(old, overlay.near("k")).gained == ("i",)


def test_a_detached_cell_takes_nothing_along() -> None:
    change = step("k", lambda overlay: overlay.detach("m", "k"))
    assert (change.gained, change.forgets_everything) == ((), False)
    assert change.changes_own_edges
