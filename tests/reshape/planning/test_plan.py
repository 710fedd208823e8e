"""The planner: every plan ends at the wanted tree, and every tree on the way keeps the bounds.

HA proves that a plan exists (theorem 1) and leaves open how to find a short one (HA III.A).
"""

from __future__ import annotations

from collections import deque
from itertools import pairwise
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gapless.core.errors import UsageError
from gapless.reshape.planning.bounds import NO_EXCESS, PairBound
from gapless.reshape.planning.lower_bound import least_operations
from gapless.reshape.planning.plan import TreePlan, plan_between
from gapless.reshape.planning.shifts import potential_changes, target_paths
from gapless.reshape.planning.steps import StepKind, append, shift
from gapless.reshape.planning.trees import CellTree
from tests.reshape.planning.random_trees import (
    all_trees,
    letters,
    line,
    one_of_each_shape,
    random_tree,
    star,
    tree_of,
    trees,
)

NUMBERED = [f"c{number:02}" for number in range(30)]


def check(plan: TreePlan) -> None:
    """Check what every plan promises."""
    assert (*[plan.present], *plan.trees)[-1] == plan.wanted
    for tree in (plan.present, *plan.trees):
        assert CellTree.of(tree, tree.edges) == tree
        assert plan.kept.excess(tree) == NO_EXCESS
    kinds = [each.kind for each in plan.steps]
    order = [StepKind.APPEND, StepKind.SHIFT, StepKind.DETACH]
    assert kinds == sorted(kinds, key=order.index)
    assert kinds.count(StepKind.APPEND) == len({*plan.wanted} - {*plan.present})
    assert kinds.count(StepKind.DETACH) == len({*plan.present} - {*plan.wanted})
    assert len(plan.steps) >= plan.lower_bound


def steps_from(tree: CellTree) -> dict[CellTree, int]:
    """Return how many SHIFTs each tree of the same cells is away."""
    found = {tree: 0}
    waiting = deque([tree])
    while waiting:
        each = waiting.popleft()
        for j in each:
            for i in each.neighbours(j):
                for k in each.neighbours(j):
                    if i != k and (after := each.shifted(i, j, k)) not in found:
                        found[after] = found[each] + 1
                        waiting.append(after)
    return found


@given(trees("abcdefghijkl"), trees("defghijklmno"), st.sampled_from([0, 7]))
def test_every_prefix_of_a_plan_is_a_tree_within_the_bounds(
    present: CellTree, wanted: CellTree, exact_cells: int
) -> None:
    check(plan_between(present, wanted, exact_cells=exact_cells))


@given(trees("abcdef"), trees("cdefg"))
def test_a_plan_between_few_cells_is_not_longer_than_one_by_the_potential(
    present: CellTree, wanted: CellTree
) -> None:
    shortest = plan_between(present, wanted)
    by_potential = plan_between(present, wanted, exact_cells=0)
    check(shortest)
    assert shortest.is_shortest
    if shortest.kept == by_potential.kept:
        assert len(shortest.steps) <= len(by_potential.steps)


def test_a_plan_between_few_cells_has_as_many_steps_as_the_trees_are_apart() -> None:
    for present in one_of_each_shape(5):
        for wanted, distance in steps_from(present).items():
            plan = plan_between(present, wanted, degree=4, diameter=4)
            assert len(plan.steps) == distance
            assert plan.lower_bound <= distance


def test_plans_by_the_potential_between_all_pairs_of_trees_of_six_cells_are_nearly_shortest() -> (
    None
):
    # compared with HA theorem 1's plan, whose SHIFTs they replace
    ours = baseline = optimum = 0
    worst = 0.0
    for present in one_of_each_shape(6):
        distances = steps_from(present)
        assert set(distances) == set(all_trees(6))
        for wanted, distance in distances.items():
            if distance:
                plan = plan_between(present, wanted, exact_cells=0)
                assert plan.trees[-1] == wanted
                assert plan.lower_bound <= distance <= len(plan.steps)
                ours += len(plan.steps)
                baseline += plan.baseline_length
                optimum += distance
                worst = max(worst, len(plan.steps) / distance)
    assert ours < 1.06 * optimum
    assert worst <= 1.5
    assert baseline > 1.3 * ours


@given(trees("abcdefghi"), st.data())
def test_the_change_of_the_potential_is_that_of_the_changed_tree(
    tree: CellTree, data: st.DataObject
) -> None:
    cells = [*tree]
    target = (
        random_tree(cells, Random(data.draw(st.integers(0, 1_000)))) if len(cells) > 1 else tree
    )
    changes = potential_changes(target_paths(tree, target).values())
    for j in tree:
        for i in tree.neighbours(j):
            for k in tree.neighbours(j):
                if i != k and not target.has_edge(i, j):
                    actual = potential(tree.shifted(i, j, k), target) - potential(tree, target)
                    assert changes[i, j, k] == actual if (i, j, k) in changes else actual >= 0


def potential(tree: CellTree, target: CellTree) -> int:
    return sum(len(tree.path(*edge)) - 2 for edge in target.edges)


def test_a_bound_on_the_degree_is_kept_on_the_way() -> None:
    random = Random(7)
    for _ in range(5):
        present, wanted = random_tree(NUMBERED, random), random_tree(NUMBERED, random)
        least = max(present.degree, wanted.degree)
        plan = plan_between(present, wanted, degree=least + 1)
        check(plan)
        assert plan.asked.degree == least + 1
        assert plan.is_relaxed == (plan.kept != plan.asked)


def test_a_bound_that_no_plan_keeps_is_relaxed_and_named() -> None:
    # on the way between these lines a cell has three neighbours
    for exact_cells in (0, 7):
        plan = plan_between(line("cabd"), line("bacd"), degree=2, exact_cells=exact_cells)
        check(plan)
        assert (plan.asked.degree, plan.kept.degree, plan.peak_degree) == (2, 3, 3)
        plan = plan_between(star("abcd"), star("bacd"), diameter=2, exact_cells=exact_cells)
        check(plan)
        assert (plan.asked.diameter, plan.kept.diameter, plan.peak_diameter) == (2, 3, 3)
        assert plan.kept.degree == plan.asked.degree == 5


def test_the_default_bounds_are_somewhat_above_both_trees() -> None:
    present, wanted = line("abcdefghi"), star("abcdefghi")
    plan = plan_between(present, wanted)
    assert (plan.asked.degree, plan.asked.diameter) == (10, 12)
    assert plan.peak_diameter <= 12
    assert not plan.is_relaxed


def test_a_plan_to_the_same_tree_has_no_steps() -> None:
    for count in (1, 5, 9):
        same = line(letters(count))
        plan = plan_between(same, same)
        assert plan.steps == ()
        assert (plan.lower_bound, plan.baseline_length) == (0, 0)


def test_new_cells_are_appended_first_and_leaving_ones_detached_last() -> None:
    present, wanted = line("abcdefghij"), line("abcdefghxy")
    plan = plan_between(present, wanted)
    check(plan)
    assert plan.steps[:2] == (append("x", "h"), append("y", "x"))
    assert [*map(str, plan.steps[2:])] == ["DETACH(j)", "DETACH(i)"]


def test_a_leaving_cell_between_others_is_passed_before_it_is_detached() -> None:
    present = tree_of("ax", "bx", "cx")
    plan = plan_between(present, line("abc"))
    check(plan)
    assert len(plan.steps) == plan.lower_bound == 3


def test_trees_without_a_common_cell_are_joined_and_parted() -> None:
    for exact_cells in (0, 7):
        plan = plan_between(line("abc"), star("xyz"), exact_cells=exact_cells, diameter=9)
        check(plan)
        assert len(plan.steps) == plan.lower_bound == 6


def test_kept_cells_keep_their_edges() -> None:
    present = tree_of("ka", "ab", "bc", "cd", "ke", "ef", "fg")
    wanted = tree_of("ka", "ab", "ac", "ad", "ke", "eg", "gf")
    for exact_cells in (0, 8):
        plan = plan_between(present, wanted, keep=["k"], exact_cells=exact_cells)
        check(plan)
        assert not any("k" in step.cells for step in plan.steps)
        assert {tree.neighbours("k") for tree in plan.trees} == {("a", "e")}


def test_a_new_cell_without_room_beside_it_is_not_appended_behind_a_kept_cell() -> None:
    present = tree_of("Ka", "KE", "ab", "ac", "bd", "be", "cf", "cg")
    wanted = tree_of("Ka", "KE", "ax", "xb", "xc", "bd", "be", "cf", "cg")
    plan = plan_between(present, wanted, degree=3, keep=["K"], exact_cells=0)
    check(plan)
    assert plan.steps[0] == append("x", "d")
    assert not any({"K", "E"} & {*step.cells} for step in plan.steps)
    assert plan.kept.degree <= 4


@pytest.mark.parametrize(
    ("keep", "wanted", "problem"),
    [
        ("x", ["ka", "ab", "ke", "ef"], "keep names x, which is no cell of the present"),
        (
            "a",
            ["ka", "ke", "eb", "ef"],
            "keep names a, whose neighbours change: b, k now, k in the",
        ),
        ("k", ["ka", "ke", "eb", "ef"], "no cell passes a kept cell"),
        ("k", ["ka", "ke", "af", "eb"], "no cell passes a kept cell"),
    ],
)
def test_a_target_that_moves_kept_edges_is_refused(
    keep: str, wanted: list[str], problem: str
) -> None:
    present = tree_of("ka", "ab", "ke", "ef")
    with pytest.raises(UsageError, match=problem):
        plan_between(present, tree_of(*wanted), keep=[keep])


def test_a_bound_on_a_pair_holds_for_every_tree() -> None:
    random = Random(3)
    cells = letters(12)
    for exact_cells in (0, 7):
        for _ in range(20):
            chosen = cells if exact_cells == 0 else cells[:6]
            present, wanted = random_tree(chosen, random), random_tree(chosen, random)
            most = max(len(tree.path("a", "b")) - 1 for tree in (present, wanted))
            pair = PairBound("a", "b", most)
            check(plan_between(present, wanted, pairs=[pair], exact_cells=exact_cells))


def test_a_bound_on_a_pair_that_one_of_the_trees_exceeds_is_refused() -> None:
    present, wanted = line("abcd"), line("acbd")
    with pytest.raises(UsageError, match="may not be more than 1 apart, and are 2"):
        plan_between(present, wanted, pairs=[PairBound("a", "b", 1)])
    with pytest.raises(UsageError, match="names x, which is no cell"):
        plan_between(present, wanted, pairs=[PairBound("a", "x", 1)])


@pytest.mark.parametrize("exact_cells", [0, 7])
def test_a_plan_that_bounds_on_pairs_exclude_is_refused(exact_cells: int) -> None:
    # every cell of the star moves, and no two may be further apart than in the star
    present = tree_of("ab", "ac", "ad", "ae")
    wanted = tree_of("ba", "bc", "bd", "be")
    pairs = [PairBound(one, other, 2) for one in "cde" for other in "cde" if one < other]
    with pytest.raises(UsageError, match="no plan was found that keeps these cells so near"):
        plan_between(present, wanted, pairs=pairs, exact_cells=exact_cells)


@pytest.mark.parametrize(
    ("bounds", "problem"),
    [
        (
            {"degree": 3},
            "the degree bound is 3, .* present tree has 4 neighbours: allow at least 4",
        ),
        ({"diameter": 3}, "the diameter bound is 3, .* wanted tree has a diameter of 4"),
    ],
)
def test_bounds_below_those_of_the_two_trees_are_refused(
    bounds: dict[str, Any], problem: str
) -> None:
    with pytest.raises(UsageError, match=problem):
        plan_between(star("abcde"), line("abcde"), **bounds)


@given(trees("abcdef"), trees("cdefg"))
def test_no_plan_has_fewer_steps_than_the_lower_bound(present: CellTree, wanted: CellTree) -> None:
    free = plan_between(present, wanted, degree=7, diameter=7)
    assert free.is_shortest
    assert least_operations(present, wanted) <= len(free.steps)


def test_the_steps_of_a_plan_are_the_same_in_every_run() -> None:
    present, wanted = line("abcdefgh"), star("abcdefgh")
    plan = plan_between(present, wanted)
    assert plan.steps == (*(shift(each, prior, "a") for prior, each in pairwise("bcdefgh")),)
    assert plan == plan_between(present, wanted)
