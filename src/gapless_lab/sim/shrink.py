"""Shrinking: from a failing seed to a small world with the same violation.

Options are simplified one at a time, as long as the first violation keeps its name. Random numbers
are split by purpose, so most simplifications hardly change the rest of the run. Where one does, a
few other seeds are tried with the same options.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final, TypeAlias

from gapless_lab.sim.machine import BROKER
from gapless_lab.sim.options import DEFAULTS, SimulatedNetworkKind, SimulationOptions
from gapless_lab.sim.runner import RunResult, run_options

__all__ = ["LEFT_ALONE", "shrink"]

LEFT_ALONE: Final = {
    "seed": "it identifies the world; if the simpler options pass, other seeds are tried with them",
    "pace": "all times and rates were drawn for it: another pace gives another run, not a simpler one",
    "liveness_ms": "with less time slow progress would count as stuck",
}
"""Options that are not simplified, with the reasons."""

_NUMBERS = {
    "cells": 1,
    "brokers_per_cell": 1,
    "subscribers": 1,
    "publishers": 1,
    "staged_writers": 0,
    "pubends": 1,
    "batch_max": 1,
    "operations_max": 1,
    "domain": 2,
}
"""Options that are halved and counted down, with their minimum."""

_SIMPLER: dict[str, Any] = {
    # the overlay
    "shape": "line",
    "fan_out": DEFAULTS.fan_out,
    "network": SimulatedNetworkKind.SESSION,
    "delta": 1,
    "mixed_cells": False,
    # faults
    "relapse": 0.0,
    "outage_ms": DEFAULTS.outage_ms,
    "down_ms_min": 0,
    "down_ms_max": DEFAULTS.down_ms_max,
    "quiet": DEFAULTS.quiet,
    "period_ms": DEFAULTS.period_ms,
    "whole_core": 1.0,
    "inner_losses": 0.0,
    "inner_cuts": 0.0,
    "reshape_rate": 0.0,
    # the workload
    "total": 0.0,
    "best_effort": 0.0,
    "durable": 0.0,
    "past": 0.0,
    "forgotten_positions": 0.0,
    "reconnect_elsewhere": 0.0,
    "failover": 0.0,
    "outside": 0.0,
    "late_pubends": 0.0,
    "conflicting_names": 0.0,
    "stage_rate": 0.0,
    "repeat_rate": 0.0,
    "widen_rate": 0.0,
    "churn_rate": 0.0,
    "close_rate": 0.0,
    "publish_rate": 0.0,
    "reads": 0.0,
    "restarts": 0.0,
    "leave_rate": 0.0,
    "ends_by_name": 0.0,
    "credit_max": DEFAULTS.credit_max,
    "expiry": False,
    "expiry_s": DEFAULTS.expiry_s,
    "retention_s": 0,
    # the network and the disks
    "duplicate": 0.0,
    "half_open": 0.0,
    "stall": 0.0,
    "together": False,
    "survive": 0.0,
    "torn": 0.0,
    "clock_error_us": 0,
    "delay_us_min": DEFAULTS.delay_us_min,
    "delay_us_max": DEFAULTS.delay_us_max,
    "sync_us_min": DEFAULTS.sync_us_min,
    "sync_us_max": DEFAULTS.sync_us_max,
}
"""Options that have a simplest value."""


Pass: TypeAlias = Callable[[RunResult], Iterator[SimulationOptions]]
"""Yields options that are one step simpler in one respect, the largest step first."""


def shrink(
    result: RunResult,
    machine: str = BROKER,
    *,
    runs_max: int = 400,
    seeds: int = 3,
    run: Callable[..., RunResult] = run_options,
) -> RunResult:
    """Return a run with simpler options and the same violation."""
    assert result.violations, "only a failing run can be shrunk"
    name = result.violations[0].name
    left = runs_max
    best = result
    while left > 0:
        before = best
        for each in _passes():
            found: RunResult | None = best
            while found is not None and left > 0:
                best = found
                found = None
                for simpler in each(best):
                    found, used = _try(simpler, name, machine, min(seeds, left), run)
                    left -= used
                    if found is not None or left <= 0:
                        break
            best = found or best
        if best is before:
            break
    return best


def _try(
    options: SimulationOptions, name: str, machine: str, seeds: int, run: Callable[..., RunResult]
) -> tuple[RunResult | None, int]:
    """Run the options, then with other seeds; return a run with that violation, and the number of
    runs.
    """
    for used in range(seeds):
        # the shape is drawn from the seed too, so only the first run has the same world
        tried = options if used == 0 else options.with_(seed=options.seed + 1_000_003 * used)
        result = run(tried, machine)
        if result.violations and result.violations[0].name == name:
            return result, used + 1
    return None, seeds


def _passes() -> Iterator[Pass]:
    """Return the passes in their order: those that shorten runs most come first."""
    yield _end_sooner
    yield partial(_fewer, "rates")
    yield partial(_fewer, "limits")
    for name, least in _NUMBERS.items():
        yield partial(_less, name, least)
    for name, simplest in _SIMPLER.items():
        yield partial(_simplest, name, simplest)


def _end_sooner(result: RunResult) -> Iterator[SimulationOptions]:
    end_ms = result.violations[0].at_us // 1_000 + 1
    if end_ms < result.options.safety_ms:
        yield result.options.with_(safety_ms=end_ms)


def _fewer(name: str, result: RunResult) -> Iterator[SimulationOptions]:
    table: dict[str, Any] = getattr(result.options, name)
    if len(table) > 1:
        yield result.options.with_(**{name: {}})
    for entry in table:
        rest = {other: value for other, value in table.items() if other != entry}
        yield result.options.with_(**{name: rest})


def _less(name: str, least: int, result: RunResult) -> Iterator[SimulationOptions]:
    value = getattr(result.options, name)
    if name == "operations_max":
        value = min(value, 4_096)
    for smaller in dict.fromkeys((least, value // 2, value - 1)):
        if least <= smaller < value:
            yield result.options.with_(**{name: smaller})


def _simplest(name: str, simplest: Any, result: RunResult) -> Iterator[SimulationOptions]:
    if getattr(result.options, name) != simplest:
        yield result.options.with_(**{name: simplest})
