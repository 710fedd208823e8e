"""The broker under faults: seeds that break no promise, and runs that once did."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from gapless_lab.sim.regressions import REGRESSIONS, Regression
from gapless_lab.sim.runner import run_options, run_seed
from tests.cases import scaled

SEEDS = 60


@pytest.mark.parametrize("seed", range(scaled(SEEDS)))
def test_no_promise_is_broken_whatever_fails(seed: int) -> None:
    # P1 to P8 by the checkers, I1 to I15 by the probes, at every step
    result = run_seed(seed)
    assert not result.violations, f"{result.line()}\n{result.options.line()}"


@pytest.mark.parametrize("regression", REGRESSIONS, ids=lambda each: each.name)
def test_what_was_mended_stays_mended(regression: Regression) -> None:
    result = run_options(regression.options)
    assert not result.violations, f"{result.line()}\n{result.options.line()}"
    assert regression.coverage_mark is None or regression.coverage_mark in result.coverage_marks, (
        "it no longer gets there"
    )


def test_a_seed_replays_bit_for_bit_in_another_process_with_other_hashes() -> None:
    code = (
        "from gapless_lab.sim.runner import run_seed\n"
        "for seed in (3, 7, 8, 12, 13, 34, 39):\n"
        "    result = run_seed(seed)\n"
        "    print(result.steps, result.deliveries, result.trace_hash, sorted(result.coverage_marks.items()))\n"
        "for seed in (0, 38):  # short ones, as every effect is written out\n"
        "    print(run_seed(seed, sink=lambda line: None).text_hash)\n"
    )
    outputs = [
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": hashes},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for hashes in ("1", "2")
    ]
    assert outputs[0] == outputs[1]
