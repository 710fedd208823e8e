"""PT figure 10: deliveries while many brokers are down, and after they are back."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from math import inf, sqrt

import numpy as np

from gapless_lab.lab.axes import RUN_NUMBER, Relation, Whole
from gapless_lab.lab.experiment import (
    Chart,
    ChartLine,
    Experiment,
    PaperComparison,
    ResultTable,
    grouped,
    mean,
    number,
    whole,
)
from gapless_lab.lab.points import Point, Row
from gapless_lab.lab.testbed import Testbed
from gapless_lab.lab.trees import longest_row, topology, width

__all__ = ["EXPERIMENT"]

SEED = 10
EVERY_US = 1_000_000
"""Each publisher publishes once a second."""
CALM_S = 15.0
"""How long after the failures the measurement starts: until all brokers bypass them."""
TAIL_S = 2.0
"""How long after the last publication deliveries still count."""
PAPER_BROKERS, PAPER_PERCENT = 500, 17
"""The size and the percentage of failures for which the paper's text gives numbers."""
DRAWS = 100
"""How many sets of roles are drawn for the graph alone: as many as PT's figure 9 has runs."""

PARAMETERS = {
    # Most steps of a large simulated overlay are heartbeats, refreshed feeds and silence. Links
    # report their end here, so nothing waits for these times, and long ones leave the steps to the
    # events.
    "heartbeat_ms": 5_000,
    "session_timeout_ms": 22_000,
    "replay_buffer_ms": 23_000,
    "attach_refresh_ms": 20_000,
    "attach_expiry_ms": 60_000,
    "silence_ms": 2_000,
    "idle_silence_max_ms": 10_000,
    "dct_ms": 60_000,
    "aet_ms": 120_000,
    "ack_ms": 20_000,
    "ack_report_ttl_ms": 61_000,
    "ended_membership_ttl_s": 100,
    "link_idle_timeout_ms": 120_000,
    "progress_ms": 600_000,
    "ceiling_step_ms": 20_000,
    # Hundreds of brokers get subscribers at once: their table changes are sent together.
    "change_batch_ms": 500,
    "table_flush_ms": 300,
    "stream_epoch_interval_ms": 1_000,
    # No link is cut while both its ends live, so no relay can help, and probing for one costs most.
    "relay_hops_max": 0,
    # No member expires within the run, and no partition is announced twice.
    "partition_renew_ms": 3_600_000,
    "inactive_after_s": 3_600,
    "stale_table_ttl_s": 7_200,
}


class ExperimentRoles:
    """The failed brokers, the publishers and the subscribers of a run; the same for every δ."""

    def __init__(self, point: Point) -> None:
        brokers = whole(point, "brokers")
        random = np.random.default_rng((SEED, whole(point, "run"), brokers))
        order = [int(index) for index in random.permutation(brokers)]
        self.failed = order[: _failures(point)]
        # from the other end: publishers fail last, because nothing is expected of a pubend that is
        # down
        self.publishers = order[-whole(point, "publishers") :]
        self.subscribers = sorted(
            int(place)
            for place in random.choice(brokers, whole(point, "subscribers"), replace=False)
        )

    def live_pairs(self) -> list[tuple[int, int]]:
        """Return the pairs of publisher and subscriber that should communicate during the failures."""
        failed = set(self.failed)
        live = [index for index in self.subscribers if index not in failed]
        return [*product(self.publishers, live)]

    def longest_rows(self, children: int) -> list[int]:
        """Return for each of these pairs the greatest number of failed brokers in a row between
        them.
        """
        failed = set(self.failed)
        return [longest_row(children, one, other, failed) for one, other in self.live_pairs()]


def reachable(longest_rows: Sequence[int], delta: int) -> float:
    """Return the percentage of pairs that have a path by the rule of bypass."""
    return 100 * sum(row <= delta for row in longest_rows) / len(longest_rows)


def _failures(point: Point) -> int:
    """Return how many brokers fail."""
    return whole(point, "brokers") * whole(point, "failed_percent") // 100


def measure(point: Point) -> Row:
    """Crash brokers, publish for a while, count; restart them, and count again."""
    roles, delta, fan_out = ExperimentRoles(point), whole(point, "delta"), whole(point, "fan_out")
    bed = Testbed(
        topology(whole(point, "brokers"), fan_out),
        seed=whole(point, "run"),
        delta=delta,
        parameters=PARAMETERS,
    )
    _people(bed, roles)
    bed.crash(*_names(roles.failed))
    bed.run(CALM_S)
    published = _publish(bed, whole(point, "window_s"))
    live = {f"s{subscriber}" for _, subscriber in roles.live_pairs()}
    pairs = len(roles.live_pairs())
    within = sum(len(each.arrivals) for each in bed.listeners if each.name in live)
    differing = _differing(bed, roles, width(fan_out), delta)
    bed.restart(*_names(roles.failed))
    healing = bed.drain()
    delivered = sum(len(each.arrivals) for each in bed.listeners)
    return {
        "failed": len(roles.failed),
        "pairs": pairs,
        "published": published,
        "delivered": round(100 * within * len(roles.publishers) / published / pairs, 3),
        "reachable": round(reachable(roles.longest_rows(width(fan_out)), delta), 3),
        "differing": differing,
        **drawn(point),
        "healed": round(100 * delivered / (published * len(roles.subscribers)), 3),
        "healing_s": healing,
        "steps": bed.world.steps,
    }


def _differing(bed: Testbed, roles: ExperimentRoles, children: int, delta: int) -> int:
    """Count the pairs whose deliveries differ from the rule of bypass: everything, or nothing."""
    sent = {source.plan.name: len(source.sent) for source in bed.sources}
    got = {each.name: Counter(a.pubend.name for a in each.arrivals) for each in bed.listeners}
    due = (
        (f"p{publisher}", f"s{subscriber}", row <= delta)
        for (publisher, subscriber), row in zip(
            roles.live_pairs(), roles.longest_rows(children), strict=True
        )
    )
    return sum(got[to][of] != (sent[of] if is_connected else 0) for of, to, is_connected in due)


def drawn(point: Point) -> Row:
    """Count in many drawn role sets, on the graph alone, the share of pairs that have a path.

    A role set is the same for every δ, so the gain of δ over the next smaller one is computed for
    each set: other differences between sets do not add to its error.
    """
    children, delta = width(whole(point, "fan_out")), whole(point, "delta")
    casts = [ExperimentRoles({**point, "run": run}) for run in range(DRAWS)]
    # of few subscribers all may have failed; at a measured point some live
    alive = [cast for cast in casts if cast.live_pairs()] or [ExperimentRoles(point)]
    rows = [cast.longest_rows(children) for cast in alive]
    shares = [reachable(each, delta) for each in rows]
    found: Row = {"drawn": round(mean(shares), 3), "drawn_error": _error(shares)}
    if delta:
        gains = [reachable(each, delta) - reachable(each, delta - 1) for each in rows]
        found |= {"gain": round(mean(gains), 3), "gain_error": _error(gains)}
    return found


def _error(shares: Sequence[float]) -> float:
    """Return the standard error of a mean of percentages; 100 for a single one."""
    if len(shares) == 1:
        return 100.0
    return round(float(np.std(shares)) / sqrt(len(shares) - 1), 3)


def _names(nodes: Sequence[int]) -> list[str]:
    return [f"n{node}a" for node in nodes]


def _people(bed: Testbed, roles: ExperimentRoles) -> None:
    """Start all brokers and clients, and wait until every subscription has started everywhere."""
    bed.start()
    bed.run(5)
    for index in roles.publishers:
        bed.source(f"p{index}", f"n{index}a")
    bed.run(2)
    for index in roles.subscribers:
        bed.listener(f"s{index}", f"n{index}a")
    bed.settle()


def _publish(bed: Testbed, window_s: int) -> int:
    """Publish for a while; return the number of events."""
    for index, source in enumerate(bed.sources):
        source.start(EVERY_US, first_us=index * 1_000)
    bed.run(window_s - 0.5)
    for source in bed.sources:
        source.stop()
    bed.run(TAIL_S)
    return sum(len(source.sent) for source in bed.sources)


def tables(rows: Sequence[Row]) -> list[ResultTable]:
    """Return a line for every number of failures and δ: the mean of its runs, and of the draws."""
    heads = (
        "brokers",
        "failed",
        "δ",
        "runs",
        "delivered during the failure, %",
        "pairs with a path in these runs, %",
        f"pairs with a path, % of {DRAWS} draws",
        "standard error",
        "delivered after healing, %",
        "healing took, s",
    )
    shown = ("delivered", "reachable", "drawn", "drawn_error", "healed", "healing_s")
    return [
        ResultTable(
            "deliveries while brokers are down, and after",
            heads,
            [
                (brokers, failed, delta, len(of), *(_mean(of, name) for name in shown))
                for (brokers, failed, delta), of in grouped(
                    rows, "brokers", "failed", "delta"
                ).items()
            ],
        )
    ]


def _mean(rows: Sequence[Row], name: str) -> float:
    return round(mean([number(row, name) for row in rows]), 2)


def charts(rows: Sequence[Row]) -> list[Chart]:
    """Return deliveries and drawn pairs over failures, one line per δ, with the paper's number."""
    runs = len({row["run"] for row in rows})
    return [
        Chart(
            f"{whole(rows[0], 'brokers')} brokers, {title}",
            "failed brokers",
            of_what,
            [
                ChartLine(
                    f"δ = {delta}",
                    [
                        (number(of_failed[0], "failed"), _mean(of_failed, column))
                        for of_failed in grouped(of, "failed").values()
                    ],
                )
                for (delta,), of in sorted(grouped(rows, "delta").items(), key=str)
            ],
            levels=(("paper, δ = 3, 17 % failed", 97.0),),
        )
        for title, of_what, column in (
            (f"measured, runs: {runs}", "delivered during the failure, %", "delivered"),
            (f"the graph, draws: {DRAWS}", "pairs with a path, %", "drawn"),
        )
    ]


# --- the paper's statements -----------------------------------------------------------------------


def compare(rows: Sequence[Row]) -> list[PaperComparison]:
    """Compare the sentences of PT IX with our results at the most failures.

    A few runs are too few to estimate how often a pair is cut off. If at all measured points
    exactly the pairs with a path received events, the paths of many draws stand for deliveries, and
    the paper's numbers are compared with them; else with nothing. They are about 17 % of 500
    brokers.
    """
    most = max(whole(row, "failed") for row in rows)
    by_delta = {
        delta: of
        for (delta,), of in grouped([r for r in rows if r["failed"] == most], "delta").items()
        if isinstance(delta, int)
    }
    exact = [row["differing"] == 0 for row in rows]
    size = (whole(rows[0], "brokers"), max(whole(row, "failed_percent") for row in rows))
    judged = all(exact) and size == (PAPER_BROKERS, PAPER_PERCENT)
    healed = min(number(row, "healed") for row in rows)
    return [
        PaperComparison(
            "subscribers that receive nothing during the failure",
            "more than δ failures at adjacent brokers can disconnect those beyond them (IX.A)",
            f"exactly those beyond more than δ in a row: at {sum(exact)} of {len(exact)} points",
            all(exact),
        ),
        *_numbers(by_delta, 100 * most / size[0], judged=judged),
        PaperComparison(
            "after healing", "not measured", f"{healed:g} % delivered, each once", None
        ),
    ]


def _numbers(
    by_delta: Mapping[int, Sequence[Row]], share: float, *, judged: bool
) -> Iterator[PaperComparison]:
    """Compare the numbers of IX.B with ours, as far as there are rows for them."""
    if 3 in by_delta:
        yield _held(
            f"δ = 3, {share:.0f} % failed: 97 % delivered, or more",
            "97 % (abstract); about 3 % fewer than without disconnections (IX.B)",
            _shown(by_delta[3], "drawn", _mean(by_delta[3], "delivered")),
            _between(by_delta[3][0], "drawn", 97, inf) if judged else None,
            judged=judged,
        )
    for delta in (2, 1):
        if {delta, delta + 1} <= by_delta.keys():
            more, fewer = by_delta[delta + 1], by_delta[delta]
            apart = _mean(more, "delivered") - _mean(fewer, "delivered")
            yield _held(
                f"δ = {delta + 1} to {delta}: fewer deliveries",
                "by about 4 % (IX.B)",
                f"by {_shown(more, 'gain', apart)}",
                _between(more[0], "gain", 2, 6) if judged else None,
                judged=judged,
            )
    if 0 in by_delta:
        yield _held(
            "δ = 0",
            "vast publication loss due to widespread disconnections (IX.B)",
            _shown(by_delta[0], "drawn", _mean(by_delta[0], "delivered")),
            _between(by_delta[0][0], "drawn", -inf, 70) if judged else None,
            judged=judged,
        )


def _shown(rows: Sequence[Row], column: str, measured: float) -> str:
    """Return a percentage of the draws with its standard error, and that of the runs."""
    value, error = number(rows[0], column), number(rows[0], f"{column}_error")
    runs = "1 run" if len(rows) == 1 else f"{len(rows)} runs"
    return f"{value:.1f} ± {error:.1f} % in {DRAWS} draws; measured in {runs}: {measured:.1f} %"


def _between(row: Row, column: str, least: float, most: float) -> bool | None:
    """Return whether a percentage of the draws is within bounds; None within two standard errors of
    one.
    """
    value, error = number(row, column), number(row, f"{column}_error")
    low, high = value - 2 * error, value + 2 * error
    if least <= low and high <= most:
        return True
    return False if high < least or low > most else None


def _held(
    subject: str, paper: str, ours: str, agrees: bool | None, *, judged: bool
) -> PaperComparison:
    close = "; too close to tell" if judged and agrees is None else ""
    return PaperComparison(subject, paper, ours + close, agrees)


ABOUT = f"""
**Measured** are real broker machines in the simulator. A share of all brokers crashes. When the others
bypass them, publishers publish once a second for a while. Of the deliveries that live subscribers must
receive, those that arrive in time count. Then the brokers restart, and every expected event must arrive
once and in order, also at the subscribers of the crashed brokers. **Drawn** are the failed brokers, the
publishers and the subscribers, {DRAWS} times for every point, with the measured runs as the first of
them. On the graph it is counted how many pairs of a publisher and a live subscriber have a path, that
is, no more than δ failed brokers in a row between them. A run takes minutes and a draw milliseconds, and
a few runs do not show how often a pair is cut off. Every run is checked pair by pair: all events arrived
if there is a path, and none if there is not. If that holds at all points, the draws predict the
deliveries, and the paper's numbers are compared with them: yes or no if they are more than two standard
errors inside or outside of the bounds, else nothing. What differs from the paper: it had a publisher and
a subscriber at every one of 500 brokers; here some brokers have publishers and some have subscribers,
drawn at random, so the share is an estimate over these pairs. The paper does not state its fan-out; ours
is 3, the harder one of its other figures. Publishers are at live brokers. Times of heartbeats and
refreshed feeds are long, because links report their end at once, and relays are off, because no link
between two live brokers is cut. The paper measures for 120 s; the last lines state our time. A point of
500 brokers takes one to two minutes: up to 45 s are for a window of 120 s, the rest is for the start of
the brokers, their crash and their return. `--grid brokers=…`, `--grid window_s=…`, `--runs` and
`--spark` make the experiment smaller or larger.
"""

EXPERIMENT = Experiment(
    name="pt-10",
    paper="PT",
    figure="figure 10",
    title="deliveries during a failure, and after it",
    full={
        "brokers": (500,),
        "fan_out": (3,),
        "publishers": (6,),
        "subscribers": (100,),
        "window_s": (120,),
        "failed_percent": (0, 5, 10, 17),
        "delta": (0, 1, 2, 3),
        "run": (0, 1),
    },
    quick={
        "brokers": (40,),
        "fan_out": (3,),
        "publishers": (2,),
        "subscribers": (20,),
        "window_s": (5,),
        "failed_percent": (0, 17),
        "delta": (0, 1, 2, 3),
        "run": (0,),
    },
    kinds={
        "brokers": Whole(2, 5_000, several=False),
        "fan_out": Whole(2, 100, several=False),
        "publishers": Whole(1, 500, several=False),
        "subscribers": Whole(1, 5_000, several=False),
        "window_s": Whole(1, 3_600, several=False),
        "failed_percent": Whole(0, 99),
        "delta": Whole(0, 10),
        "run": RUN_NUMBER,
    },
    relations=(
        Relation(
            ("brokers", "failed_percent", "publishers"),
            lambda point: _failures(point) + whole(point, "publishers") <= whole(point, "brokers"),
            "publishers are at live brokers, one at each",
        ),
        Relation(
            ("brokers", "subscribers"),
            lambda point: whole(point, "subscribers") <= whole(point, "brokers"),
            "subscribers are at different brokers",
        ),
        Relation(
            ("brokers", "failed_percent", "subscribers", "run"),
            lambda point: bool(ExperimentRoles(point).live_pairs()),
            "no subscriber is at a live broker; use more subscribers",
        ),
    ),
    measure=measure,
    tables=tables,
    charts=charts,
    compare=compare,
    about=ABOUT,
)
