"""Every experiment at a tiny size: the claims of the papers hold, and a point repeats its row."""

from __future__ import annotations

from functools import cache
from itertools import pairwise
from math import hypot
from typing import Any

import pytest

from gapless.core.errors import UsageError
from gapless.overlay.cell_records import by_name
from gapless.overlay.neighbourhood import Topology
from gapless_lab.lab import testbed
from gapless_lab.lab.catalogue import EXPERIMENTS, find, measure
from gapless_lab.lab.experiment import PAPERS, PaperComparison, mean, number, text, whole
from gapless_lab.lab.failover import BUNDLE, BYPASS, RELAY
from gapless_lab.lab.ha_7 import PAPER_SHIFT_MS, SHORTER, moved, subscriptions_of
from gapless_lab.lab.points import Row
from gapless_lab.lab.pt_10 import ExperimentRoles, drawn, reachable
from gapless_lab.lab.testbed import GuaranteeViolationError


@cache
def _quick(name: str) -> tuple[Row, ...]:
    return tuple({**point, **measure(point)} for point in find(name).points(quick=True))


def quick(name: str) -> list[Row]:
    """Return the rows of an experiment's quick version, measured once for all tests."""
    return [dict(row) for row in _quick(name)]


def compared(name: str) -> list[PaperComparison]:
    return find(name).compare(quick(name))


def agreeing(name: str) -> dict[str, bool | None]:
    return {each.subject: each.agrees for each in compared(name)}


# --- all experiments ------------------------------------------------------------------------------


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_an_experiment_names_its_paper_and_has_tables_charts_and_comparisons(name: str) -> None:
    experiment, rows = find(name), quick(name)
    assert experiment.paper in PAPERS
    assert experiment.about.strip()
    tables = experiment.tables(rows)
    assert tables
    assert all(len(row) == len(table.heads) for table in tables for row in table.rows)
    assert all(line.dots for chart in experiment.charts(rows) for line in chart.lines)
    assert experiment.compare(rows)


@pytest.mark.parametrize("name", ["failover", "gd-8", "ha-7", "pt-9", "pt-10", "pt-12"])
def test_a_point_repeats_its_row(name: str) -> None:
    first = find(name).points(quick=True)[0]
    assert {**first, **measure(first)} == quick(name)[0]


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_a_partial_run_can_be_reported(name: str) -> None:
    experiment, rows = find(name), quick(name)
    for part in (rows[:1], rows[-1:]):
        assert experiment.tables(part)
        experiment.charts(part)
        experiment.compare(part)


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_the_full_version_has_the_same_axes_as_the_quick_one(name: str) -> None:
    experiment = find(name)
    assert list(experiment.full) == list(experiment.quick)


def test_an_unknown_name_is_refused_with_the_nearest_one() -> None:
    with pytest.raises(UsageError, match=r"no experiment 'pt9'; did you mean pt-9\?"):
        find("pt9")


# --- PT -------------------------------------------------------------------------------------------


def test_pt_9_larger_delta_disconnects_fewer_and_a_wide_tree_loses_less() -> None:
    found = agreeing("pt-9")
    assert False not in found.values()
    assert found["fan-out 3: a larger δ disconnects fewer pairs"]
    assert found["δ = 0: fan-out 3 disconnects more pairs than 7"]
    worst = [row for row in quick("pt-9") if row["failed"] == 34 and row["fan_out"] == 3]
    shares = [number(row, "disconnected") for row in worst]
    assert shares == sorted(shares, reverse=True)
    assert shares[0] > 50
    assert shares[-1] < 3


def test_pt_10_exactly_the_reachable_subscribers_receive_and_all_after_healing() -> None:
    rows = quick("pt-10")
    for row in rows:
        assert row["delivered"] == row["reachable"]
        assert row["differing"] == 0
        assert row["healed"] == 100
    struck = {row["delta"]: number(row, "delivered") for row in rows if row["failed"]}
    assert struck[0] < struck[1] <= struck[2] <= struck[3]
    assert all(row["delivered"] == 100 for row in rows if not row["failed"])


def test_pt_10_pairs_at_which_the_rule_of_bypass_does_not_hold_are_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    planted = {"failed_percent": (17,), "delta": (0,)}
    (point,) = find("pt-10").points(quick=True, changed=planted)
    # as if no broker were between them: more paths than there are
    monkeypatch.setattr(
        ExperimentRoles, "longest_rows", lambda cast, _: [0] * len(cast.live_pairs())
    )
    row = measure(point)
    lost = number(row, "pairs") * (1 - number(row, "delivered") / 100)
    assert row["differing"] == pytest.approx(lost, abs=0.01)
    assert lost > 1


def test_pt_10_draws_are_the_roles_of_many_runs_and_do_not_depend_on_the_measured_run() -> None:
    rows = quick("pt-10")
    struck = {row["delta"]: row for row in rows if row["failed"]}
    for delta in (1, 2, 3):
        more, fewer = struck[delta], struck[delta - 1]
        apart = number(more, "drawn") - number(fewer, "drawn")
        assert number(more, "gain") == pytest.approx(apart, abs=0.002)
        # the draws are the same, so the difference is no less certain than the two means
        both = hypot(number(more, "drawn_error"), number(fewer, "drawn_error"))
        assert 0 < number(more, "gain_error") < both + 0.001
    assert all((row["drawn"], row["drawn_error"]) == (100, 0) for row in rows if not row["failed"])
    here, there = (find("pt-10").points(quick=True, changed={"run": (run,)})[4] for run in (0, 7))
    assert drawn(here) == drawn(there)
    shares = [
        reachable(ExperimentRoles({**here, "run": run}).longest_rows(2), whole(here, "delta"))
        for run in range(100)
    ]
    assert drawn(here)["drawn"] == pytest.approx(mean(shares), abs=0.001)


def test_pt_10_a_draw_in_which_no_subscriber_is_alive_does_not_count() -> None:
    few: Row = {"brokers": 4, "publishers": 1, "subscribers": 1, "failed_percent": 75, "fan_out": 3}
    alive = next(run for run in range(99) if ExperimentRoles({**few, "run": run}).live_pairs())
    found = drawn({**few, "delta": 3, "run": alive})
    assert (found["drawn"], found["drawn_error"]) == (100, 0)


def test_pt_11_neighbourhoods_grow_with_delta_and_only_one_reading_fits_the_text() -> None:
    rows = find("pt-11").points(changed={"delta": (0, 4), "fan_out": (3,)})
    measured = [{**point, **measure(point)} for point in rows]
    verdicts = {each.subject: each.agrees for each in find("pt-11").compare(measured)}
    assert verdicts == {"fan-out 3 of neighbours": True, "fan-out 3 of children": False}
    for fan_out in (3, 7):
        sizes = [number(row, "mean") for row in quick("pt-11") if row["fan_out"] == fan_out]
        assert sizes[:3] == sorted(sizes[:3])


def test_pt_12_most_brokers_have_few_active_sessions() -> None:
    assert all(agreeing("pt-12").values())
    for row in quick("pt-12"):
        assert number(row, "mean") <= number(row, "held")


# --- GD -------------------------------------------------------------------------------------------


def test_gd_6_a_cut_link_delays_only_the_subscribers_it_fed() -> None:
    found = agreeing("gd-6")
    assert not found.pop("nacks of s1")  # our nacks can contain a large range
    assert set(found.values()) == {True}


def test_gd_7_nacks_of_two_shbs_are_consolidated_by_the_remaining_router() -> None:
    (row,) = quick("gd-7")
    assert 2_000 < number(row, "s1_worst_ms") < 3_500
    assert 0.4 <= number(row, "consolidation") <= 0.6
    assert row["delivered"] == 100


def test_gd_8_events_logged_before_the_crash_come_late_and_without_nacks_meanwhile() -> None:
    (row,) = quick("gd-8")
    assert row["nacks_while_down"] == 0
    assert row["nacked_by"] == 5
    assert number(row, "s1_worst_ms") > 5_000
    assert row["delivered"] == 100


# --- HA -------------------------------------------------------------------------------------------


def test_ha_7_a_shift_delays_streams_by_a_few_round_trips_and_every_event_arrives_once() -> None:
    by_cells = {(row["method"], row["workload"], row["cells"]): row for row in quick("ha-7")}
    for (method, _, cells), row in by_cells.items():
        assert 0 < number(row, "pdrd_ms") <= number(row, "longest_ms")
        assert number(row, "conjunctions") > 0
        if method == "SHIFTs":
            assert number(row, "pdrd_ms") < PAPER_SHIFT_MS / SHORTER
            assert number(row, "operation_ms") < 100
            assert len(text(row, "by_step").split()) == whole(row, "cells") - 2
        else:
            assert row["operation_ms"] is None
        assert cells in {3, 5}


def test_ha_7_the_records_of_direct_rewiring_raise_what_the_shifts_would_have_raised() -> None:
    path = "ABCDE"
    tree = Topology.of({cell: [cell.lower()] for cell in path}, [*pairwise(path)])
    found = moved(by_name(tree.cells), path)
    assert {cell: found[cell].neighbours for cell in path} == {
        "A": ("E",),
        "B": ("C",),
        "C": ("B", "D"),
        "D": ("C", "E"),
        "E": ("A", "D"),
    }
    counts = [found[cell].shape_version.count for cell in path]
    assert counts == [4, 2, 3, 3, 2], "B to D have missed an operation, or have seen one"


def test_ha_7_a_skewed_workload_has_as_many_subscriptions_as_an_even_one() -> None:
    for cells in (3, 7, 9):
        point: Row = {"cells": cells, "subscriptions": 10_000}
        skewed = subscriptions_of({**point, "workload": "skewed"})
        assert sum(skewed) == sum(subscriptions_of({**point, "workload": "even"}))
        assert skewed == sorted(skewed, reverse=True)
        assert skewed[0] == 8_000 * cells


# --- VT, and ours ---------------------------------------------------------------------------------


def test_vt_6_17_rates_hold_while_routers_crash_and_the_load_of_the_last_one_doubles() -> None:
    assert set(agreeing("vt-6.17").values()) == {True}
    (row,) = quick("vt-6.17")
    assert len(text(row, "crashed").split()) == 2


def test_failover_takes_as_long_as_the_failure_detector_and_little_more() -> None:
    for row in quick("failover"):
        dead, heartbeat = number(row, "dead_ms"), number(row, "heartbeat_ms")
        searched = 4 * heartbeat if row["case"] == RELAY else 0
        if row["seen"] == "unseen":
            assert dead - heartbeat <= number(row, "failover_ms") <= dead + searched + 200
        elif row["case"] in {BUNDLE, BYPASS}:
            assert number(row, "failover_ms") < 200


# --- the testbed ----------------------------------------------------------------------------------

PAIR = Topology.of({"A": ["a"], "B": ["b"]}, [("A", "B")])


def small(**options: Any) -> testbed.Testbed:
    bed = testbed.Testbed(PAIR, **options)
    bed.start()
    bed.run(1)
    bed.source("P", "a")
    bed.listener("c", "b")
    bed.settle()
    return bed


def test_a_run_that_does_not_finish_has_no_result() -> None:
    bed = small()
    bed.sources[0].start(10_000)
    bed.run(1)
    bed.cut("a", "b")
    bed.run(1)
    with pytest.raises(GuaranteeViolationError, match="not all expected events have come"):
        bed.drain(seconds=5)
    bed.heal("a", "b")
    bed.drain()
    assert len(bed.listeners[0].arrivals) == len(bed.sources[0].sent)


def test_a_broken_promise_ends_the_run_with_an_error() -> None:
    bed = small()
    bed.world.violate("lost", "planted")
    with pytest.raises(GuaranteeViolationError, match="planted"):
        bed.run(1)
