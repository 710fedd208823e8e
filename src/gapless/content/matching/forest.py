"""The covering forest: which conjunctions have to be propagated, and which are covered.

A root is covered by no other conjunction in the forest, as far as known. Every other conjunction is
below one that covers it. Only the roots are indexed, so a new conjunction is compared with the few
roots that the index finds, not with all (VT 4.1.2 keeps a graph of all coverings; its roots, which
are propagated, are the same). A new conjunction without a coverer becomes the parent of the roots
it covers. When a root is removed, its children move below other roots or become roots.

Covering may be missed, which leaves a superfluous root and is safe; it is never claimed wrongly.
Equal conjunctions are one node, counted.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from gapless.content.conjunction import Conjunction
from gapless.content.matching.kernel import new_engine
from gapless.content.matching.plan import Plan, Planner

__all__ = ["CoveringForest", "RootChange"]


class RootChange(NamedTuple):
    """The conjunctions that became roots and those that are no longer roots, in order."""

    added: tuple[Conjunction, ...] = ()
    removed: tuple[Conjunction, ...] = ()


NO_CHANGE = RootChange()


class _Node:
    """A conjunction in the forest; ``slot`` is set while it is a root."""

    __slots__ = ("children", "conjunction", "copies", "parent", "slot")

    def __init__(self, conjunction: Conjunction) -> None:
        self.conjunction = conjunction
        self.copies = 1
        self.parent: _Node | None = None
        self.children: dict[Conjunction, _Node] = {}
        self.slot: int | None = None

    def add_copy(self) -> None:
        """Count another copy of the conjunction."""
        self.copies += 1

    def drop_copy(self) -> bool:
        """Uncount a copy; return whether others are left."""
        self.copies -= 1
        return self.copies > 0

    def hang_under(self, parent: _Node) -> None:
        """Become the child of a node that covers this one."""
        self.parent = parent
        parent.adopt(self)

    def adopt(self, child: _Node) -> None:
        """Add a child."""
        self.children[child.conjunction] = child

    def release(self, conjunction: Conjunction) -> None:
        """Remove a child."""
        del self.children[conjunction]

    def lose_parent(self) -> None:
        """Detach the node from its parent, which was removed."""
        self.parent = None

    def become_root(self, slot: int) -> None:
        """Become a root, which the engine finds by its slot."""
        self.slot = slot

    def cease_to_be_root(self) -> None:
        """Clear the slot, because the engine no longer has the node."""
        self.slot = None


class CoveringForest:
    """Conjunctions ordered by covering.

    >>> from gapless import Filter
    >>> wide, narrow = (Filter(text).conjunctions[0] for text in ("a > 1", "a > 5"))
    >>> forest = CoveringForest()
    >>> forest.insert(narrow).added == (narrow,)
    True
    >>> forest.insert(wide) == RootChange(added=(wide,), removed=(narrow,))
    True
    >>> forest.remove(wide) == RootChange(added=(narrow,), removed=(wide,))
    True
    """

    def __init__(self, *, kernel: str | None = None) -> None:
        self._engine = new_engine(kernel, covering=True)
        self._planner = Planner()
        self._nodes: dict[Conjunction, _Node] = {}
        self._roots: dict[int, _Node] = {}

    def __len__(self) -> int:
        """Return the number of different conjunctions."""
        return len(self._nodes)

    def __contains__(self, conjunction: Conjunction) -> bool:
        return conjunction in self._nodes

    def __iter__(self) -> Iterator[Conjunction]:
        """Iterate over the different conjunctions, oldest first."""
        return iter(self._nodes)

    @property
    def roots(self) -> frozenset[Conjunction]:
        """The conjunctions that no other covers."""
        return frozenset(node.conjunction for node in self._roots.values())

    def is_root(self, conjunction: Conjunction) -> bool:
        """Return whether the conjunction is a root; KeyError if it is not in the forest."""
        return self._nodes[conjunction].slot is not None

    def parent(self, conjunction: Conjunction) -> Conjunction | None:
        """Return the parent, which covers it, or None for a root; KeyError if it is not here."""
        parent = self._nodes[conjunction].parent
        return None if parent is None else parent.conjunction

    def coverer(self, conjunction: Conjunction) -> Conjunction | None:
        """Return a root that covers (or equals) the conjunction, or None. It may be a new one."""
        node = self._nodes.get(conjunction)
        while node is not None and node.parent is not None:
            node = node.parent
        if node is None:
            node = self._find_coverer(conjunction, self._planner.plan(conjunction))
        return None if node is None else node.conjunction

    def insert(self, conjunction: Conjunction) -> RootChange:
        """Add a conjunction and return the change of the roots."""
        node = self._nodes.get(conjunction)
        if node is not None:
            node.add_copy()
            return NO_CHANGE
        node = self._nodes[conjunction] = _Node(conjunction)
        return self._settle(node)

    def remove(self, conjunction: Conjunction) -> RootChange:
        """Remove one copy and return the change of the roots; KeyError if there is none."""
        node = self._nodes[conjunction]
        if node.drop_copy():
            return NO_CHANGE
        del self._nodes[conjunction]
        if node.parent is not None:
            # covering is transitive: the parent covers the children too
            node.parent.release(conjunction)
            for child in node.children.values():
                child.hang_under(node.parent)
            return NO_CHANGE
        self._uproot(node)
        return self._resettle(node)

    def statistics(self) -> dict[str, int]:
        """Return counts for people."""
        return {
            "conjunctions": len(self._nodes),
            "roots": len(self._roots),
            **self._engine.statistics(),
        }

    def _resettle(self, gone: _Node) -> RootChange:
        """Place each child of a removed root."""
        added: dict[Conjunction, None] = {}
        removed = {gone.conjunction: None}
        for child in gone.children.values():
            child.lose_parent()
            change = self._settle(child)
            added.update(dict.fromkeys(change.added))
            for conjunction in change.removed:
                if conjunction in added:
                    del added[conjunction]  # added just before: not visible from outside
                else:
                    removed[conjunction] = None
        return RootChange(tuple(added), tuple(removed))

    def _settle(self, node: _Node) -> RootChange:
        """Put a node below a coverer, or make it a root above the roots it covers."""
        plan = self._planner.plan(node.conjunction)
        coverer = self._find_coverer(node.conjunction, plan)
        if coverer is not None:
            node.hang_under(coverer)
            return NO_CHANGE
        taken = [
            root
            for slot in self._engine.covered(plan)
            if node.conjunction.covers((root := self._roots[slot]).conjunction)
        ]
        for root in taken:
            self._uproot(root)
            root.hang_under(node)
        slot = self._engine.insert(plan)
        node.become_root(slot)
        self._planner.added(plan)
        self._roots[slot] = node
        return RootChange((node.conjunction,), tuple(root.conjunction for root in taken))

    def _find_coverer(self, conjunction: Conjunction, plan: Plan) -> _Node | None:
        for slot in self._engine.coverers(plan):
            root = self._roots[slot]
            if root.conjunction.covers(conjunction):
                return root
        return None

    def _uproot(self, node: _Node) -> None:
        assert node.slot is not None
        self._planner.forget(self._engine.delete(node.slot))
        del self._roots[node.slot]
        node.cease_to_be_root()
