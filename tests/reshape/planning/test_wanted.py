"""The wanted tree from names and from shapes."""

from __future__ import annotations

import pytest

from gapless.core.errors import UsageError
from gapless.overlay.neighbourhood import Topology
from gapless.reshape.changes import shifted
from gapless.reshape.planning.plan import plan_between
from gapless.reshape.planning.trees import CellTree
from gapless.reshape.planning.wanted import named_tree, recorded_tree, shaped_tree
from gapless.runtime.overlay_config import generate
from tests.reshape.planning.random_trees import line, star, tree_of


def shape(word: str) -> CellTree:
    topology = generate(word).topology
    edges = {
        (min(cell.name, each), max(cell.name, each))
        for cell in topology.cells
        for each in cell.neighbours
    }
    return CellTree.of([cell.name for cell in topology.cells], edges)


def test_a_line_takes_the_cells_in_natural_order() -> None:
    present = star([f"c{number}" for number in range(1, 12)])
    wanted = shaped_tree(shape("line:11"), present)
    assert wanted == shape("line:11")
    assert wanted.path("c1", "c11") == tuple(f"c{number}" for number in range(1, 12))


def test_the_centre_of_a_star_is_the_cell_that_shortens_the_plan() -> None:
    present = line("abcdefghi")
    wanted = shaped_tree(shape("star:9"), present)
    assert wanted.neighbours("e") == (*"abcdfghi",)
    assert shaped_tree(shape("star:9"), star("iabcdefgh")) == star("iabcdefgh")
    lengths = {
        centre: len(plan_between(present, star([centre, *(set(present) - {centre})])).steps)
        for centre in present
    }
    assert lengths["e"] == min(lengths.values())


def test_the_top_of_a_tree_is_chosen_and_the_others_follow_in_order() -> None:
    present = tree_of("da", "db", "ac", "ae", "bf", "bg")
    wanted = shaped_tree(shape("tree:2x3"), present)
    assert wanted == present


def test_a_shape_of_another_number_of_cells_is_refused() -> None:
    with pytest.raises(UsageError, match="the shape has 9 cells and the overlay has 3"):
        shaped_tree(shape("star:9"), line("abc"))


def test_a_shape_of_one_cell_is_the_present_one() -> None:
    assert shaped_tree(shape("line:1"), CellTree.of("x", [])) == CellTree.of("x", [])


def test_a_name_means_the_one_present_cell_with_that_name() -> None:
    present = line(["a#b1.3", "b", "c"])
    assert named_tree(line("bacd"), present) == line(["b", "a#b1.3", "c", "d"])
    assert named_tree(line(["b", "a#b1.3"]), present) == line(["b", "a#b1.3"])


def test_an_ambiguous_name_is_refused() -> None:
    present = line(["a#b1.3", "a#b1.4", "c"])
    with pytest.raises(UsageError, match="a is the name of several cells"):
        named_tree(line("ac"), present)
    with pytest.raises(UsageError, match=r"the cell a#b1.3 under two names"):
        named_tree(line(["a", "a#b1.3"]), line(["a#b1.3", "c"]))


def test_an_edge_that_only_one_record_lists_with_its_epoch_is_no_edge_of_the_tree() -> None:
    # RS-2: an operation is under way, and one participant has not applied it
    i, j, k = Topology.of({"i": ["i1"], "j": ["j1"], "k": ["k1"]}, [("i", "j"), ("j", "k")]).cells
    after = shifted(i, j, k)
    assert recorded_tree(after) == CellTree.of("ijk", [("i", "k"), ("j", "k")])
    with pytest.raises(UsageError, match="not connected"):
        recorded_tree((i, *after[1:]))
