"""``python -m benchmarks.spark_jobs sweep|dealing|backtest``: prints measurements as JSON lines.

Other programs may use the computer meanwhile, so rounds alternate, and every round is printed with
the load.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.workloads import quotes
from gapless.content.filter import Filter
from gapless.spark.jobs import backtest
from gapless.spark.jobs.backtesting import events_at
from gapless.spark.jobs.filters import NamedFilter
from gapless.spark.session import spark_session
from gapless_lab.sim.campaign import run_many
from gapless_lab.sweep import sweep, sweep_seeds
from gapless_lab.sweep.experiments import Point, Row

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FILES = 8
PAYLOAD = b"x" * 50


def main() -> None:
    """Run the measurement that the arguments name."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["sweep", "dealing", "backtest"])
    parser.add_argument("--seeds", type=int, default=60)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--filters", type=int, default=10_000)
    chosen = parser.parse_args()
    if chosen.what == "sweep":
        measure_sweep(chosen.seeds, chosen.rounds)
    elif chosen.what == "dealing":
        measure_dealing(chosen.seeds, chosen.rounds)
    else:
        measure_backtest(chosen.events, chosen.filters)


def session(cores: int) -> SparkSession:
    """A session with this many workers."""
    settings = {"spark.log.level": "ERROR", "spark.driver.memory": "2g"}
    return spark_session(f"local[{cores}]", settings=settings)


def show(**facts: Any) -> None:
    """Print a measurement."""
    print(json.dumps({**facts, "load": round(os.getloadavg()[0], 1)}), flush=True)


# --- sweep --------------------------------------------------------------------------------------------


def measure_sweep(seeds: int, rounds: int) -> None:
    """Run the same seeds with one worker and with two, in turn, and with the local runner."""
    walls: dict[int, list[float]] = {1: [], 2: []}
    for _ in range(rounds):
        for workers in (1, 2):
            spark = session(workers)
            sweep_seeds(spark, range(10_000, 10_000 + 2 * workers))  # starts the workers
            walls[workers].append(swept(spark, seeds, workers))
            spark.stop()
        for workers in (1, 2):
            begun = time.perf_counter()
            found = list(run_many(range(seeds), workers=workers))
            wall = time.perf_counter() - begun
            cpu = round(sum(each.seconds for each in found), 2)
            show(runner="local", workers=workers, seeds=seeds, wall_s=round(wall, 2), cpu_s=cpu)
    show(two_to_one=round(min(walls[2]) / min(walls[1]), 3))


def swept(spark: SparkSession, seeds: int, workers: int) -> float:
    """Return how long a sweep takes."""
    begun = time.perf_counter()
    found = sweep_seeds(spark, range(seeds))
    wall = time.perf_counter() - begun
    cpu = sum(each.seconds for each in found.results)
    busy = sum(float(row["seconds"] or 0) for row in found.sweep.rows) / (workers * wall)
    show(
        runner="spark",
        workers=workers,
        seeds=seeds,
        wall_s=round(wall, 2),
        cpu_s=round(cpu, 2),
        busy=round(busy, 3),
    )
    return wall


def measure_dealing(seeds: int, rounds: int) -> None:
    """Sleep as long as seeds compute, with one worker and with two, in turn.

    Sleep needs no processor, so this shows how evenly points are distributed when other programs
    use the processors.
    """
    costs = [each.seconds for each in run_many(range(seeds))]
    walls: dict[int, list[float]] = {1: [], 2: []}
    for _ in range(rounds):
        for workers in (1, 2):
            spark = session(workers)
            dealt(spark, [0.1] * 4, workers)  # starts the workers
            walls[workers].append(dealt(spark, costs, workers))
            spark.stop()
    show(slept_s=round(sum(costs), 2), two_to_one=round(min(walls[2]) / min(walls[1]), 3))


def dealt(spark: SparkSession, costs: list[float], workers: int) -> float:
    """Return how long a sweep takes that only sleeps."""
    points: list[Point] = [{"place": index, "cost": cost} for index, cost in enumerate(costs)]
    begun = time.perf_counter()
    sweep(spark, "benchmarks.spark_jobs.__main__:sleep", points)
    wall = time.perf_counter() - begun
    show(runner="sleep", workers=workers, points=len(costs), wall_s=round(wall, 2))
    return wall


def sleep(point: Point) -> Row:
    """Sleep as long as a seed took."""
    time.sleep(float(point["cost"] or 0))
    return {}


# --- backtest -----------------------------------------------------------------------------------------


def measure_backtest(events: int, filters: int) -> None:
    """Match the quotes of W1 with filters that have an equality, and with the same without it."""
    load = quotes(filters, events)
    keyed = list(load.texts())
    keyless = [text.partition(" AND ")[2] for text in keyed]
    spark = session(2)
    with tempfile.TemporaryDirectory() as directory:
        write_events(load.events, Path(directory))
        for name, texts in (("equality", keyed), ("no equality", keyless)):
            named = [NamedFilter(str(n), Filter(text)) for n, text in enumerate(texts)]
            for top in (0, 20, 20):
                begun = time.perf_counter()
                found = backtest(spark, events_at(spark, directory), named, top=top)
                wall = time.perf_counter() - begun
                show(
                    filters=f"{filters:,} with {name}",
                    events=found.events,
                    pairs=bool(top),
                    wall_s=round(wall, 2),
                    events_per_s=round(found.events / wall),
                    matches=sum(each.count for each in found.filters),
                    coverage=round(found.coverage, 3),
                )
    spark.stop()


def write_events(events: Any, directory: Path) -> None:
    """Write events in the form of an archive."""
    size = -(-len(events) // FILES)
    for index in range(FILES):
        part = events[index * size : (index + 1) * size]
        ticks = np.arange(index * size, index * size + len(part)) * 1_000
        columns = {
            "pubend": pa.array(["quotes"] * len(part)),
            "tick": pa.array(ticks, pa.int64()),
            "attributes": pa.array([json.dumps(each) for each in part]),
            "payload": pa.array([PAYLOAD] * len(part)),
        }
        pq.write_table(pa.table(columns), directory / f"{index}.parquet")


if __name__ == "__main__":
    main()
