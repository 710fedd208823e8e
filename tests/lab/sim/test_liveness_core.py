"""Liveness cores: they are connected enough to converge, and no more than that."""

from __future__ import annotations

from itertools import combinations
from random import Random

import pytest

from gapless_lab.sim.liveness_core import LivenessCore
from gapless_lab.sim.network import HostPair
from gapless_lab.sim.options import SimulationOptions
from gapless_lab.sim.runner import SimulationRun
from gapless_lab.sim.world import World
from tests.lab.sim.toy import TOY

SEEDS = range(60)


def world(seed: int, **changes: float) -> World:
    """Return a world with losses and cuts that never heal."""
    settings = {"cells": 6, "delta": 2, "inner_losses": 0.5, "inner_cuts": 0.5, **changes}
    options = SimulationOptions(seed=seed, shape="random").with_(**settings)
    return SimulationRun(options, TOY).world


def core(seed: int, **changes: float) -> tuple[World, LivenessCore]:
    made = world(seed, **changes)
    return made, LivenessCore(made, Random(seed), whole=True)


def ends(pair: HostPair) -> tuple[str, str]:
    left, right = (link.source.broker for link in pair.links)
    return left, right


@pytest.mark.parametrize("delta", [0, 1, 2, 3])
def test_never_more_than_delta_cells_in_a_row_are_dead(delta: int) -> None:
    longest = 0
    for seed in SEEDS:
        made, chosen = core(seed, delta=delta)
        living = {host.cell for host in made.hosts.values() if host.broker in chosen.brokers}
        dead = [cell for cell in made.tree.names if cell not in living]
        assert living
        for left, right in [*combinations(dead, 2), *((cell, cell) for cell in dead)]:
            run = (left, *made.tree.graph.path(left, right))
            if living.isdisjoint(run):
                assert len(run) <= delta
                longest = max(longest, len(run))
    assert longest == delta, "and it happens"


def test_a_permanently_lost_link_has_a_route_over_good_links() -> None:
    cuts = 0
    for seed in SEEDS:
        made, chosen = core(seed, brokers_per_cell=2, cells=4)
        pairs = made.network.pairs
        good = [set(ends(pair)) for pair in pairs if chosen.keeps_links(pair)]
        for pair in pairs:
            if chosen.has_cut(pair):
                cuts += 1
                start, end = ends(pair)
                reached = {start}
                for _ in range(made.options.parameters().relay_hops_max + 1):
                    reached |= {each for link in good if link & reached for each in link}
                assert end in reached
    assert cuts > 20


def test_in_some_cores_a_running_cell_is_cut_off_from_one_side() -> None:
    # an island (A2): its neighbour is unreachable, and its sessions are relayed past it
    islands = 0
    for seed in SEEDS:
        made, chosen = core(seed, inner_losses=0.0)
        hosts = made.hosts
        islands += sum(
            chosen.has_cut(pair)
            and hosts[ends(pair)[1]].cell in made.tree.graph.neighbours(hosts[ends(pair)[0]].cell)
            for pair in made.network.pairs
        )
    assert islands > 5


def test_without_permanent_cuts_exactly_the_needed_links_are_kept() -> None:
    for seed in SEEDS:
        made, chosen = core(seed, inner_losses=0.0, inner_cuts=0.0)
        for pair in made.network.pairs:
            left, right = (made.hosts[each] for each in ends(pair))
            assert chosen.keeps_links(pair) == (right.cell in made.tree.graph.neighbours(left.cell))
            assert not chosen.has_cut(pair)
