"""Swarm options: every seed draws a valid world, and every option varies."""

from __future__ import annotations

from random import Random

import pytest

from gapless.core.errors import UsageError
from gapless_lab.sim.limits import TINY
from gapless_lab.sim.options import (
    BROKERS_MAX,
    FAULT_KINDS,
    RARE_FAULT_KINDS,
    SimulatedNetworkKind,
    SimulationOptions,
    draw,
    draw_ordinary,
    with_redundancy,
)
from gapless_lab.sim.regions import OUTAGE_KINDS
from gapless_lab.sim.shapes import SHAPES, tree
from gapless_lab.sim.situations import SITUATIONS

DRAWN = [draw(seed) for seed in range(600)]


def test_a_seed_always_draws_the_same_options() -> None:
    assert [draw(seed) for seed in range(600)] == DRAWN


def test_every_seed_has_a_valid_tree_and_valid_parameters() -> None:
    for options in DRAWN:
        assert len(options.topology().cells) == options.cells
        parameters = options.parameters()  # raises if they are inconsistent
        assert parameters.delta == options.delta
        assert parameters.ordered_sessions == (options.network is SimulatedNetworkKind.SESSION)


def test_about_a_tenth_of_the_seeds_have_no_faults() -> None:
    calm = sum(options.calm for options in DRAWN)
    assert 0.05 < calm / len(DRAWN) < 0.15


def test_every_option_varies() -> None:
    assert {options.shape for options in DRAWN} == set(SHAPES)
    assert {options.network for options in DRAWN} == set(SimulatedNetworkKind)
    assert {options.cells for options in DRAWN} >= {1, 2, 3, 8, 15}
    assert {options.delta for options in DRAWN} == {0, 1, 2, 3, 4}
    assert {options.brokers_per_cell for options in DRAWN} == {1, 2, 3}
    assert {options.inner_losses for options in DRAWN} == {0.0, 0.2, 0.5}
    assert {options.inner_cuts for options in DRAWN} == {0.0, 0.2, 0.5}
    assert {kind for options in DRAWN for kind in options.rates} == {
        *FAULT_KINDS,
        *RARE_FAULT_KINDS,
        *OUTAGE_KINDS,
    }
    assert {name for options in DRAWN for name in options.limits} >= set(TINY)


def test_most_seeds_have_no_situation_and_the_others_have_one() -> None:
    failovers = [each for each in DRAWN if is_about_failovers(each)]
    conflicting = [each for each in DRAWN if each.conflicting_names]
    others = [
        each
        for each in DRAWN
        if each not in failovers
        and each not in conflicting
        and not has_regions(each)
        and not each.restarts
        and not each.close_rate
        and not each.staged_writers
    ]
    closing = [each for each in DRAWN if each.close_rate]
    restarting = [each for each in DRAWN if each.restarts]
    ordinary = sum(
        with_redundancy(draw_ordinary(options.seed))
        == options.with_(together=False, leave_rate=0.0, reshape_rate=0.0)
        for options in others
    )
    assert 0.6 < ordinary / len(others) < 0.8
    assert 0.05 < len(failovers) / len(DRAWN) < 0.15
    assert 0.1 < len(restarting) / len(DRAWN) < 0.2
    assert 0.03 < len(closing) / len(DRAWN) < 0.15
    assert 0.1 < len(conflicting) / len(DRAWN) < 0.2


def has_regions(options: SimulationOptions) -> bool:
    """Return whether cells fail as a whole or differ in size (``tests/lab/sim/test_regions.py``)."""
    return options.mixed_cells or not options.rates.keys().isdisjoint(OUTAGE_KINDS)


def is_about_failovers(options: SimulationOptions) -> bool:
    """Return whether clients fail over more often than by chance."""
    return (
        not options.restarts
        and options.failover != with_redundancy(draw_ordinary(options.seed)).failover
    )


def test_a_world_has_no_more_brokers_than_can_be_simulated_fast() -> None:
    assert all(options.cells * options.brokers_per_cell <= BROKERS_MAX for options in DRAWN)


@pytest.mark.parametrize("name", SITUATIONS)
def test_a_situation_changes_a_seed_repeatably_and_validly(name: str) -> None:
    for seed in range(50):
        options = draw_ordinary(seed)
        changed = SITUATIONS[name](options, Random(seed))
        assert changed == SITUATIONS[name](options, Random(seed))
        assert changed != options
        changed.parameters()
        assert SimulationOptions.of_json(changed.json()) == changed


def test_a_fault_lasts_at_least_the_shortest_time() -> None:
    options = SimulationOptions(down_ms_min=500, down_ms_max=800)
    drawn = [options.down_us(Random(seed)) for seed in range(100)]
    assert all(501_000 <= each <= 801_000 for each in drawn)


def test_a_gap_is_allowed_only_if_a_needed_log_may_be_released() -> None:
    assert not SimulationOptions().forgiving
    assert SimulationOptions(expiry=True).forgiving
    assert SimulationOptions(expiry_s=1).forgiving
    assert SimulationOptions(limits={"log_bytes_max": 1_000}).forgiving


def test_options_survive_json() -> None:
    for options in DRAWN[:50]:
        assert SimulationOptions.of_json(options.json()) == options


def test_the_line_shows_the_options_that_differ_from_the_defaults() -> None:
    options = SimulationOptions(seed=7, cells=5, rates={"one-way cut": 1.5})
    assert options.line() == "seed=7 cells=5 rates={one-way-cut:1.5}"


def test_some_options_can_be_changed() -> None:
    assert SimulationOptions(seed=7).with_(cells=9) == SimulationOptions(seed=7, cells=9)


@pytest.mark.parametrize("shape", SHAPES)
def test_every_shape_makes_a_tree_of_any_size(shape: str) -> None:
    for cells in range(1, 16):
        assert len(tree(shape, cells, 2, 3, seed=1).cells) == cells


def test_an_unknown_shape_is_refused() -> None:
    with pytest.raises(UsageError, match="is not a shape"):
        tree("ring", 3, 2, 1, seed=1)
