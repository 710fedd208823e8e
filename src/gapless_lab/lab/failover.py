"""How long no event arrives after a failure, by the settings of the failure detector."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from gapless.core.ids import PubendId
from gapless.core.parameters import DEFAULTS
from gapless.overlay.neighbourhood import Topology
from gapless_lab.lab.axes import RUN_NUMBER, OneOf, Whole
from gapless_lab.lab.experiment import (
    Chart,
    ChartLine,
    Experiment,
    PaperComparison,
    ResultTable,
    grouped,
    mean,
    number,
    text,
    whole,
)
from gapless_lab.lab.observers import FeedObserver
from gapless_lab.lab.points import Point, Row
from gapless_lab.lab.testbed import Testbed

__all__ = ["EXPERIMENT"]

BUNDLE, BYPASS, RELAY = "broker of a bundle", "cell (bypass)", "link (relay)"
"""What fails, and what replaces it."""

UNSEEN, REPORTED = "unseen", "reported"
"""Whether the failure detector has to detect the failure, or the transport reports it at once."""

HEARTBEATS = 6
"""Heartbeats per session time-out: the ratio of the defaults."""
LEAST_DEAD_MS = 60
"""A heartbeat every 10 ms: more would leave hardly any time for other work."""
EVERY_US = 10_000
"""An event every 10 ms: the resolution of the measurement."""
TIMEOUT_S = 60.0

LINE = Topology.of({"P": ["p1"], "B": ["b1"], "S": ["s1"]}, [("P", "B"), ("B", "S")])
DOUBLE = Topology.of({"P": ["p1"], "B": ["b1", "b2"], "S": ["s1"]}, [("P", "B"), ("B", "S")])


def measure(point: Point) -> Row:
    """Make a failure; return when the first event arrived that was published after it."""
    case, dead_ms = text(point, "case"), whole(point, "dead_ms")
    tree, subscriber, fail = _CASES[case]
    heartbeat_ms = dead_ms // HEARTBEATS
    bed = Testbed(
        tree,
        seed=whole(point, "run"),
        unseen=point["seen"] == UNSEEN,
        parameters={
            "heartbeat_ms": heartbeat_ms,
            "session_timeout_ms": dead_ms,
            "attach_expiry_ms": max(6_000, 4 * dead_ms),
            "replay_buffer_ms": max(5_000, 2 * dead_ms),
        },
    )
    feeds = FeedObserver()
    bed.observe(feeds)
    bed.start()
    bed.run(2)
    bed.source("P", "p1").start(EVERY_US)
    listener = bed.listener("c", subscriber)
    bed.settle()
    # in every run at another point between two heartbeats
    bed.run(3 + 0.37 * heartbeat_ms / 1_000 * whole(point, "run"))
    failed_us = bed.world.now
    fail(bed, feeds)
    bed.wait(
        lambda: listener.arrivals[-1].sent_us > failed_us,
        "an event came that was published after the failure",
        seconds=TIMEOUT_S,
        step=0.05,
    )
    came = next(each.at_us for each in listener.arrivals if each.sent_us > failed_us)
    return {"heartbeat_ms": heartbeat_ms, "failover_ms": round((came - failed_us) / 1_000, 1)}


def _crash_feeder(bed: Testbed, feeds: FeedObserver) -> None:
    """Crash the one of two brokers that feeds the subscriber's broker."""
    feeder = feeds.feeder("s1", PubendId("P"))
    assert feeder is not None, "s1 has a feeder"
    bed.crash(feeder)


def _crash_middle(bed: Testbed, _: FeedObserver) -> None:
    """Crash the only broker of the cell in between."""
    bed.crash("b1")


def _cut_link(bed: Testbed, _: FeedObserver) -> None:
    """Cut a link between two live brokers; s1 has links to both."""
    bed.cut("p1", "b1")


_CASES: dict[str, tuple[Topology, str, Callable[[Testbed, FeedObserver], None]]] = {
    BUNDLE: (DOUBLE, "s1", _crash_feeder),
    BYPASS: (LINE, "s1", _crash_middle),
    RELAY: (LINE, "b1", _cut_link),
}
"""By case the tree, the subscriber's broker, and the failure."""


def tables(rows: Sequence[Row]) -> list[ResultTable]:
    """Return the mean and the extremes over the runs."""
    heads = (
        "what fails",
        "seen",
        "session timeout, ms",
        "heartbeat, ms",
        "least, ms",
        "mean, ms",
        "most, ms",
    )
    lines = []
    for (case, seen, dead), of in grouped(rows, "case", "seen", "dead_ms").items():
        times = [number(row, "failover_ms") for row in of]
        shown = (round(each, 1) for each in (min(times), mean(times), max(times)))
        lines.append((case, seen, dead, of[0]["heartbeat_ms"], *shown))
    return [ResultTable("from the failure to the first event published after it", heads, lines)]


def charts(rows: Sequence[Row]) -> list[Chart]:
    """Return failover times over the detector's setting, one chart per kind of detection."""
    return [
        Chart(
            "detected by the failure detector" if seen == UNSEEN else "reported by the transport",
            "session_timeout_ms",
            "fail-over, ms",
            [
                ChartLine(
                    str(case),
                    [
                        (number(at[0], "dead_ms"), mean([number(row, "failover_ms") for row in at]))
                        for at in grouped(of, "dead_ms").values()
                    ],
                )
                for (case,), of in grouped(of_seen, "case").items()
            ],
        )
        for (seen,), of_seen in grouped(rows, "seen").items()
    ]


def compare(rows: Sequence[Row]) -> list[PaperComparison]:
    """Return the times with the default setting; there is no paper to compare with."""
    settings = {whole(row, "dead_ms") for row in rows}
    usual = DEFAULTS.session_timeout_ms
    dead_ms = usual if usual in settings else max(settings)
    found = []
    at_usual = [row for row in rows if row["dead_ms"] == dead_ms]
    for (case, seen), of in grouped(at_usual, "case", "seen").items():
        times = [number(row, "failover_ms") for row in of]
        ours = f"{min(times):,.0f} to {max(times):,.0f} ms"
        found.append(
            PaperComparison(f"{case}, {seen}, session_timeout_ms {dead_ms:,}", "not measured", ours)
        )
    return found


ABOUT = """
A publisher at p1 publishes every 10 ms, to a subscriber two cells away. A part of the route fails: the
broker of a cell of two that feeds the subscriber's broker (the other one takes over), the only broker of
the cell between (δ = 1: it is bypassed), or the link between p1 and b1, both alive (the subscriber is at
b1, and s1 relays). The result is the time until the first event arrives that was published after the
failure; all events arrive, in order. *unseen*: neither end is notified, and the failure detector detects
the failure after `session_timeout_ms`, with a heartbeat every sixth of it. *reported*: the transport reports
at once that the connection is closed, as when a process dies. Two effects are visible besides. A broker
probes for a relayed route when a peer has been unreachable for two heartbeats, so that case always
depends on the heartbeat. And a feed without progress is given up by itself (`dct_ms` 3 s, checked every
2 s), so with a very slow failure detector a crash is found before the detector detects it.
"""

EXPERIMENT = Experiment(
    name="failover",
    paper="ours",
    figure="",
    title="fail-over time by failure detector",
    full={
        "case": (BUNDLE, BYPASS, RELAY),
        "seen": (UNSEEN, REPORTED),
        "dead_ms": (300, 600, 1_500, 3_000, 6_000),
        "run": range(5),
    },
    quick={
        "case": (BUNDLE, BYPASS, RELAY),
        "seen": (UNSEEN, REPORTED),
        "dead_ms": (600, 1_500),
        "run": (0,),
    },
    kinds={
        "case": OneOf((BUNDLE, BYPASS, RELAY)),
        "seen": OneOf((UNSEEN, REPORTED)),
        "dead_ms": Whole(LEAST_DEAD_MS, DEFAULTS.link_idle_timeout_ms - 1),
        "run": RUN_NUMBER,
    },
    measure=measure,
    tables=tables,
    charts=charts,
    compare=compare,
    about=ABOUT,
)
