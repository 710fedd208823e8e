"""The engine in plain Python: the same slots, groups and rows as the compiled one.

Used if the kernel was not built, and as its counterpart in tests. The candidates that the bit rows
leave are verified by NumPy if they are many, one by one if they are few.
Theory of operation: see the package's docstring. The names are those of the kernel, and the
modules ``fallback_store``, ``fallback_groups`` and ``fallback_covering`` are divided like it.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Any, Final, TypeVar

import numpy as np

from gapless.content.matching import fallback_covering
from gapless.content.matching.events import plain_event
from gapless.content.matching.fallback_attributes import group_key
from gapless.content.matching.fallback_groups import (
    ABSENT,
    NUMBER,
    ONE_TEXT,
    TEXT,
    EventValue,
    SlotGroup,
)
from gapless.content.matching.fallback_plain import SlotArray, ValueArray
from gapless.content.matching.fallback_store import SlotStore
from gapless.content.matching.owners import NO_KEYS, Memo, Owners
from gapless.content.matching.plan import Plan, ValueKind, encode_number
from gapless.content.matching.reentrancy import ReentrancyGuard
from gapless.content.values import Attributes, Value, check_value

__all__ = ["Engine"]

T = TypeVar("T")

_FEW: Final = 12
"""Candidates that are faster to verify one by one than by NumPy."""

_NAN: Final = ValueKind.NAN.value


class Engine:
    """Slots found by events; the kernel (`_kernel.pyx`) is the compiled form."""

    def __init__(self, covering: bool = False) -> None:
        self._store = SlotStore(covering=covering)
        self._attributes = self._store.attributes
        self._rules = self._store.rules
        self._owners: list[Any] = []
        self._masks: list[int] = []
        self._memo = Memo()
        self._epoch = 0
        self._guard = ReentrancyGuard()

    # --- slots -------------------------------------------------------------------------------

    def insert(self, plan: Plan) -> int:
        """Store a plan and return its slot."""
        with self._guard:
            slot = self._store.insert(plan)
            if slot == len(self._owners):
                self._owners.append(None)
                self._masks.append(0)
            return slot

    def delete(self, slot: int) -> list[str]:
        """Remove a slot; return the attributes that no slot constrains any more."""
        with self._guard:
            unused = self._store.delete(slot)
            self._owners[slot] = None
            self._masks[slot] = 0
            self._memo.clear()
            return unused

    # --- events ------------------------------------------------------------------------------

    def match(self, attributes: Attributes) -> frozenset[Any]:
        """Return the keys whose filter the event matches."""
        with self._guard:
            return self._keys_of(self._hits(attributes))

    def match_batch(self, events: Iterable[Attributes]) -> list[frozenset[Any]]:
        """Return the keys for each event."""
        return [self.match(attributes) for attributes in events]

    def distribute(self, events: Iterable[Attributes], items: Iterable[T]) -> dict[Any, list[T]]:
        """Return for each key the items whose events it matches, in their order."""
        found: dict[Any, list[T]] = {}
        for attributes, item in zip(events, items, strict=True):
            for key in self.match(attributes):
                found.setdefault(key, []).append(item)
        return found

    def route(self, attributes: Attributes) -> tuple[int, frozenset[Any]]:
        """Return the mask of the links for which the event matches, and the local keys."""
        with self._guard:
            hits = self._hits(attributes)
            mask = 0
            for slot in hits:
                mask |= self._masks[slot]
            local = [slot for slot in hits if self._owners[slot] is not None]
            return mask, self._keys_of(local)

    def links(self, events: Iterable[Attributes]) -> list[int]:
        """Return for each event the mask of the links for which it matches."""
        return [self.route(attributes)[0] for attributes in events]

    def find(self, attributes: Attributes) -> list[int]:
        """Return the slots that the event matches, in order."""
        with self._guard:
            return sorted(self._hits(attributes))

    def _hits(self, attributes: Attributes, *, copied: bool = False) -> list[int]:
        """Return the slots that the event matches: rows first, then exact verification."""
        if type(attributes) is not dict:
            attributes, copied = plain_event(attributes), True
        self._epoch += 1
        event: dict[str, EventValue] = {}
        groups: list[SlotGroup] = []
        for name, value in attributes.items():
            if type(name) is not str:
                return self._hits(plain_event(attributes), copied=True)
            attribute = self._attributes.get(name)
            if attribute is None or value is None:
                continue
            kind = type(value)
            if kind is float:
                event[name] = NUMBER if value == value else _NAN, (value, 0), value
            elif kind is str:
                event[name] = TEXT, (0.0, 0), value
            elif kind is int or kind is bool or copied:
                event[name] = _event_value(name, value)
            else:
                return self._hits(plain_event(attributes), copied=True)
            if attribute.equal and (group := attribute.equal.get(group_key(value))) is not None:
                groups.append(group)
            if attribute.present is not None:
                groups.append(attribute.present)
            if attribute.lengths and kind is str:
                groups += attribute.prefix_groups(str(value))
        if self._store.always is not None:
            groups.append(self._store.always)
        few: list[int] = []
        many: list[SlotArray] = []
        for group in groups:
            if group.columns is None and not group.holes:
                few += group.slots
                continue
            left = group.survivors(event, self._epoch)
            if left.bit_count() <= _FEW:
                few += group.slot_list(left)
            else:
                many.append(group.slot_array(left))
        hits: list[int] = []
        if many or len(few) > _FEW:
            many.append(np.array(few, dtype=np.int64))
            few = self._verify_many(np.concatenate(many), event, hits)
        hits += [slot for slot in few if self._holds(slot, event, attributes)]
        return hits

    def _verify_many(
        self, slots: SlotArray, event: dict[str, EventValue], hits: list[int]
    ) -> list[int]:
        """Add the plain slots that match to the hits; return those that are not plain."""
        values: ValueArray = np.full(self._store.numbers_max + 1, np.nan)
        values[0] = 0.0
        for name, (kind, (number, step), _) in event.items():
            if kind == NUMBER:
                if step:  # not exact as a double, so doubles do not decide
                    return list(slots.tolist())
                values[self._attributes[name].number] = number
        plain = self._store.plain.is_plain[slots]
        hits += self._store.plain.verified(slots[plain], values).tolist()
        return list(slots[~plain].tolist())

    def _holds(self, slot: int, event: dict[str, EventValue], attributes: Attributes) -> bool:
        rule = self._rules[slot]
        assert rule is not None
        for name, lowest, highest in rule.intervals:
            kind, pair, _ = event.get(name, ABSENT)
            if kind != NUMBER or pair < lowest or pair > highest:
                return False
        for name, alternatives in rule.choices:
            kind, pair, value = event.get(name, ABSENT)
            for wanted, low, low_step, high, high_step, text in alternatives:
                if wanted == NUMBER:
                    if kind == NUMBER and (low, low_step) <= pair <= (high, high_step):
                        break
                elif wanted == ONE_TEXT:
                    if kind == TEXT and value == text:
                        break
                elif wanted == kind:
                    break
            else:
                return False
        return rule.check is None or rule.check.matches(attributes)

    # --- owners and links --------------------------------------------------------------------

    def own(self, slot: int, key: Hashable) -> None:
        """Make ``key`` an owner of the slot."""
        self._guard.check()
        self._store.rule(slot)
        held = self._owners[slot]
        if held is None:
            self._owners[slot] = Owners(key) if key is None or type(key) is Owners else key
        elif type(held) is Owners:
            held.add(key)
        else:
            self._owners[slot] = Owners(held, key)
        self._memo.clear()

    def disown(self, slot: int, key: Hashable) -> None:
        """Remove ``key`` from the slot's owners."""
        self._guard.check()
        self._store.rule(slot)
        held = self._owners[slot]
        if type(held) is Owners:
            held.discard(key)
        if type(held) is not Owners or not held.keys:
            self._owners[slot] = None
        self._memo.clear()

    def _keys_of(self, hits: list[int]) -> frozenset[Any]:
        """Return the owners of all hits."""
        if not hits:
            return NO_KEYS
        held = [self._owners[slot] for slot in hits]
        several = [owner for owner in held if type(owner) is Owners]
        if not several:
            return frozenset(held)
        if len(held) == 1:
            return several[0].frozen()
        single = [owner for owner in held if type(owner) is not Owners]
        if sum(len(owner.keys) for owner in several) > Memo.WORTHWHILE:
            return self._memo.recall(np.array(hits, dtype=np.uint32).tobytes(), single, several)
        return frozenset(single).union(*[owner.keys for owner in several])

    def set_links(self, slot: int, mask: int) -> None:
        """Set the links that own the slot (a bit a link)."""
        self._guard.check()
        self._store.rule(slot)
        self._masks[slot] = mask

    def set_all_links(self, mask: int) -> None:
        """Set the mask of all links; the fallback does not use it."""

    # --- covering ----------------------------------------------------------------------------

    def coverers(self, plan: Plan) -> list[int]:
        """Return, in order, the slots that may cover the plan's conjunction."""
        self._guard.check()
        return fallback_covering.coverers(self._store, plan)

    def covered(self, plan: Plan) -> list[int]:
        """Return, in order, the slots that the plan's conjunction may cover."""
        self._guard.check()
        return fallback_covering.covered(self._store, plan)

    def statistics(self) -> dict[str, int]:
        """Return counts for people: slots, attributes, groups by access, groups with rows."""
        return self._store.statistics()


def _event_value(name: str, value: Value) -> EventValue:
    if isinstance(value, bool):
        return ValueKind.TRUE.value if value else ValueKind.FALSE.value, (0.0, 0), value
    check_value(name, value)
    assert isinstance(value, int)
    return NUMBER, encode_number(value), value
