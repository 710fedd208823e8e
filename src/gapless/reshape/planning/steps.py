"""The steps of a plan: the operations APPEND, DETACH and SHIFT, as values."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import StrEnum

import msgspec

from gapless.core.ids import CellId
from gapless.reshape.planning.trees import CellTree

__all__ = ["PlanStep", "StepKind", "append", "detach", "shift", "trees_after"]


class StepKind(StrEnum):
    """The operations that a plan consists of."""

    APPEND = "append"
    DETACH = "detach"
    SHIFT = "shift"


class PlanStep(msgspec.Struct, frozen=True):
    """One operation: APPEND(i, j), SHIFT(i, j, k), or DETACH(i), which names the neighbour j too."""

    kind: StepKind
    cells: tuple[CellId, ...]

    def __str__(self) -> str:
        shown = self.cells[:1] if self.kind is StepKind.DETACH else self.cells
        return f"{self.kind.name}({', '.join(shown)})"

    def applied(self, tree: CellTree) -> CellTree:
        """Return the tree after the operation; raise UsageError if it is not possible."""
        match self.kind:
            case StepKind.APPEND:
                cell, neighbour = self.cells
                return tree.appended(cell, neighbour)
            case StepKind.DETACH:
                cell, neighbour = self.cells
                return tree.detached(cell, neighbour)
            case StepKind.SHIFT:
                moved, old, new = self.cells
                return tree.shifted(moved, old, new)


def append(cell: CellId, neighbour: CellId) -> PlanStep:
    """Return APPEND(i, j)."""
    return PlanStep(StepKind.APPEND, (cell, neighbour))


def detach(cell: CellId, neighbour: CellId) -> PlanStep:
    """Return DETACH(i), where j is the neighbour of i."""
    return PlanStep(StepKind.DETACH, (cell, neighbour))


def shift(moved: CellId, old: CellId, new: CellId) -> PlanStep:
    """Return SHIFT(i, j, k)."""
    return PlanStep(StepKind.SHIFT, (moved, old, new))


def trees_after(tree: CellTree, steps: Iterable[PlanStep]) -> Iterator[CellTree]:
    """Yield the tree after each step.

    >>> line = CellTree.of("abc", [("a", "b"), ("b", "c")])
    >>> [each.edges for each in trees_after(line, [shift("a", "b", "c"), detach("a", "c")])]
    [(('a', 'c'), ('b', 'c')), (('b', 'c'),)]
    """
    for step in steps:
        tree = step.applied(tree)
        yield tree
