"""Many runs: in order, in several processes, and summed up."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from gapless.core.errors import UsageError
from gapless_lab.sim.campaign import known_coverage_marks, run_many, summarise
from gapless_lab.sim.machine import load_factory
from gapless_lab.sim.options import SimulationOptions
from gapless_lab.sim.regressions import FILE, REGRESSIONS, Regression
from gapless_lab.sim.runner import run_options
from gapless_lab.sim.unreachable_marks import OUT_OF_REACH
from tests.lab.sim.test_planted_bugs import TOY_BUGS
from tests.lab.sim.toy import TOY, ToyMachine
from tests.lab.sim.toy_runs import run_toy, toy_options


def test_results_are_in_the_order_of_the_seeds() -> None:
    results = list(run_many(range(5), TOY, run=run_toy))
    assert [result.options.seed for result in results] == [0, 1, 2, 3, 4]


def test_several_processes_give_the_same_results_as_one() -> None:
    alone = [result.trace_hash for result in run_many(range(6), TOY, run=run_toy)]
    shared = [result.trace_hash for result in run_many(range(6), TOY, workers=2, run=run_toy)]
    assert alone == shared


def test_a_summary_sums_up_runs() -> None:
    results = list(run_many(range(8), TOY, run=run_toy))
    summary = summarise(results, known=["corrupt log", "a branch that is never taken"])
    assert summary.seeds == 8
    assert summary.steps == sum(result.steps for result in results)
    assert summary.deliveries == sum(result.deliveries for result in results)
    assert summary.violations == {}
    assert "a branch that is never taken" in summary.never_hit
    assert sum(summary.faults.values()) > 0


def test_an_unreachable_branch_is_listed_separately_with_its_reason() -> None:
    assert set(OUT_OF_REACH) <= set(known_coverage_marks()), "the list names an unknown mark"
    summary = summarise([], known=["reply with a wrong route", "log full"])
    assert summary.never_hit == ["log full"]
    assert summary.out_of_reach == {
        "reply with a wrong route": OUT_OF_REACH["reply with a wrong route"]
    }


def test_a_summary_names_the_seeds_that_failed() -> None:
    bug = next(bug for bug, _ in TOY_BUGS if bug.name == "confirms wrong ticks")
    with bug.installed():
        summary = summarise(run_many(range(3), TOY, run=run_toy))
    assert summary.violations == {"undurable": [0, 1, 2]}


def test_the_marks_of_the_sources_are_known() -> None:
    assert "packet of another session" in known_coverage_marks()
    assert "session died" in known_coverage_marks()


def test_a_line_shows_a_run() -> None:
    result = run_toy(1)
    assert result.line().endswith("ok")
    assert f"{result.steps} steps" in result.line()
    assert result.steps_per_second > 0


def test_a_missing_machine_is_refused_with_its_name() -> None:
    with pytest.raises(UsageError, match=r"the machine gapless\.nowhere:Broker cannot be imported"):
        load_factory("gapless.nowhere:Broker")
    assert load_factory(TOY) is not None
    assert load_factory(TOY).__name__ == ToyMachine.__name__


def test_a_regression_keeps_its_options() -> None:
    options = toy_options(4)
    kept = msgspec.json.encode(Regression("kept", "it failed", options, "log full"))
    assert msgspec.json.decode(kept, type=Regression).options == options
    assert len({regression.name for regression in REGRESSIONS}) == len(REGRESSIONS)
    assert all(regression.why for regression in REGRESSIONS)


LATER_OPTIONS = {"ends_by_name", "leave_rate", "restarts"}
"""Options that are newer than all regressions; their defaults do not change older worlds."""


@pytest.mark.parametrize(
    "entry", msgspec.json.Decoder().decode_lines(FILE.read_bytes()), ids=lambda each: each["name"]
)
def test_a_regression_names_every_option_so_that_no_default_changes_its_world(
    entry: dict[str, Any],
) -> None:
    assert set(entry) <= {"name", "why", "mark", "options"}
    named = entry["options"]
    assert set(SimulationOptions.__struct_fields__) - set(named) <= LATER_OPTIONS
    assert set(named) <= set(SimulationOptions.__struct_fields__), (
        "an option was renamed or removed"
    )


def test_the_marks_of_regressions_are_in_the_sources() -> None:
    assert {each.coverage_mark for each in REGRESSIONS if each.coverage_mark} <= {
        *known_coverage_marks()
    }


def test_the_toy_runs_fast_enough() -> None:
    result = run_options(toy_options(3), TOY)
    assert result.steps_per_second > 5_000, "ten times less than on an idle core"
