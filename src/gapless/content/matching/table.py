"""Conjunctions by slot: equal ones share a slot, with a count of owners."""

from __future__ import annotations

from array import array

import msgspec

from gapless.content.conjunction import Conjunction
from gapless.content.filter import Filter
from gapless.content.matching.kernel import MatchEngine
from gapless.content.matching.plan import Planner
from gapless.content.matching.reentrancy import ReentrancyGuard
from gapless.content.matching.work import MatchWork

__all__ = ["SlotTable", "check_filter"]


class SlotTable:
    """The slots of one engine, with their numbers of owners."""

    def __init__(self, engine: MatchEngine, work: MatchWork | None = None) -> None:
        self._engine = engine
        self._work = work
        self._checked: set[int] = set()
        """The slots with a check, if their work is counted."""
        self._planner = Planner()
        self._slot_by_identity: dict[bytes, int] = {}
        self._identities: list[bytes | None] = []
        self._owners = array("I")
        self._guard = ReentrancyGuard()

    def __len__(self) -> int:
        return len(self._slot_by_identity)

    def acquire(self, conjunction: Conjunction) -> int:
        """Return the conjunction's slot, a new one if needed, and count one more owner."""
        self._guard.enter()
        try:
            return self._acquire(conjunction)
        finally:
            self._guard.leave()

    def _acquire(self, conjunction: Conjunction) -> int:
        plan = self._planner.plan(conjunction)
        identity = plan.identity
        slot = self._slot_by_identity.get(identity)
        if slot is not None:
            self._owners[slot] += 1
            return slot
        if self._work is not None and plan.check is not None:
            plan = msgspec.structs.replace(plan, check=self._work.counted(plan.check))
        slot = self._engine.insert(plan)
        self._planner.added(plan)
        if self._work is not None and plan.check is not None:
            self._checked.add(slot)
        if slot == len(self._owners):
            self._owners.append(0)
            self._identities.append(None)
        self._owners[slot] = 1
        self._identities[slot] = identity
        self._slot_by_identity[identity] = slot
        return slot

    def acquire_all(self, conjunctions: tuple[Conjunction, ...]) -> tuple[int, ...]:
        """Return the slots of several conjunctions; count one more owner for all or none."""
        if len(conjunctions) == 1:  # most have one
            return (self.acquire(conjunctions[0]),)
        slots: list[int] = []
        try:
            for conjunction in conjunctions:
                slots.append(self.acquire(conjunction))  # noqa: PERF401 - undone if one fails
        except BaseException:
            for slot in slots:
                self.release(slot)
            raise
        return tuple(slots)

    def find(self, conjunction: Conjunction) -> int | None:
        """Return the conjunction's slot, or None if it has none."""
        return self._slot_by_identity.get(self._planner.plan(conjunction).identity)

    def release(self, slot: int) -> None:
        """Uncount one owner of a slot; the slot is removed with the last one."""
        self._guard.enter()
        try:
            self._release(slot)
        finally:
            self._guard.leave()

    def _release(self, slot: int) -> None:
        left = self._owners[slot] - 1
        assert left >= 0, f"slot {slot} has no owner"
        self._owners[slot] = left
        if not left:
            identity = self._identities[slot]
            assert identity is not None
            del self._slot_by_identity[identity]
            self._identities[slot] = None
            if self._work is not None and slot in self._checked:
                self._checked.remove(slot)
                self._work.removed()
            if unused := self._engine.delete(slot):
                self._planner.forget(unused)


def check_filter(filter: object) -> None:
    """Raise TypeError unless it is a filter."""
    if not isinstance(filter, Filter):
        raise TypeError(f"this takes a Filter, not a {type(filter).__name__}; write Filter(text)")
