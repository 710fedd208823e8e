"""Random runs of operations, crashes, cuts and takeovers (R-1, R-5, R-6, R-7, R-9 of reshape)."""

from __future__ import annotations

import pytest

from tests.reshape.rules_out import TAKEN_OUT
from tests.reshape.runs import Mode, run

RUNS_PER_MODE = 100
"""They take some three seconds."""

MODES = {
    "no takeover": Mode(takeovers=0),
    "one leader declared at a time": Mode(),
    "several leaders cut off together": Mode(takeovers=2, together=True),
    "living leaders declared too": Mode(takeovers=4, wrong=True),
}


@pytest.mark.parametrize("mode", MODES)
def test_operations_end_in_one_tree_that_all_brokers_know(mode: str) -> None:
    for seed in range(RUNS_PER_MODE):
        run(seed, MODES[mode])


NOTICED = {
    "promises": ("one leader declared at a time", 397),
    "connected cells": ("living leaders declared too", 94),
    "names in terms": ("living leaders declared too", 548),
    "locks without end": ("one leader declared at a time", 225),
}
"""Rules that a scenario would show less plainly: a run that fails without the rule."""


@pytest.mark.parametrize("rule", NOTICED)
def test_a_run_fails_without_the_rule(rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    mode, seed = NOTICED[rule]
    run(seed, MODES[mode])
    TAKEN_OUT[rule](monkeypatch)
    with pytest.raises(AssertionError):
        run(seed, MODES[mode])
