"""Few conjunctions that cover many, while the many change (VT 3.4, 3.5).

What is said of a set of conjunctions are the roots of its covering forest. If these are more than
the budget they are merged, which only widens. From then on a new root is said only if nothing said
covers it, and what was said stays when roots go, until enough went to make merging anew worth it:
so a change costs one look at a forest, not a merge.

At every moment what :meth:`CoverSet.take` has returned so far, added and removed, covers all that was
in the set at the last call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple, TypeAlias

from gapless.content import Conjunction, CoveringForest
from gapless.content.matching import RootChange
from gapless.propagation.table import text_of

__all__ = ["CoverChange", "CoverSet", "Merge"]

Merge: TypeAlias = Callable[[Iterable[Conjunction], int], tuple[Conjunction, ...]]
"""Returns at most so many conjunctions that cover the given ones."""


class CoverChange(NamedTuple):
    """Texts that are now said, and that are no longer said, in their order."""

    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()


class CoverSet:
    """A set of conjunctions, counted, and what is said of it."""

    def __init__(self, budget: int, merge: Merge) -> None:
        self.forest = CoveringForest()
        self._budget = budget
        self._merge = merge
        self._roots = 0
        self._pending: dict[Conjunction, bool] = {}
        """Roots that came (True) and went (False) since the last call of take."""
        self._wide: CoveringForest | None = None
        """What is said, if it is not the roots themselves."""
        self._roots_removed = 0
        """Roots that went since the last merge."""

    @property
    def changed(self) -> bool:
        """Whether the roots are others than at the last call of take."""
        return bool(self._pending)

    def insert(self, conjunction: Conjunction) -> RootChange:
        """Put a conjunction in, or a further copy of it."""
        return self._noted(self.forest.insert(conjunction))

    def remove(self, conjunction: Conjunction) -> RootChange:
        """Take one copy out."""
        return self._noted(self.forest.remove(conjunction))

    def take(self) -> CoverChange:
        """Return how what is said has changed since the last call."""
        pending, self._pending = self._pending, {}
        if not pending:
            return CoverChange()
        came = {conjunction for conjunction, is_new in pending.items() if is_new}
        went = {conjunction for conjunction, is_new in pending.items() if not is_new}
        if self._wide is None:
            if self._roots <= self._budget:
                return _cover_change(came, went)
            before = (self.forest.roots - came) | went
            self._merge_anew()
        else:
            before = self._wide.roots
            self._widen(came, went)
        after = self.forest.roots if self._wide is None else self._wide.roots
        return _cover_change(after - before, before - after)

    def _noted(self, change: RootChange) -> RootChange:
        for conjunction in change.removed:
            self._note(conjunction, is_new=False)
        for conjunction in change.added:
            self._note(conjunction, is_new=True)
        self._roots += len(change.added) - len(change.removed)
        return change

    def _note(self, conjunction: Conjunction, *, is_new: bool) -> None:
        # what came and went again, or the other way round, has not changed
        if self._pending.pop(conjunction, is_new) == is_new:
            self._pending[conjunction] = is_new

    def _widen(self, came: set[Conjunction], went: set[Conjunction]) -> None:
        """Add to what is said, or merge anew if that is too much or too wide."""
        assert self._wide is not None
        self._roots_removed += len(went)
        for conjunction in sorted(came, key=text_of):
            if self._wide.coverer(conjunction) is None:
                self._wide.insert(conjunction)
        if len(self._wide.roots) > self._budget or self._roots_removed > self._budget // 4:
            self._merge_anew()

    def _merge_anew(self) -> None:
        self._roots_removed = 0
        self._wide = None
        if self._roots > self._budget:
            self._wide = CoveringForest()
            # some room is left, so that the next roots do not all cause a merge
            for conjunction in self._merge(self.forest.roots, max(1, self._budget * 3 // 4)):
                self._wide.insert(conjunction)


def _cover_change(added: Iterable[Conjunction], removed: Iterable[Conjunction]) -> CoverChange:
    return CoverChange(tuple(sorted(map(text_of, added))), tuple(sorted(map(text_of, removed))))
