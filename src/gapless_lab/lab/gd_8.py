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
"""How long p1 takes events in and sends none, before it crashes: its neighbours have not seen it yet."""
QUICK_MS = 1_000
"""What *quickly* means here."""
AFTER_S = 8.0
"""How long is looked on after it is back: until the old ways are taken again."""


def measure(point: Point) -> Row:
    """Stall p1, crash it and start it again; its publishers stand still with it."""
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
        "asked_by": sum(bool(testbed.after(broker)) for broker in testbed.listeners),
        **course.row("s1"),
        **testbed.finish(),
    }


def compare(rows: Sequence[Row]) -> list[PaperComparison]:
    """Hold the sentences of GD 4.2 on this failure against what we found."""
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
            "subscriber hosts that ask when p1 is back",
            "s1 to s5, told by AckExpected",
            f"{spread(rows, 'asked_by', 'of 5')}, told where the feed begins anew",
            all(row["asked_by"] == 5 for row in rows),
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
    """Return how long after p1 was back the last event was published that came late."""
    return max(0.0, number(row, "s1_back_ms") - 1_000 * (STALLED_S + number(row, "down_s")))


ABOUT = f"""
The testbed of `gd-6`. For {STALLED_S:g} s p1 logs and acknowledges what is published and sends nothing. Then
it crashes, and starts again, in the paper 20 s later. Its publishers stand still meanwhile, as in the
paper. Shown are all four pubends at s1. In the paper an AckExpected message tells the subscribers' brokers
that they miss something. In ours they learn it sooner: who attaches to a feed is told from which tick on
it is fed, and asks for what lies before. The paper's text gives no number of a latency or of a range
here. That nobody asks while p1 is down is the dashed line.
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
