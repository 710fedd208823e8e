"""Common parts of the three failures of GD 4.2: the testbed of its figure 3, and the results of a
run.

Ten brokers in eight cells: p1 has four pubends; b1 and b2 are one intermediate cell, b3 and b4 the
other; s1 and s2 are below the first, s3 to s5 below the second. Every pubend gets 25 events of 100
bytes a second. The parameters are the paper's: GCT 200 ms, NRT at least 600 ms, AET 10 s, and no
DCT.

The paper stalled a link or a broker for 2 to 3 seconds before it failed it, because otherwise its
neighbours saw the failure at once and nothing was lost. Here neither end is notified of a failure:
what is sent is lost until the failure detector detects it, which is set to 2.5 s.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from gapless.core.ids import BrokerId, PubendId
from gapless.overlay.neighbourhood import Topology
from gapless_lab.lab.axes import RUN_NUMBER, AxisKind, NumberAxis
from gapless_lab.lab.experiment import Chart, ChartLine, PaperComparison, ResultTable, number, text
from gapless_lab.lab.observers import FeedObserver, NackObserver, SentNack
from gapless_lab.lab.points import Row
from gapless_lab.lab.testbed import MeasuringSubscriber, Testbed

__all__ = [
    "KINDS",
    "LOST_LEAST_MS",
    "LOST_MOST_MS",
    "STALL_MS",
    "Course",
    "GdTestbed",
    "charts_of",
    "course_of",
    "delivered_once",
    "in_most",
    "spread",
    "tables_of",
]

STALL_MS = 2_500
"""How long a failure is undetected."""
EVERY_US = 40_000
"""25 events a second on each pubend."""
LOST_LEAST_MS, LOST_MOST_MS = 2_000, 3_000
"""What the paper lost by a failure: "about 2-3 seconds of data messages" (GD 4.2)."""
CALM_S = 5.0
"""How long the overlay runs before the failure."""

TREE = Topology.of(
    {
        "P": ["p1"],
        "IB1": ["b1", "b2"],
        "IB2": ["b3", "b4"],
        **{f"S{place}": [f"s{place}"] for place in range(1, 6)},
    },
    [
        ("P", "IB1"),
        ("P", "IB2"),
        *(("IB1", f"S{place}") for place in (1, 2)),
        *(("IB2", f"S{place}") for place in (3, 4, 5)),
    ],
)

PARAMETERS = {
    "gct_ms": 200,
    "nrt_min_ms": 600,
    "aet_ms": 10_000,
    "dct_ms": 3_600_000,
    "heartbeat_ms": 500,
    "session_timeout_ms": STALL_MS,
}

KINDS: dict[str, AxisKind] = {
    # a failure shorter than the detector's time-out would not be detected
    "down_s": NumberAxis(3, 3_600, several=False),
    "run": RUN_NUMBER,
}
"""The axes of all three."""


class GdTestbed:
    """The testbed with its clients, without a failure yet."""

    def __init__(self, run: int) -> None:
        self.bed = Testbed(TREE, seed=run, unseen=True, parameters=PARAMETERS)
        self.nacks, self.feeds = NackObserver(), FeedObserver()
        self.bed.observe(self.nacks)
        self.bed.observe(self.feeds)
        self.bed.start()
        self.bed.run(2)
        for index in range(4):
            self.bed.source(f"P{index}", "p1")
        self.listeners: dict[BrokerId, MeasuringSubscriber] = {
            f"s{place}": self.bed.listener(f"c{place}", f"s{place}") for place in range(1, 6)
        }
        self.bed.settle()
        for index, source in enumerate(self.bed.sources):
            source.start(EVERY_US, first_us=index * 10_000)
        self.bed.run(CALM_S)
        self.failed_us = self.bed.world.now
        """The time of the failure: time 0 of the results."""

    def fed_by(self, feeder: BrokerId, broker: BrokerId) -> list[PubendId]:
        """Return the pubends that a feeder feeds to a broker."""
        streams = self.bed.oracle.streams
        return [each for each in streams if self.feeds.feeder(broker, each) == feeder]

    def since_ms(self, at_us: int) -> float:
        """Return a time relative to the failure."""
        return round((at_us - self.failed_us) / 1_000, 1)

    def course(self, broker: BrokerId, pubends: Sequence[PubendId]) -> Course:
        """Return the latencies and nacks of the subscriber at a broker, for some pubends."""
        latencies = [
            (self.since_ms(each.sent_us), round(each.latency_ms, 1))
            for each in self.listeners[broker].arrivals
            if each.pubend in pubends
        ]
        return Course(latencies, self.nacks_of(broker))

    def nacks_of(self, broker: BrokerId) -> list[tuple[float, float]]:
        """Return the nacks of a broker since the failure: their times, and the range so far."""
        total, found = 0.0, []
        for each in self.after(broker):
            total += each.range_ms
            found.append((self.since_ms(each.at_us), round(total, 1)))
        return found

    def after(self, broker: BrokerId) -> list[SentNack]:
        """Return the nacks of a broker since the failure."""
        return [
            each
            for each in self.nacks.nacks
            if each.source == broker and each.at_us >= self.failed_us
        ]

    def finish(self) -> Row:
        """Wait until all expected events have come; return the columns that all experiments of GD
        share.
        """
        self.bed.drain()
        sent = sum(len(source.sent) for source in self.bed.sources)
        got = sum(len(each.arrivals) for each in self.listeners.values())
        return {
            "published": sent,
            "delivered": round(100 * got / (sent * len(self.listeners)), 3),
        }


class Course(msgspec.Struct, frozen=True):
    """One subscriber's run: latencies by the time of sending, and its broker's nacks."""

    latencies: list[tuple[float, float]]
    nacks: list[tuple[float, float]]

    @property
    def worst_ms(self) -> float:
        """The greatest latency of events sent since just before the failure."""
        return max((latency for sent, latency in self.latencies if sent > -100), default=0.0)

    @property
    def usual_ms(self) -> float:
        """The median latency before the failure."""
        before = sorted(latency for sent, latency in self.latencies if sent < -200)
        return before[len(before) // 2]

    @property
    def back_ms(self) -> float:
        """The time after which no event had ten times the usual latency."""
        late = [sent for sent, latency in self.latencies if latency > 10 * self.usual_ms]
        return max((sent for sent in late if sent > -100), default=0.0)

    @property
    def first_nack_ms(self) -> float | None:
        """When the first nack was sent."""
        return self.nacks[0][0] if self.nacks else None

    @property
    def range_ms(self) -> float:
        """The sum of all nacked ranges."""
        return self.nacks[-1][1] if self.nacks else 0.0

    def row(self, name: str) -> Row:
        """Return the columns of a row; the course itself is JSON."""
        return {
            f"{name}_usual_ms": self.usual_ms,
            f"{name}_worst_ms": self.worst_ms,
            f"{name}_back_ms": self.back_ms,
            f"{name}_nacks": len(self.nacks),
            f"{name}_first_nack_ms": self.first_nack_ms,
            f"{name}_range_ms": self.range_ms,
            f"{name}_course": msgspec.json.encode(self).decode(),
        }


def course_of(row: Row, name: str) -> Course:
    """Return the course of a subscriber from a row."""
    return msgspec.json.decode(text(row, f"{name}_course"), type=Course)


def tables_of(names: Sequence[str]) -> Callable[[Sequence[Row]], list[ResultTable]]:
    """Return a function that makes the table: one line per run and subscriber."""
    columns = ("usual_ms", "worst_ms", "back_ms", "nacks", "first_nack_ms", "range_ms")
    heads = (
        "run",
        "subscriber at",
        "usual latency, ms",
        "worst latency, ms",
        "as usual again after, ms",
        "nacks",
        "first nack after, ms",
        "nacked, ms",
        "delivered, %",
    )

    def tables(rows: Sequence[Row]) -> list[ResultTable]:
        lines = [
            (row["run"], name, *(row[f"{name}_{each}"] for each in columns), row["delivered"])
            for row in rows
            for name in names
        ]
        return [ResultTable("latency and nacks, from the failure on", heads, lines)]

    return tables


def charts_of(
    names: Sequence[str],
    *,
    stalled_s: float = 0.0,
    latency_from_paper: tuple[tuple[str, float], ...] = (),
    nacked_from_paper: tuple[tuple[str, float], ...] = (),
    silent_from_paper: str = "",
) -> Callable[[Sequence[Row]], list[Chart]]:
    """Return a function that makes the charts of the first run: latency over the time of sending,
    and nacks.

    ``silent_from_paper`` is the label of the paper's statement that no nack is sent during the
    failure.
    """

    def charts(rows: Sequence[Row]) -> list[Chart]:
        courses = {name: course_of(rows[0], name) for name in names}
        back_ms = 1_000 * (stalled_s + number(rows[0], "down_s"))
        silent = [ChartLine(silent_from_paper, [(0.0, 0.0), (back_ms, 0.0)], "--", from_paper=True)]
        moments = (("fails", 0.0), ("seen", float(STALL_MS)), ("is back", back_ms))
        return [
            Chart(
                "latency",
                "sent, ms after the failure",
                "latency, ms",
                [ChartLine(name, each.latencies, ".") for name, each in courses.items()],
                levels=latency_from_paper,
                moments=moments,
            ),
            Chart(
                "nacks",
                "sent, ms after the failure",
                "nacked so far, ms",
                [
                    ChartLine(name, [(0.0, 0.0), *each.nacks], "-o", steps=True)
                    for name, each in courses.items()
                ]
                + (silent if silent_from_paper else []),
                levels=nacked_from_paper,
                moments=moments[:2],
            ),
        ]

    return charts


def delivered_once(rows: Sequence[Row]) -> PaperComparison:
    """Compare the deliveries with the paper's title."""
    return PaperComparison(
        "all events delivered once, in order",
        "exactly once (title)",
        f"{min(number(row, 'delivered') for row in rows):g} %",
        all(row["delivered"] == 100 for row in rows),
    )


def in_most(found: Sequence[bool]) -> bool:
    """Return whether something holds in most runs: the paper shows "a modal instance" of many (GD
    4.2).
    """
    return 2 * sum(found) > len(found)


def spread(rows: Sequence[Row], name: str, unit: str = "ms") -> str:
    """Return the range of a column over all runs, as a text."""
    found = [number(row, name) for row in rows if row[name] is not None]
    if not found:
        return "none"
    low, high = f"{min(found):,.0f}", f"{max(found):,.0f}"
    return f"{low} {unit}" if low == high else f"{low} to {high} {unit}"
