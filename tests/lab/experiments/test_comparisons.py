"""The comparisons with the papers: each one agrees with the paper's results and with no others."""

from __future__ import annotations

import msgspec
import pytest

from gapless_lab.lab.catalogue import find
from gapless_lab.lab.distributions import described
from gapless_lab.lab.gd import Course
from gapless_lab.lab.points import Row
from gapless_lab.lab.vt_6_17 import END_S, NEW, OLD, ROUTERS


def verdicts(name: str, *rows: Row) -> dict[str, bool | None]:
    """Return the verdicts of an experiment on given rows, by subject."""
    return {each.subject: each.agrees for each in find(name).compare(rows)}


def verdict(name: str, subject: str, *rows: Row) -> bool | None:
    """Return the verdict whose subject contains these words."""
    found = [agrees for each, agrees in verdicts(name, *rows).items() if subject in each]
    assert len(found) == 1, f"{subject} is the subject of one comparison"
    return found[0]


# --- PT 9: connectivity ---------------------------------------------------------------------------


def nine(fan_out: int, delta: int, share: float, *, failed: int = 60) -> Row:
    at = {"brokers": 1_000, "fan_out": fan_out, "failed": failed, "delta": delta, "runs": 101}
    return {**at, "disconnected": share, "deviation": 1.0}


def test_pt_9_a_larger_delta_must_improve_wherever_pairs_are_disconnected() -> None:
    subject = "fan-out 3: a larger δ"
    falling = [nine(3, 2, 0.0), nine(3, 1, 1.0), nine(3, 0, 9.0)]
    assert verdict("pt-9", subject, *falling) is True
    assert verdict("pt-9", subject, *falling, nine(3, 3, 0.0)) is True
    assert verdict("pt-9", subject, nine(3, 0, 9.0), nine(3, 1, 9.0)) is False
    assert verdict("pt-9", subject, nine(3, 0, 0.0), nine(3, 1, 0.1)) is False
    assert verdict("pt-9", subject, nine(3, 0, 0.0), nine(3, 1, 0.0)) is None


@pytest.mark.parametrize(
    ("narrow", "wide", "agrees"),
    [
        (9.0, 5.0, True),
        (5.0, 9.0, False),
        (5.0, 5.0, None),
        (5.1, 5.0, None),  # less than the difference among the runs
        (0.0, 0.0, None),
    ],
)
def test_pt_9_the_narrow_tree_must_disconnect_clearly_more(
    narrow: float, wide: float, agrees: bool | None
) -> None:
    subject = "δ = 2: fan-out 3 disconnects more"
    assert verdict("pt-9", subject, nine(3, 2, narrow), nine(7, 2, wide)) is agrees


def test_pt_9_a_number_of_failures_at_which_the_wide_tree_is_worse_is_named() -> None:
    rows = [nine(3, 2, 9.0), nine(7, 2, 5.0), nine(3, 2, 1, failed=40), nine(7, 2, 2, failed=40)]
    (found,) = [each for each in find("pt-9").compare(rows) if "disconnects more" in each.subject]
    assert found.ours == "more at 60 failed; fewer at 40 failed"
    assert found.agrees is False


def test_pt_9_a_single_run_gives_no_verdict_on_two_trees() -> None:
    alone = {"runs": 1, "deviation": 0.0}
    rows = {**nine(3, 2, 9.0), **alone}, {**nine(7, 2, 1.0), **alone}
    assert verdict("pt-9", "disconnects more", *rows) is None


# --- PT 10 to 12 ----------------------------------------------------------------------------------


def ten(
    delta: int,
    drawn: float,
    *,
    gain: float = 4.0,
    error: float = 0.1,
    percent: int = 17,
    brokers: int = 500,
    differing: int = 0,
) -> Row:
    """Return a point: whether all reachable subscribers received, and the results of a hundred draws."""
    at = {"brokers": brokers, "failed_percent": percent, "failed": percent, "delta": delta}
    ways: Row = {"drawn": drawn, "drawn_error": error, "gain": gain, "gain_error": error}
    return {**at, "delivered": 90.0, "differing": differing, **ways, "healed": 100.0}


PAPER_10 = [ten(3, 98.0), ten(2, 94.0), ten(1, 90.0), ten(0, 20.0)]
WHO_10 = "subscribers that receive nothing during the failure"


def test_pt_10_deliveries_fall_by_about_four_percent_a_step_and_most_without_bypass() -> None:
    assert set(verdicts("pt-10", *PAPER_10).values()) == {True, None}
    other = [ten(3, 96.0, gain=0.0), ten(2, 96.0, gain=16.0), ten(1, 80.0), ten(0, 75.0)]
    found = verdicts("pt-10", *other)
    assert found.pop(WHO_10) is True
    assert set(found.values()) == {False, None}


@pytest.mark.parametrize("error", [3.0, 100.0])
def test_pt_10_a_value_within_two_standard_errors_of_a_bound_has_no_verdict(
    error: float,
) -> None:
    rows = [ten(3, 99.0, error=error), ten(2, 94.0, gain=15.0, error=error), ten(1, 70.0)]
    for each in find("pt-10").compare(rows):
        judged = each.subject in {WHO_10, "after healing", "δ = 2 to 1: fewer deliveries"}
        assert judged or each.agrees is None
        assert judged or each.ours.endswith("too close to tell")
    assert verdict("pt-10", "δ = 2 to 1", *rows) is (False if error == 3 else None)


def test_pt_10_draws_are_compared_only_if_all_reachable_subscribers_received() -> None:
    found = verdicts("pt-10", *PAPER_10, ten(3, 99.0, percent=5, differing=1))
    assert found.pop(WHO_10) is False
    assert set(found.values()) == {None}


def test_pt_10_draws_and_measurements_are_shown_separately() -> None:
    (shown,) = [each.ours for each in find("pt-10").compare(PAPER_10) if "97 %" in each.subject]
    assert shown == "98.0 ± 0.1 % in 100 draws; measured in 1 run: 90.0 %"


@pytest.mark.parametrize("other", [{"percent": 5}, {"brokers": 100}])
def test_pt_10_other_sizes_are_not_compared_with_the_paper(other: dict[str, int]) -> None:
    found = verdicts("pt-10", *(ten(delta, 98.0, **other) for delta in range(4)))
    assert found.pop(WHO_10) is True
    assert set(found.values()) == {None}


def eleven(fan_out: int, most: int, brokers: int = 1_000) -> Row:
    at: Row = {"brokers": brokers, "fan_out": fan_out, "counts_as": "neighbours", "delta": 3}
    return {**at, "most": most}


def test_pt_11_sizes_are_compared_at_the_number_of_brokers_of_the_paper() -> None:
    assert list(verdicts("pt-11", eleven(3, 99), eleven(7, 999)).values()) == [True, True]
    assert list(verdicts("pt-11", eleven(3, 100), eleven(7, 900)).values()) == [False, False]
    assert list(verdicts("pt-11", eleven(3, 99, 200), eleven(7, 199, 200)).values()) == [None, None]


@pytest.mark.parametrize(
    ("sessions", "agrees"), [([3, 3, 9], True), ([3, 4, 4], False), ([3, 4], False)]
)
def test_pt_12_more_than_half_of_the_brokers_must_have_few_sessions(
    sessions: list[int], agrees: bool
) -> None:
    row: Row = {"brokers": 1_000, "fan_out": 7, "failed": 60, **described(sessions)}
    assert verdict("pt-12", "fan-out 7, 60 of 1,000 failed", row) is agrees


# --- GD -------------------------------------------------------------------------------------------

GOOD_6: Row = {
    "pubends": 1,
    "nacked_at": "b2",
    "s1_first_nack_ms": 2_100.0,
    "s1_worst_ms": 2_500.0,
    "s1_nacks": 4,
    "s2_usual_ms": 6.0,
    "s2_worst_ms": 30.0,
    "s2_nacks": 0,
    "delivered": 100.0,
}

GOOD_7: Row = {
    "pubends": 2,
    "lost_ms": 2_750.0,
    "consolidation": 0.5,
    "later_nacks": 0,
    "s1_nacks": 4,
    "s2_nacks": 4,
    "s1_range_ms": 5_500.0,
    "s2_range_ms": 5_450.0,
    "delivered": 100.0,
}

GOOD_8: Row = {
    "down_s": 20,
    "late": 200,
    "nacks_while_down": 0,
    "nacked_by": 5,
    "s1_worst_ms": 22_020.0,
    "s1_back_ms": 22_070.0,
    "delivered": 100.0,
}

GOOD = {"gd-6": GOOD_6, "gd-7": GOOD_7, "gd-8": GOOD_8}


@pytest.mark.parametrize("name", GOOD)
def test_gd_the_results_of_the_paper_agree(name: str) -> None:
    assert set(verdicts(name, GOOD[name]).values()) == {True}


@pytest.mark.parametrize(
    ("name", "subject", "other"),
    [
        ("gd-6", "when s1 notices", {"s1_first_nack_ms": 1_000.0}),
        ("gd-6", "when s1 notices", {"s1_first_nack_ms": 9_000.0}),
        ("gd-6", "when s1 notices", {"s1_first_nack_ms": None}),
        ("gd-6", "where s1 sends its nacks", {"nacked_at": "b1 b2"}),
        ("gd-6", "where s1 sends its nacks", {"nacked_at": ""}),
        ("gd-6", "worst latency at s1", {"s1_worst_ms": 3_100.0}),
        ("gd-6", "nacks of s1", {"s1_nacks": 1}),
        ("gd-6", "latency at s2", {"s2_worst_ms": 70.0}),
        ("gd-6", "latency at s2", {"s2_nacks": 1}),
        ("gd-6", "all events delivered", {"delivered": 99.9}),
        ("gd-7", "pubends that went through b1", {"pubends": 1}),
        ("gd-7", "nacked by s1", {"lost_ms": 1_900.0}),
        ("gd-7", "nacked by s1", {"lost_ms": 3_100.0}),
        ("gd-7", "s1 and s2 nack the same", {"s2_range_ms": 4_500.0}),
        ("gd-7", "s1 and s2 nack the same", {"s2_nacks": 5}),
        ("gd-7", "what b2 nacks at p1", {"consolidation": 0.0}),
        ("gd-7", "what b2 nacks at p1", {"consolidation": 0.8}),
        ("gd-7", "nacks when b1 is back", {"later_nacks": 2}),
        ("gd-8", "logged but not sent", {"s1_worst_ms": 2_000.0}),
        ("gd-8", "nacks while p1 is down", {"nacks_while_down": 1}),
        ("gd-8", "SHBs that send nacks", {"nacked_by": 4}),
        ("gd-8", "latency after the restart", {"s1_back_ms": 24_000.0}),
    ],
)
def test_gd_results_that_differ_from_the_paper_disagree(
    name: str, subject: str, other: Row
) -> None:
    assert verdict(name, subject, {**GOOD[name], **other}) is False


def test_gd_7_without_nacks_there_is_no_verdict_on_consolidation() -> None:
    quiet: Row = {"consolidation": None, "s1_nacks": 0, "s2_nacks": 0}
    silent = {**GOOD_7, **quiet, "s1_range_ms": 0.0, "s2_range_ms": 0.0, "lost_ms": 0.0}
    found = verdicts("gd-7", silent)
    assert found["what b2 nacks at p1, against s1 and s2 together"] is None
    assert found["s1 and s2 nack the same"] is False


def test_gd_7_one_differing_run_of_three_does_not_decide() -> None:
    odd = {**GOOD_7, "s2_range_ms": 4_000.0}
    assert verdict("gd-7", "nack the same", GOOD_7, GOOD_7, odd) is True
    assert verdict("gd-7", "nack the same", GOOD_7, odd) is False


# --- VT -------------------------------------------------------------------------------------------

SECONDS = int(END_S)


def seventeen(
    *, old: int = 100, new: int = 100, before: int = 100, alone: int = 200, back: int = 100
) -> Row:
    """Return a course in which ib3 is alone from second 11 to 29, and ib2 returns at the end."""
    last = [before] * 11 + [alone] * (SECONDS - 11)
    second = [100] * 11 + [0] * (SECONDS - 21) + [back] * 10
    passed = dict(zip(ROUTERS, ([0] * SECONDS, second, last), strict=True))
    rates = {OLD: [100] * 40 + [old] * (SECONDS - 40), NEW: [0] * 17 + [new] * (SECONDS - 17)}
    return {
        "run": 0,
        "crashed": "ib1 ib2",
        "rates": msgspec.json.encode(rates).decode(),
        "passed": msgspec.json.encode(passed).decode(),
    }


def test_vt_6_17_the_results_of_the_paper_agree() -> None:
    assert set(verdicts("vt-6.17", seventeen()).values()) == {True}


@pytest.mark.parametrize(
    ("subject", "other"),
    [
        ("message rate of the old group", {"old": 80}),
        ("message rate of the old group", {"old": 120}),
        ("a group that joins", {"new": 50}),
        ("load of the router that is left", {"alone": 120}),
        ("load of the router that is left", {"alone": 300}),
        ("when they are back", {"back": 10}),
    ],
)
def test_vt_6_17_results_that_differ_from_the_paper_disagree(
    subject: str, other: dict[str, int]
) -> None:
    assert verdict("vt-6.17", subject, seventeen(**other)) is False
    assert verdict("vt-6.17", subject, seventeen(), seventeen(**other)) is False


# --- numbers of the papers in charts --------------------------------------------------------------


def test_numbers_of_the_paper_are_drawn_and_missing_ones_are_mentioned() -> None:
    course = msgspec.json.encode(Course([(-300.0, 5.0), (10.0, 5.0)], [])).decode()
    rows: Row = {"down_s": 20, "s1_course": course, "s2_course": course}
    six, _ = find("gd-6").charts([rows])
    assert six.levels == (("paper, worst at s1: 2.5 s", 2_500.0),)
    _, seven = find("gd-7").charts([rows])
    assert seven.levels == (("paper: about 5,500 ms", 5_500.0),)
    _, eight = find("gd-8").charts([rows])
    assert [line.dots for line in eight.lines if line.from_paper] == [[(0.0, 0.0), (22_000.0, 0.0)]]
    rates, passed = find("vt-6.17").charts([seventeen()])
    assert [level for _, level in (*rates.levels, *passed.levels)] == [100.0, 200.0]
    twelve = find("pt-12").charts([{"fan_out": 3, "failed": 16, **described([1, 2])}])
    assert [chart.levels for chart in twelve] == [(("paper: the majority of brokers", 50.0),)]
    for name in ("pt-9", "pt-12", "gd-6", "gd-7", "gd-8"):
        assert "text gives no" in " ".join(find(name).about.split())


# --- HA 7: SHIFTs and direct rewiring -------------------------------------------------------------


def seven(method: str, cells: int, delay_ms: float, *, move_s: float = 1.0) -> Row:
    at: Row = {"method": method, "workload": "even", "cells": cells}
    return {**at, "pdrd_ms": delay_ms, "move_s": move_s, "by_step": "5.0 5.1"}


def test_ha_7_shifts_must_be_flat_and_short_and_direct_rewiring_must_grow_and_be_longer() -> None:
    shifts = [seven("SHIFTs", 3, 5.0, move_s=2.0), seven("SHIFTs", 7, 6.0, move_s=2.0)]
    direct = [seven("direct", 3, 7.0), seven("direct", 7, 30.0)]
    found = verdicts("ha-7", *shifts, *direct)
    assert found.pop("even: delay of each SHIFT along the path") is None
    assert set(found.values()) == {True}
    assert len(found) == 5
    other = [seven("SHIFTs", 3, 50.0), seven("SHIFTs", 7, 500.0)]
    other += [seven("direct", 3, 30.0), seven("direct", 7, 30.0)]
    found = verdicts("ha-7", *other)
    assert found.pop("even: delay of each SHIFT along the path") is None
    assert set(found.values()) == {False}


def test_ha_7_one_length_or_one_method_alone_gives_no_verdict_on_growth() -> None:
    assert verdict("ha-7", "a SHIFT, over the length", seven("SHIFTs", 7, 5.0)) is None
    assert verdict("ha-7", "rewiring, over the length", seven("direct", 7, 5.0)) is None
    apart = verdicts("ha-7", seven("SHIFTs", 7, 5.0), seven("direct", 5, 5.0))
    assert not any("against" in each for each in apart)
