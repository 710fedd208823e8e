"""VT figure 6.17: two of three routers crash, and a new group of subscribers joins meanwhile."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from functools import partial

import msgspec

from gapless.content.values import Value
from gapless.core.ids import BrokerId
from gapless.overlay.neighbourhood import Topology
from gapless_lab.lab.axes import RUN_NUMBER
from gapless_lab.lab.experiment import (
    Chart,
    ChartLine,
    Experiment,
    PaperComparison,
    ResultTable,
    mean,
    text,
    whole,
)
from gapless_lab.lab.observers import ForwardingObserver
from gapless_lab.lab.points import Plain, Point, Row
from gapless_lab.lab.testbed import MeasuringSubscriber, SteadyPublisher, Testbed

__all__ = ["EXPERIMENT"]

ROUTERS = ("ib1", "ib2", "ib3")
TREE = Topology.of(
    {"PB": ["pb"], "N": list(ROUTERS), "SB1": ["sb1"], "SB2": ["sb2"]},
    [("PB", "N"), ("N", "SB1"), ("N", "SB2")],
)

TOPICS = 10
"""Half of them have subscribers from the start, half get some later. The paper has 100."""
TOPIC_RATE = 20
"""Events per second on every topic, and so to every subscriber, as in the paper."""
PUBENDS = 100
"""A hash assigns each to a router independently. Of 100 that two routers share, each has from 40 to
60 (two standard deviations), and the load of a router that is left alone grows by 1.7 to 2.5 times,
which counts as doubled. Of five it may have none."""
DOUBLED = (1.5, 2.5)
"""The growth of a load that counts as doubled."""

COURSE = {
    # the paper's seconds after 400, divided by ten
    "one router down": 7.5,
    "two routers down": 10.5,
    "a new group joins": 16.5,
    "one router back": 29.1,
    "all routers back": 33.1,
}
END_S = 46.0
"""Long enough that the last router is used again, after it has been stable for a while."""

OLD, NEW = "old group", "new group"

RATE = TOPICS // 2 * TOPIC_RATE
"""Events per second that a group receives."""
LEAST_SHARE = 0.2
"""The least share of the second router for traffic that counts as shared."""


def measure(point: Point) -> Row:
    """Run the paper's course of events, ten times as fast."""
    bed = Testbed(TREE, seed=whole(point, "run"))
    traffic = ForwardingObserver()
    bed.observe(traffic)
    bed.start()
    bed.run(2)
    # the hash uses the name, so every run assigns differently
    run = whole(point, "run")
    sources = [bed.source(f"P{run}-{index}", "pb") for index in range(PUBENDS)]
    half = range(TOPICS // 2)
    groups = {OLD: _group(bed, "a", "sb1", half)}
    _group(bed, "b", "sb1", half)
    _group(bed, "c", "sb2", half)
    bed.settle()
    _publish(sources)
    bed.run(3)
    start_s = bed.world.now // 1_000_000
    crashed = _play(bed, traffic, groups)
    rates = {name: _by_second(group, start_s) for name, group in groups.items()}
    passed = {router: _shifted(traffic.sent.get(router, {}), start_s) for router in ROUTERS}
    bed.drain()
    return {
        "crashed": " ".join(crashed),
        "rates": msgspec.json.encode(rates).decode(),
        "passed": msgspec.json.encode(passed).decode(),
    }


def _publish(sources: Sequence[SteadyPublisher]) -> None:
    """Let the sources publish in turn; each uses all topics, and each topic has a steady rate."""
    every_us = 1_000_000 * len(sources) // (TOPICS * TOPIC_RATE)
    for index, source in enumerate(sources):
        source.start(
            every_us,
            first_us=index * every_us // len(sources),
            attributes=partial(_topic, index),
        )


def _topic(index: int, number: int) -> dict[str, Value]:
    """Return the topic of a source's next event; without the index all sources would use the same
    one.
    """
    return {"topic": (number + index) % TOPICS}


def _group(
    bed: Testbed, name: str, broker: BrokerId, topics: Iterable[int]
) -> list[MeasuringSubscriber]:
    """Connect a subscriber for every topic."""
    return [bed.listener(f"{name}{topic}", broker, f"topic = {topic}") for topic in topics]


def _play(
    bed: Testbed, traffic: ForwardingObserver, groups: dict[str, list[MeasuringSubscriber]]
) -> list[BrokerId]:
    """Crash the two busiest routers, one after the other; let the new group join."""
    at = 0.0
    crashed: list[BrokerId] = []
    for happening, second in COURSE.items():
        bed.run(second - at)
        at = second
        if happening in {"one router down", "two routers down"}:
            crashed.append(_busiest(bed, traffic, crashed))
            bed.crash(crashed[-1])
        elif happening == "a new group joins":
            groups[NEW] = _group(bed, "d", "sb2", range(TOPICS // 2, TOPICS))
        else:
            bed.restart(crashed[0 if happening == "one router back" else 1])
    bed.run(END_S - at)
    return crashed


def _busiest(bed: Testbed, traffic: ForwardingObserver, without: Sequence[BrokerId]) -> BrokerId:
    """Return the router that forwarded most in the previous second."""
    second = bed.world.now // 1_000_000 - 1
    left = [router for router in ROUTERS if router not in without]
    return max(left, key=lambda router: traffic.sent.get(router, {}).get(second, 0))


def _by_second(group: Sequence[MeasuringSubscriber], start_s: int) -> list[int]:
    """Return how many events a group received in every second of the course."""
    counts = Counter(each.at_us // 1_000_000 for one in group for each in one.arrivals)
    return _shifted(counts, start_s)


def _shifted(counts: dict[int, int], start_s: int) -> list[int]:
    return [counts.get(start_s + second, 0) for second in range(int(END_S))]


# --- results ------------------------------------------------------------------------------------


def _series(row: Row, column: str) -> dict[str, list[int]]:
    return msgspec.json.decode(text(row, column), type=dict[str, list[int]])


def _phases() -> list[tuple[str, int, int]]:
    """Return the phases of the course, in whole seconds inside them."""
    starts = [("all well", 0.0), *COURSE.items()]
    ends = [*COURSE.values(), END_S]
    return [
        (name, int(-(-start // 1)), int(end))
        for (name, start), end in zip(starts, ends, strict=True)
    ]


def tables(rows: Sequence[Row]) -> list[ResultTable]:
    """Return a line for every phase: rates of the groups, traffic of the routers."""
    names = [f"{OLD}, events/s", f"{NEW}, events/s", *(f"{each}, events/s" for each in ROUTERS)]
    lines: list[tuple[Plain, ...]] = []
    for row in rows:
        rates, passed = _series(row, "rates"), _series(row, "passed")
        series = [rates[OLD], rates[NEW], *(passed[each] for each in ROUTERS)]
        lines += [
            (row["run"], phase, *(round(mean(each[low:high]), 1) for each in series))
            for phase, low, high in _phases()
        ]
    return [ResultTable("message rates and routers' traffic", ("run", "while", *names), lines)]


def charts(rows: Sequence[Row]) -> list[Chart]:
    """Return charts of the first run: the rates of the groups, and the traffic of routers."""
    rates, passed = _series(rows[0], "rates"), _series(rows[0], "passed")
    moments = tuple(COURSE.items())
    constant = (f"paper: {TOPIC_RATE} events/s to each, constant", float(RATE))
    before, _ = _load_of_the_last(rows[0])
    doubled = (f"paper: twice the {before:.0f} of the last router", 2 * before)
    return [
        Chart(title, "s", "events/s", _lines(series), levels=(from_paper,), moments=moments)
        for title, series, from_paper in (
            ("message rate of a group", rates, constant),
            ("forwarded by a router", passed, doubled),
        )
    ]


def _lines(series: dict[str, list[int]]) -> list[ChartLine]:
    return [
        ChartLine(name, [(float(at), float(count)) for at, count in enumerate(counts)], "-")
        for name, counts in series.items()
    ]


def _load_of_the_last(row: Row) -> tuple[float, float]:
    """Return what the remaining router forwarded beside another one, and then alone."""
    crashed = text(row, "crashed").split()
    last = next(each for each in ROUTERS if each not in crashed)
    passed = _series(row, "passed")[last]
    phases = {name: (low, high) for name, low, high in _phases()}
    before, alone = (
        mean(passed[slice(*phases[name])]) for name in ("one router down", "two routers down")
    )
    return before, alone


def _shares_in_the_end(row: Row) -> list[float]:
    """Return each router's share of all traffic in the last three seconds, the least first."""
    passed = [mean(counts[-3:]) for counts in _series(row, "passed").values()]
    return sorted(each / max(1.0, sum(passed)) for each in passed)


def compare(rows: Sequence[Row]) -> list[PaperComparison]:
    """Compare the sentences of VT 6.3 with our results."""
    old = [count for row in rows for count in _series(row, "rates")[OLD]]
    joined = int(COURSE["a new group joins"]) + 2
    new = [count for row in rows for count in _series(row, "rates")[NEW][joined:]]
    loads = [_load_of_the_last(row) for row in rows]
    shares = [_shares_in_the_end(row) for row in rows]
    shown = "; ".join(" + ".join(f"{100 * part:.0f}" for part in of) + " %" for of in shares)
    return [
        PaperComparison(
            "message rate of the old group while routers crash and return",
            "not affected, stays constant",
            f"{RATE} events/s; {min(old)} to {max(old)} in any second",
            all(abs(count - RATE) <= 0.1 * RATE for count in old),
        ),
        PaperComparison(
            "a group that joins while two of three routers are down",
            "makes progress and gets its messages",
            f"{min(new)} events/s at least, from two seconds on",
            all(count >= 0.9 * RATE for count in new),
        ),
        PaperComparison(
            "load of the router that is left, when the second one crashes",
            "doubles (4 % to 8 % CPU)",
            "; ".join(f"{one:.0f} to {other:.0f} events/s" for one, other in loads),
            all(DOUBLED[0] * one <= other <= DOUBLED[1] * one for one, other in loads),
        ),
        PaperComparison(
            "when they are back",
            "traffic is shared among the available paths again",
            f"of all, run by run: {shown}",
            all(of[-2] >= LEAST_SHARE for of in shares),
        ),
    ]


ABOUT = f"""
The testbed of the paper's figure 6.16, with real broker machines in the simulator: pb, three routers in
one cell, sb1 and sb2. It is smaller than the paper's: {TOPICS} topics of {TOPIC_RATE} events a second in
place of 100, groups of {TOPICS // 2} subscribers (each of one topic, as there) in place of 250 and 100,
and the same course of events ten times as fast: two routers crash 3 s apart, the new group joins 6 s
later, the routers return after 21.6 and 22.6 s. In place of processor time, which a simulation does not
have, the events are counted that a router forwards. There are two more old groups, as in the paper; one
is shown. In the paper two routers had the same load, so the load of the last one doubles when it is left
alone. Ours share traffic by pubend: a hash of the names assigns them, and {PUBENDS} pubends, assigned
differently in every run, are enough that two routers have nearly the same load. A load that grows
{DOUBLED[0]} to {DOUBLED[1]} times has doubled. The times in the plot are the paper's, divided by ten;
the dashed lines are its constant rate, and twice the earlier load of our last router.
"""

EXPERIMENT = Experiment(
    name="vt-6.17",
    paper="VT",
    figure="figure 6.17",
    title="two of three routers crash while subscribers join",
    full={"run": range(3)},
    quick={"run": (0,)},
    kinds={"run": RUN_NUMBER},
    measure=measure,
    tables=tables,
    charts=charts,
    compare=compare,
    about=ABOUT,
)
