"""Measure the source: ``python -m benchmarks.spark [--events N] [--rounds N]``.

A run takes some minutes and writes ``benchmarks/results/spark.{md,json}``; with ``--quick`` it uses
few events and writes nothing.
"""

from __future__ import annotations

import argparse
import json
import platform
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from benchmarks.spark.ceiling import CeilingSource
from benchmarks.spark.processes import processor_seconds
from gapless.client.loop_thread import EventLoopThread
from gapless.client.sync import connect_sync
from gapless.runtime import Supervisor, generate
from gapless.spark.session import spark_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

RESULTS: Final = Path(__file__).resolve().parent.parent / "results"
EVENTS: Final = 4_000_000
"""Enough that the fixed cost of starting a query is a small part of the measurement."""
QUICK: Final = 50_000
SYMBOLS: Final = 100
PAYLOAD: Final = b"x" * 250
SOURCE_TARGET: Final = 0.5
"""The share of the ceiling, without a filter."""
FILTER_TARGET: Final = 3.0
"""The factor over the rate without a filter, in examined events."""


class Taken(msgspec.Struct):
    """The result of one query."""

    what: str
    rate: float
    """Events per second."""
    spark_us: float
    """Processor time of Spark and its workers per event."""
    broker_us: float


@contextmanager
def broker(directory: Path) -> Iterator[tuple[str, int]]:
    """Run a broker as a process; yield its URL and its process id."""
    portal = EventLoopThread()
    settings = {"retention_s": 864_000}
    overlay = generate("line:1")
    supervisor = Supervisor(overlay, directory, port=0, metrics=False, parameters=settings)
    try:
        portal.run(supervisor.start())
        process = supervisor["b1"].process
        assert process is not None
        yield supervisor.urls[0], process.pid
    finally:
        portal.run(supervisor.stop())
        portal.stop()


def fill(url: str, events: int) -> None:
    """Publish the events to read: four attributes, of which one has a hundred values."""
    drawn = random.Random(1)
    with connect_sync(url, deadline_s=120) as session, session.publisher("quotes") as publisher:
        publisher.publish_many(
            (
                {
                    "symbol": f"S{drawn.randrange(SYMBOLS)}",
                    "price": drawn.random() * 100,
                    "size": drawn.randrange(1_000),
                    "n": n,
                },
                PAYLOAD,
            )
            for n in range(events)
        )


def measured(what: str, events: int, pid: int, load: Callable[[], DataFrame]) -> Taken:
    """Run a query that drops its rows."""
    own, far, begin = (
        processor_seconds(None) - processor_seconds(pid),
        processor_seconds(pid),
        time.perf_counter(),
    )
    load().write.format("noop").mode("overwrite").save()
    seconds = time.perf_counter() - begin
    broker_s = processor_seconds(pid) - far
    spark_s = processor_seconds(None) - processor_seconds(pid) - own
    return Taken(what, events / seconds, spark_s / events * 1e6, broker_s / events * 1e6)


def measure(events: int, rounds: int) -> list[Taken]:
    """Measure everything, in turn; the first round warms up and does not count."""
    found: list[Taken] = []
    with tempfile.TemporaryDirectory() as directory, broker(Path(directory)) as (url, pid):
        fill(url, events)
        settings = {"spark.log.level": "ERROR", "spark.driver.memory": "1g"}
        spark = spark_session("local[2]", name="benchmark", settings=settings)
        spark.dataSource.register(CeilingSource)

        def source(**options: Any) -> DataFrame:
            return spark.read.format("gapless").options(servers=url, **options).load()

        parts = source().rdd.getNumPartitions()
        ceiling = spark.read.format("ceiling").options(rows=events, parts=parts)
        for turn in range(rounds + 1):
            taken = [
                measured("ceiling", events, pid, ceiling.load),
                measured("source", events, pid, source),
                measured("filter", events, pid, lambda: source(filter="symbol = 'S7'")),
                measured("nothing", events, pid, lambda: source(end="earliest")),
            ]
            found += taken if turn else []
        spark.stop()
    return found


def report(found: list[Taken], events: int, rounds: int) -> str:
    """Return the report in Markdown."""
    rate, cost = {}, {}
    for what in ("ceiling", "source", "filter", "nothing"):
        rows = [each for each in found if each.what == what]
        rate[what] = statistics.median(each.rate for each in rows)
        spark_us = statistics.median(each.spark_us for each in rows)
        cost[what] = (spark_us, statistics.median(each.broker_us for each in rows))
    share, times = rate["source"] / rate["ceiling"], rate["filter"] / rate["source"]
    start = events / rate["nothing"]
    rest = {what: events / rate[what] - start for what in ("ceiling", "source", "filter")}
    lines = [
        "# The Spark source",
        "",
        (
            f"{events:,} events with four attributes and {len(PAYLOAD)} bytes of payload, one pubend, one "
            f"broker, Spark with two tasks on the same machine ({platform.machine()}, Python "
            f"{platform.python_version()}); medians of {rounds} rounds. Processor time is by event."
        ),
        "",
        "| | events/s | Spark, µs | broker, µs |",
        "|---|--:|--:|--:|",
        *(
            f"| {name} | {rate[what]:,.0f} | {cost[what][0]:.2f} | {cost[what][1]:.2f} |"
            for what, name in (
                ("ceiling", "batches made beforehand, no network"),
                ("source", "the source, no filter"),
                ("filter", "the source, a filter that keeps 1 % (events examined)"),
            )
        ),
        "",
        f"- Without a filter: {share:.2f} of the ceiling (target {SOURCE_TARGET}).",
        f"- With the filter: {times:.2f} times the rate without (target {FILTER_TARGET:g}).",
        (
            f"- A query that reads nothing takes {start:.2f} s. What events take beyond that is, without a "
            f"filter, {rest['ceiling'] / rest['source']:.2f} of the ceiling, and with it "
            f"{rest['source'] / rest['filter']:.2f} times the rate without."
        ),
    ]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Measure, print, and write the results."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.spark")
    parser.add_argument("--events", type=int, default=EVENTS)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--quick", action="store_true")
    chosen = parser.parse_args()
    events, rounds = (QUICK, 1) if chosen.quick else (chosen.events, chosen.rounds)
    found = measure(events, rounds)
    text = report(found, events, rounds)
    print(text)
    if not chosen.quick:
        RESULTS.mkdir(exist_ok=True)
        (RESULTS / "spark.md").write_text(text)
        rows = [msgspec.to_builtins(each) for each in found]
        (RESULTS / "spark.json").write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
