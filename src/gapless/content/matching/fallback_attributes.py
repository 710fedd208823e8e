"""The groups and shared bounds of one attribute in the fallback engine."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from typing import Any

from gapless.content.matching.fallback_groups import BucketBounds, SlotGroup
from gapless.content.matching.plan import AccessKind
from gapless.content.values import Value

__all__ = ["AttributeGroups", "group_key"]


def group_key(value: Value | None) -> Hashable:
    """Return the key of a value; bools differ from 0 and 1."""
    return (value,) if isinstance(value, bool) else value


class AttributeGroups:
    """The groups that events find by one attribute."""

    __slots__ = (
        "_bounds",
        "_bounds_from",
        "_length_counts",
        "_uses",
        "equal",
        "lengths",
        "number",
        "prefixes",
        "present",
        "users",
    )

    def __init__(self, number: int) -> None:
        self.number = number
        self.equal: dict[Hashable, SlotGroup] = {}
        self.prefixes: dict[str, SlotGroup] = {}
        self.lengths: tuple[int, ...] = ()
        """The lengths of the prefixes, ascending."""
        self.present: SlotGroup | None = None
        self.users: Counter[SlotGroup] = Counter()
        """Groups found by another attribute, with the number of their slots that use this one."""
        self._uses = 0
        self._length_counts: Counter[int] = Counter()
        self._bounds: BucketBounds | None = None
        self._bounds_from = 0

    def add_use(self) -> None:
        """Count a slot that uses the attribute."""
        self._uses += 1

    def drop_use(self) -> bool:
        """Uncount a slot that used the attribute; return whether no other uses it."""
        self._uses -= 1
        return not self._uses

    def count_user(self, group: SlotGroup, change: int) -> None:
        """Change the number of slots that use this attribute in a group of another one."""
        self.users[group] += change
        if not self.users[group]:
            del self.users[group]

    def groups(self) -> list[SlotGroup]:
        """Return all groups of the attribute."""
        found = [*self.equal.values(), *self.prefixes.values()]
        return found if self.present is None else [*found, self.present]

    def group(self, kind: AccessKind, key: Hashable) -> SlotGroup | None:
        """Return the group of an access, or None."""
        if kind is AccessKind.PRESENT:
            return self.present
        if kind is AccessKind.PREFIX:
            return self.prefixes.get(str(key))
        return self.equal.get(key)

    def prefix_groups(self, text: str) -> list[SlotGroup]:
        """Return the groups of the prefixes of a text."""
        size = len(text)
        lengths = [length for length in self.lengths if length <= size]
        found = [self.prefixes.get(text[:length]) for length in lengths]
        return [group for group in found if group is not None]

    def add(self, group: SlotGroup) -> None:
        """Add a group."""
        if group.access.kind is AccessKind.PRESENT:
            self.present = group
            return
        self._keyed(group)[group.key] = group
        if group.access.kind is AccessKind.PREFIX:
            self._count_length(group, 1)

    def remove(self, group: SlotGroup) -> None:
        """Remove a group."""
        if group.access.kind is AccessKind.PRESENT:
            self.present = None
            return
        del self._keyed(group)[group.key]
        if group.access.kind is AccessKind.PREFIX:
            self._count_length(group, -1)

    def _keyed(self, group: SlotGroup) -> dict[Any, SlotGroup]:
        return self.prefixes if group.access.kind is AccessKind.PREFIX else self.equal

    def _count_length(self, group: SlotGroup, change: int) -> None:
        self._length_counts[len(str(group.key))] += change
        self._length_counts = +self._length_counts  # without those that fell to 0
        if len(self._length_counts) != len(self.lengths):
            self.lengths = tuple(sorted(self._length_counts))

    def bounds_for(self, count: int, sample: list[float]) -> BucketBounds:
        """Return the bounds that groups found by presence share, new ones after much growth."""
        if self._bounds is None or count > 4 * self._bounds_from:
            self._bounds = BucketBounds(sample)
            self._bounds_from = count
        return self._bounds
