"""The planner: from the present tree of cells to a wanted one, by APPEND, SHIFT and DETACH.

A plan appends the new cells, shifts edges until the wanted tree is there on all cells, and detaches the
cells that leave. It takes the SHIFT that lowers the potential most; if none lowers it, an exchange.
It ends: no step moves an edge of the target, a SHIFT lowers the potential, and an exchange lowers the
number of missing edges. Trees of few cells get a shortest plan.

Every tree on the way keeps the bounds. If no step keeps them, the planner relaxes the bound that is
exceeded least, and the plan says so.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from functools import cached_property
from itertools import product
from typing import Final, TypeAlias

import msgspec

from gapless.core.errors import UsageError
from gapless.core.ids import CellId
from gapless.reshape.planning.baseline import baseline_plan
from gapless.reshape.planning.bounds import (
    NO_EXCESS,
    BoundExcess,
    PairBound,
    PlanBounds,
    bounds_between,
)
from gapless.reshape.planning.cuts import Cuts
from gapless.reshape.planning.exact import shortest_plan
from gapless.reshape.planning.exchange import best_exchange
from gapless.reshape.planning.keep import check_keep
from gapless.reshape.planning.lower_bound import least_operations
from gapless.reshape.planning.shifts import best_shift, target_paths
from gapless.reshape.planning.steps import PlanStep, trees_after
from gapless.reshape.planning.target import appends, detaches, target_on_all
from gapless.reshape.planning.trees import CellTree

__all__ = ["TreePlan", "TreePlanner", "plan_between"]

_Found: TypeAlias = tuple[list[PlanStep], PlanBounds]
"""The steps of a plan, and the bounds that its trees keep."""

EXACT_CELLS: Final = 7
"""The default of ``plan_exact_cells``: the search of so many cells takes a fraction of a second."""


class TreePlan(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """The operations from one tree to another, and what an operator reads before they run."""

    present: CellTree
    wanted: CellTree
    steps: tuple[PlanStep, ...]
    is_shortest: bool
    """Whether no plan within the bounds is shorter."""
    lower_bound: int
    """LB: no plan has fewer steps, within any bounds."""
    asked: PlanBounds
    """The bounds that were given, or their defaults."""
    kept: PlanBounds
    """The bounds that every tree keeps: those that were asked for, or relaxed ones."""
    baseline_length: int
    """The length of the plan of HA's proof."""

    @cached_property
    def trees(self) -> tuple[CellTree, ...]:
        """The tree after each step."""
        return tuple(trees_after(self.present, self.steps))

    @property
    def peak_degree(self) -> int:
        """The greatest degree of a tree, from the present one to the wanted one."""
        return max(each.degree for each in (self.present, *self.trees))

    @property
    def peak_diameter(self) -> int:
        """The greatest diameter of a tree, from the present one to the wanted one."""
        return max(each.diameter for each in (self.present, *self.trees))

    @property
    def is_relaxed(self) -> bool:
        """Whether the plan needs more than the bounds that were asked for."""
        return self.asked != self.kept


class TreePlanner:
    """Makes one plan, in slices of bounded work: :meth:`advance` until there is a plan."""

    def __init__(
        self,
        present: CellTree,
        wanted: CellTree,
        *,
        degree: int | None = None,
        diameter: int | None = None,
        pairs: Sequence[PairBound] = (),
        keep: Collection[CellId] = (),
        exact_cells: int = EXACT_CELLS,
    ) -> None:
        check_keep(present, wanted, keep)
        self._present = present
        self._wanted = wanted
        self._keep = frozenset(keep)
        self._asked = bounds_between(
            present, wanted, degree=degree, diameter=diameter, pairs=tuple(pairs)
        )
        self._is_small = len({*present, *wanted}) <= exact_cells
        search = _exact if self._is_small else _greedy
        self._slices = search(present, wanted, self._asked, self._keep)
        self.plan: TreePlan | None = None
        """The plan, when there is one."""

    def advance(self) -> None:
        """Do a slice of the work: one choice of SHIFTs, or one search among few cells."""
        assert self.plan is None, "the plan is made"
        found = next(self._slices)
        if found is not None:
            steps, kept = found
            *_, last = self._present, *trees_after(self._present, steps)
            assert last == self._wanted, "a plan ends at the wanted tree"
            self.plan = TreePlan(
                present=self._present,
                wanted=self._wanted,
                steps=tuple(steps),
                is_shortest=self._is_small,
                lower_bound=least_operations(self._present, self._wanted),
                asked=self._asked,
                kept=kept,
                baseline_length=len(baseline_plan(self._present, self._wanted)),
            )


def plan_between(
    present: CellTree,
    wanted: CellTree,
    *,
    degree: int | None = None,
    diameter: int | None = None,
    pairs: Sequence[PairBound] = (),
    keep: Collection[CellId] = (),
    exact_cells: int = EXACT_CELLS,
) -> TreePlan:
    """Return a plan from one tree to another; raise UsageError if the input allows none.

    The default degree bound is two above the greater degree of the two trees, the default diameter
    bound one and a half times the greater diameter. Cells of ``keep`` keep all their edges.
    """
    planner = TreePlanner(
        present,
        wanted,
        degree=degree,
        diameter=diameter,
        pairs=pairs,
        keep=keep,
        exact_cells=exact_cells,
    )
    while planner.plan is None:
        planner.advance()
    return planner.plan


def _exact(
    present: CellTree, wanted: CellTree, bounds: PlanBounds, keep: frozenset[CellId]
) -> Iterator[_Found | None]:
    """Yield a shortest plan within the bounds, or within bounds relaxed as little as possible."""
    found = shortest_plan(present, wanted, bounds, keep)
    yield None if found is None else (found, bounds)
    count = len({*present, *wanted})
    if shortest_plan(present, wanted, bounds.relaxed(BoundExcess(0, count, count)), keep) is None:
        raise _no_plan(bounds)
    ways = sorted(product(range(count), repeat=2), key=lambda each: (sum(each), each[1]))
    for degree, diameter in ways[1:]:
        relaxed = bounds.relaxed(BoundExcess(0, degree, diameter))
        found = shortest_plan(present, wanted, relaxed, keep)
        yield None if found is None else (found, relaxed)


def _greedy(
    present: CellTree, wanted: CellTree, bounds: PlanBounds, keep: frozenset[CellId]
) -> Iterator[_Found | None]:
    """Yield a plan of the three parts: appends, shifts, detaches."""
    steps = appends(present, wanted, bounds, keep)
    *_, tree = present, *trees_after(present, steps)
    target = target_on_all(tree, wanted)
    for each in (tree, target):
        bounds = _relaxed(bounds, bounds.excess(each))
    while tree != target:
        made, bounds = _next_shifts(tree, target, bounds, keep)
        *_, tree = trees_after(tree, made)
        steps += made
        yield None
    yield steps + detaches(tree, wanted), bounds


def _next_shifts(
    tree: CellTree, target: CellTree, bounds: PlanBounds, keep: frozenset[CellId]
) -> tuple[list[PlanStep], PlanBounds]:
    """Return one SHIFT, or those of an exchange, and the bounds that they keep."""
    paths = target_paths(tree, target)
    cuts = Cuts(tree, bounds)
    single = best_shift(target, paths, cuts, keep)
    if single is not None:
        return [single], bounds
    exchange, excess = best_exchange(target, paths, cuts)
    return exchange, _relaxed(bounds, excess)


def _relaxed(bounds: PlanBounds, excess: BoundExcess) -> PlanBounds:
    if excess.pairs:
        raise _no_plan(bounds)
    return bounds if excess == NO_EXCESS else bounds.relaxed(excess)


def _no_plan(bounds: PlanBounds) -> UsageError:
    pairs = ", ".join(f"{each.cell} and {each.other} {each.distance}" for each in bounds.pairs)
    return UsageError(
        f"no plan was found that keeps these cells so near to each other: {pairs}; allow more"
    )
