"""Regions: rows and sides of cells, and how often whole cells fail."""

from __future__ import annotations

from gapless.overlay.neighbourhood import Topology
from gapless_lab.sim.options import SimulationOptions, draw
from gapless_lab.sim.regions import BARRIERS, OUTAGE_KINDS, with_regions
from gapless_lab.sim.shapes import tree
from gapless_lab.sim.world_tree import CellGraph

DRAWN = [draw(seed) for seed in range(600)]
SEVERAL = [options for options in DRAWN if options.cells > 1]
STRUCK = [options for options in DRAWN if not options.rates.keys().isdisjoint(OUTAGE_KINDS)]

GRAPH = CellGraph.of(
    Topology.of(
        {name: [f"{name}1"] for name in "abcde"},
        [("a", "b"), ("b", "c"), ("c", "d"), ("b", "e")],
    )
)
"""a - b - c - d, and e at b."""


def sizes(options: SimulationOptions) -> set[int]:
    return {len(cell.brokers) for cell in options.topology().cells}


# --- rows and sides --------------------------------------------------------------------------------


def test_a_row_has_cells_at_both_ends() -> None:
    assert sorted(GRAPH.rows(1)) == [("b",), ("b",), ("b",), ("c",)]
    assert sorted(GRAPH.rows(2)) == [("b", "c"), ("c", "b")]
    assert GRAPH.rows(3) == []


def test_the_longest_row_is_between_the_two_most_distant_cells() -> None:
    assert GRAPH.longest_row() == 2
    assert [
        CellGraph.of(tree("line", cells, 2, 1, seed=1)).longest_row() for cells in (1, 2, 3, 5)
    ] == [
        0,
        0,
        1,
        3,
    ]
    assert CellGraph.of(tree("star", 9, 2, 1, seed=1)).longest_row() == 1


def test_a_side_has_all_cells_behind_one_neighbour() -> None:
    assert sorted(GRAPH.side("b", "c")) == ["c", "d"]
    assert sorted(GRAPH.side("c", "b")) == ["a", "b", "e"]


# --- drawn options ---------------------------------------------------------------------------------


def test_in_about_a_fifth_of_the_seeds_with_several_cells_whole_cells_fail() -> None:
    assert 0.17 < len(STRUCK) / len(SEVERAL) < 0.28
    for kind in OUTAGE_KINDS:
        share = sum(kind in options.rates for options in STRUCK) / len(STRUCK)
        assert (0.08 if kind in BARRIERS else 0.35) < share < (0.3 if kind in BARRIERS else 0.65)
    assert {options.relapse for options in STRUCK} == {0.0, 0.3, 0.6}


def test_no_cell_fails_in_calm_seeds_or_with_one_cell() -> None:
    assert not any(options.calm or options.cells == 1 for options in STRUCK)


def test_a_seed_with_barriers_has_a_row_longer_than_delta() -> None:
    barred = [options for options in STRUCK if not options.rates.keys().isdisjoint(BARRIERS)]
    assert all(CellGraph.of(options.topology()).rows(options.delta + 1) for options in barred)
    assert {options.delta for options in barred} >= {0, 1, 2}


def test_in_about_a_quarter_of_the_worlds_cells_are_of_different_sizes() -> None:
    mixed = [options for options in DRAWN if options.mixed_cells]
    assert 0.18 < len(mixed) / len(DRAWN) < 0.3
    assert {frozenset(sizes(options)) for options in mixed} == {
        frozenset({1, 2}),
        frozenset({1, 3}),
        frozenset({1, 2, 3}),
    }
    for options in DRAWN:
        if not options.mixed_cells:
            assert sizes(options) == {options.brokers_per_cell}


def test_a_seed_with_neither_is_unchanged() -> None:
    others = [options for options in DRAWN if options not in STRUCK and not options.mixed_cells]
    assert len(others) > len(DRAWN) / 2
    for options in others:
        assert options.relapse == SimulationOptions().relapse
        assert options.outage_ms == SimulationOptions().outage_ms


def test_regions_depend_only_on_the_options_drawn_before() -> None:
    plain = SimulationOptions(seed=5, cells=6, brokers_per_cell=3, rates={"crash": 1.0})
    for seed in range(50):
        options = plain.with_(seed=seed)
        changed = with_regions(options)
        assert changed == with_regions(options)
        assert changed.rates["crash"] == 1.0
        kept = {"mixed_cells": False, "outage_ms": 600, "relapse": 0.0}
        assert changed.with_(rates=options.rates, delta=options.delta, **kept) == options
