"""Outages: whole cells fail or are cut off for a time, and heal."""

from __future__ import annotations

import operator
from collections.abc import Callable
from functools import partial
from random import Random

import pytest

from gapless.core.ids import CellId
from gapless_lab.sim.network import SimulatedLink
from gapless_lab.sim.options import SimulationOptions
from gapless_lab.sim.outages import Outages
from gapless_lab.sim.regions import OUTAGE_KINDS
from gapless_lab.sim.runner import SimulationRun, run_options
from gapless_lab.sim.world import World
from tests.lab.sim.toy import TOY

LONG = SimulationOptions(
    seed=3, cells=5, brokers_per_cell=2, delta=1, total=0.0, torn=0.0, outage_ms=500
)
"""A line of five cells, in which two in a row are more than bypass covers."""

SEEDS = range(20)


def started(**changes: float) -> World:
    """Return a world in which all hosts run."""
    world = SimulationRun(LONG.with_(**changes), TOY).world
    for host in world.hosts.values():
        world.start(host)
    world.run_until(100_000)
    return world


def struck(kind: str, seed: int, **changes: float) -> World:
    """Return a world just after the start of an outage."""
    world = started(**changes)
    assert Outages(world, lambda: True).strike(kind, Random(seed))
    return world


def links(world: World) -> list[SimulatedLink]:
    return [link for there in world.network.links.values() for link in there.values()]


def dead_cells(world: World) -> list[CellId]:
    """Return the cells without a running broker."""
    living = {host.cell for host in world.hosts.values() if host.process is not None}
    return [cell for cell in world.tree.names if cell not in living]


def islands(world: World) -> list[CellId]:
    """Return the cells without a good link to other cells."""
    joined = {
        cell
        for link in links(world)
        if link.source.cell != link.target.cell and not link.cut
        for cell in (link.source.cell, link.target.cell)
    }
    return [cell for cell in world.tree.names if cell not in joined]


def cut(world: World) -> set[tuple[CellId, CellId]]:
    return {(link.source.cell, link.target.cell) for link in links(world) if link.cut}


def is_whole(world: World) -> bool:
    alive = all(host.process is not None for host in world.hosts.values())
    return alive and not any(link.cut for link in links(world))


# --- effects of each kind --------------------------------------------------------------------------


def test_a_cell_crash_kills_all_brokers_of_one_cell_and_no_others() -> None:
    for seed in SEEDS:
        world = struck("cell crash", seed)
        (dead,) = dead_cells(world)
        assert cut(world) == set()
        for host in world.hosts.values():
            assert (host.process is None) == (host.cell == dead)


def test_an_isolated_cell_runs_and_has_only_inner_links() -> None:
    for seed in SEEDS:
        world = struck("cell isolated", seed)
        (island,) = islands(world)
        assert dead_cells(world) == []
        for link in links(world):
            inside = link.source.cell == link.target.cell
            assert link.cut == (island in (link.source.cell, link.target.cell) and not inside)


def test_a_side_cut_cuts_all_links_of_a_cell_towards_one_neighbour_in_both_directions() -> None:
    passed = 0
    for seed in SEEDS:
        world = struck("side cut", seed)
        gone = cut(world)
        assert gone == {(far, near) for near, far in gone}
        sides = {
            (cell, neighbour): between(world, cell, neighbour)
            for cell in world.tree.names
            for neighbour in world.tree.graph.neighbours(cell)
        }
        ((cell, neighbour),) = (names for names, all_of_it in sides.items() if all_of_it == gone)
        far = world.tree.graph.side(cell, neighbour)
        passed += any(
            not link.cut and link.source.cell not in (cell, *far) and link.target.cell in far
            for link in links(world)
        )
    assert passed > 5, "others often have links past the cell"


def between(world: World, cell: CellId, neighbour: CellId) -> set[tuple[CellId, CellId]]:
    """Return all links between a cell and one side of it, in both directions, by their cells."""
    far = world.tree.graph.side(cell, neighbour)
    ends = {(link.source.cell, link.target.cell) for link in links(world)}
    return {each for each in ends if cell in each and not set(far).isdisjoint(each)}


def test_a_one_way_side_cut_cuts_one_direction() -> None:
    outward = set()
    for seed in SEEDS:
        gone = cut(struck("one-way side cut", seed))
        assert gone
        assert gone.isdisjoint((far, near) for near, far in gone)
        outward.add(len({near for near, _ in gone}) == 1)
    assert outward == {True, False}, "either direction"


@pytest.mark.parametrize("delta", [0, 1, 2])
@pytest.mark.parametrize(
    ("kind", "broken"), [("barrier crash", dead_cells), ("barrier isolated", None)]
)
def test_a_barrier_is_one_cell_longer_than_delta_and_has_two_sides(
    kind: str, broken: Callable[[World], list[CellId]] | None, delta: int
) -> None:
    for seed in SEEDS:
        world = struck(kind, seed, delta=delta)
        names = list(world.tree.names)
        first, last = names[0], names[-1]
        passable = {
            frozenset((link.source.cell, link.target.cell))
            for link in links(world)
            if not link.cut and link.source.process is not None and link.target.process is not None
        }
        reached = {first}
        for _ in names:
            reached |= {cell for ends in passable if ends & reached for cell in ends}
        assert last not in reached
        assert (dead_cells(world) == []) == (broken is None)
        if broken is not None:
            assert len(broken(world)) == delta + 1


def test_some_barriers_are_one_island_and_in_some_each_cell_is_one() -> None:
    # one end of the line, with a single cell, is an island too
    alone = {len(islands(struck("barrier isolated", seed))) for seed in SEEDS}
    assert alone == {1, 3}


def test_an_outage_without_a_possible_target_does_not_occur() -> None:
    alone = Outages(started(cells=1), lambda: True)
    assert [kind for kind in OUTAGE_KINDS if alone.strike(kind, Random(1))] == ["cell crash"]
    short = Outages(started(cells=3), lambda: True)
    assert not any(short.strike(kind, Random(1)) for kind in OUTAGE_KINDS if "barrier" in kind)


# --- healing ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", OUTAGE_KINDS)
def test_an_outage_heals_at_once_or_step_by_step(kind: str) -> None:
    stepwise = set()
    for seed in SEEDS:
        world = struck(kind, seed)
        assert not is_whole(world)
        begun, seen = world.now, []
        while not is_whole(world) and world.now < begun + 1_000_000:
            world.run_until(world.now + 5_000)
            broken = [host.process is None for host in world.hosts.values()]
            seen.append(sum(broken) + sum(link.cut for link in links(world)))
        assert is_whole(world)
        assert 50_000 <= world.now - begun <= 505_000
        stepwise.add(len(set(seen)) > 2)
    assert stepwise == {True, False}


def test_a_host_that_was_already_down_restarts_with_its_cell() -> None:
    world = started(cells=1)
    first, *_ = world.hosts.values()
    world.crash(first)
    Outages(world, lambda: True).strike("cell crash", Random(1))
    world.start(first)
    assert first.process is None
    world.run_until(world.now + 600_000)
    assert is_whole(world)


def test_a_cut_that_ends_sooner_does_not_end_the_isolation() -> None:
    opened = 0
    for seed in SEEDS:
        rates = {"cut": 40.0, "cell isolated": 1.0}
        options = LONG.with_(seed=seed, rates=rates, quiet=0.0, down_ms_max=20, outage_ms=2_000)
        run = SimulationRun(options, TOY)
        run.start()
        for now in range(100_000, 2_000_000, 10_000):
            run.world.run_until(now)
            held = [link for link in links(run.world) if link.held]
            assert all(link.cut for link in held)
            opened += bool(held)
    assert opened > 100


def test_overlapping_outages_of_a_cell_end_with_the_last_one() -> None:
    world = started(cells=1)
    outages = Outages(world, lambda: True)
    outages.strike("cell crash", Random(1))
    for host in world.hosts.values():
        assert host.held == 1
        host.held += 1
    world.run_until(world.now + 600_000)
    assert dead_cells(world) == ["n0"]


def test_the_liveness_phase_has_no_outages() -> None:
    for seed in range(10):
        rates = {"cell crash": 10.0, "cell isolated": 10.0, "one-way side cut": 10.0}
        options = LONG.with_(
            seed=seed, rates=rates, outage_ms=10_000, quiet=0.0, whole_core=1.0, safety_ms=1_000
        )
        run = SimulationRun(options, TOY)
        run.start()
        run.world.run_until(1_000_000)
        assert not is_whole(run.world)
        run.workload.stop()
        run.faults.heal()
        assert all(host.process is not None for host in run.world.hosts.values())
        processes = [host.process for host in run.world.hosts.values()]
        run.world.run_until(run.world.now + 12_000_000)
        assert [host.process for host in run.world.hosts.values()] == processes


# --- relapses --------------------------------------------------------------------------------------


def test_a_relapse_hits_a_recovering_cell_or_its_neighbour() -> None:
    hit = set()
    for seed in SEEDS:
        world = started(relapse=1.0, seed=seed)
        faults = world.faults
        outages = Outages(world, partial(operator.not_, faults))
        outages.strike("cell crash", Random(seed))
        (first,) = dead_cells(world)
        while not faults:
            world.run_until(world.now + 1_000)
        assert faults == {"relapse": 1}
        down = {host.cell for host in world.hosts.values() if host.process is None}
        again = dead_cells(world)
        hit.add("one" if not again else "same" if again == [first] else "next")
        assert len(down) == 1
        world.run_until(world.now + 600_000)
        assert is_whole(world), "the relapse heals too, and is the last here"
    assert hit == {"one", "same", "next"}


def test_no_relapse_occurs_without_the_option_or_in_quiet_periods() -> None:
    for relapse, may_strike in ((0.0, True), (1.0, False)):
        world = started(relapse=relapse)
        outages = Outages(world, partial(bool, may_strike))
        outages.strike("cell isolated", Random(2))
        world.run_until(world.now + 3_000_000)
        assert world.faults == {}


# --- in a run --------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", OUTAGE_KINDS)
def test_an_outage_is_counted_under_its_name_only(kind: str) -> None:
    result = run_options(LONG.with_(rates={kind: 3.0}, quiet=0.0), TOY)
    assert result.violations == ()
    assert set(result.faults) == {kind}


def test_a_relapse_is_counted() -> None:
    result = run_options(LONG.with_(rates={"cell crash": 3.0}, quiet=0.0, relapse=0.8), TOY)
    assert result.violations == ()
    assert set(result.faults) == {"cell crash", "relapse"}
