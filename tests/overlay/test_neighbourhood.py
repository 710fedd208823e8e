"""The tree as an operator writes it, and the part of it that a broker knows."""

from __future__ import annotations

import pytest

from gapless.core.errors import UsageError
from gapless.overlay.neighbourhood import Topology

TREE = Topology.of(
    {"a": ["a1"], "b": ["b1", "b2"], "c": ["c1"], "d": ["d1"], "e": ["e1"]},
    [("a", "b"), ("b", "c"), ("c", "d"), ("b", "e")],
)


def test_a_neighbourhood_has_the_cells_within_its_radius_nearest_first() -> None:
    near = TREE.neighbourhood("a", radius=2)
    assert [cell.name for cell in near.cells] == ["a", "b", "c", "e"]
    assert near.all_brokers() == ("a1", "b1", "b2", "c1", "e1")
    assert near.neighbours == ("b",)
    assert near.peers == ("a1",)
    assert "d" not in near


def test_the_path_to_a_cell_starts_with_a_neighbour_and_ends_with_that_cell() -> None:
    near = TREE.neighbourhood("a", radius=3)
    assert near.path("d") == ("b", "c", "d")
    assert near.path("a") == ()
    assert near.direction("d") == "b"
    assert near.direction("a") is None
    assert near.distance("d") == 3


def test_a_cell_outside_the_neighbourhood_has_no_direction() -> None:
    near = TREE.neighbourhood("a", radius=1)
    assert near.direction("d") is None
    assert near.cell_of("d1") is None
    assert near.cell_of("b2") == "b"


def test_a_cell_is_beyond_the_cells_of_its_path() -> None:
    near = TREE.neighbourhood("a", radius=3)
    assert near.is_beyond("d", "c")
    assert near.is_beyond("d", "d")
    assert near.is_beyond("d", "a")
    assert not near.is_beyond("e", "c")


@pytest.mark.parametrize(
    ("brokers", "edges", "complaint"),
    [
        ({"a": ["a1"], "b": ["b1"]}, [], "no path to b"),
        ({"a": ["a1"], "b": ["b1"]}, [("a", "x")], "names x"),
        ({"a": ["a1"], "b": ["b1"]}, [("a", "b"), ("b", "a")], "cycle"),
        ({"a": []}, [], "has no broker"),
        ({"a": [f"a{n}" for n in range(51)]}, [], "has 51 brokers, more than 50"),
        ({"a": ["b@a"]}, [], "no @"),
        ({"": ["b"]}, [], "is no name"),
        ({"a": ["x"], "b": ["x"]}, [("a", "b")], "is in a and in b"),
    ],
)
def test_a_topology_that_is_no_tree_of_cells_is_refused_with_the_reason(
    brokers: dict[str, list[str]], edges: list[tuple[str, str]], complaint: str
) -> None:
    with pytest.raises(UsageError, match=complaint):
        Topology.of(brokers, edges)
