"""PT figure 9: how many pairs of brokers are disconnected when more than δ have failed."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import hypot, inf, sqrt

import numpy as np

from gapless_lab.lab.axes import RUNS, Relation, Whole
from gapless_lab.lab.experiment import (
    GRAPH,
    Chart,
    ChartLine,
    Experiment,
    PaperComparison,
    ResultTable,
    grouped,
    number,
    whole,
)
from gapless_lab.lab.points import Plain, Point, Row
from gapless_lab.lab.trees import connected_pairs, draw_failures, width

__all__ = ["EXPERIMENT"]

SEED = 9
NARROW, WIDE = 3, 7
"""The fan-outs of the paper."""


def measure(point: Point) -> Row:
    """Let brokers fail at random, and count pairs of live ones without a path between them."""
    brokers, failed, runs = whole(point, "brokers"), whole(point, "failed"), whole(point, "runs")
    delta = whole(point, "delta")
    drawn = draw_failures(brokers, failed, runs, SEED)
    connected = connected_pairs(width(whole(point, "fan_out")), delta, drawn)
    live = brokers - failed
    disconnected = 100 * (1 - connected / (live * (live - 1) // 2))
    return {
        "disconnected": round(float(disconnected.mean()), 4),
        "deviation": round(float(disconnected.std()), 4),
        "worst": round(float(np.max(disconnected)), 4),
    }


def tables(rows: Sequence[Row]) -> list[ResultTable]:
    """Return one table per fan-out: failures down, δ across; unmeasured points are empty."""
    deltas = sorted({whole(row, "delta") for row in rows})
    found = []
    for (fan_out,), of_fan_out in grouped(rows, "fan_out").items():
        lines: list[tuple[Plain, ...]] = []
        for (failed,), of_failed in grouped(of_fan_out, "failed").items():
            by_delta = {row["delta"]: row["disconnected"] for row in of_failed}
            lines.append((failed, *(by_delta.get(delta) for delta in deltas)))
        heads = ("failed", *(f"δ = {delta}" for delta in deltas))
        found.append(
            ResultTable(f"fan-out {fan_out}: pairs disconnected, in percent", heads, lines)
        )
    return found


def charts(rows: Sequence[Row]) -> list[Chart]:
    """Return one chart per fan-out, as in the paper."""
    return [
        Chart(
            f"fan-out {fan_out}",
            "failed brokers",
            "pairs disconnected, %",
            [
                ChartLine(
                    f"δ = {delta}", [(number(r, "failed"), number(r, "disconnected")) for r in of]
                )
                for (delta,), of in grouped(of_fan_out, "delta").items()
            ],
        )
        for (fan_out,), of_fan_out in grouped(rows, "fan_out").items()
    ]


def compare(rows: Sequence[Row]) -> list[PaperComparison]:
    """Compare the two sentences of PT IX.A with our results."""
    found = [_by_delta(fan_out, of) for (fan_out,), of in grouped(rows, "fan_out").items()]
    if {row["fan_out"] for row in rows} >= {NARROW, WIDE}:
        found += [
            _by_fan_out(delta, of)
            for (delta,), of in sorted(grouped(rows, "delta").items(), key=str)
        ]
    return found


def _by_delta(fan_out: object, rows: Sequence[Row]) -> PaperComparison:
    most = max(whole(row, "failed") for row in rows)
    steps: list[bool] = []
    for of_failed in grouped(rows, "failed").values():
        shares = [number(row, "disconnected") for row in _sorted(of_failed)]
        # if no pair is disconnected, nothing can be improved
        steps += [one > other for one, other in pairwise(shares) if one or other]
    last = _sorted([row for row in rows if row["failed"] == most])
    shown = ", ".join(f"δ = {row['delta']}: {number(row, 'disconnected'):.1f} %" for row in last)
    return PaperComparison(
        f"fan-out {fan_out}: a larger δ disconnects fewer pairs",
        "increasing δ improves network connectivity (IX.A)",
        f"at {sum(steps)} of {len(steps)} steps of δ; {most} failed: {shown}",
        all(steps) if steps else None,
    )


def _sorted(rows: Sequence[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: whole(row, "delta"))


def _by_fan_out(delta: object, rows: Sequence[Row]) -> PaperComparison:
    """Return at which numbers of failures the narrow tree is worse, and at which the wide one.

    If few pairs are disconnected, one run of a hundred may decide the mean. So a difference counts
    only if it is more than twice its standard error.
    """
    by_place = {(row["fan_out"], row["failed"]): row for row in rows}
    more: list[Plain] = []
    fewer: list[Plain] = []
    close: list[Plain] = []
    for (fan_out, failed), row in by_place.items():
        other = by_place.get((WIDE, failed))
        if fan_out != NARROW or other is None:
            continue
        apart = number(row, "disconnected") - number(other, "disconnected")
        if abs(apart) > 2 * _error(row, other):
            (more if apart > 0 else fewer).append(failed)
        elif row["disconnected"] or other["disconnected"]:
            close.append(failed)
    results = (("more", more), ("fewer", fewer), ("too close to tell", close))
    shown = [f"{word} at {', '.join(map(str, of))} failed" for word, of in results if of]
    decided = bool(fewer) or len(more) > len(close)
    return PaperComparison(
        f"δ = {delta}: fan-out {NARROW} disconnects more pairs than {WIDE}",
        "a higher number of disconnections for a fan-out of 3 (IX.A)",
        "; ".join(shown) or "none are disconnected",
        not fewer if decided else None,
    )


def _error(row: Row, other: Row) -> float:
    """Return the standard error of the difference of two means; infinite for a single run."""
    runs = whole(row, "runs")
    if runs == 1:
        return inf
    return hypot(number(row, "deviation"), number(other, "deviation")) / sqrt(runs - 1)


ABOUT = """
Some of all brokers fail at random, and the share of pairs of brokers that no longer reach each other is
counted: both alive, and more than δ failed ones in a row on the path between them. As in the paper this
is a simulation of a graph, by our rules of bypass, and a number is the mean of some runs (the paper has
1,000 brokers and 100 runs). The brokers that fail in a run are the same for every δ and fan-out, and are
included if more fail. For the trees see `lab/trees.py`. The paper does not state whether pairs with a
failed broker count; here they do not, because a failed broker serves no client. Its text gives no number
for this figure, so none of the paper's is in the plot. Of two fan-outs one counts as worse if the means
of the runs are more than two standard errors apart; else it is too close to tell.
"""

EXPERIMENT = Experiment(
    name="pt-9",
    paper="PT",
    figure="figure 9",
    title="connectivity after failures",
    full={
        "brokers": (1_000,),
        "fan_out": (3, 7),
        "failed": (0, 10, 20, 40, 60, 80, 100, 130, 170, 200),
        "delta": (0, 1, 2, 3, 4),
        "runs": (100,),
    },
    quick={
        "brokers": (200,),
        "fan_out": (3, 7),
        "failed": (0, 10, 34),
        "delta": (0, 1, 2, 3),
        "runs": (20,),
    },
    kinds={
        "brokers": Whole(2, 10_000, several=False),
        "fan_out": Whole(2, 100),
        "failed": Whole(0, 9_998),
        "delta": Whole(0, 10),
        "runs": RUNS,
    },
    relations=(
        Relation(
            ("brokers", "failed"),
            lambda point: whole(point, "failed") <= whole(point, "brokers") - 2,
            "at least two brokers must not fail, because pairs are counted",
        ),
    ),
    measure=measure,
    tables=tables,
    charts=charts,
    compare=compare,
    about=ABOUT,
    packages=GRAPH,
)
