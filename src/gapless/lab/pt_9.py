"""PT figure 9: how many pairs of brokers are disconnected when more than δ have failed."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from gapless.lab.experiment import (
    Chart,
    Comparison,
    Experiment,
    Line,
    Table,
    grouped,
    number,
    whole,
)
from gapless.lab.points import Plain, Point, Row
from gapless.lab.trees import connected_pairs, draw_failures, width

__all__ = ["EXPERIMENT"]

SEED = 9


def measure(point: Point) -> Row:
    """Let brokers fail at random, and count pairs of live ones without a way between them."""
    brokers, failed, runs = whole(point, "brokers"), whole(point, "failed"), whole(point, "runs")
    delta = whole(point, "delta")
    drawn = draw_failures(brokers, failed, runs, SEED)
    connected = connected_pairs(width(whole(point, "fan_out")), delta, drawn)
    live = brokers - failed
    disconnected = 100 * (1 - connected / max(1, live * (live - 1) // 2))
    return {
        "disconnected": round(float(disconnected.mean()), 4),
        "deviation": round(float(disconnected.std()), 4),
        "worst": round(float(np.max(disconnected)), 4),
    }


def tables(rows: Sequence[Row]) -> list[Table]:
    """Return a table a fan-out: failures down, δ across; what was not measured is empty."""
    deltas = sorted({whole(row, "delta") for row in rows})
    found = []
    for (fan_out,), of_fan_out in grouped(rows, "fan_out").items():
        lines: list[tuple[Plain, ...]] = []
        for (failed,), of_failed in grouped(of_fan_out, "failed").items():
            by_delta = {row["delta"]: row["disconnected"] for row in of_failed}
            lines.append((failed, *(by_delta.get(delta) for delta in deltas)))
        heads = ("failed", *(f"δ = {delta}" for delta in deltas))
        found.append(Table(f"fan-out {fan_out}: pairs disconnected, in percent", heads, lines))
    return found


def charts(rows: Sequence[Row]) -> list[Chart]:
    """Return a chart a fan-out, as the paper has them."""
    return [
        Chart(
            f"fan-out {fan_out}",
            "failed brokers",
            "pairs disconnected, %",
            [
                Line(f"δ = {delta}", [(number(r, "failed"), number(r, "disconnected")) for r in of])
                for (delta,), of in grouped(of_fan_out, "delta").items()
            ],
        )
        for (fan_out,), of_fan_out in grouped(rows, "fan_out").items()
    ]


def compare(rows: Sequence[Row]) -> list[Comparison]:
    """Hold the two sentences of PT IX.A against what we found."""
    found = [_by_delta(fan_out, of) for (fan_out,), of in grouped(rows, "fan_out").items()]
    fans = sorted({whole(row, "fan_out") for row in rows})
    if len(fans) > 1:
        found.append(_by_fan_out(rows, fans[0], fans[-1]))
    return found


def _by_delta(fan_out: object, rows: Sequence[Row]) -> Comparison:
    most = max(whole(row, "failed") for row in rows)
    last = [row for row in rows if row["failed"] == most]
    falling = all(
        number(one, "disconnected") >= number(other, "disconnected")
        for of_failed in grouped(rows, "failed").values()
        for one, other in pairwise(of_failed)
    )
    shown = ", ".join(f"δ = {row['delta']}: {number(row, 'disconnected'):.1f} %" for row in last)
    return Comparison(
        f"fan-out {fan_out}: a larger δ disconnects fewer pairs",
        "increasing δ improves network connectivity (IX.A)",
        f"{most} failed: {shown}",
        falling,
    )


def _by_fan_out(rows: Sequence[Row], narrow: int, wide: int) -> Comparison:
    by_place = {(row["fan_out"], row["delta"], row["failed"]): row for row in rows}
    pairs = [
        (number(row, "disconnected"), number(by_place[wide, delta, failed], "disconnected"))
        for (fan_out, delta, failed), row in by_place.items()
        if fan_out == narrow and failed and (wide, delta, failed) in by_place
    ]
    more = sum(one >= other for one, other in pairs)
    return Comparison(
        f"fan-out {narrow} disconnects more pairs than {wide}",
        "a higher number of disconnections for a fan-out of 3 (IX.A)",
        f"at {more} of {len(pairs)} points",
        2 * more > len(pairs),
    )


ABOUT = """
Some of all brokers fail at random, and the share of pairs of brokers that no longer reach each other is
counted: both alive, and more than δ failed ones in a row on the path between them. As in the paper this
is a simulation of a graph, by our rules of bypass, and a number is the mean of some runs (the paper has
1,000 brokers and 100 runs). The brokers that fail in a run are the same for every δ and fan-out, and
fail too where more do. Which trees: see `lab/trees.py`. The paper does not say whether pairs with a
failed broker count; here they do not, as nobody is there to be served.
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
    measure=measure,
    tables=tables,
    charts=charts,
    compare=compare,
    about=ABOUT,
)
