"""Counts on a graph, against brute force and against the neighbourhoods of brokers."""

from __future__ import annotations

import itertools
from collections.abc import Set as AbstractSet

import numpy as np
import pytest

from gapless.overlay.neighbourhood import Neighbourhood
from gapless_lab.lab.distributions import below, counts_of, described, share_within
from gapless_lab.lab.trees import (
    active,
    connected_pairs,
    draw_failures,
    longest_row,
    neighbourhoods,
    topology,
    width,
)

BROKERS = 30


def is_connected(
    neighbourhoods_of: dict[str, Neighbourhood], one: str, other: str, failed: AbstractSet[str]
) -> bool:
    """Walk from broker to broker as they route: to the first live one on the known path."""
    whole_tree = topology(BROKERS, 3).neighbourhood(one, BROKERS)
    path = [one, *whole_tree.path(other)]
    at = 0
    while path[at] != other:
        live = next(index for index in range(at + 1, len(path)) if path[index] not in failed)
        if path[live] not in neighbourhoods_of[path[at]]:
            return False
        at = live
    return True


@pytest.mark.parametrize("delta", [0, 1, 2, 3])
def test_pairs_are_connected_exactly_if_brokers_find_a_route(
    delta: int,
) -> None:
    tree = topology(BROKERS, 3)
    neighbourhoods_of = {each.own: each for each in neighbourhoods(tree, delta + 1)}
    drawn = draw_failures(BROKERS, 9, 3, seed=4)
    counted = connected_pairs(width(3), delta, drawn)
    for run, dead in enumerate(drawn):
        failed = {f"n{index}" for index in dead.nonzero()[0]}
        live = sorted(set(neighbourhoods_of) - failed)
        walked = sum(
            is_connected(neighbourhoods_of, *pair, failed)
            for pair in itertools.combinations(live, 2)
        )
        assert counted[run] == walked


@pytest.mark.parametrize("delta", [0, 1, 2])
def test_the_longest_row_of_failed_brokers_determines_whether_a_pair_is_connected(
    delta: int,
) -> None:
    drawn = draw_failures(BROKERS, 8, 2, seed=1)
    for run, dead in enumerate(drawn):
        failed = {int(index) for index in dead.nonzero()[0]}
        live = [index for index in range(BROKERS) if index not in failed]
        whole = sum(
            longest_row(2, one, other, failed) <= delta
            for one, other in itertools.combinations(live, 2)
        )
        assert whole == connected_pairs(2, delta, drawn)[run]


def test_without_failures_all_pairs_are_connected() -> None:
    drawn = draw_failures(50, 0, 2, seed=0)
    assert connected_pairs(6, 0, drawn).tolist() == [50 * 49 // 2] * 2


def test_the_requested_number_of_brokers_fails_and_a_seed_repeats_them() -> None:
    drawn = draw_failures(100, 17, 5, seed=3)
    assert drawn.sum(axis=1).tolist() == [17] * 5
    assert np.array_equal(drawn, draw_failures(100, 17, 5, seed=3))


def test_no_broker_has_more_neighbours_than_the_fan_out() -> None:
    for fan_out in (3, 7):
        degrees = [len(cell.neighbours) for cell in topology(200, fan_out).cells]
        assert max(degrees) == fan_out


def test_active_sessions_are_with_the_first_live_broker_of_every_path() -> None:
    neighbourhoods_of = topology(15, 3).neighbourhood("n0", 3)
    assert active(neighbourhoods_of, frozenset()) == ["n1", "n2"]
    assert sorted(active(neighbourhoods_of, {"n1"})) == ["n2", "n3", "n4"]
    assert sorted(active(neighbourhoods_of, {"n1", "n3"})) == ["n2", "n4", "n7", "n8"]


def test_a_distribution_is_stored_in_a_flat_row() -> None:
    row = described([1, 1, 2, 10])
    assert (row["least"], row["median"], row["most"], row["mean"]) == (1, 1, 10, 3.5)
    assert counts_of(row) == {1: 2, 2: 1, 10: 1}
    assert share_within(counts_of(row), 2) == 75
    assert below(counts_of(row)) == [(1, 0), (1, 50), (2, 75), (10, 100)]
