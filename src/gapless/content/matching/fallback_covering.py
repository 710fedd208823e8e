"""Covering in the fallback engine: which slots may cover a conjunction, and which it may cover."""

from __future__ import annotations

from collections.abc import Hashable

from gapless.content.matching.fallback_attributes import AttributeGroups, group_key
from gapless.content.matching.fallback_groups import (
    CONSTRAINED_ROW,
    SlotGroup,
    cover,
    end_rows,
    places,
)
from gapless.content.matching.fallback_store import SlotStore
from gapless.content.matching.plan import Plan, Ranges, ValueKind, points

__all__ = ["covered", "coverers"]


def coverers(store: SlotStore, plan: Plan) -> list[int]:
    """Return, in order, the slots that may cover the plan's conjunction."""
    wanted = dict(plan.ranges)
    slots: list[int] = []
    for group in _leading_here(store, plan):
        left = group.live
        for name, column in (group.columns or {}).items():
            if name not in wanted:
                left &= ~column.rows[CONSTRAINED_ROW]
                continue
            for row in end_rows(column.allowed(wanted[name])):
                left &= ~column.rows[row]
        slots += [slot for slot in group.slot_list(left) if cover(store.rule(slot).ranges, wanted)]
    return sorted(slots)


def covered(store: SlotStore, plan: Plan) -> list[int]:
    """Return, in order, the slots that the plan's conjunction may cover."""
    slots: list[int] = []
    for group in _holding_all(store, plan.ranges):
        left = group.live
        for name, alternatives in plan.ranges:
            if group.columns is None or group.has_key_on(name):
                continue  # the key implies the condition, which has no rows
            column = group.columns.get(name)
            if column is None:
                if group not in store.attributes[name].users:
                    left = 0  # no slot here constrains it
                    break
                continue
            left &= column.rows[CONSTRAINED_ROW]
            for row in places(column.ever_allowed & ~column.allowed(alternatives)):
                left &= column.rows[row]
        slots += [
            slot
            for slot in group.slot_list(left)
            if cover(plan.ranges, dict(store.rule(slot).ranges))
        ]
    return sorted(set(slots))  # an IN list is in several groups


def _leading_here(store: SlotStore, plan: Plan) -> list[SlotGroup]:
    """Return the groups whose slots can cover: their key holds whenever the plan does."""
    stems = dict(plan.stems)
    found = [store.always]
    for name, alternatives in plan.ranges:
        attribute = store.attributes.get(name)
        if attribute is None or any(a[0] == ValueKind.MISSING for a in alternatives):
            continue
        found.append(attribute.present)
        values = points(alternatives, at_most=None)
        if values:
            found.append(attribute.equal.get(group_key(values[0])))
        text = values[0] if values and isinstance(values[0], str) else stems.get(name)
        if text is not None:
            found += attribute.prefix_groups(text)
    return [group for group in found if group is not None]


def _holding_all(store: SlotStore, ranges: Ranges) -> list[SlotGroup]:
    """Return groups that contain every slot with conditions on all attributes of the ranges.

    One attribute is enough; the one with the fewest groups is used.
    """
    if not ranges:
        return store.all_groups()
    best: tuple[int, AttributeGroups, list[Hashable]] | None = None
    for name, alternatives in ranges:
        attribute = store.attributes.get(name)
        if attribute is None:
            return []
        keys = [group_key(value) for value in points(alternatives, at_most=None) or ()]
        count = len(attribute.users) + (len(keys) or len(attribute.equal))
        if best is None or count < best[0]:
            best = (count, attribute, keys)
    assert best is not None
    _, attribute, keys = best
    found = [*attribute.users, *attribute.prefixes.values(), attribute.present]
    found += [attribute.equal.get(key) for key in keys or attribute.equal]
    return [group for group in found if group is not None]
