"""The engine in plain Python: the same slots, groups and rows as the compiled one.

Used where the kernel was not built, and as its counterpart in tests. What survives the bit rows
of all groups is verified at once by NumPy where it is many, one by one where it is few.
Theory of operation: see the package's docstring; the names are those of the kernel.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable
from typing import Any, Final, TypeVar

import numpy as np
import numpy.typing as npt

from gapless.content.matching.events import plain_event
from gapless.content.matching.fallback_groups import (
    ABSENT,
    CONSTRAINED_ROW,
    NUMBER,
    ONE_TEXT,
    TEXT,
    BitColumn,
    BucketBounds,
    EventValue,
    SlotGroup,
    SlotRule,
    cover,
    end_rows,
    places,
)
from gapless.content.matching.owners import NO_KEYS, Memo, Owners
from gapless.content.matching.plan import (
    Access,
    AccessKind,
    Plan,
    Ranges,
    ValueKind,
    encode_number,
    points,
)
from gapless.content.matching.reentrancy import ReentrancyGuard
from gapless.content.values import Attributes, Value, check_value

__all__ = ["Engine"]

T = TypeVar("T")

_FEW: Final = 12
"""Survivors that are cheaper to verify one by one than by NumPy."""
_WIDTH: Final = 6
"""Ranges of a slot that NumPy verifies; a slot with more is verified one by one."""

_NAN: Final = ValueKind.NAN.value

_Floats = npt.NDArray[np.float64]
_Slots = npt.NDArray[np.int64]


class _Attribute:
    """What the engine knows of one attribute: the groups it leads to, and its shared bounds."""

    __slots__ = (
        "bounds",
        "bounds_from",
        "equal",
        "length_counts",
        "lengths",
        "number",
        "prefixes",
        "present",
        "users",
        "uses",
    )

    def __init__(self, number: int) -> None:
        self.number = number
        self.uses = 0
        self.equal: dict[Hashable, SlotGroup] = {}
        self.prefixes: dict[str, SlotGroup] = {}
        self.lengths: tuple[int, ...] = ()
        self.length_counts: Counter[int] = Counter()
        self.present: SlotGroup | None = None
        self.bounds: BucketBounds | None = None
        self.bounds_from = 0
        self.users: Counter[SlotGroup] = Counter()
        """Groups found by another attribute, with how many of their slots ask for this one."""

    def groups(self) -> list[SlotGroup]:
        found = [*self.equal.values(), *self.prefixes.values()]
        return found if self.present is None else [*found, self.present]


class _Plain:
    """The slots whose doubles say it all, as arrays: which attributes, from where, to where.

    Number 0 stands for no attribute: its value is 0 and its range is everything.
    """

    def __init__(self) -> None:
        self.is_plain: npt.NDArray[np.bool_] = np.zeros(0, dtype=np.bool_)
        self._which: npt.NDArray[np.int32] = np.zeros((0, _WIDTH), dtype=np.int32)
        self._low: _Floats = np.zeros((0, _WIDTH))
        self._high: _Floats = np.zeros((0, _WIDTH))

    def store(self, slot: int, rule: SlotRule, attributes: dict[str, _Attribute]) -> None:
        if slot >= len(self.is_plain):
            self._grow(max(64, len(self.is_plain)))
        self.is_plain[slot] = (
            rule.check is None
            and not rule.choices
            and len(rule.intervals) <= _WIDTH
            and not any(low[1] or high[1] for _, low, high in rule.intervals)
        )
        if self.is_plain[slot]:
            self._which[slot], self._low[slot], self._high[slot] = 0, -np.inf, np.inf
            for place, (name, low, high) in enumerate(rule.intervals):
                self._which[slot, place] = attributes[name].number
                self._low[slot, place] = low[0]
                self._high[slot, place] = high[0]

    def verified(self, slots: _Slots, values: _Floats) -> _Slots:
        """Return those of the plain slots that hold for the values (by attribute number)."""
        found = values[self._which[slots]]
        holds = (self._low[slots] <= found) & (found <= self._high[slots])
        return slots[holds.all(axis=1)]

    def _grow(self, extra: int) -> None:
        rows = (extra, _WIDTH)
        self.is_plain = np.append(self.is_plain, np.zeros(extra, dtype=np.bool_))
        self._which = np.concatenate([self._which, np.zeros(rows, dtype=np.int32)])
        self._low = np.concatenate([self._low, np.zeros(rows)])
        self._high = np.concatenate([self._high, np.zeros(rows)])


class Engine:
    """Slots found by events; see the kernel (`_kernel.pyx`) for the same, compiled."""

    def __init__(self, covering: bool = False) -> None:
        self._attributes: dict[str, _Attribute] = {}
        self._free_numbers: list[int] = []
        self._always: SlotGroup | None = None
        self._rules: list[SlotRule | None] = []
        self._plain = _Plain()
        self._free: list[int] = []
        self._owners: list[Any] = []
        self._masks: list[int] = []
        self._memo = Memo()
        self._covering = covering
        self._epoch = 0
        self._guard = ReentrancyGuard()

    # --- slots -------------------------------------------------------------------------------

    def insert(self, plan: Plan) -> int:
        """Store a plan and return its slot."""
        with self._guard:
            return self._insert(plan)

    def _insert(self, plan: Plan) -> int:
        rule = SlotRule(plan)
        if self._free:
            slot = self._free.pop()
            self._rules[slot] = rule
        else:
            slot = len(self._rules)
            self._rules.append(rule)
            self._owners.append(None)
            self._masks.append(0)
        for name, _ in plan.ranges:
            self._attribute(name).uses += 1
        self._plain.store(slot, rule, self._attributes)
        for group in self._groups_for(plan.access):
            position = group.take_position(slot)
            rule.locations.append((group, position))
            self._count_users(group, rule, 1)
            if group.columns is not None:
                self._mark(group, rule, position)
            if group.must_slice:
                self._slice(group)
        return slot

    def delete(self, slot: int) -> list[str]:
        """Forget a slot; return the attributes that no slot asks for any more."""
        with self._guard:
            return self._delete(slot)

    def _delete(self, slot: int) -> list[str]:
        rule = self._rule(slot)
        for group, position in rule.locations:
            self._count_users(group, rule, -1)
            group.release_position(position)
            if not group.count:
                self._hang(group, None)
        self._rules[slot] = None
        self._owners[slot] = None
        self._masks[slot] = 0
        self._free.append(slot)
        self._memo.clear()
        return [name for name, _ in rule.ranges if self._is_forgotten(name)]

    def _attribute(self, name: str) -> _Attribute:
        attribute = self._attributes.get(name)
        if attribute is None:
            number = self._free_numbers.pop() if self._free_numbers else len(self._attributes) + 1
            attribute = self._attributes[name] = _Attribute(number)
        return attribute

    def _is_forgotten(self, name: str) -> bool:
        attribute = self._attributes[name]
        attribute.uses -= 1
        if attribute.uses:
            return False
        del self._attributes[name]
        self._free_numbers.append(attribute.number)
        return True

    def _groups_for(self, access: Access) -> list[SlotGroup]:
        """Return the groups that an access leads to, made where they are not there."""
        groups = []
        for value in access.values or (None,):
            key = _key(value)
            group = self._group(access, key)
            if group is None:
                group = SlotGroup(access, key)
                self._hang(group, group)
            groups.append(group)
        return groups

    def _group(self, access: Access, key: Hashable) -> SlotGroup | None:
        if access.kind is AccessKind.ALWAYS:
            return self._always
        attribute = self._attributes[access.attribute]
        if access.kind is AccessKind.PRESENT:
            return attribute.present
        if access.kind is AccessKind.PREFIX:
            return attribute.prefixes.get(str(key))
        return attribute.equal.get(key)

    def _hang(self, group: SlotGroup, there: SlotGroup | None) -> None:
        """Put ``there`` (the group, or None to take it away) where the group's key leads."""
        if group.access.kind is AccessKind.ALWAYS:
            self._always = there
            return
        attribute = self._attributes[group.access.attribute]
        if group.access.kind is AccessKind.PRESENT:
            attribute.present = there
            return
        keyed: dict[Any, SlotGroup] = attribute.equal
        if group.access.kind is AccessKind.PREFIX:
            keyed = attribute.prefixes
        if there is None:
            del keyed[group.key]
        else:
            keyed[group.key] = there
        if group.access.kind is AccessKind.PREFIX:
            attribute.length_counts[len(str(group.key))] += 1 if there is not None else -1
            attribute.length_counts = +attribute.length_counts  # without those that fell to 0
            if len(attribute.length_counts) != len(attribute.lengths):
                attribute.lengths = tuple(sorted(attribute.length_counts))

    def _count_users(self, group: SlotGroup, rule: SlotRule, change: int) -> None:
        if not self._covering:
            return
        for name, _ in rule.ranges:
            if name != group.access.attribute:
                users = self._attributes[name].users
                users[group] += change
                if not users[group]:
                    del users[group]

    def _mark(self, group: SlotGroup, rule: SlotRule, position: int) -> None:
        assert group.columns is not None
        for name, alternatives in rule.verified:
            column = group.columns.get(name)
            if column is not None:  # else too few slots ask for it: left to verification
                column.mark(alternatives, position)

    def _slice(self, group: SlotGroup) -> None:
        """Give a group its bit rows, with bounds drawn from the slots it has now."""
        held = [(position, self._rule(group.slots[position])) for position in places(group.live)]
        sample = group.sample([rule for _, rule in held])
        group.columns = {
            name: self._new_column(group, name, sample[name]) for name in sorted(sample)
        }
        group.sliced_at = group.count
        for position, rule in held:
            self._mark(group, rule, position)

    def _new_column(self, group: SlotGroup, name: str, sample: list[float]) -> BitColumn:
        """Make a column; groups found by presence share bounds, those found by a value do not."""
        if group.access.kind in (AccessKind.EQUAL, AccessKind.PREFIX):
            return BitColumn(BucketBounds(sample))
        attribute = self._attributes[name]
        if attribute.bounds is None or group.count > 4 * attribute.bounds_from:
            attribute.bounds = BucketBounds(sample)
            attribute.bounds_from = group.count
        return BitColumn(attribute.bounds)

    def _rule(self, slot: int) -> SlotRule:
        rule = self._rules[slot]
        assert rule is not None, f"slot {slot} is free"
        return rule

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
        """Return the mask of the links that want the event, and the local keys."""
        with self._guard:
            hits = self._hits(attributes)
            mask = 0
            for slot in hits:
                mask |= self._masks[slot]
            local = [slot for slot in hits if self._owners[slot] is not None]
            return mask, self._keys_of(local)

    def links(self, events: Iterable[Attributes]) -> list[int]:
        """Return for each event the mask of the links that want it."""
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
            if attribute.equal and (group := attribute.equal.get(_key(value))) is not None:
                groups.append(group)
            if attribute.present is not None:
                groups.append(attribute.present)
            if attribute.lengths and kind is str:
                groups += _prefix_groups(attribute, str(value))
        if self._always is not None:
            groups.append(self._always)
        few: list[int] = []
        many: list[_Slots] = []
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
        self, slots: _Slots, event: dict[str, EventValue], hits: list[int]
    ) -> list[int]:
        """Add the plain slots that hold to the hits; return those that are not plain."""
        values: _Floats = np.full(len(self._attributes) + len(self._free_numbers) + 1, np.nan)
        values[0] = 0.0
        for name, (kind, (number, step), _) in event.items():
            if kind == NUMBER:
                if step:  # no double holds this number, so doubles do not say it all
                    return list(slots.tolist())
                values[self._attributes[name].number] = number
        plain = self._plain.is_plain[slots]
        hits += self._plain.verified(slots[plain], values).tolist()
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
        self._rule(slot)
        held = self._owners[slot]
        if held is None:
            self._owners[slot] = Owners(key) if key is None or type(key) is Owners else key
        elif type(held) is Owners:
            held.add(key)
        else:
            self._owners[slot] = Owners(held, key)
        self._memo.clear()

    def disown(self, slot: int, key: Hashable) -> None:
        """Take ``key`` off the slot's owners."""
        self._guard.check()
        self._rule(slot)
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
        """Say which links want what the slot matches (a bit a link)."""
        self._guard.check()
        self._rule(slot)
        self._masks[slot] = mask

    def set_all_links(self, mask: int) -> None:
        """Say which links there are; the twin has no use for it."""

    # --- covering ----------------------------------------------------------------------------

    def coverers(self, plan: Plan) -> list[int]:
        """Return, in order, the slots that may cover the plan's conjunction."""
        self._guard.check()
        wanted = dict(plan.ranges)
        slots: list[int] = []
        for group in self._leading_here(plan):
            left = group.live
            for name, column in (group.columns or {}).items():
                if name not in wanted:
                    left &= ~column.rows[CONSTRAINED_ROW]
                    continue
                for row in end_rows(column.allowed(wanted[name])):
                    left &= ~column.rows[row]
            slots += [
                slot for slot in group.slot_list(left) if cover(self._rule(slot).ranges, wanted)
            ]
        return sorted(slots)

    def covered(self, plan: Plan) -> list[int]:
        """Return, in order, the slots that the plan's conjunction may cover."""
        self._guard.check()
        slots: list[int] = []
        for group in self._holding_all(plan.ranges):
            left = group.live
            for name, alternatives in plan.ranges:
                if group.columns is None or group.has_key_on(name):
                    continue  # what the key implies has no rows
                column = group.columns.get(name)
                if column is None:
                    if group not in self._attributes[name].users:
                        left = 0  # nobody here asks for it
                        break
                    continue
                left &= column.rows[CONSTRAINED_ROW]
                for row in places(column.ever_allowed & ~column.allowed(alternatives)):
                    left &= column.rows[row]
            slots += [
                slot
                for slot in group.slot_list(left)
                if cover(plan.ranges, dict(self._rule(slot).ranges))
            ]
        return sorted(set(slots))  # an IN list stands in several groups

    def _leading_here(self, plan: Plan) -> list[SlotGroup]:
        """Return the groups whose slots can cover: their key must hold wherever the plan does."""
        stems = dict(plan.stems)
        found = [self._always]
        for name, alternatives in plan.ranges:
            attribute = self._attributes.get(name)
            if attribute is None or any(a[0] == ValueKind.MISSING for a in alternatives):
                continue
            found.append(attribute.present)
            values = points(alternatives, at_most=None)
            if values:
                found.append(attribute.equal.get(_key(values[0])))
            text = values[0] if values and isinstance(values[0], str) else stems.get(name)
            if text is not None:
                found += _prefix_groups(attribute, text)
        return [group for group in found if group is not None]

    def _holding_all(self, ranges: Ranges) -> list[SlotGroup]:
        """Return groups that hold every slot with conditions on all attributes of the ranges.

        Any one attribute will do; take the one with the fewest groups.
        """
        if not ranges:
            return self._all_groups()
        best: tuple[int, _Attribute, list[Hashable]] | None = None
        for name, alternatives in ranges:
            attribute = self._attributes.get(name)
            if attribute is None:
                return []
            keys = [_key(value) for value in points(alternatives, at_most=None) or ()]
            count = len(attribute.users) + (len(keys) or len(attribute.equal))
            if best is None or count < best[0]:
                best = (count, attribute, keys)
        assert best is not None
        _, attribute, keys = best
        found = [*attribute.users, *attribute.prefixes.values(), attribute.present]
        found += [attribute.equal.get(key) for key in keys or attribute.equal]
        return [group for group in found if group is not None]

    # --- introspection -----------------------------------------------------------------------

    def _all_groups(self) -> list[SlotGroup]:
        found = [] if self._always is None else [self._always]
        return found + [g for attribute in self._attributes.values() for g in attribute.groups()]

    def statistics(self) -> dict[str, int]:
        """Return counts for people: slots, attributes, groups by way in, groups with rows."""
        groups = self._all_groups()
        kinds = Counter(group.access.kind for group in groups)
        return {
            "slots": len(self._rules) - len(self._free),
            "attributes": len(self._attributes),
            "equal": kinds[AccessKind.EQUAL],
            "prefix": kinds[AccessKind.PREFIX],
            "present": kinds[AccessKind.PRESENT],
            "always": kinds[AccessKind.ALWAYS],
            "sliced": sum(group.columns is not None for group in groups),
            "largest": max((group.count for group in groups), default=0),
        }


def _key(value: Value | None) -> Hashable:
    """Return the key of a value; bools are kept apart from 0 and 1."""
    return (value,) if isinstance(value, bool) else value


def _event_value(name: str, value: Value) -> EventValue:
    if isinstance(value, bool):
        return ValueKind.TRUE.value if value else ValueKind.FALSE.value, (0.0, 0), value
    check_value(name, value)
    assert isinstance(value, int)
    return NUMBER, encode_number(value), value


def _prefix_groups(attribute: _Attribute, text: str) -> list[SlotGroup]:
    """Return the groups of the prefixes that a text has."""
    size = len(text)
    lengths = [length for length in attribute.lengths if length <= size]
    found = [attribute.prefixes.get(text[:length]) for length in lengths]
    return [group for group in found if group is not None]
