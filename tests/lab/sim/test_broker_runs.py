"""The broker under faults: seeds that break no promise, and regressions."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from gapless.messages.clients import LeaveSubscription
from gapless.subscribers.client_calls import SubscriberCalls
from gapless_lab.sim.options import draw
from gapless_lab.sim.regressions import REGRESSIONS, Regression
from gapless_lab.sim.runner import run_options, run_seed
from tests.cases import scaled

SEEDS = 30


@pytest.mark.parametrize("seed", range(scaled(SEEDS)))
def test_no_promise_is_broken_whatever_fails(seed: int) -> None:
    # P1 to P8 by the checkers, I1 to I15 by the invariants, at every step
    result = run_seed(seed)
    assert not result.violations, f"{result.line()}\n{result.options.line()}"


def test_clients_leave_durable_subscriptions_and_return_over_the_same_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    left: list[str] = []
    leave = SubscriberCalls._leave

    def noted(calls: SubscriberCalls, client: str, call: LeaveSubscription) -> None:
        left.append(call.subscription)
        leave(calls, client, call)

    monkeypatch.setattr(SubscriberCalls, "_leave", noted)
    seeds = [seed for seed in range(100) if draw(seed).leave_rate]
    assert 5 < len(seeds) < 50
    for seed in seeds[: scaled(3)]:
        result = run_options(draw(seed))
        assert not result.violations, f"{result.line()}\n{result.options.line()}"
    assert len(left) > 5


@pytest.mark.parametrize("regression", REGRESSIONS, ids=lambda each: each.name)
def test_a_regression_does_not_fail_again(regression: Regression) -> None:
    result = run_options(regression.options)
    assert not result.violations, f"{result.line()}\n{result.options.line()}"
    assert regression.coverage_mark is None or regression.coverage_mark in result.coverage_marks, (
        "the run no longer reaches the branch"
    )


def test_a_seed_replays_bit_for_bit_in_another_process_with_other_hashes() -> None:
    code = (
        "from gapless_lab.sim.runner import run_seed\n"
        "for seed in (3, 8, 39):\n"
        "    result = run_seed(seed)\n"
        "    print(result.steps, result.deliveries, result.trace_hash, sorted(result.coverage_marks.items()))\n"
        "print(run_seed(0, sink=lambda line: None).text_hash)  # a short one: all effects are written\n"
    )
    runs = [
        subprocess.Popen(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": hashes},
            stdout=subprocess.PIPE,
            text=True,
        )
        for hashes in ("1", "2")
    ]
    one, other = (run.communicate()[0] for run in runs)
    assert [run.returncode for run in runs] == [0, 0]
    assert one == other
