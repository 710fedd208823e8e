"""Sweeps: the results of the local runner, one table, and no task left."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import gapless
import gapless_lab

pytest.importorskip("pyspark", reason='Spark is not installed: pip install "gapless[spark]"')

import msgspec
import pyarrow.parquet as pq

from gapless.cli import spark_sessions
from gapless.cli.main import main
from gapless.core.errors import UsageError
from gapless.spark.jobs.plotting import Plot, lines_of
from gapless.spark.jobs.shipping import packed, ready_executors
from gapless_lab.lab.catalogue import find
from gapless_lab.sim.campaign import run_many
from gapless_lab.sim.runner import RunResult
from gapless_lab.sweep.distribution import deal
from gapless_lab.sweep.experiments import Point, grid, load, parse_axis, read_points
from gapless_lab.sweep.sweeping import Sweep, sweep, sweep_seeds
from tests.guides import ROOT
from tests.spark.experiments import FORGETFUL, HERE, LOSSY
from tests.spark.rows import until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def command(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make commands use the session of the tests and leave it running."""
    monkeypatch.setattr(type(spark), "stop", lambda _: None)
    monkeypatch.setenv("GAPLESS_SPARK_MASTER", str(spark.sparkContext.master))


def timeless(result: RunResult) -> RunResult:
    """Return a result without the fields that differ between equal runs."""
    return msgspec.structs.replace(result, seconds=0.0)


def test_seeds_have_the_results_of_the_local_runner_in_the_same_order(spark: SparkSession) -> None:
    seeds = (0, 11, 2, 9, 10)  # small ones
    found = sweep_seeds(spark, seeds)
    assert list(map(timeless, found.results)) == list(map(timeless, run_many(seeds)))
    assert [row["seed"] for row in found.sweep.rows] == list(seeds)


def test_seeds_of_a_broker_with_a_planted_bug_fail_as_they_do_in_the_local_runner(
    spark: SparkSession,
) -> None:
    seeds = (0, 11, 2, 9, 10)
    found = sweep_seeds(spark, seeds, FORGETFUL)
    expected = list(run_many(seeds, FORGETFUL))
    assert list(map(timeless, found.results)) == list(map(timeless, expected))
    assert {each.failed for each in expected} == {True, False}, "some find the bug and some do not"


@pytest.mark.usefixtures("command")
def test_a_failing_seed_is_printed_exactly_as_by_the_local_runner(
    capsys: pytest.CaptureFixture[str],
) -> None:
    arguments = ["--seeds", "3", "--start", "16", "--machine", LOSSY]
    local = main(["sim", "run", *arguments])
    expected = capsys.readouterr().out
    assert main(["spark", "sweep", *arguments]) == local == 1
    found = capsys.readouterr().out
    assert expected.count("  lost at ") == 3
    assert without_speed(found) == without_speed(expected)


def without_speed(text: str) -> list[str]:
    """Return the lines without the one with the speed."""
    return [line for line in text.splitlines() if not line.startswith("steps")]


@pytest.mark.usefixtures("command")
def test_seeds_as_json_are_the_report_of_the_local_runner_and_are_stored(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    arguments = ["--seeds", "2", "--start", "9", "--json"]
    assert main(["sim", "run", *arguments]) == 0
    expected = json.loads(capsys.readouterr().out)
    assert main(["spark", "sweep", *arguments, "--out", str(tmp_path)]) == 0
    found = json.loads(capsys.readouterr().out)
    del found["summary"]["steps_per_second"], expected["summary"]["steps_per_second"]
    assert found == expected
    table = pq.read_table(tmp_path / "results.parquet")
    assert table.column("seed").to_pylist() == [9, 10]
    assert set(table.column("verdict").to_pylist()) == {"ok"}


def test_a_missing_machine_is_refused_before_anything_is_run(spark: SparkSession) -> None:
    with pytest.raises(UsageError, match="cannot be imported"):
        sweep_seeds(spark, range(1), "nowhere:Machine")


def test_an_experiment_over_a_grid_is_one_table_and_names_its_failures(
    spark: SparkSession, tmp_path: Path
) -> None:
    points = grid({"width": [1, 2], "height": [3, 13, 4]})
    seen: list[Any] = []
    found = sweep(spark, f"{HERE}:area", points, on_outcome=lambda each: seen.append(each.index))
    assert seen == list(range(6))
    assert [(row["width"], row["height"], row["area"]) for row in found.rows] == [
        (1, 3, 3),
        (1, 4, 4),
        (2, 3, 6),
        (2, 4, 8),
    ]
    assert [each.point["width"] for each in found.failures] == [1, 2]
    assert {each.error for each in found.failures} == {"ValueError: unlucky"}
    files = found.save(tmp_path, [Plot.parse("height:area:width")])
    assert pq.read_table(files[0]).column("area").to_pylist() == [3, 4, 6, 8]


@pytest.mark.usefixtures("command")
def test_the_command_prints_the_table_draws_and_fails_if_a_point_failed(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    pytest.importorskip("matplotlib")
    arguments = ["spark", "sweep", "--experiment", f"{HERE}:area", "--grid", "width=1..3"]
    out = ["--out", str(tmp_path), "--plot", "width:area"]
    assert main([*arguments, "--grid", "height=2", *out]) == 0
    assert "width" in capsys.readouterr().out
    assert (tmp_path / "area-over-width.png").read_bytes().startswith(b"\x89PNG")
    assert main([*arguments, "--grid", "height=13"]) == 1
    assert "failed at {'width': 1, 'height': 13}: ValueError: unlucky" in capsys.readouterr().out


def test_a_row_that_is_not_flat_is_a_failure_with_a_reason(spark: SparkSession) -> None:
    found = sweep(spark, f"{HERE}:nested", [{"n": 1}])
    assert "rows are flat" in found.failures[0].error


def test_closing_the_generator_cancels_the_tasks(spark: SparkSession, tmp_path: Path) -> None:
    points: list[Point] = [{"n": n, "traces": str(tmp_path)} for n in range(8)]
    listening = deal(spark, load(f"{HERE}:stall"), points)
    assert next(listening).point["n"] == 0
    listening.close()  # type: ignore[attr-defined]  # deal is a generator
    tracker = spark.sparkContext.statusTracker()
    until(lambda: not tracker.getActiveJobsIds(), "the job is cancelled")
    assert len(list(tmp_path.iterdir())) <= 4
    assert spark.range(3).count() == 3


@pytest.mark.usefixtures("command")
@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ([], "either --seeds or an --experiment"),
        (["--experiment", "nowhere:f", "--grid", "a=1"], "there is no experiment nowhere:f"),
        (["--experiment", f"{HERE}:area"], "needs points"),
        (["--experiment", f"{HERE}:area", "--grid", "a"], "is no axis"),
        (["--seeds", "1", "--plot", "a:b"], "--out"),
        (["--seeds", "1", "--plot", "a", "--out", "x"], "is no plot"),
    ],
)
def test_an_invalid_command_is_refused_in_one_line(
    capsys: pytest.CaptureFixture[str], arguments: list[str], problem: str
) -> None:
    assert main(["spark", "sweep", *arguments]) == 2
    assert problem in capsys.readouterr().err


def test_a_task_that_dies_ends_the_sweep_with_an_error_of_one_line(spark: SparkSession) -> None:
    with pytest.raises(UsageError, match=r"^Spark ended the sweep: .*exited") as caught:
        sweep(spark, f"{HERE}:die", [{"n": 1}])
    assert len(str(caught.value).splitlines()) == 1


def test_axes_are_numbers_ranges_words_and_texts() -> None:
    assert parse_axis("a=1, 2.5 ,3..5,true,line") == ("a", [1, 2.5, 3, 4, 5, True, "line"])


def test_all_invalid_points_of_a_file_are_named(tmp_path: Path) -> None:
    path = tmp_path / "points"
    path.write_text('{"a": 1}\n\n[1]\n{"a": 2}\n{"a": {}}\nno\n')
    with pytest.raises(UsageError) as caught:
        read_points(path)
    assert [line.split(":")[0].strip() for line in str(caught.value).splitlines()[1:]] == [
        "line 3",
        "line 5",
        "line 6",
    ]


def test_a_plot_of_a_missing_column_names_the_existing_ones() -> None:
    with pytest.raises(UsageError, match="no column c; there are a, b"):
        lines_of([{"a": 1, "b": 2}], Plot("a", "c"))


@pytest.mark.usefixtures("command")
def test_an_experiment_of_the_lab_is_found_by_its_name_with_all_its_points(
    capsys: pytest.CaptureFixture[str],
) -> None:
    expected = find("pt-9")
    axes = {name: values[:1] for name, values in expected.quick.items()}
    points = expected.points(changed=axes)
    grids = [
        f"--grid={name}={','.join(str(value).lower() for value in values)}"
        for name, values in axes.items()
    ]
    assert main(["spark", "sweep", "--experiment", "pt-9", *grids, "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert [{name: row[name] for name in points[0]} for row in rows] == points
    for row, point in zip(rows, points, strict=True):
        assert row.items() >= expected.measure(point).items()
    assert main(["spark", "sweep", "--experiment", "pt-9", "--grid", "colour=1"]) == 2
    assert "has no axis colour" in capsys.readouterr().err
    assert main(["spark", "sweep", "--experiment", "pt-99", "--grid", "a=1"]) == 2
    assert "did you mean pt-9?" in capsys.readouterr().err


def test_a_column_without_values_is_a_text(spark: SparkSession, tmp_path: Path) -> None:
    Sweep("x:y", [{"a": 1, "b": None}, {"a": None, "b": None}], []).save(tmp_path)
    kept = spark.read.parquet(str(tmp_path / "results.parquet"))
    assert kept.schema.simpleString() == "struct<a:bigint,b:string>"


def test_a_column_of_several_kinds_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="column 'a'"):
        Sweep("x:y", [{"a": 1}, {"a": "b"}], []).save(tmp_path)


def test_in_a_local_session_nothing_is_shipped(spark: SparkSession) -> None:
    assert not ready_executors(spark)
    with zipfile.ZipFile(packed(gapless, gapless_lab)) as shipped:
        assert "gapless_lab/sweep/distribution.py" in shipped.namelist()


def test_the_shipped_archive_is_removed_when_the_process_ends() -> None:
    program = (
        "import gapless; from gapless.spark.jobs.shipping import packed; print(packed(gapless))"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    output = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, check=True, text=True
    )
    path = Path(output.stdout.strip())
    assert path.name == "gapless.zip"
    assert not path.parent.exists()


def test_an_interrupted_command_stops_its_session(
    monkeypatch: pytest.MonkeyPatch, spark: SparkSession
) -> None:
    stopped: list[bool] = []
    monkeypatch.setattr(type(spark), "stop", lambda _: stopped.append(True))

    def interrupted() -> None:
        with spark_sessions.session(str(spark.sparkContext.master), "test"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert stopped
