"""Trees of cells and the primitive operations on them (HA III.A, table I)."""

from __future__ import annotations

import pytest

from gapless.core.errors import UsageError
from gapless.reshape.planning.steps import append, detach, shift, trees_after
from gapless.reshape.planning.trees import CellTree
from tests.reshape.planning.random_trees import all_trees, one_of_each_shape

LINE = CellTree.of("abcd", [("a", "b"), ("b", "c"), ("c", "d")])


@pytest.mark.parametrize(
    ("cells", "edges", "problem"),
    [
        ("", [], "a tree without a cell"),
        ("ab", [("a", "x")], "names x, which is no cell"),
        ("ab", [("a", "a")], "no edge between two cells"),
        ("ab", [("a", "b"), ("b", "a")], "listed twice"),
        ("abc", [("a", "b")], "no path to c"),
        ("abc", [("a", "b"), ("b", "c"), ("a", "c")], "take out a cycle"),
    ],
)
def test_what_is_no_tree_is_refused(cells: str, edges: list[tuple[str, str]], problem: str) -> None:
    with pytest.raises(UsageError, match=problem):
        CellTree.of(cells, edges)


def test_a_tree_knows_its_degree_diameter_centre_and_paths() -> None:
    assert (LINE.degree, LINE.diameter, LINE.centre) == (2, 3, "b")
    assert LINE.path("d", "a") == ("d", "c", "b", "a")
    assert CellTree.of("a", []).diameter == CellTree.of("a", []).degree == 0


def test_trees_with_the_same_edges_are_equal() -> None:
    other = CellTree.of("dcba", [("d", "c"), ("b", "a"), ("c", "b")])
    assert other == LINE
    assert hash(other) == hash(LINE)
    assert other.shifted("a", "b", "c") != LINE


def test_shift_replaces_one_edge_by_one_to_a_neighbour_of_the_old_neighbour() -> None:
    assert LINE.shifted("a", "b", "c").edges == (("a", "c"), ("b", "c"), ("c", "d"))
    assert LINE.shifted("c", "b", "a").edges == (("a", "b"), ("a", "c"), ("c", "d"))


@pytest.mark.parametrize("cells", ["abd", "acb", "aba", "bcb", "abx", "xab"])
def test_shift_is_refused_without_its_precondition(cells: str) -> None:
    with pytest.raises(UsageError, match=r"two neighbours of|has no cell x"):
        LINE.shifted(*cells)


def test_append_makes_an_outer_cell_and_refuses_a_present_one() -> None:
    assert LINE.appended("e", "b").neighbours("e") == ("b",)
    with pytest.raises(UsageError, match="has the cell a already"):
        LINE.appended("a", "b")
    with pytest.raises(UsageError, match="no cell x"):
        LINE.appended("e", "x")


def test_detach_removes_an_outer_cell_and_refuses_another() -> None:
    assert LINE.detached("d", "c") == LINE.subtree("abc")
    with pytest.raises(UsageError, match="its neighbours are a, c"):
        LINE.detached("b", "a")
    with pytest.raises(UsageError, match="no cell b"):
        CellTree.of("a", []).detached("a", "b")


def test_every_operation_maps_a_tree_to_a_tree() -> None:
    # HA claim 1: the primitive operations are safe
    for tree in one_of_each_shape(6):
        for j in tree:
            for i in tree.neighbours(j):
                for k in tree.neighbours(j):
                    if i != k:
                        after = tree.shifted(i, j, k)
                        assert CellTree.of(after, after.edges) == after
                        assert after.shifted(i, k, j) == tree
            appended = tree.appended("x", j)
            assert CellTree.of(appended, appended.edges) == appended
            assert appended.detached("x", j) == tree


def test_there_are_as_many_labelled_trees_as_cayley_says() -> None:
    assert [len(set(all_trees(count))) for count in range(2, 7)] == [1, 3, 16, 125, 1296]
    assert [len(one_of_each_shape(count)) for count in range(2, 7)] == [1, 1, 2, 3, 6]


def test_steps_are_applied_in_order() -> None:
    steps = [append("e", "d"), shift("e", "d", "c"), detach("d", "c")]
    *_, last = trees_after(LINE, steps)
    assert last == CellTree.of("abce", [("a", "b"), ("b", "c"), ("c", "e")])
    assert [*map(str, steps)] == ["APPEND(e, d)", "SHIFT(e, d, c)", "DETACH(d)"]
