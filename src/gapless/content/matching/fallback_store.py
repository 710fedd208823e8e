"""The slots of the fallback engine: their rules, groups and bit rows."""

from __future__ import annotations

from collections import Counter

from gapless.content.matching.fallback_attributes import AttributeGroups, group_key
from gapless.content.matching.fallback_groups import (
    BitColumn,
    BucketBounds,
    SlotGroup,
    SlotRule,
    places,
)
from gapless.content.matching.fallback_plain import PlainSlots
from gapless.content.matching.plan import Access, AccessKind, Plan

__all__ = ["SlotStore"]


class SlotStore:
    """Slots by number, and the groups by which events find them."""

    def __init__(self, *, covering: bool) -> None:
        self.attributes: dict[str, AttributeGroups] = {}
        self.always: SlotGroup | None = None
        """The slots that every event finds."""
        self.rules: list[SlotRule | None] = []
        """By slot; None is a free slot."""
        self.plain = PlainSlots()
        self._covering = covering
        self._free_numbers: list[int] = []
        self._free: list[int] = []

    @property
    def numbers_max(self) -> int:
        """The greatest number of an attribute."""
        return len(self.attributes) + len(self._free_numbers)

    def rule(self, slot: int) -> SlotRule:
        """Return the rule of a slot that is not free."""
        rule = self.rules[slot]
        assert rule is not None, f"slot {slot} is free"
        return rule

    # --- adding and removing ---------------------------------------------------------------------

    def insert(self, plan: Plan) -> int:
        """Store a plan and return its slot."""
        rule = SlotRule(plan)
        if self._free:
            slot = self._free.pop()
            self.rules[slot] = rule
        else:
            slot = len(self.rules)
            self.rules.append(rule)
        for name, _ in plan.ranges:
            self._attribute(name).add_use()
        self.plain.store(slot, rule, self.attributes)
        for group in self._groups_for(plan.access):
            position = group.take_position(slot)
            rule.locations.append((group, position))
            self._count_users(group, rule, 1)
            if group.columns is not None:
                _mark(group, rule, position)
            if group.must_slice:
                self._slice(group)
        return slot

    def delete(self, slot: int) -> list[str]:
        """Remove a slot; return the attributes that no slot uses any more."""
        rule = self.rule(slot)
        for group, position in rule.locations:
            self._count_users(group, rule, -1)
            group.release_position(position)
            if not group.count:
                self._remove(group)
        self.rules[slot] = None
        self._free.append(slot)
        return [name for name, _ in rule.ranges if self._is_forgotten(name)]

    def _attribute(self, name: str) -> AttributeGroups:
        attribute = self.attributes.get(name)
        if attribute is None:
            number = self._free_numbers.pop() if self._free_numbers else len(self.attributes) + 1
            attribute = self.attributes[name] = AttributeGroups(number)
        return attribute

    def _is_forgotten(self, name: str) -> bool:
        attribute = self.attributes[name]
        if not attribute.drop_use():
            return False
        del self.attributes[name]
        self._free_numbers.append(attribute.number)
        return True

    def _count_users(self, group: SlotGroup, rule: SlotRule, change: int) -> None:
        if not self._covering:
            return
        for name, _ in rule.ranges:
            if name != group.access.attribute:
                self.attributes[name].count_user(group, change)

    # --- groups ----------------------------------------------------------------------------------

    def all_groups(self) -> list[SlotGroup]:
        """Return all groups."""
        found = [] if self.always is None else [self.always]
        return found + [g for attribute in self.attributes.values() for g in attribute.groups()]

    def _groups_for(self, access: Access) -> list[SlotGroup]:
        """Return the groups of an access; missing ones are created."""
        groups = []
        for value in access.values or (None,):
            key = group_key(value)
            is_always = access.kind is AccessKind.ALWAYS
            attribute = None if is_always else self.attributes[access.attribute]
            group = self.always if attribute is None else attribute.group(access.kind, key)
            if group is None:
                group = SlotGroup(access, key)
                if attribute is None:
                    self.always = group
                else:
                    attribute.add(group)
            groups.append(group)
        return groups

    def _remove(self, group: SlotGroup) -> None:
        if group.access.kind is AccessKind.ALWAYS:
            self.always = None
        else:
            self.attributes[group.access.attribute].remove(group)

    def _slice(self, group: SlotGroup) -> None:
        """Give a group bit rows, with bounds computed from its current slots."""
        held = [(position, self.rule(group.slots[position])) for position in places(group.live)]
        sample = group.sample([rule for _, rule in held])
        group.slice({name: self._new_column(group, name, sample[name]) for name in sorted(sample)})
        for position, rule in held:
            _mark(group, rule, position)

    def _new_column(self, group: SlotGroup, name: str, sample: list[float]) -> BitColumn:
        """Return a column. Groups found by presence share bounds, those found by a value do not."""
        if group.access.kind in (AccessKind.EQUAL, AccessKind.PREFIX):
            return BitColumn(BucketBounds(sample))
        return BitColumn(self.attributes[name].bounds_for(group.count, sample))

    def statistics(self) -> dict[str, int]:
        """Return counts for people: slots, attributes, groups by access, groups with rows."""
        groups = self.all_groups()
        kinds = Counter(group.access.kind for group in groups)
        return {
            "slots": len(self.rules) - len(self._free),
            "attributes": len(self.attributes),
            "equal": kinds[AccessKind.EQUAL],
            "prefix": kinds[AccessKind.PREFIX],
            "present": kinds[AccessKind.PRESENT],
            "always": kinds[AccessKind.ALWAYS],
            "sliced": sum(group.columns is not None for group in groups),
            "largest": max((group.count for group in groups), default=0),
        }


def _mark(group: SlotGroup, rule: SlotRule, position: int) -> None:
    assert group.columns is not None
    for name, alternatives in rule.verified:
        column = group.columns.get(name)
        if column is not None:  # without rows, verification decides
            column.mark(alternatives, position)
