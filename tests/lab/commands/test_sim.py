"""``gapless sim``."""

from __future__ import annotations

import json
import re
from collections import Counter

import pytest

from gapless.cli.main import main
from gapless_lab.sim.options import SimulationOptions
from gapless_lab.sim.runner import run_seed
from tests.lab.sim.test_planted_bugs import TOY_BUGS
from tests.lab.sim.toy import TOY
from tests.lab.sim.toy_runs import toy_options

BUG = next(bug for bug, _ in TOY_BUGS if bug.name == "confirms wrong ticks")


def options_of(seed: int) -> str:
    return toy_options(seed).json()


def test_replay_shows_the_result_and_the_options(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sim", "replay", "3", "--machine", TOY, "--options", options_of(3)]) == 0
    shown = capsys.readouterr().out
    assert "seed      3" in shown
    assert toy_options(3).line() in shown


def test_replay_with_a_trace_shows_time_broker_event_and_effects(
    capsys: pytest.CaptureFixture[str],
) -> None:
    options = SimulationOptions(seed=3, cells=2, safety_ms=500)
    assert main(["sim", "replay", "3", "--options", options.json(), "--trace"]) == 0
    lines = capsys.readouterr().out.splitlines()
    when, who, what = lines[1].split(maxsplit=2)
    assert 0 <= float(when) < 1
    assert who in {"n0a", "n1a", "s0", "s1", "s2", "s3", "p0", "p1", "p2"}, what
    assert any(re.fullmatch(r" +\S+ n0a +\*\* starts", line) for line in lines)
    shown = "\n".join(lines)
    assert re.search(r"n\da +p\d\.\d requests Publish \d+: P\d p\d/1 session", shown)
    assert re.search(r"n\da .* => write \d+: appends P\d \[0\.\d{6}, 0\.\d{6}\]", shown)
    assert re.search(r"s\d +receives Delivery s\d \(P\d \(0\.\d{6} p\d/\d+", shown)
    assert not re.search(r"\b1[67]\d{14}", shown), "times are relative to the start"


def test_replay_of_a_failing_run_reports_it_and_can_shrink_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    arguments = ["sim", "replay", "3", "--machine", TOY, "--options", options_of(3)]
    with BUG.installed():
        assert main([*arguments, "--shrink"]) == 1
        shown = capsys.readouterr().out
        assert "undurable" in shown
        assert main([*arguments, "--json"]) == 1
        result = json.loads(capsys.readouterr().out)
    assert result["violations"][0]["name"] == "undurable"


def test_run_prints_a_line_a_run_and_a_summary(capsys: pytest.CaptureFixture[str]) -> None:
    with BUG.installed():
        assert main(["sim", "run", "--seeds", "3", "--start", "5", "--machine", TOY]) == 1
    shown = capsys.readouterr().out
    for seed in (5, 6, 7):
        assert f"seed {seed:>6}" in shown
    assert "undurable: seeds" in shown
    assert "never hit" in shown


def test_run_as_json_has_the_summary_the_failures_and_every_run(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with BUG.installed():
        assert main(["sim", "run", "--seeds", "2", "--machine", TOY, "--json"]) == 1
    report = json.loads(capsys.readouterr().out)
    assert report["summary"]["seeds"] == 2
    assert report["failures"][0]["options"]["seed"] == 0
    runs = report["runs"]
    assert [run["seed"] for run in runs] == [0, 1]
    assert runs[0]["violations"] == [each["name"] for each in report["failures"][0]["violations"]]
    for name in ("steps", "publications", "deliveries", "gaps"):
        assert sum(run[name] for run in runs) == report["summary"][name]
    assert sum(run["faults"] for run in runs) == sum(report["summary"]["faults"].values())


def test_run_sums_up_the_coverage_marks_of_the_broker(capsys: pytest.CaptureFixture[str]) -> None:
    results = [run_seed(seed) for seed in (8, 9)]
    assert main(["sim", "run", "--seeds", "2", "--start", "8", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert [run["trace_hash"] for run in report["runs"]] == [each.trace_hash for each in results]
    assert all(not run["violations"] for run in report["runs"])
    summary = report["summary"]
    assert summary["seeds"] == 2
    for name in ("steps", "publications", "deliveries"):
        assert summary[name] == sum(getattr(each, name) for each in results) > 0
    faults = Counter[str]()
    for each in results:
        faults.update(each.faults)
    assert summary["faults"] == dict(faults)
    assert summary["violations"] == {}
    assert set(summary["never_hit"]).isdisjoint(summary["coverage_marks"])
    assert main(["sim", "run", "--seeds", "1", "--start", "8"]) == 0
    shown = capsys.readouterr().out
    for head in (
        "seeds",
        "steps",
        "faults",
        "publications",
        "deliveries",
        "never hit",
        "violations",
    ):
        assert f"\n{head:<14}" in f"\n{shown}", head


def test_a_missing_machine_is_an_error_and_not_a_traceback(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["sim", "run", "--seeds", "1", "--machine", "gapless.nowhere:Broker"]) == 2
    assert "the machine gapless.nowhere:Broker cannot be imported" in capsys.readouterr().err
