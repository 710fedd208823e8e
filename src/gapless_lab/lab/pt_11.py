"""PT figure 11: the sizes of the Δ-neighbourhoods of brokers."""

from __future__ import annotations

from collections.abc import Sequence

from gapless_lab.lab.axes import OneOf, Whole
from gapless_lab.lab.distributions import below, counts_of, described
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
from gapless_lab.lab.trees import neighbourhoods, topology

__all__ = ["EXPERIMENT"]

NEIGHBOURS, CHILDREN = "neighbours", "children"
"""What the fan-out may count."""


def measure(point: Point) -> Row:
    """Count the brokers in every broker's neighbourhood, without itself."""
    tree = topology(
        whole(point, "brokers"), whole(point, "fan_out"), children=point["counts_as"] == CHILDREN
    )
    return described(
        len(around.all_brokers()) - 1 for around in neighbourhoods(tree, whole(point, "delta") + 1)
    )


def tables(rows: Sequence[Row]) -> list[ResultTable]:
    """Return all distributions, one line each."""
    shown = ("fan_out", "counts_as", "delta", "least", "median", "mean", "p90", "p99", "most")
    heads = ("fan-out", "of", "δ", "least", "median", "mean", "p90", "p99", "most")
    return [
        ResultTable(
            "brokers in a neighbourhood",
            heads,
            [tuple(row[name] for name in shown) for row in rows],
        )
    ]


_FROM_PAPER = {3: (("paper: all below 100", 100.0),), 7: (("paper: δ = 3, up to 1,000", 1_000.0),)}
"""By fan-out, the sizes in the text of PT IX.C."""
PAPER_BROKERS = 1_000
"""The number of brokers of the paper's tree; its text covers no other."""


def charts(rows: Sequence[Row]) -> list[Chart]:
    """Return one chart per fan-out, only for the reading that fits the paper's text."""
    fitting = [row for row in rows if row["counts_as"] == NEIGHBOURS]
    return [
        Chart(
            f"fan-out {fan_out}",
            "brokers in the neighbourhood",
            "brokers with no more, %",
            [
                ChartLine(f"δ = {row['delta']}", below(counts_of(row)), "-", steps=True)
                for row in of_fan_out
            ],
            uprights=_FROM_PAPER.get(whole(of_fan_out[0], "fan_out"), ()),
            log_x=fan_out != 3,
        )
        for (fan_out,), of_fan_out in grouped(fitting, "fan_out").items()
    ]


def compare(rows: Sequence[Row]) -> list[PaperComparison]:
    """Compare both readings of the fan-out with the two numbers of PT IX.C."""
    found = []
    for (fan_out, counted), of in grouped(rows, "fan_out", "counts_as").items():
        most = {row["delta"]: whole(row, "most") for row in of}
        delta = max(each for each in most if isinstance(each, int))
        brokers = whole(of[0], "brokers")
        reading = f"fan-out {fan_out} of {counted}"
        if fan_out == 3:
            largest, paper = most[delta], "all have fewer than 100 brokers (IX.C)"
            shown = f"δ = {delta}: at most {largest}"
            found.append(
                PaperComparison(reading, paper, shown, _at_its_size(brokers, largest < 100))
            )
        elif fan_out == 7 and 3 in most:
            paper = "δ = 3: as large as 1000 (IX.C)"
            shown = f"δ = 3: at most {most[3]} others of {brokers:,}"
            known = _at_its_size(brokers, most[3] >= brokers - 1)
            found.append(PaperComparison(reading, paper, shown, known))
    return found


def _at_its_size(brokers: int, agrees: bool) -> bool | None:
    return agrees if brokers == PAPER_BROKERS else None


ABOUT = """
How many other brokers a broker knows and has sessions with: those within Δ = δ + 1 of it, as
`Topology.neighbourhood` gives them to a broker. Nothing is random here. The paper's *fan-out* has two
readings, the number of neighbours or of children. Only the first fits its sentence about a fan-out of 3,
so the other experiments of PT use it. The text has one number for each fan-out, of a tree of 1,000
brokers; they are the dashed lines.
"""

EXPERIMENT = Experiment(
    name="pt-11",
    paper="PT",
    figure="figure 11",
    title="sizes of neighbourhoods",
    full={
        "brokers": (1_000,),
        "fan_out": (3, 7),
        "counts_as": (NEIGHBOURS, CHILDREN),
        "delta": (0, 1, 2, 3, 4),
    },
    quick={
        "brokers": (200,),
        "fan_out": (3, 7),
        "counts_as": (NEIGHBOURS, CHILDREN),
        "delta": (0, 1, 2),
    },
    kinds={
        "brokers": Whole(2, 10_000, several=False),
        "fan_out": Whole(2, 100),
        "counts_as": OneOf((NEIGHBOURS, CHILDREN)),
        "delta": Whole(0, 10),
    },
    measure=measure,
    tables=tables,
    charts=charts,
    compare=compare,
    about=ABOUT,
    packages=GRAPH,
)
