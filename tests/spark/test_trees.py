"""The search for a better tree: as good as an exhaustive search, within the degree, never worse."""

from __future__ import annotations

import itertools
import random

import pytest

from gapless.core.errors import UsageError
from gapless.spark.jobs.trees import CellEdge, TrafficGroup, better_tree, hops, present_degree


def all_trees(cells: list[str]) -> list[list[CellEdge]]:
    """Return every tree over some cells, by their Prüfer sequences."""
    found = []
    for sequence in itertools.product(range(len(cells)), repeat=len(cells) - 2):
        degrees = [1 + sequence.count(cell) for cell in range(len(cells))]
        edges = []
        for cell in sequence:
            leaf = degrees.index(1)
            edges.append((cells[leaf], cells[cell]))
            degrees[leaf] = 0
            degrees[cell] -= 1
        left, right = (cell for cell, degree in enumerate(degrees) if degree == 1)
        found.append([*edges, (cells[left], cells[right])])
    return found


def some_groups(dice: random.Random, cells: list[str], count: int) -> list[TrafficGroup]:
    groups = []
    for _ in range(count):
        targets = dice.sample(cells, dice.randint(0, len(cells) - 1))
        groups.append(
            TrafficGroup(dice.choice(cells), tuple(sorted(targets)), dice.randint(1, 100))
        )
    return groups


def hops_by_hand(groups: list[TrafficGroup], edges: list[CellEdge]) -> int:
    """Count edges by walking from every target to the source."""
    neighbours: dict[str, set[str]] = {}
    for left, right in edges:
        neighbours.setdefault(left, set()).add(right)
        neighbours.setdefault(right, set()).add(left)
    total = 0
    for group in groups:
        parents = {group.source: ""}
        waiting = [group.source]
        while waiting:
            cell = waiting.pop()
            for each in neighbours[cell] - parents.keys():
                parents[each] = cell
                waiting.append(each)
        used = set()
        for target in group.targets:
            cell = target
            while parents[cell]:
                used.add((cell, parents[cell]))
                cell = parents[cell]
        total += len(used) * group.count
    return total


def is_tree(cells: list[str], edges: list[CellEdge]) -> bool:
    reached, waiting = {cells[0]}, [cells[0]]
    while waiting:
        cell = waiting.pop()
        near = {b if a == cell else a for a, b in edges if cell in (a, b)} - reached
        reached |= near
        waiting += near
    return reached == set(cells) and len(edges) == len(cells) - 1


@pytest.mark.parametrize("seed", range(40))
def test_the_search_is_as_good_as_an_exhaustive_search(seed: int) -> None:
    dice = random.Random(seed)
    cells = [f"c{number}" for number in range(1, dice.choice([4, 5, 6]) + 1)]
    groups = some_groups(dice, cells, 12)
    degree = dice.choice([2, 3])
    line = [*itertools.pairwise(cells)]
    found = better_tree(cells, groups, line, degree)
    allowed = [tree for tree in all_trees(cells) if present_degree(tree) <= degree]
    assert hops(groups, found) == min(hops(groups, tree) for tree in allowed)
    assert present_degree(found) <= degree
    assert is_tree(cells, found)


def test_hops_equal_those_of_walking() -> None:
    dice = random.Random(5)
    cells = [f"c{number}" for number in range(9)]
    for _ in range(30):
        groups = some_groups(dice, cells, 6)
        tree = [(cells[dice.randrange(place)], cells[place]) for place in range(1, len(cells))]
        assert hops(groups, tree) == hops_by_hand(groups, tree)


def test_a_large_tree_stays_within_its_degree_and_is_not_worse() -> None:
    dice = random.Random(9)
    cells = [f"c{number}" for number in range(40)]
    groups = [
        TrafficGroup(
            f"c{near}", (f"c{(near + 20) % 40}", f"c{(near + 7) % 40}"), dice.randint(1, 50)
        )
        for near in range(40)
    ]
    line = [*itertools.pairwise(cells)]
    found = better_tree(cells, groups, line, 3)
    assert is_tree(cells, found)
    assert present_degree(found) <= 3
    assert hops(groups, found) < 0.7 * hops(groups, line)
    assert found == better_tree(cells, groups, line, 3)


def test_a_tree_that_is_already_best_is_kept() -> None:
    cells = ["a", "b", "c", "d"]
    line = [("a", "b"), ("b", "c"), ("c", "d")]
    groups = [TrafficGroup(left, (right,), 10) for left, right in line]
    assert better_tree(cells, groups, line, 3) == line
    assert better_tree(cells, [], line, 3) == line


def test_an_impossible_tree_is_refused() -> None:
    with pytest.raises(UsageError, match="no cell x"):
        better_tree(["a", "b"], [TrafficGroup("a", ("x",), 1)], [("a", "b")], 3)
    with pytest.raises(UsageError, match="degree of 1"):
        better_tree(["a", "b", "c"], [], [("a", "b"), ("b", "c")], 1)
    assert better_tree(["a"], [], [], 3) == []
    assert better_tree(["a", "b"], [], [("a", "b")], 1) == [("a", "b")]
