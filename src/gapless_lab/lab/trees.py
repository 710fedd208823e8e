"""The trees of PT's evaluation, and which brokers still reach each other after failures.

PT gives the number of brokers and the *fan-out* of the primary tree, not its exact shape. We use a
tree that is filled level by level, in which no broker has more neighbours than the fan-out. The
other reading, as many children, contradicts PT's own sentence that with a fan-out of 3 every
neighbourhood has fewer than 100 brokers; ``pt-11`` shows both.

Bypass, by our rules as by PT's: a broker sends to the next live broker on the path if it knows that
broker, which means within Δ = δ + 1. So a path is broken exactly where more than δ brokers in a row
have failed.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from gapless.core.ids import CellId
from gapless.overlay.neighbourhood import Neighbourhood, Topology
from gapless_lab.sim.shapes import tree

__all__ = [
    "active",
    "connected_pairs",
    "draw_failures",
    "longest_row",
    "neighbourhoods",
    "topology",
    "width",
]

Failures = NDArray[np.bool_]
"""Runs by brokers: which brokers have failed in which run."""


@lru_cache(maxsize=4)
def topology(brokers: int, fan_out: int, *, children: bool = False) -> Topology:
    """Return a tree with one broker per cell; broker i is below broker (i - 1) // width."""
    return tree("fan", brokers, width(fan_out, children=children), 1, 0)


def width(fan_out: int, *, children: bool = False) -> int:
    """Return how many children a broker has: its fan-out, less the neighbour above it."""
    return fan_out if children else fan_out - 1


@lru_cache(maxsize=4)
def neighbourhoods(whole: Topology, reach: int) -> tuple[Neighbourhood, ...]:
    """Return the neighbourhoods of all brokers."""
    return tuple(whole.neighbourhood(cell.name, reach) for cell in whole.cells)


def draw_failures(brokers: int, failed: int, runs: int, seed: int) -> Failures:
    """Choose the failed brokers of each run uniformly; more failures include the fewer ones."""
    random = np.random.default_rng((seed, brokers))
    ranks = random.random((runs, brokers)).argsort(axis=1)
    return ranks < failed


def active(around: Neighbourhood, failed: AbstractSet[CellId]) -> list[CellId]:
    """Return the cells with which a broker has active sessions.

    A session is active if it is established and none is with a broker in between (PT II): on every
    path, that with the first live broker.
    """
    return [
        cell.name
        for cell in around.cells[1:]
        if cell.name not in failed
        and all(between in failed for between in around.path(cell.name)[:-1])
    ]


def connected_pairs(children: int, delta: int, failed: Failures) -> NDArray[np.int64]:
    """Count, for every run at once, the pairs of live brokers that reach each other.

    From the leaves up, every broker sums how many live brokers below reach it, by the number of
    failed brokers in a row that end at it: ``open_[r]``. Two of them, of different branches, meet
    at a live broker always, and at a failed one if the two rows and itself are no more than δ.
    """
    runs, brokers = failed.shape
    pairs = np.zeros(runs, np.int64)
    open_ = np.zeros((brokers, delta + 1, runs), np.int64)
    for index in range(brokers - 1, -1, -1):
        dead = failed[:, index]
        gathered = open_[index]
        # the branches below are counted; now the broker itself
        pairs += np.where(dead, 0, gathered.sum(axis=0))
        up = np.zeros_like(gathered)
        up[0] = np.where(dead, 0, gathered.sum(axis=0) + 1)
        up[1:] = np.where(dead, gathered[:-1], 0)
        if index:
            above = (index - 1) // children
            pairs += _meeting(open_[above], up, failed[:, above], delta)
            open_[above] += up
    return pairs


def _meeting(
    one: NDArray[np.int64], other: NDArray[np.int64], dead: NDArray[np.bool_], delta: int
) -> NDArray[np.int64]:
    """Count the pairs of two branches that meet at a broker, dead or alive."""
    alive = one.sum(axis=0) * other.sum(axis=0)
    across = np.zeros_like(alive)
    for row in range(delta):
        across += one[row] * other[: delta - row].sum(axis=0)
    met: NDArray[np.int64] = np.where(dead, across, alive)
    return met


def longest_row(children: int, one: int, other: int, failed: AbstractSet[int]) -> int:
    """Return the greatest number of failed brokers in a row on the path between two.

    >>> longest_row(2, 3, 6, {1, 0})
    2
    """
    left, right = [one], [other]
    while left[-1] != right[-1]:  # the broker with the greater number is not above the other
        deeper = left if left[-1] > right[-1] else right
        deeper.append((deeper[-1] - 1) // children)
    longest = row = 0
    for index in [*left, *reversed(right[:-1])]:
        row = row + 1 if index in failed else 0
        longest = max(longest, row)
    return longest
