"""GD figure 6: latency and nacks when the link b1-s1 fails."""

from __future__ import annotations

from collections.abc import Sequence

from gapless_lab.lab.experiment import Experiment, PaperComparison, number, whole
from gapless_lab.lab.gd import (
    KINDS,
    LOST_LEAST_MS,
    LOST_MOST_MS,
    GdTestbed,
    charts_of,
    delivered_once,
    spread,
    tables_of,
)
from gapless_lab.lab.points import Point, Row

__all__ = ["EXPERIMENT"]

AFTER_S = 8.0
"""How long the run continues after the heal: until the old routes are used again."""


def measure(point: Point) -> Row:
    """Cut the link for ten seconds; observe the pubends whose events used it."""
    testbed = GdTestbed(whole(point, "run"))
    pubends = testbed.fed_by("b1", "s1")
    assert pubends, "b1 feeds s1 with something"
    testbed.bed.cut("b1", "s1")
    testbed.bed.run(number(point, "down_s"))
    nacked_at = {each.target for each in testbed.after("s1")}
    testbed.bed.heal("b1", "s1")
    testbed.bed.run(AFTER_S)
    finished = testbed.finish()
    return {
        "pubends": len(pubends),
        "nacked_at": " ".join(sorted(nacked_at)),
        **testbed.course("s1", pubends).row("s1"),
        **testbed.course("s2", pubends).row("s2"),
        **finished,
    }


def compare(rows: Sequence[Row]) -> list[PaperComparison]:
    """Compare the sentences of GD 4.2 on this failure with our results."""
    nacked_at = {name for row in rows for name in str(row["nacked_at"]).split()}
    unaffected = all(
        number(row, "s2_worst_ms") < 10 * number(row, "s2_usual_ms") and not row["s2_nacks"]
        for row in rows
    )
    parts = all(number(row, "s1_nacks") > number(row, "pubends") for row in rows)
    return [
        PaperComparison(
            "when s1 notices, and sends its first nack",
            "more than 2 seconds later; it was stalled for 2 to 3",
            f"{spread(rows, 's1_first_nack_ms')} later",
            all(_within(row, "s1_first_nack_ms") for row in rows),
        ),
        PaperComparison(
            "where s1 sends its nacks",
            "b2, since the link to b1 is down",
            ", ".join(sorted(nacked_at)),
            nacked_at == {"b2"},
        ),
        PaperComparison(
            "worst latency at s1",
            "2.5 seconds; it was stalled for 2 to 3",
            spread(rows, "s1_worst_ms"),
            all(_within(row, "s1_worst_ms") for row in rows),
        ),
        PaperComparison(
            "nacks of s1",
            "several: a large range is nacked in parts",
            f"{spread(rows, 's1_nacks', 'nacks')} for {spread(rows, 'pubends', 'pubends')}",
            parts,
        ),
        PaperComparison(
            "latency at s2",
            "unaffected",
            f"{spread(rows, 's2_worst_ms')} at worst",
            unaffected,
        ),
        delivered_once(rows),
    ]


def _within(row: Row, name: str) -> bool:
    """Return whether the paper's stall explains a time; None does not count."""
    return row[name] is not None and LOST_LEAST_MS < number(row, name) <= LOST_MOST_MS


ABOUT = """
The testbed of the paper's figure 3, with real broker machines in the simulator: p1 with four pubends of
25 events a second, b1 and b2 between it and s1 and s2. The link b1-s1 fails, in the paper for 10 s. The
results are for the pubends that s1 got from b1. The paper stalls the link for 2 to 3 s before it fails;
here neither end is notified of the failure, and the failure detector detects it after 2.5 s (see
`lab/gd.py`). Our latencies without a failure are those of a simulated network and disk, not of machines.
Our nack can contain a large range, so s1 sends one for each pubend. The dashed line is the paper's
number; its text gives no number here for what s1 nacks (`gd-7` has one).
"""

EXPERIMENT = Experiment(
    name="gd-6",
    paper="GD",
    figure="figure 6",
    title="latency and nacks, link failure",
    full={"down_s": (10,), "run": range(5)},
    quick={"down_s": (4,), "run": (0,)},
    kinds=KINDS,
    measure=measure,
    tables=tables_of(("s1", "s2")),
    charts=charts_of(("s1", "s2"), latency_from_paper=(("paper, worst at s1: 2.5 s", 2_500.0),)),
    compare=compare,
    about=ABOUT,
)
