"""PT figure 12: the number of active sessions of brokers after failures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from gapless_lab.lab.axes import RUNS, Relation, Whole
from gapless_lab.lab.distributions import below, counts_of, described, share_within
from gapless_lab.lab.experiment import (
    GRAPH,
    Chart,
    ChartLine,
    Experiment,
    PaperComparison,
    ResultTable,
    grouped,
    whole,
)
from gapless_lab.lab.points import Point, Row
from gapless_lab.lab.trees import active, draw_failures, neighbourhoods, topology

__all__ = ["EXPERIMENT"]

SEED = 12

VERY_LOW = 3
"""The meaning of *very low* here: no more than the neighbours of a broker in the narrow tree."""


def measure(point: Point) -> Row:
    """Let brokers fail at random; count the active sessions of the others, and all their sessions."""
    brokers, fan_out, failed = (whole(point, each) for each in ("brokers", "fan_out", "failed"))
    around = neighbourhoods(topology(brokers, fan_out), whole(point, "delta") + 1)
    counts: Counter[int] = Counter()
    held = 0
    for drawn in draw_failures(brokers, failed, whole(point, "runs"), SEED):
        dead = frozenset(f"n{index}" for index in drawn.nonzero()[0])
        for each in around:
            if each.own not in dead:
                counts[len(active(each, dead))] += 1
                held += sum(cell.name not in dead for cell in each.cells) - 1
    found = described(counts.elements())
    found["held"] = round(held / counts.total(), 2)
    found["within_fan_out"] = round(share_within(counts, fan_out), 2)
    return found


def tables(rows: Sequence[Row]) -> list[ResultTable]:
    """Return all distributions, one line each."""
    shown = (
        "fan_out",
        "failed",
        "median",
        "mean",
        "p90",
        "p99",
        "most",
        "within_fan_out",
        "held",
    )
    heads = (
        "fan-out",
        "failed",
        "median",
        "mean",
        "p90",
        "p99",
        "most",
        "brokers with no more than the fan-out, %",
        "sessions held in all, mean",
    )
    return [
        ResultTable(
            "active sessions of a live broker",
            heads,
            [tuple(row[name] for name in shown) for row in rows],
        )
    ]


def charts(rows: Sequence[Row]) -> list[Chart]:
    """Return one chart per fan-out, as in the paper."""
    return [
        Chart(
            f"fan-out {fan_out}",
            "active sessions",
            "brokers with no more, %",
            [
                ChartLine(f"{row['failed']} failed", below(counts_of(row)), "-", steps=True)
                for row in of_fan_out
            ],
            levels=(("paper: the majority of brokers", 50.0),),
        )
        for (fan_out,), of_fan_out in grouped(rows, "fan_out").items()
    ]


def compare(rows: Sequence[Row]) -> list[PaperComparison]:
    """Compare the sentence of PT IX.D with our results."""
    return [
        PaperComparison(
            f"fan-out {row['fan_out']}, {row['failed']} of {whole(row, 'brokers'):,} failed",
            "the number stays very low for the majority of brokers (IX.D)",
            f"{share_within(counts_of(row), VERY_LOW):.1f} % have no more than {VERY_LOW}, "
            f"99 % no more than {row['p99']}, at most {row['most']}",
            share_within(counts_of(row), VERY_LOW) > 50,
        )
        for row in rows
        if row["failed"]
    ]


ABOUT = """
Brokers fail at random, with δ = 3. A session is *active* if it is with the first live broker on its path
(PT II): publications travel over active sessions. The paper's brokers open such sessions when they need
them. Ours hold a session with every live broker of the neighbourhood at all times, so that a bypass
needs no new connection; the last column shows the cost. The paper shows 16 and 60 failures. Its text
gives no number of sessions, only that it is very low for the majority of brokers; we compare that with
whether more than half of the brokers (the dashed line) have no more than 3.
"""

EXPERIMENT = Experiment(
    name="pt-12",
    paper="PT",
    figure="figure 12",
    title="numbers of active sessions",
    full={
        "brokers": (1_000,),
        "fan_out": (3, 7),
        "delta": (3,),
        "failed": (0, 16, 60),
        "runs": (10,),
    },
    quick={
        "brokers": (200,),
        "fan_out": (3, 7),
        "delta": (3,),
        "failed": (0, 3, 12),
        "runs": (2,),
    },
    kinds={
        "brokers": Whole(2, 10_000, several=False),
        "fan_out": Whole(2, 100),
        "delta": Whole(0, 10, several=False),
        "failed": Whole(0, 9_999),
        "runs": RUNS,
    },
    relations=(
        Relation(
            ("brokers", "failed"),
            lambda point: whole(point, "failed") < whole(point, "brokers"),
            "at least one broker must not fail",
        ),
    ),
    measure=measure,
    tables=tables,
    charts=charts,
    compare=compare,
    about=ABOUT,
    packages=GRAPH,
)
