"""The simulator as an experiment: a point is a seed."""

from __future__ import annotations

import msgspec

from gapless_lab.sim.runner import DEFAULT_OBSERVERS, RunResult, run_seed
from gapless_lab.sweep.experiments import Point, Row

__all__ = ["result_of", "simulate"]


def simulate(point: Point) -> Row:
    """Run a seed as the local runner does. The row also contains the whole result as JSON."""
    seed, machine = point["seed"], point["machine"]
    assert isinstance(seed, int)
    assert isinstance(machine, str)
    result = run_seed(seed, machine, observers=DEFAULT_OBSERVERS if point["invariants"] else ())
    return {
        "verdict": result.violations[0].name if result.failed else "ok",
        "steps": result.steps,
        "virtual_ms": result.virtual_ms,
        "faults": sum(result.faults.values()),
        "publications": result.publications,
        "deliveries": result.deliveries,
        "gaps": result.gaps,
        "cpu_seconds": result.seconds,
        "trace_hash": result.trace_hash,
        "result": msgspec.json.encode(result).decode(),
    }


def result_of(row: Row) -> RunResult:
    """Return the result of a run from its row."""
    text = row["result"]
    assert isinstance(text, str)
    return msgspec.json.decode(text, type=RunResult)
