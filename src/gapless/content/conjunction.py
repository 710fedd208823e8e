"""Conjunctions: the unit that is indexed, covered, merged and sent between brokers.

A conjunction has a set of allowed values for each attribute that it names, and for derived terms
(:mod:`gapless.content.expression`). An event matches if every named attribute and term has an
allowed value. The requirements of a derived term on its attributes (that they exist, that they are
numbers) are among the constraints too, where the index can use them.

:meth:`Conjunction.covers` may miss a covering but never claims a wrong one. ``intersects`` may
claim a wrong intersection but never misses one. So a conjunction that is withheld because it is
covered is not needed, and one that is pruned because it does not intersect cannot match.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from gapless.content.expression import Term
from gapless.content.values import Attributes
from gapless.content.valueset import ValueSet, intersection_of

__all__ = ["EVERYTHING", "Conjunction"]


class Conjunction(msgspec.Struct, frozen=True, gc=False):
    """Value sets by attribute, sorted by name, and by derived term, sorted by its text."""

    constraints: tuple[tuple[str, ValueSet], ...]
    residuals: tuple[tuple[Term, ValueSet], ...] = ()

    @classmethod
    def of(
        cls,
        constraints: Iterable[tuple[str, ValueSet]],
        residuals: Iterable[tuple[Term, ValueSet]] = (),
    ) -> Conjunction | None:
        """Combine constraints that must all hold; None if no event can satisfy them."""
        by_name: dict[str, ValueSet] = {}
        repeated: dict[str, list[ValueSet]] = {}
        for name, allowed in constraints:
            if name in by_name:
                repeated.setdefault(name, [by_name[name]]).append(allowed)
            else:
                by_name[name] = allowed
        by_term = _residuals(residuals, by_name, repeated) if residuals else ()
        if by_term is None:
            return None
        for name, sets in repeated.items():
            by_name[name] = intersection_of(sets)
        for name, allowed in tuple(by_name.items()):
            if allowed.is_empty:
                return None
            if allowed.is_everything:
                del by_name[name]
        return cls(tuple(sorted(by_name.items())), by_term)

    def matches(self, attributes: Attributes) -> bool:
        """Return whether an event with these attributes matches."""
        return all(
            allowed.contains(attributes.get(name)) for name, allowed in self.constraints
        ) and all(allowed.contains(term.value(attributes)) for term, allowed in self.residuals)

    def __str__(self) -> str:
        """Return the canonical text, which parses back to this conjunction."""
        from gapless.content.text import conjunction_text

        return conjunction_text(self)

    def covers(self, other: Conjunction) -> bool:
        """Return whether every event that matches the other matches this one; may miss."""
        if len(self.constraints) > len(other.constraints):
            return False
        return _covers(self.constraints, dict(other.constraints)) and (
            not self.residuals or _covers(self.residuals, dict(other.residuals))
        )

    def intersects(self, other: Conjunction) -> bool:
        """Return whether some event may match both; may be wrong if true, never if false."""
        return _intersects(self.constraints, dict(other.constraints)) and (
            not self.residuals or _intersects(self.residuals, dict(other.residuals))
        )


EVERYTHING = Conjunction(())
"""The conjunction without conditions: it matches every event."""


def _residuals(
    residuals: Iterable[tuple[Term, ValueSet]],
    by_name: dict[str, ValueSet],
    repeated: dict[str, list[ValueSet]],
) -> tuple[tuple[Term, ValueSet], ...] | None:
    """Join the sets of equal terms, and add the requirements of the terms to the constraints."""
    by_term: dict[Term, list[ValueSet]] = {}
    for term, allowed in residuals:
        by_term.setdefault(term, []).append(allowed)
    result: list[tuple[Term, ValueSet]] = []
    for term, sets in by_term.items():
        joined = sets[0] if len(sets) == 1 else intersection_of(sets)
        if joined.is_empty:
            return None
        result.append((term, joined))
        for name, needed in term.requires().items():
            if by_name.setdefault(name, needed) is not needed:
                repeated.setdefault(name, [by_name[name]]).append(needed)
    return tuple(sorted(result, key=lambda item: str(item[0])))


def _covers(
    ours: tuple[tuple[str, ValueSet], ...] | tuple[tuple[Term, ValueSet], ...],
    theirs: dict[str, ValueSet] | dict[Term, ValueSet],
) -> bool:
    for subject, allowed in ours:
        narrower = theirs.get(subject)  # type: ignore[arg-type]
        if narrower is None or not narrower.is_subset(allowed):
            return False
    return True


def _intersects(
    ours: tuple[tuple[str, ValueSet], ...] | tuple[tuple[Term, ValueSet], ...],
    theirs: dict[str, ValueSet] | dict[Term, ValueSet],
) -> bool:
    for subject, allowed in ours:
        other = theirs.get(subject)  # type: ignore[arg-type]
        if other is not None and not allowed.intersects(other):
            return False
    return True
