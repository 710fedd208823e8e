"""I4 and its purpose, on random trees.

No table claims more than it covers, and no event is filtered that a vector promises.
:mod:`tests.propagation.test_planted` shows that the oracle finds violations.
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
def test_tables_cover_their_claims_and_promised_events_pass(part: int) -> None:
    play(range(part, RUNS, 4))


def test_the_runs_check_many_routes() -> None:
    """Filters are on the route of required events, thousands of times."""
    assert play(range(10)) > 1_000


def test_a_run_does_not_depend_on_the_hash_seed() -> None:
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
