"""``sweep``: an experiment at many points, distributed over executors, with one table as result."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

import gapless_lab
from gapless.core.errors import UsageError
from gapless.spark.jobs.plotting import Plot, draw_plot
from gapless.spark.jobs.shipping import ready_executors
from gapless_lab.sim.machine import BROKER, load_factory
from gapless_lab.sim.runner import RunResult
from gapless_lab.sweep.distribution import PointOutcome, deal
from gapless_lab.sweep.experiments import Plain, Point, load
from gapless_lab.sweep.seeds import result_of

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

__all__ = ["RESULTS", "SEEDS", "Sweep", "sweep", "sweep_seeds"]

SEEDS: Final = "gapless_lab.sweep.seeds:simulate"
"""The simulator as an experiment."""

RESULTS: Final = "results.parquet"
"""The file name of the table in a result directory."""


class SweepFailure(msgspec.Struct, frozen=True):
    """A point at which the experiment raised an error."""

    point: Point
    error: str
    traceback: str


class Sweep(msgspec.Struct, frozen=True):
    """The results of an experiment at all points."""

    experiment: str
    rows: list[dict[str, Plain]]
    """One row per successful point: its parameters, its results, and its duration in
    ``seconds``."""
    failures: list[SweepFailure]

    def table(self) -> pa.Table:
        """Return the rows as an Arrow table; a missing value is NULL.

        A column without values has type string, because other programs guess a type for a column
        without one.
        """
        import pyarrow as pa

        names = dict.fromkeys(name for row in self.rows for name in row)
        columns: dict[str, Any] = {}
        for name in names:
            values = [row.get(name) for row in self.rows]
            try:
                found = pa.array(values)
                columns[name] = found.cast(pa.string()) if pa.types.is_null(found.type) else found
            except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
                raise UsageError(f"column {name!r} has values of several kinds: {error}") from error
        return pa.table(columns)

    def save(self, directory: Path, plots: Iterable[Plot] = ()) -> list[Path]:
        """Write the table, and draw plots if matplotlib is installed; return the files."""
        import pyarrow.parquet as pq

        directory.mkdir(parents=True, exist_ok=True)
        target = directory / RESULTS
        draft = target.with_suffix(".draft")
        pq.write_table(self.table(), draft)
        draft.replace(target)
        drawn = [draw_plot(self.rows, plot, directory) for plot in plots]
        return [target, *(path for path in drawn if path is not None)]


def sweep(
    spark: SparkSession,
    experiment: str,
    points: Sequence[Point],
    *,
    on_outcome: Callable[[PointOutcome], None] | None = None,
) -> Sweep:
    """Run an experiment (``module:function``) at all points and collect the outcomes.

    ``on_outcome`` is called with each outcome as it comes, in the order of the points. A point at
    which the experiment raises is a failure in the result, and the others still run.
    """
    gathered: list[PointOutcome] = []
    for outcome in outcomes(spark, experiment, points):
        gathered.append(outcome)
        if on_outcome is not None:
            on_outcome(outcome)
    return gather(experiment, gathered)


def outcomes(
    spark: SparkSession, experiment: str, points: Sequence[Point]
) -> Iterator[PointOutcome]:
    """Yield the outcomes in the order of the points, while others still run."""
    function = load(experiment)
    ready_executors(spark, gapless_lab)
    yield from deal(spark, function, points)


def gather(experiment: str, gathered: Iterable[PointOutcome]) -> Sweep:
    """Make one table of outcomes."""
    rows: list[dict[str, Plain]] = []
    failures = []
    for each in gathered:
        if each.error:
            failures.append(SweepFailure(each.point, each.error, each.traceback))
        else:
            rows.append({**each.point, **each.row, "seconds": round(each.seconds, 6)})
    return Sweep(experiment, rows, failures)


class SeedSweep(msgspec.Struct, frozen=True):
    """The results of many seeds."""

    results: list[RunResult]
    sweep: Sweep


def sweep_seeds(
    spark: SparkSession,
    seeds: Iterable[int],
    machine: str = BROKER,
    *,
    invariants: bool = True,
    on_result: Callable[[RunResult], None] | None = None,
) -> SeedSweep:
    """Run the simulator at many seeds; results and order are those of the local runner."""
    results: list[RunResult] = []
    gathered: list[PointOutcome] = []
    for outcome, result in seed_outcomes(spark, seeds, machine, invariants=invariants):
        gathered.append(outcome)
        results.append(result)
        if on_result is not None:
            on_result(result)
    return SeedSweep(results, gather(SEEDS, gathered))


def seed_outcomes(
    spark: SparkSession, seeds: Iterable[int], machine: str = BROKER, *, invariants: bool = True
) -> Iterator[tuple[PointOutcome, RunResult]]:
    """Yield the outcome and result of each seed, in order, while others still run."""
    load_factory(machine)  # a missing machine is reported before the first run
    points: list[Point] = [
        {"seed": seed, "machine": machine, "invariants": invariants} for seed in seeds
    ]
    for outcome in outcomes(spark, SEEDS, points):
        if outcome.error:
            raise UsageError(f"seed {outcome.point['seed']} could not be run: {outcome.error}")
        yield outcome, result_of(outcome.row)
