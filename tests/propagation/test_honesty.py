"""I4 and what it is for, on random trees: no table claims what it does not cover, and nothing is
filtered that a vector promises.

That the oracle would find something shows :mod:`tests.propagation.test_planted`.
"""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.cases import scaled
from tests.propagation.runs import play

RUNS = scaled(100)


@pytest.mark.parametrize("part", range(4))
def test_what_a_table_claims_it_covers_and_what_is_promised_passes(part: int) -> None:
    play(range(part, RUNS, 4))


def test_the_runs_have_something_to_find() -> None:
    """Filters stand in the way of what is owed, thousands of times."""
    assert play(range(10)) > 1_000


def test_a_run_is_the_same_whatever_the_hash_seed() -> None:
    program = (
        "from hashlib import sha256\n"
        "from tests.propagation.runs import STEPS, Run\n"
        "trace = sha256()\n"
        "for seed in range(3):\n"
        "    run = Run(seed)\n"
        "    for _ in range(STEPS):\n"
        "        run.step()\n"
        "        trace.update(repr(run.mail).encode())\n"
        "        trace.update(repr(run.vectors).encode())\n"
        "print(trace.hexdigest())\n"
    )
    traces = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)},
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert len(traces) == 1
