"""A filter as a Python function.

To match one filter against many events is fastest with a small function for each constraint, chosen
once: an equality is one ``==``, a range two comparisons. All others look up the value set. (The
index matches many filters against one event.)

Every attribute that a filter names must have a valid value, even if the result does not depend on
it: so a filter refuses the same events as an index that contains the filter.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias

from gapless.content import spans
from gapless.content.conjunction import Conjunction
from gapless.content.values import Attributes, Value, check_value
from gapless.content.valueset import ValueSet
from gapless.core.limits import INT_MAX, INT_MIN

__all__ = ["Matcher", "matcher"]

Matcher: TypeAlias = Callable[[Attributes], bool]
_Probe: TypeAlias = Callable[[Any], bool]
"""Returns whether a value is allowed; raises AttributeValueError if it is no value."""

_SURE: Final = frozenset((str, float, bool, type(None)))


def matcher(conjunctions: Sequence[Conjunction]) -> Matcher:
    """Return a function that returns whether one of the conjunctions matches."""
    matchers = [_conjunction_matcher(one) for one in conjunctions]
    if len(matchers) == 1:
        return matchers[0]
    names = tuple(sorted({name for one in conjunctions for name, _ in one.constraints}))

    def matches(attributes: Attributes) -> bool:
        _check(names, attributes.get)
        for one in matchers:  # noqa: SIM110 - a generator costs more than the loop
            if one(attributes):
                return True
        return False

    return matches


def _conjunction_matcher(conjunction: Conjunction) -> Matcher:
    # Sets with few cuts are fast to test and mostly narrow, so they come first.
    constraints = sorted(conjunction.constraints, key=lambda item: _effort(item[1]))
    names = [name for name, _ in constraints]
    probes = [
        (name, _probe(allowed), tuple(names[place:]))
        for place, (name, allowed) in enumerate(constraints, 1)
    ]
    if conjunction.residuals:
        return _residual_matcher(probes, conjunction)
    if len(probes) == 1:
        ((only, probe_only, _),) = probes
        return lambda attributes: probe_only(attributes.get(only))

    def matches(attributes: Attributes) -> bool:
        get = attributes.get
        for name, probe, rest in probes:
            if not probe(get(name)):
                _check(rest, get)
                return False
        return True

    return matches


def _residual_matcher(
    probes: list[tuple[str, _Probe, tuple[str, ...]]], conjunction: Conjunction
) -> Matcher:
    terms = [(term.value, _probe(allowed)) for term, allowed in conjunction.residuals]

    def matches(attributes: Attributes) -> bool:
        get = attributes.get
        for name, probe, rest in probes:
            if not probe(get(name)):
                _check(rest, get)
                return False
        for value, probe in terms:  # noqa: SIM110 - as above
            if not probe(value(attributes)):
                return False
        return True

    return matches


def _check(names: tuple[str, ...], get: Callable[[str], Value | None]) -> None:
    """Raise AttributeValueError unless these attributes are missing or have valid values."""
    for name in names:
        value = get(name)
        kind = type(value)
        if kind not in _SURE and (kind is not int or not INT_MIN <= value <= INT_MAX):  # type: ignore[operator]
            check_value(name, value)


def _effort(allowed: ValueSet) -> int:
    return len(allowed.numbers) * 2 + len(allowed.texts) + 100 * len(allowed.patterns)


def _probe(allowed: ValueSet) -> _Probe:
    """Return the fastest function that returns whether a value is in the set."""
    contains = allowed.contains
    if allowed.bools or allowed.null or allowed.nan or allowed.patterns:
        return contains
    if not allowed.texts and len(allowed.numbers) == 2:
        return _range_probe(*allowed.numbers, contains)
    values = spans.points(allowed.texts)
    if not allowed.numbers and values is not None and len(values) == 1:
        (only,) = values
        return lambda value: bool(value == only) if type(value) is str else contains(value)
    return contains


def _range_probe(low: spans.Cut, high: spans.Cut, contains: _Probe) -> _Probe:
    least, open_below = low
    most, closed_above = high
    if not open_below and closed_above:

        def probe(value: Value | None) -> bool:
            if type(value) is float or (type(value) is int and INT_MIN <= value <= INT_MAX):
                return bool(least <= value <= most)
            return contains(value)

    elif not open_below:

        def probe(value: Value | None) -> bool:
            if type(value) is float or (type(value) is int and INT_MIN <= value <= INT_MAX):
                return bool(least <= value < most)
            return contains(value)

    elif closed_above:

        def probe(value: Value | None) -> bool:
            if type(value) is float or (type(value) is int and INT_MIN <= value <= INT_MAX):
                return bool(least < value <= most)
            return contains(value)

    else:

        def probe(value: Value | None) -> bool:
            if type(value) is float or (type(value) is int and INT_MIN <= value <= INT_MAX):
                return bool(least < value < most)
            return contains(value)

    return probe
