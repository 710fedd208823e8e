"""Shrinking: a failing run becomes small and fails in the same way."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from gapless_lab.sim.options import SimulatedNetworkKind, SimulationOptions, draw
from gapless_lab.sim.runner import RunResult, run_options
from gapless_lab.sim.shrink import LEFT_ALONE, _passes, shrink
from gapless_lab.sim.world import Violation
from tests.lab.sim.test_planted_bugs import TOY_BUGS
from tests.lab.sim.toy import TOY
from tests.lab.sim.toy_runs import toy_options

BY_NAME = {bug.name: bug for bug, _ in TOY_BUGS}


def test_a_failing_run_shrinks_to_a_small_one_that_fails_the_same_way() -> None:
    options = toy_options(7).with_(cells=9, subscribers=6, publishers=4)
    with BY_NAME["acknowledges early"].installed():
        failing = run_options(options, TOY)
        assert failing.violations[0].name == "undurable"
        small = shrink(failing, TOY)
        assert small.violations[0].name == "undurable"
        again = run_options(small.options, TOY)
    assert again.trace_hash == small.trace_hash
    assert small.options.cells == 1
    assert small.options.publishers == 1
    assert small.options.subscribers == 1
    assert small.options.rates == {}
    assert small.options.limits == {}
    assert small.options.operations_max <= 3
    assert small.steps < failing.steps


def test_shrinking_respects_its_number_of_runs() -> None:
    with BY_NAME["acknowledges early"].installed():
        failing = run_options(toy_options(7), TOY)
        count = 0

        def counted(*arguments: object, **_: object) -> object:
            nonlocal count
            count += 1
            return run_options(*arguments)  # type: ignore[arg-type]

        shrink(failing, TOY, runs_max=10, run=counted)  # type: ignore[arg-type]
    assert count <= 10


def test_a_fault_that_the_failure_needs_is_kept() -> None:
    options = toy_options(7).with_(
        rates={"crash": 4.0, "pause": 1.0}, forgotten_positions=1.0, durable=1.0
    )
    with BY_NAME["invents acks"].installed():
        results = (run_options(options.with_(seed=seed), TOY) for seed in range(50))
        failing = next(result for result in results if result.failed)
        small = shrink(failing, TOY, runs_max=100)
    assert "crash" in small.options.rates
    assert "pause" not in small.options.rates


def test_outages_and_mixed_cells_are_removed_if_they_are_not_needed() -> None:
    rates = {"cell crash": 2.0, "barrier isolated": 2.0}
    changed = {"cells": 4, "brokers_per_cell": 3, "mixed_cells": True, "relapse": 0.6}
    options = toy_options(7).with_(rates=rates, outage_ms=900, **changed)
    with BY_NAME["acknowledges early"].installed():
        small = shrink(run_options(options, TOY), TOY).options
    assert (small.rates, small.relapse, small.outage_ms) == ({}, 0.0, SimulationOptions().outage_ms)
    assert (small.brokers_per_cell, small.mixed_cells) == (1, False)


def test_every_option_is_shrunk_or_excluded_with_a_reason() -> None:
    busy = far_from_simple()
    fields = set(SimulationOptions.__struct_fields__)
    shrunk = {name for simpler in one_step_simpler(busy) for name in changed(busy, simpler)}
    assert shrunk | LEFT_ALONE.keys() == fields, "a new option is neither shrunk nor left alone"
    assert not shrunk & LEFT_ALONE.keys()
    assert all(LEFT_ALONE.values())


def test_every_step_changes_one_option_and_leaves_a_valid_world() -> None:
    for seed in range(40):
        options = draw(seed)
        for simpler in one_step_simpler(options):
            assert len(changed(options, simpler)) == 1
            simpler.parameters()  # raises if they are inconsistent
            assert len(simpler.topology().cells) == simpler.cells


def far_from_simple() -> SimulationOptions:
    """Return options with no option at its simplest."""
    changes: dict[str, Any] = {
        "network": SimulatedNetworkKind.DATAGRAM,
        "shape": "star",
        "limits": {"ack_groups": 1},
        "rates": {"crash": 1.0},
    }
    for name, value in msgspec.structs.asdict(SimulationOptions()).items():
        if name not in changes:
            changes[name] = not value if isinstance(value, bool) else value + 3
    return SimulationOptions(**changes)


def one_step_simpler(options: SimulationOptions) -> Iterator[SimulationOptions]:
    violation = Violation("stuck", "something is outstanding", at_us=1_000)
    result = msgspec.structs.replace(NOTHING, options=options, violations=(violation,))
    for each in _passes():
        yield from each(result)


def changed(before: SimulationOptions, after: SimulationOptions) -> list[str]:
    return [
        name
        for name in SimulationOptions.__struct_fields__
        if getattr(before, name) != getattr(after, name)
    ]


NOTHING = RunResult(
    options=SimulationOptions(),
    steps=0,
    virtual_ms=0,
    faults={},
    publications=0,
    deliveries=0,
    gaps=0,
    violations=(),
    coverage_marks={},
    trace_hash="",
    text_hash="",
    seconds=0.0,
)
"""A run in which nothing happened."""
