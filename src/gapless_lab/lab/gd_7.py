"""GD figure 7: latency and nacks when the intermediate broker b1 crashes."""

from __future__ import annotations

from collections.abc import Sequence

from gapless.core.ids import BrokerId
from gapless_lab.lab.experiment import Experiment, PaperComparison, number, whole
from gapless_lab.lab.gd import (
    KINDS,
    LOST_LEAST_MS,
    LOST_MOST_MS,
    GdTestbed,
    charts_of,
    delivered_once,
    in_most,
    spread,
    tables_of,
)
from gapless_lab.lab.points import Point, Row

__all__ = ["EXPERIMENT"]

AFTER_S = 8.0
"""How long the run continues after the restart: until the old routes are used again."""


def measure(point: Point) -> Row:
    """Crash b1 and start it again; observe the pubends whose events went through it."""
    testbed = GdTestbed(whole(point, "run"))
    pubends = testbed.fed_by("b1", "s1")
    assert pubends, "b1 feeds s1 with something"
    testbed.bed.crash("b1")
    testbed.bed.run(number(point, "down_s"))
    while_down = len(testbed.after("s1")) + len(testbed.after("s2"))
    one_ms, other_ms, router_ms = (_range_ms(testbed, each) for each in ("s1", "s2", "b2"))
    testbed.bed.restart("b1")
    testbed.bed.run(AFTER_S)
    later = len(testbed.after("s1")) + len(testbed.after("s2")) - while_down
    one, other = testbed.course("s1", pubends), testbed.course("s2", pubends)
    nacked_ms = one_ms + other_ms
    return {
        "pubends": len(pubends),
        "lost_ms": round(one_ms / len(pubends), 1),
        "b2_range_ms": router_ms,
        "consolidation": round(router_ms / nacked_ms, 3) if nacked_ms else None,
        "later_nacks": later,
        **one.row("s1"),
        **other.row("s2"),
        **testbed.finish(),
    }


def _range_ms(testbed: GdTestbed, broker: BrokerId) -> float:
    """Return the sum of the ranges that a broker has nacked so far."""
    nacks = testbed.nacks_of(broker)
    return nacks[-1][1] if nacks else 0.0


def _alike(row: Row) -> bool:
    """Return whether s1 and s2 sent as many nacks, for ranges within a tenth of each other."""
    one, other = number(row, "s1_range_ms"), number(row, "s2_range_ms")
    same = row["s1_nacks"] == row["s2_nacks"] and row["s1_nacks"] != 0
    return same and abs(one - other) <= 0.1 * other


def compare(rows: Sequence[Row]) -> list[PaperComparison]:
    """Compare the sentences of GD 4.2 on this failure with our results."""
    alike = [_alike(row) for row in rows]
    shares = [number(row, "consolidation") for row in rows if row["consolidation"] is not None]
    return [
        PaperComparison(
            "pubends that went through b1",
            "2 of 4",
            spread(rows, "pubends", "of 4"),
            all(row["pubends"] == 2 for row in rows),
        ),
        PaperComparison(
            "nacked by s1, for each of them",
            "about 2,750 ms, as long as b1 was stalled; 2 to 3 s in all its tests",
            spread(rows, "lost_ms"),
            all(LOST_LEAST_MS < number(row, "lost_ms") <= LOST_MOST_MS for row in rows),
        ),
        PaperComparison(
            "s1 and s2 nack the same",
            "almost identical in number and range",
            f"the same number, and a range within a tenth, in {sum(alike)} of {len(rows)} runs",
            in_most(alike),
        ),
        PaperComparison(
            "what b2 nacks at p1, against s1 and s2 together",
            "about half: consolidation is almost perfect",
            f"{min(shares):.2f} to {max(shares):.2f}" if shares else "they nacked nothing",
            all(0.4 <= share <= 0.6 for share in shares) if shares else None,
        ),
        PaperComparison(
            "nacks when b1 is back",
            "none: messages are delayed, not lost",
            spread(rows, "later_nacks", "nacks"),
            all(row["later_nacks"] == 0 for row in rows),
        ),
        delivered_once(rows),
    ]


ABOUT = """
The testbed of `gd-6`. The broker b1 crashes and starts again, in the paper 30 s later. The results are
for the pubends that went through it, which a hash decides. The paper stalls b1 for 2 to 3 s before it
crashes it; here no broker is notified of the crash, and the failure detector detects it after 2.5 s. s1
and s2 detect it independently, up to a heartbeat (0.5 s) apart, and their losses differ by that. The
paper's second peak of latency, when b1 is back, is its compiler warming up, which a simulation does not
have. In some runs ours has a small one too, when feeds return to b1 and s1 and s2 each nack some 20 ms.
The dashed line is the paper's number; its text gives none for latencies here.
"""

EXPERIMENT = Experiment(
    name="gd-7",
    paper="GD",
    figure="figure 7",
    title="latency and nacks, crash of a router",
    full={"down_s": (30,), "run": range(5)},
    quick={"down_s": (8,), "run": (0,)},
    kinds=KINDS,
    measure=measure,
    tables=tables_of(("s1", "s2")),
    charts=charts_of(("s1", "s2"), nacked_from_paper=(("paper: about 5,500 ms", 5_500.0),)),
    compare=compare,
    about=ABOUT,
)
