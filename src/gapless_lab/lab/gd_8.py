"""GD figure 8: latency and nacks when p1, which has the pubends, crashes."""

from __future__ import annotations

from collections.abc import Sequence

from gapless_lab.lab.experiment import Experiment, PaperComparison, number, whole
from gapless_lab.lab.gd import (
    KINDS,
    STALL_MS,
    GdTestbed,
    charts_of,
    delivered_once,
    in_most,
    spread,
    tables_of,
)
from gapless_lab.lab.points import Point, Row

__all__ = ["EXPERIMENT"]

STALLED_S = STALL_MS / 1_000 - 0.5
"""How long p1 logs events and sends none, before it crashes: its neighbours have not detected it
yet."""
QUICK_MS = 1_000
"""The meaning of *quickly* here."""
AFTER_S = 8.0
"""How long the run continues after the restart: until the old routes are used again."""


def measure(point: Point) -> Row:
    """Stall p1, crash it and start it again; its publishers pause with it."""
    testbed = GdTestbed(whole(point, "run"))
    bed = testbed.bed
    for source in bed.sources:
        source.stops_with_its_broker = True
    routers = ("b1", "b2", "b3", "b4")
    for router in routers:
        bed.cut("p1", router)
    bed.run(STALLED_S)
    bed.crash("p1")
    for router in routers:
        bed.heal("p1", router)
    bed.run(number(point, "down_s"))
    while_down = sum(len(testbed.after(broker)) for broker in testbed.listeners)
    bed.restart("p1")
    bed.run(AFTER_S)
    course = testbed.course("s1", list(bed.oracle.streams))
    late = [latency for sent, latency in course.latencies if sent > -100 and latency > 1_000]
    return {
        "late": len(late),
        "nacks_while_down": while_down,
        "nacked_by": sum(bool(testbed.after(broker)) for broker in testbed.listeners),
        **course.row("s1"),
        **testbed.finish(),
    }


def compare(rows: Sequence[Row]) -> list[PaperComparison]:
    """Compare the sentences of GD 4.2 on this failure with our results."""
    quickly = [_normal_after_ms(row) <= QUICK_MS for row in rows]
    after = [f"{each:,.0f}" for each in sorted(map(_normal_after_ms, rows))]
    return [
        PaperComparison(
            "events that were logged but not sent before the crash",
            "show a high latency, in a partial saw-tooth",
            f"{spread(rows, 'late', 'events')}, up to {spread(rows, 's1_worst_ms')}",
            all(number(row, "s1_worst_ms") > 1_000 * number(row, "down_s") for row in rows),
        ),
        PaperComparison(
            "nacks while p1 is down",
            "none, as DCT is infinite",
            spread(rows, "nacks_while_down", "nacks"),
            all(row["nacks_while_down"] == 0 for row in rows),
        ),
        PaperComparison(
            "SHBs that send nacks when p1 is back",
            "s1 to s5, because of AckExpected",
            f"{spread(rows, 'nacked_by', 'of 5')}, because of the start of the new feed",
            all(row["nacked_by"] == 5 for row in rows),
        ),
        PaperComparison(
            "latency after the restart",
            "quickly returns to normal",
            f"after {' to '.join(dict.fromkeys((after[0], after[-1])))} ms; "
            f"within {QUICK_MS:,} ms in {sum(quickly)} of {len(rows)} runs",
            in_most(quickly),
        ),
        delivered_once(rows),
    ]


def _normal_after_ms(row: Row) -> float:
    """Return how long after the restart of p1 the last late event was published."""
    return max(0.0, number(row, "s1_back_ms") - 1_000 * (STALLED_S + number(row, "down_s")))


ABOUT = f"""
The testbed of `gd-6`. For {STALLED_S:g} s p1 logs and acknowledges what is published and sends nothing.
Then it crashes, and starts again, in the paper 20 s later. Its publishers pause meanwhile, as in the
paper. The results are for all four pubends at s1. In the paper an AckExpected message makes the
subscribers' brokers send nacks. Ours send them sooner: the reply to an attach contains the first tick of
the feed, and the broker nacks the ticks before it. The paper's text gives no number of a latency or of a
range here. The dashed line is its statement that no nack is sent while p1 is down.
"""

EXPERIMENT = Experiment(
    name="gd-8",
    paper="GD",
    figure="figure 8",
    title="latency and nacks, crash of a pubend's broker",
    full={"down_s": (20,), "run": range(5)},
    quick={"down_s": (5,), "run": (0,)},
    kinds=KINDS,
    measure=measure,
    tables=tables_of(("s1",)),
    charts=charts_of(
        ("s1",), stalled_s=STALLED_S, silent_from_paper="paper: none while p1 is down"
    ),
    compare=compare,
    about=ABOUT,
)
