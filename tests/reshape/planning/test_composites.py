"""HA's composite operations and the plan of its proof (HA table II, theorem 1)."""

from __future__ import annotations

import pytest

from gapless.core.errors import UsageError
from gapless.reshape.planning.baseline import baseline_plan
from gapless.reshape.planning.composites import connect, delete, insert, move, sequester, slides
from gapless.reshape.planning.steps import PlanStep, trees_after
from gapless.reshape.planning.trees import CellTree
from tests.reshape.planning.random_trees import all_trees, one_of_each_shape

LINE = CellTree.of("abcde", [("a", "b"), ("b", "c"), ("c", "d"), ("d", "e")])


def after(tree: CellTree, steps: list[PlanStep]) -> CellTree:
    """Return the last tree; every step checks its own precondition."""
    *_, last = tree, *trees_after(tree, steps)
    return last


def test_move_leads_an_edge_along_the_path_to_any_cell() -> None:
    steps = move(LINE, "a", "b", "e")
    assert [*map(str, steps)] == ["SHIFT(a, b, c)", "SHIFT(a, c, d)", "SHIFT(a, d, e)"]
    assert after(LINE, steps).neighbours("a") == ("e",)


def test_move_to_a_cell_behind_the_moved_one_is_refused() -> None:
    with pytest.raises(UsageError, match="a is behind b"):
        move(LINE, "b", "c", "a")
    with pytest.raises(UsageError, match="two neighbours"):
        move(LINE, "a", "c", "d")
    with pytest.raises(UsageError, match="no cell x"):
        move(LINE, "a", "b", "x")


@pytest.mark.parametrize("tree", one_of_each_shape(6), ids=str)
def test_sequester_and_delete_leave_one_neighbour_and_none(tree: CellTree) -> None:
    for cell in tree:
        for neighbour in tree.neighbours(cell):
            alone = after(tree, sequester(tree, cell, neighbour))
            assert alone.neighbours(cell) == (neighbour,)
            assert after(tree, delete(tree, cell, neighbour)) == alone.detached(cell, neighbour)


@pytest.mark.parametrize("tree", one_of_each_shape(6), ids=str)
def test_connect_and_insert_give_a_cell_all_the_neighbours_that_are_named(tree: CellTree) -> None:
    for cell in tree:
        others = [each for each in tree if each != cell]
        for wanted in (others, others[::2], others[1:3]):
            joined = after(tree, connect(tree, cell, wanted))
            assert {*wanted} <= {*joined.neighbours(cell)}
            grown = after(tree, insert(tree, "x", wanted))
            assert {*grown.neighbours("x")} == {*wanted}


def test_a_composite_operation_refuses_impossible_cells() -> None:
    with pytest.raises(UsageError, match="its own neighbour"):
        connect(LINE, "a", ["b", "a"])
    with pytest.raises(UsageError, match="name at least one cell"):
        insert(LINE, "x", [])
    with pytest.raises(UsageError, match="two neighbours"):
        sequester(LINE, "a", "c")


@pytest.mark.parametrize("number", range(4))
def test_the_slides_of_an_exchange_join_the_ends_of_a_path(number: int) -> None:
    steps = slides("abcde", number)
    assert len(steps) == 3
    last = after(LINE, steps)
    assert set(last.edges) - set(LINE.edges) == {("a", "e")}
    assert set(LINE.edges) - set(last.edges) == {LINE.edges[number]}


def test_the_plan_of_the_proof_leads_from_any_tree_to_any_other() -> None:
    # HA theorem 1, for all pairs of trees of up to 6 cells
    for count in range(1, 7):
        for first in one_of_each_shape(count):
            for second in all_trees(count):
                assert after(first, baseline_plan(first, second)) == second


def test_the_plan_of_the_proof_appends_and_deletes_cells() -> None:
    wanted = CellTree.of("cxe", [("c", "x"), ("x", "e")])
    assert after(LINE, baseline_plan(LINE, wanted)) == wanted
    other = CellTree.of("xyz", [("x", "y"), ("y", "z")])
    assert after(LINE, baseline_plan(LINE, other)) == other
