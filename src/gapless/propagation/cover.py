"""A small set of conjunctions that covers a large, changing one (VT 3.4, 3.5).

The published conjunctions of a set are the roots of its covering forest. If there are more roots
than the budget, they are merged, which only widens. From then on a new root is published only if no
published conjunction covers it. Published conjunctions remain when roots are removed, until so many
are removed that a new merge pays. So a change costs one lookup in a forest instead of a merge.

The sum of all changes that :meth:`CoverSet.take` has returned covers everything that was in the set
at the last call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple, TypeAlias

from gapless.content import Conjunction, CoveringForest
from gapless.content.matching import RootChange
from gapless.propagation.table import text_of

__all__ = ["CoverChange", "CoverSet", "Merge"]

Merge: TypeAlias = Callable[[Iterable[Conjunction], int], tuple[Conjunction, ...]]
"""Returns at most the given number of conjunctions, which cover the given ones."""


class CoverChange(NamedTuple):
    """Texts that are now published and texts that are no longer published, sorted."""

    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()


class CoverSet:
    """A counted set of conjunctions and the published conjunctions that cover it."""

    def __init__(self, budget: int, merge: Merge) -> None:
        self.forest = CoveringForest()
        self._budget = budget
        self._merge = merge
        self._roots = 0
        self._pending: dict[Conjunction, bool] = {}
        """Roots added (True) and removed (False) since the last call of take."""
        self._wide: CoveringForest | None = None
        """The published conjunctions, or None if these are the roots themselves."""
        self._roots_removed = 0
        """Roots removed since the last merge."""

    @property
    def changed(self) -> bool:
        """Whether the roots differ from those at the last call of take."""
        return bool(self._pending)

    def insert(self, conjunction: Conjunction) -> RootChange:
        """Insert a conjunction, or a further copy of it."""
        return self._noted(self.forest.insert(conjunction))

    def remove(self, conjunction: Conjunction) -> RootChange:
        """Remove one copy of a conjunction."""
        return self._noted(self.forest.remove(conjunction))

    def take(self) -> CoverChange:
        """Return the change of the published conjunctions since the last call."""
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
        # a root that was added and removed again, or the reverse, has not changed
        if self._pending.pop(conjunction, is_new) == is_new:
            self._pending[conjunction] = is_new

    def _widen(self, came: set[Conjunction], went: set[Conjunction]) -> None:
        """Publish new roots; merge again if there are too many or they are too wide."""
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
            # merge below the budget, so that the next roots do not all cause a merge
            for conjunction in self._merge(self.forest.roots, max(1, self._budget * 3 // 4)):
                self._wide.insert(conjunction)


def _cover_change(added: Iterable[Conjunction], removed: Iterable[Conjunction]) -> CoverChange:
    return CoverChange(tuple(sorted(map(text_of, added))), tuple(sorted(map(text_of, removed))))
