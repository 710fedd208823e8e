"""HA figure 7: the end of a path moves to the other end, by SHIFTs or by rewiring at once."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Final

from gapless.broker import Broker
from gapless.core.ids import CellId
from gapless.messages.overlay import CellRecord
from gapless.messages.propagation import TableDelta, TableFull
from gapless.messages.reshape import OperationKind
from gapless.overlay.cell_records import Records, by_name
from gapless.overlay.neighbourhood import Topology
from gapless.reshape.changes import shifted
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
from gapless_lab.lab.observers import messages
from gapless_lab.lab.points import Plain, Point, Row
from gapless_lab.lab.testbed import Testbed
from gapless_lab.sim.world import SimulatedProcess, World, WorldObserver

__all__ = ["EXPERIMENT", "moved", "subscriptions_of"]

SHIFTS, DIRECT = "SHIFTs", "direct"
"""The methods: an incremental plan, or all brokers at once."""
EVEN, SKEWED = "even", "skewed"
"""The workloads: as many subscriptions at each broker, or 80 % of the remaining ones at each."""
SKEW: Final = 0.8

PAPER_CELLS: Final = 7
"""The length of the path for which the paper's text gives numbers."""
PAPER_SHIFT_MS, PAPER_DIRECT_MS = 4_000.0, 21_700.0
"""The paper's delays: of a SHIFT, and of direct rewiring."""
SHORTER: Final = 10
"""A delay that is so many times shorter than the paper's is clearly shorter."""
FLAT: Final = 1.5
"""Delays that differ by less than this factor are the same."""

EVERY_US = 20_000
"""Each publisher publishes 50 events a second."""
CALM_S = 2.0
"""How long events flow before the first change."""
PAUSE_S = 0.5
"""The wait between two SHIFTs, as in the paper."""
REST_S = 3.0
"""How long events flow after a move."""
SYNC_S = 0.02
"""After this time the applied records are on all disks."""

PARAMETERS = {"table_conjunctions_max": 200_000}
"""The tables hold all subscriptions: none is merged with others."""


class TableObserver(WorldObserver):
    """Counts the conjunctions in tables and their changes that brokers send to each other."""

    def __init__(self) -> None:
        self.conjunctions = 0

    def stepped(
        self, world: World, process: SimulatedProcess, event: object, effects: list[object]
    ) -> None:
        """Count what a broker sends."""
        del world, event
        for target, message in messages(effects):
            if target == process.host.broker:
                continue
            if isinstance(message, TableFull):
                self.conjunctions += len(message.conjunctions)
            elif isinstance(message, TableDelta):
                self.conjunctions += len(message.added) + len(message.removed)


class PathOfCells:
    """A path of cells of one broker each, with a publisher and subscribers at each."""

    def __init__(self, point: Point) -> None:
        count = whole(point, "cells")
        self.cells = [f"B{index}" for index in range(1, count + 1)]
        self.brokers = [cell.lower() for cell in self.cells]
        edges = list(pairwise(self.cells))
        self.topology = Topology.of(
            {cell: [cell.lower()] for cell in self.cells},
            edges,
        )
        self.bed = Testbed(self.topology, seed=whole(point, "run"), parameters=PARAMETERS)
        self.tables = TableObserver()
        self.bed.observe(self.tables)
        self.bed.start()
        self.bed.run(2)
        self._connect(subscriptions_of(point))

    def _connect(self, counts: Sequence[int]) -> None:
        """Start publishers and subscribers, and wait until all tables are complete."""
        bed = self.bed
        for index, broker in enumerate(self.brokers, 1):
            bed.source(f"P{index}", broker, f"source = {index}")
            bed.listener(f"s{index}", broker, "probe = 1")
        bed.settle()
        crowds = [
            bed.crowd(f"c{broker}", broker, _filters(broker, count, len(self.cells)))
            for broker, count in zip(self.brokers, counts, strict=True)
        ]
        bed.wait(lambda: all(each.steady for each in crowds), "all are subscribed", seconds=3_600)
        bed.run(REST_S)
        for index, source in enumerate(bed.sources, 1):
            source.start(
                EVERY_US,
                first_us=index * 1_000,
                attributes=lambda number, index=index: {  # type: ignore[misc]
                    "source": index,
                    "probe": 1,
                    "symbol": str(number),
                },
            )
        bed.run(CALM_S)

    def machines(self) -> list[Broker]:
        """Return the brokers."""
        found = []
        for broker in self.brokers:
            process = self.bed.host(broker).process
            assert process is not None
            assert isinstance(process.machine, Broker)
            found.append(process.machine)
        return found

    def pauses(self) -> tuple[int, int, int]:
        """Return of all brokers how many streams have resumed, their time, and what waited."""
        meters = [machine.components.router.pauses for machine in self.machines()]
        return (
            sum(each.resumed for each in meters),
            sum(each.time_us for each in meters),
            sum(each.waited for each in meters),
        )

    def longest_us(self) -> int:
        """Return the longest pause of any stream at any broker."""
        return max(each.components.router.pauses.longest_us for each in self.machines())

    def latency_ms(self, since_us: int) -> float:
        """Return the longest latency of the events that were published since a time."""
        arrivals = (each for listener in self.bed.listeners for each in listener.arrivals)
        return max((each.latency_ms for each in arrivals if each.sent_us >= since_us), default=0.0)


def subscriptions_of(point: Point) -> list[int]:
    """Return the number of subscriptions at each broker of the path.

    >>> subscriptions_of({"workload": "skewed", "cells": 3, "subscriptions": 1000})
    [2400, 480, 120]
    """
    cells, each = whole(point, "cells"), whole(point, "subscriptions")
    if point["workload"] == EVEN:
        return [each] * cells
    left, found = cells * each, []
    for _ in range(cells - 1):
        found.append(round(SKEW * left))
        left -= found[-1]
    return [*found, left]


def _filters(broker: str, count: int, sources: int) -> list[str]:
    """Return filters of which none covers another; each is for the events of one publisher."""
    return [
        f"source = {1 + index % sources} and symbol = '{broker} {index}'" for index in range(count)
    ]


def moved(records: Records, path: Sequence[CellId]) -> dict[CellId, CellRecord]:
    """Return the records after the first cell of a path has moved from the second to the last one.

    They are those to which the SHIFTs of the plan lead, so that brokers know of every edge whether
    what lies behind it has changed.
    """
    found = dict(records)
    first, *others = path
    for old, new in pairwise(others):
        found |= by_name(shifted(found[first], found[old], found[new]))
    return found


def measure(point: Point) -> Row:
    """Move the first cell of the path to the other end and back while events flow."""
    path = PathOfCells(point)
    bed, moves = path.bed, whole(point, "moves")
    calm_ms = path.latency_ms(bed.world.now - round(CALM_S * 1_000_000))
    started_us, sent = bed.world.now, path.tables.conjunctions
    move = _shift if point["method"] == SHIFTS else _rewire
    first, *others = path.cells
    steps, spent_us = [], 0
    records: Records = by_name(path.topology.cells)
    for _ in range(moves):
        began_us = bed.world.now
        wanted = moved(records, (first, *others))
        steps.append(move(path, others, wanted))
        spent_us += bed.world.now - began_us
        bed.run(REST_S)
        _check_tree(path, wanted)
        records = wanted
        others.reverse()
    bed.drain()
    paused, time_us, waited = path.pauses()
    return {
        "pdrd_ms": round(time_us / paused / 1_000, 3),
        "longest_ms": round(path.longest_us() / 1_000, 3),
        "by_step": " ".join(f"{mean(each):.1f}" for each in zip(*steps, strict=True)),
        "operation_ms": _operation_ms(path),
        "move_s": round(spent_us / moves / 1_000_000, 3),
        "paused": round(paused / moves, 1),
        "waited": round(waited / moves, 1),
        "latency_ms": round(path.latency_ms(started_us), 1),
        "calm_ms": round(calm_ms, 1),
        "conjunctions": (path.tables.conjunctions - sent) // moves,
    }


def _shift(path: PathOfCells, others: Sequence[CellId], _: Records) -> list[float]:
    """Run the SHIFTs; return the mean pause of a stream in each, in milliseconds."""
    found: list[float] = []
    for old, new in pairwise(others):
        if found:
            path.bed.run(PAUSE_S)
        before = path.pauses()
        path.bed.operate(OperationKind.SHIFT, path.cells[0], old, new)
        _await_resumption(path)
        found.append(_mean_since(path, before))
    return found


def _rewire(path: PathOfCells, _: Sequence[CellId], wanted: Records) -> list[float]:
    """Let all brokers apply the wanted records at once; return the mean pause."""
    before = path.pauses()
    for broker, machine in zip(path.brokers, path.machines(), strict=True):
        machine.apply_records(tuple(wanted.values()))
        process = path.bed.host(broker).process
        assert process is not None
        path.bed.world.happen(process, None)
    path.bed.run(SYNC_S)
    _await_resumption(path)
    return [_mean_since(path, before)]


def _await_resumption(path: PathOfCells) -> None:
    """Wait until no stream pauses any more."""
    path.bed.wait(
        lambda: not any(each.components.router.pauses.paused for each in path.machines()),
        "all streams have resumed",
        seconds=60,
        step=0.01,
    )


def _mean_since(path: PathOfCells, before: tuple[int, int, int]) -> float:
    paused, time_us, _ = (now - then for now, then in zip(path.pauses(), before, strict=True))
    assert paused, "a change of the path touches streams"
    return time_us / paused / 1_000


def _operation_ms(path: PathOfCells) -> Plain:
    """Return the mean time of the operations; None if there was none."""
    times = [machine.components.operations.calls.times for machine in path.machines()]
    done = sum(each.done for each in times)
    return round(sum(each.time_us for each in times) / done / 1_000, 3) if done else None


def _check_tree(path: PathOfCells, wanted: Records) -> None:
    """The moved cell is where it was to move, and all brokers agree."""
    for machine in path.machines():
        for record in machine.neighbourhood.cells:
            assert record.neighbours == wanted[record.name].neighbours, f"{record} is not planned"


# --- tables, charts, comparisons ------------------------------------------------------------------


def tables(rows: Sequence[Row]) -> list[ResultTable]:
    """Return a line for every method, workload and length: the means of the runs."""
    heads = (
        "method",
        "workload",
        "cells",
        "runs",
        "delay (PDRD), ms",
        "longest, ms",
        "of each step, ms",
        "operation, ms",
        "a move, s",
        "streams that paused, a move",
        "events that waited, a move",
        "longest latency, ms",
        "the same before, ms",
        "conjunctions sent, a move",
    )
    lines: list[tuple[Plain, ...]] = [
        (
            method,
            workload,
            cells,
            len(of),
            _mean(of, "pdrd_ms"),
            max(number(row, "longest_ms") for row in of),
            text(of[0], "by_step"),
            None if of[0]["operation_ms"] is None else _mean(of, "operation_ms"),
            _mean(of, "move_s"),
            _mean(of, "paused"),
            _mean(of, "waited"),
            max(number(row, "latency_ms") for row in of),
            max(number(row, "calm_ms") for row in of),
            _mean(of, "conjunctions"),
        )
        for (method, workload, cells), of in grouped(rows, "method", "workload", "cells").items()
    ]
    return [ResultTable("the first cell of a path moves to its end", heads, lines)]


def _mean(rows: Sequence[Row], name: str) -> float:
    return round(mean([number(row, name) for row in rows]), 2)


def charts(rows: Sequence[Row]) -> list[Chart]:
    """Return the delay over the length of the path, one chart per workload."""
    return [
        Chart(
            f"{workload} subscriptions",
            "cells of the path",
            "delay (PDRD), ms",
            [
                ChartLine(str(method), _dots(of_method))
                for (method,), of_method in grouped(of, "method").items()
            ],
        )
        for (workload,), of in grouped(rows, "workload").items()
    ]


def _dots(rows: Sequence[Row]) -> list[tuple[float, float]]:
    lengths = sorted(grouped(rows, "cells").items(), key=str)
    return [(number(of[0], "cells"), _mean(of, "pdrd_ms")) for _, of in lengths]


def compare(rows: Sequence[Row]) -> list[PaperComparison]:
    """Compare the sentences of HA V.a with our delays."""
    found = []
    for (workload,), of in grouped(rows, "workload").items():
        by_method = {method: each for (method,), each in grouped(of, "method").items()}
        shifts, direct = by_method.get(SHIFTS, []), by_method.get(DIRECT, [])
        name = str(workload)
        found += _compare_shifts(name, shifts) + _compare_direct(name, direct)
        if shifts and direct:
            found += _compare_both(name, shifts, direct)
    return found


def _compare_shifts(workload: str, rows: Sequence[Row]) -> list[PaperComparison]:
    if not rows:
        return []
    dots = _dots(rows)
    delays = [delay for _, delay in dots]
    lengths = ", ".join(f"{cells:.0f}: {delay:.1f}" for cells, delay in dots)
    flat = max(delays) <= FLAT * min(delays) if len(dots) > 1 else None
    times = PAPER_SHIFT_MS / max(delays)
    return [
        PaperComparison(
            f"{workload}: a SHIFT, over the length of the path",
            "remained constant from 3 to 9 brokers (V.a)",
            f"{lengths} ms",
            flat,
        ),
        PaperComparison(
            f"{workload}: delay of a SHIFT",
            "approximately 4 seconds (V.a)",
            f"at most {max(delays):.1f} ms, {times:,.0f} times shorter",
            times >= SHORTER,
        ),
    ]


def _compare_direct(workload: str, rows: Sequence[Row]) -> list[PaperComparison]:
    if not rows:
        return []
    dots = _dots(rows)
    delays = [delay for _, delay in dots]
    lengths = ", ".join(f"{cells:.0f}: {delay:.1f}" for cells, delay in dots)
    grows = None
    if len(dots) > 1:
        grows = delays == sorted(delays) and delays[-1] > FLAT * delays[0]
    return [
        PaperComparison(
            f"{workload}: direct rewiring, over the length of the path",
            "grew linearly (V.a)",
            f"{lengths} ms",
            grows,
        )
    ]


def _compare_both(
    workload: str, shifts: Sequence[Row], direct: Sequence[Row]
) -> list[PaperComparison]:
    """Compare the methods at the paper's length, or at the greatest one that both have."""
    common = {row["cells"] for row in shifts} & {row["cells"] for row in direct}
    lengths = sorted(each for each in common if isinstance(each, int))
    if not lengths:
        return []
    at = PAPER_CELLS if PAPER_CELLS in lengths else lengths[-1]
    of_shifts = [row for row in shifts if row["cells"] == at]
    of_direct = [row for row in direct if row["cells"] == at]
    one, other = (_mean(of, "pdrd_ms") for of in (of_shifts, of_direct))
    longer, shorter = (_mean(of, "move_s") for of in (of_shifts, of_direct))
    return [
        PaperComparison(
            f"{workload}: direct rewiring against a SHIFT",
            "21.7 s against 4 s at 7 brokers: 5.4 times longer (V.a)",
            f"{other:.1f} against {one:.1f} ms at {at}: {other / one:.1f} times",
            other > FLAT * one,
        ),
        PaperComparison(
            f"{workload}: all SHIFTs of the plan against direct rewiring",
            "about 1.7 s longer in total, with 2 s of waiting between SHIFTs (V.a)",
            f"{longer:.2f} s against {shorter:.2f} s at {at}",
            longer > shorter,
        ),
        PaperComparison(
            f"{workload}: delay of each SHIFT along the path",
            "regardless of the distribution; if skewed, with the number of subscriptions (V.a)",
            f"{text(of_shifts[0], 'by_step')} ms at {at}; processors take no time here",
        ),
    ]


ABOUT = f"""
A path of cells of one broker each, δ = 1. The first cell, B1, moves to the last one, and back, several
times. **SHIFTs**: an
operator requests SHIFT(B1, Bj, Bj+1) of the leader of each Bj in turn, and waits {PAUSE_S:g} s after each,
as in the paper. **direct**: all brokers apply the records of the wanted tree at one instant, without
operations. This exists for the lab only. The records are those to which the SHIFTs lead, so every cell
between has missed an operation: its broker forgets what it has received, trusts no table of an edge whose
epoch has changed, and exchanges these tables anew; B1 and its new neighbour have had no session before.

Each broker has a publisher, which publishes {1_000_000 // EVERY_US} events a second to a subscriber at every
broker, and its share of the subscriptions. Of these none covers another, each is for the events of one
publisher, and tables do not merge them. (Those of the paper compare an attribute with one of 20 values:
here they would be a few conjunctions.) *Even*: as many at each broker; *skewed*: each broker has 80 % of the
remaining ones.

The delay is the mean over all streams at all routers that a step has touched: the time from the step to
the moment at which nothing is missing that the new feeder has sent before. The paper's delay begins with
the connection request and ends with the first matching publication. Time is virtual: messages take 0.2 to 2
ms (one in a hundred eight times as long), syncs 1 to 3 ms, **and the processor no time**. The paper measures
the time in which its brokers process routing entries; ours send events before the tables are there (RS-11),
and the number of conjunctions that are sent shows what is left to process. Every event must arrive once and
in order.
"""

EXPERIMENT = Experiment(
    name="ha-7",
    paper="HA",
    figure="figure 7",
    title="incremental SHIFTs against direct rewiring",
    full={
        "method": (SHIFTS, DIRECT),
        "workload": (EVEN, SKEWED),
        "cells": (3, 5, 7, 9),
        "subscriptions": (10_000,),
        "moves": (4,),
        "run": (0,),
    },
    quick={
        "method": (SHIFTS, DIRECT),
        "workload": (EVEN, SKEWED),
        "cells": (3, 5),
        "subscriptions": (20,),
        "moves": (1,),
        "run": (0,),
    },
    kinds={
        "method": OneOf((SHIFTS, DIRECT)),
        "workload": OneOf((EVEN, SKEWED)),
        "cells": Whole(3, 30),
        "subscriptions": Whole(1, 100_000, several=False),
        "moves": Whole(1, 100, several=False),
        "run": RUN_NUMBER,
    },
    measure=measure,
    tables=tables,
    charts=charts,
    compare=compare,
    about=ABOUT,
)
