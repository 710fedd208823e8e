"""Faults: each kind occurs, quiet periods have none, and the core heals for good."""

from __future__ import annotations

import pytest

from gapless_lab.sim.options import FAULT_KINDS, SimulatedNetworkKind, SimulationOptions
from gapless_lab.sim.runner import SimulationRun, run_options
from gapless_lab.sim.world import SimulatedHost
from tests.lab.sim.toy import TOY
from tests.lab.sim.toy_runs import toy_options

SMALL = SimulationOptions(seed=3, total=0.0, torn=0.0)
"""A small world for the toy."""


@pytest.mark.parametrize("kind", FAULT_KINDS)
def test_only_the_chosen_kind_of_fault_occurs(kind: str) -> None:
    network = SimulatedNetworkKind.DATAGRAM if kind == "loss" else SimulatedNetworkKind.SESSION
    options = SMALL.with_(rates={kind: 8.0}, quiet=0.0, network=network)
    result = run_options(options, TOY)
    assert result.violations == ()
    assert set(result.faults) == {kind}


def test_a_seed_without_rates_has_no_faults() -> None:
    for seed in range(20):
        result = run_options(toy_options(seed).with_(rates={}, torn=0.0), TOY)
        assert result.faults == {}
        assert result.violations == ()


def test_quiet_periods_have_no_faults() -> None:
    loud = SMALL.with_(rates=dict.fromkeys(FAULT_KINDS, 5.0))
    assert run_options(loud.with_(quiet=1.0), TOY).faults == {}
    assert run_options(loud.with_(quiet=0.0), TOY).faults


def healed(seed: int) -> SimulationRun:
    run = SimulationRun(toy_options(seed), TOY)
    run.start()
    run.world.run_until(run.options.safety_ms * 1_000)
    run.workload.stop()
    run.faults.heal()
    return run


def adjacent(left: SimulatedHost, right: SimulatedHost) -> bool:
    return left.cell == right.cell or right.cell in left.configured.neighbours


def test_the_core_is_connected_and_running_and_stays_so() -> None:
    partial = 0
    for seed in range(60):
        run = healed(seed)
        core = run.world.core
        partial += len(core) < len(run.world.hosts)
        reached = [core[0]]
        for host in reached:
            reached += [other for other in core if other not in reached and adjacent(host, other)]
        assert len(reached) == len(core)
        processes = [host.process for host in core]
        faults = dict(run.world.faults)
        run.world.run_until(run.world.now + 1_000_000)
        assert [host.process for host in core] == processes
        assert all(process is not None and not process.paused for process in processes)
        assert run.world.faults == faults, "no fault strikes in the liveness phase"
        for host in core:
            for link in run.world.network.links[host.broker].values():
                if link.target in core and adjacent(host, link.target):
                    assert not link.cut
                    assert link.loss == 0
    assert 5 < partial < 55


def test_outside_the_core_some_hosts_stay_dead_and_some_stay_paused() -> None:
    dead = stopped = 0
    for seed in range(60):
        run = healed(seed)
        run.world.run_until(run.world.now + 1_000_000)
        for host in run.world.hosts.values():
            dead += host.process is None
            stopped += host.process is not None and host.process.paused
    assert dead > 5
    assert stopped > 5


def test_removing_one_kind_of_fault_does_not_change_the_others() -> None:
    rates = {"clock jump": 3.0, "slow client": 3.0}
    both = run_options(SMALL.with_(rates=rates), TOY)
    one = run_options(SMALL.with_(rates={"clock jump": 3.0}), TOY)
    assert one.faults["clock jump"] == both.faults["clock jump"]
