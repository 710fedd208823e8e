"""Runs of the toy: the options omit what it cannot do."""

from __future__ import annotations

from gapless_lab.sim.options import SimulationOptions, draw_ordinary
from gapless_lab.sim.runner import RunResult, run_options
from tests.lab.sim.toy import TOY


def toy_options(seed: int) -> SimulationOptions:
    return draw_ordinary(seed).with_(total=0.0, best_effort=0.0, restarts=0.0)


def run_toy(seed: int, machine: str = TOY) -> RunResult:
    return run_options(toy_options(seed), machine)
