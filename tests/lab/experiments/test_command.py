"""``gapless lab``: list, run, resume, errors."""

from __future__ import annotations

import csv
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import gapless
import gapless_lab
from gapless.cli.main import main
from gapless_lab.lab import catalogue
from gapless_lab.lab.catalogue import EXPERIMENTS, find
from gapless_lab.lab.drawing import can_draw
from gapless_lab.lab.points import Point, PointOutcome, Row, run_point
from gapless_lab.lab.results import ResultStore, digest_of, this_code
from gapless_lab.lab.running import ExperimentRun, one_by_one

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TINY = ["--quick", "--grid", "brokers=40", "--grid", "failed=0,8", "--runs", "3"]


def run(*arguments: str, out: Path) -> int:
    return main(["lab", "run", *arguments, "--out", str(out)])


def test_list_names_every_experiment_with_its_paper_and_figure(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["lab", "list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[1:]] == list(EXPERIMENTS)
    assert "PT     figure 9 " in lines[5]
    assert main(["lab", "list", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found[4]["axes"]["delta"] == [0, 1, 2, 3, 4]


def test_the_guide_describes_every_experiment() -> None:
    page = (Path(__file__).resolve().parents[3] / "docs" / "lab.md").read_text()
    assert [name for name in EXPERIMENTS if f"### `{name}`" not in page] == []


def test_run_prints_and_stores_a_table_a_page_and_a_plot(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert run("pt-9", *TINY, out=tmp_path) == 0
    shown = capsys.readouterr().out
    assert "fan-out 3: pairs disconnected, in percent" in shown
    assert "increasing δ improves network connectivity" in shown
    assert "brokers 40; fan_out 3, 7; failed 0, 8; delta 0, 1, 2, 3; runs 3" in shown
    folder = tmp_path / "pt-9"
    page = (folder / "README.md").read_text()
    assert "| failed | δ = 0 | δ = 1 |" in page
    rows = list(csv.reader((folder / "table.csv").read_text().splitlines()))
    assert rows[0] == ["failed", "δ = 0", "δ = 1", "δ = 2", "δ = 3"]
    assert [row[0] for row in rows[1:]] == ["0", "8"]
    assert (folder / "plot.png").exists() == can_draw()


def test_run_as_json_is_the_whole_report(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert run("pt-12", "--quick", "--grid", "brokers=60", "--json", out=tmp_path) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["figure"] == "figure 12"
    assert report["done"] == report["points"] == 6
    assert report["comparisons"][0]["paper"].startswith("the number stays very low")
    assert len(report["tables"][0]["rows"]) == 6


def test_several_experiments_are_run_one_after_the_other(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert run("pt-9", "pt-12", *TINY, "--json", out=tmp_path) == 0
    assert [each["name"] for each in json.loads(capsys.readouterr().out)] == ["pt-9", "pt-12"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["pt-99"], "no experiment 'pt-99'; did you mean pt-9?"),
        (["pt-9", "--grid", "colour=red"], "pt-9 has no axis colour; it has brokers, fan_out"),
        (["pt-9", "--grid", "colour"], "is no axis"),
        (["pt-11", "--runs", "3"], "pt-11 has no random part"),
        (["pt-9", "--grid", "delta=1", "--grid", "delta=2"], "the axis delta is given twice"),
        (["pt-9", "--runs", "3", "--grid", "runs=5"], "--runs sets the axis runs"),
        (["gd-6", "--runs", "1000000"], "--runs is a whole number from 1 to 1,000"),
        (["pt-9", "--grid", "brokers=5..3"], "5..3 is empty; write the smaller number first"),
        (["pt-9", "--grid", "runs=1..9999999"], "1..9999999 are more than 1,000,000 values"),
        # the error is in the second of two: the first is not measured
        (["pt-12", "pt-9", "--quick", "--grid", "failed=199"], "pt-9: brokers 200, failed 199"),
    ],
)
def test_invalid_input_is_refused_before_anything_is_measured(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert run(*arguments, out=tmp_path) == 2
    assert message in capsys.readouterr().err.replace("\n", " ")
    assert not list(tmp_path.iterdir())


# --- storing and resuming -------------------------------------------------------------------------


def points() -> list[Point]:
    changed = {"brokers": (40,), "failed": (0, 8), "fan_out": (3,), "delta": (0, 1)}
    return find("pt-9").points(quick=True, runs=2, changed=changed)


def store_at(folder: Path) -> ResultStore:
    return ResultStore(folder, "1.0")


class Interrupted:
    """Measures some points, then raises KeyboardInterrupt."""

    def __init__(self, after: int) -> None:
        self.after = after

    def __call__(self, points: Sequence[Point]) -> Any:
        for place, point in enumerate(points):
            if place == self.after:
                raise KeyboardInterrupt
            yield run_point(catalogue.measure, place, point)


def test_a_stopped_run_continues_with_the_missing_points(tmp_path: Path) -> None:
    whole = ExperimentRun(find("pt-9"), points(), store_at(tmp_path / "whole"))
    whole.go()
    store = store_at(tmp_path / "stopped")
    stopped = ExperimentRun(find("pt-9"), points(), store)
    with pytest.raises(KeyboardInterrupt):
        stopped.go(Interrupted(3))
    assert len(stopped.rows) == 3
    resumed = ExperimentRun(find("pt-9"), points(), store)
    assert len(resumed.missing) == 1
    watched: list[PointOutcome] = []
    resumed.go(one_by_one, watched.append)
    assert len(watched) == 1
    assert resumed.rows == whole.rows


def test_a_truncated_line_is_measured_again(tmp_path: Path) -> None:
    store = store_at(tmp_path)
    ExperimentRun(find("pt-9"), points(), store).go()
    path = tmp_path / "points.jsonl"
    path.write_bytes(path.read_bytes()[:-20])
    assert len(ExperimentRun(find("pt-9"), points(), store).missing) == 1


def test_ctrl_c_keeps_the_finished_points_with_a_message(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gapless_lab.lab.running.one_by_one", Interrupted(2))
    assert run("pt-9", *TINY, out=tmp_path) == 130
    kept = f"2 of 16 points are kept in {tmp_path / 'pt-9'}; the same command continues"
    assert kept in capsys.readouterr().err
    assert "Not complete: 2 of 16 points" in (tmp_path / "pt-9" / "README.md").read_text()
    monkeypatch.undo()
    assert run("pt-9", *TINY, out=tmp_path) == 0
    assert "2 of 16 points were finished before" in capsys.readouterr().err
    assert run("pt-9", *TINY, "--fresh", out=tmp_path) == 0
    assert "finished before" not in capsys.readouterr().err


def test_a_point_that_fails_is_named_and_the_others_are_kept(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured = catalogue.measure

    def unlucky(point: Point) -> Row:
        if point["failed"] == 8 and point["delta"] == 0:
            raise ValueError("unlucky")
        return measured(point)

    monkeypatch.setattr("gapless_lab.lab.running.measure", unlucky)
    assert run("pt-9", *TINY, "--grid", "fan_out=3", out=tmp_path) == 1
    message = capsys.readouterr()
    assert (
        "failed: brokers 40, fan_out 3, failed 8, delta 0, runs 3: ValueError: unlucky"
        in message.err
    )
    assert "1 point of 8 could not be measured" in message.out
    page = (tmp_path / "pt-9" / "README.md").read_text()
    assert "Not complete: 7 of 8 points" in page
    assert "| 8 |  |" in page  # an empty cell


def test_points_of_another_version_are_measured_again(tmp_path: Path) -> None:
    ExperimentRun(find("pt-9"), points(), store_at(tmp_path)).go()
    assert not ExperimentRun(find("pt-9"), points(), store_at(tmp_path)).missing
    assert len(ExperimentRun(find("pt-9"), points(), ResultStore(tmp_path, "1.1")).missing) == 4


def test_a_change_of_any_file_of_the_package_changes_the_digest(tmp_path: Path) -> None:
    inner = tmp_path / "inner"
    inner.mkdir()
    (inner / "broker.py").write_text("one = 1")
    first = digest_of(tmp_path)
    cache = inner / "__pycache__"
    cache.mkdir()
    (cache / "broker.pyc").write_text("made of it")
    assert digest_of(tmp_path) == first
    (inner / "broker.py").write_text("one = 2")
    changed = digest_of(tmp_path)
    (inner / "broker.py").rename(inner / "other.py")
    assert len({first, changed, digest_of(tmp_path)}) == 3


def test_points_of_changed_code_of_the_same_version_are_measured_again(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packages = (*gapless.__path__, *gapless_lab.__path__)
    assert this_code("1.0") == f"1.0+{digest_of(*map(Path, packages))}"
    assert run("pt-9", *TINY, out=tmp_path) == 0
    assert run("pt-9", *TINY, out=tmp_path) == 0
    assert "16 of 16 points were finished before" in capsys.readouterr().err
    monkeypatch.setattr("gapless_lab.lab.results.this_code", lambda version: f"{version}+edited")
    assert run("pt-9", *TINY, out=tmp_path) == 0
    assert "finished before" not in capsys.readouterr().err


# --- Spark ----------------------------------------------------------------------------------------


def test_spark_measures_what_the_local_runner_measures(spark: SparkSession, tmp_path: Path) -> None:
    from gapless_lab.sweep.sweeping import outcomes

    local = ExperimentRun(find("pt-9"), points(), store_at(tmp_path / "local"))
    local.go()
    spread = ExperimentRun(find("pt-9"), points(), store_at(tmp_path / "spread"))
    spread.go(lambda missing: outcomes(spark, catalogue.MEASURE, missing))
    assert not spread.failures
    assert spread.rows == local.rows


@pytest.fixture
def command(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make commands use the session of the tests and leave it running."""
    monkeypatch.setattr(type(spark), "stop", lambda _: None)
    monkeypatch.setenv("GAPLESS_SPARK_MASTER", str(spark.sparkContext.master))


@pytest.mark.usefixtures("command")
def test_run_with_spark_writes_the_local_results_and_needs_no_session_when_complete(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    local, spread = tmp_path / "local", tmp_path / "spread"
    assert run("pt-9", *TINY, out=local) == 0
    assert run("pt-9", *TINY, "--spark", out=spread) == 0
    for name in ("table.csv", "table-2.csv"):
        assert (spread / "pt-9" / name).read_text() == (local / "pt-9" / name).read_text()
    capsys.readouterr()

    def refused(*_: str) -> None:
        raise AssertionError("nothing is left to measure")

    monkeypatch.setattr("gapless.cli.spark_sessions.session", refused)
    assert run("pt-9", *TINY, "--spark", out=spread) == 0
    assert "16 of 16 points were finished before" in capsys.readouterr().err
