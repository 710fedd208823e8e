"""A filter as a Python function.

Matching one filter against many events is quickest with what each constraint asks for bound into
a small function, chosen once: an equality is one ``==``, a range two comparisons. Everything
else asks the value set. (Many filters against one event are the index's business.)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from gapless.content import spans
from gapless.content.conjunction import Conjunction
from gapless.content.values import Attributes, Value
from gapless.content.valueset import ValueSet

__all__ = ["Matcher", "matcher"]

Matcher: TypeAlias = Callable[[Attributes], bool]
_Probe: TypeAlias = Callable[[Any], bool]


def matcher(conjunctions: Sequence[Conjunction]) -> Matcher:
    """Return a function that says whether one of the conjunctions matches."""
    matchers = [_conjunction_matcher(one) for one in conjunctions]
    if len(matchers) == 1:
        return matchers[0]

    def matches(attributes: Attributes) -> bool:
        for one in matchers:  # noqa: SIM110 - a generator costs more than the loop
            if one(attributes):
                return True
        return False

    return matches


def _conjunction_matcher(conjunction: Conjunction) -> Matcher:
    # Few cuts are quick to try and mostly narrow, so they go first.
    constraints = sorted(conjunction.constraints, key=lambda item: _effort(item[1]))
    probes = [(name, _probe(allowed)) for name, allowed in constraints]
    if conjunction.residuals:
        return _residual_matcher(probes, conjunction)
    if len(probes) == 1:
        ((name, probe),) = probes
        return lambda attributes: probe(attributes.get(name))

    def matches(attributes: Attributes) -> bool:
        get = attributes.get
        for name, probe in probes:  # noqa: SIM110 - as above
            if not probe(get(name)):
                return False
        return True

    return matches


def _residual_matcher(probes: list[tuple[str, _Probe]], conjunction: Conjunction) -> Matcher:
    terms = [(term.value, _probe(allowed)) for term, allowed in conjunction.residuals]

    def matches(attributes: Attributes) -> bool:
        get = attributes.get
        for name, probe in probes:
            if not probe(get(name)):
                return False
        for value, probe in terms:  # noqa: SIM110 - as above
            if not probe(value(attributes)):
                return False
        return True

    return matches


def _effort(allowed: ValueSet) -> int:
    return len(allowed.numbers) * 2 + len(allowed.texts) + 100 * len(allowed.patterns)


def _probe(allowed: ValueSet) -> _Probe:
    """Return the quickest function that says whether a value is in the set."""
    contains = allowed.contains
    if allowed.bools or allowed.null or allowed.nan or allowed.patterns:
        return contains
    if not allowed.texts and len(allowed.numbers) == 2:
        return _range_probe(*allowed.numbers, contains)
    values = spans.points(allowed.texts)
    if not allowed.numbers and values is not None and len(values) == 1:
        (only,) = values
        return lambda value: bool(value == only)
    return contains


def _range_probe(low: spans.Cut, high: spans.Cut, contains: _Probe) -> _Probe:
    least, open_below = low
    most, closed_above = high
    if not open_below and closed_above:

        def probe(value: Value | None) -> bool:
            if type(value) is float or type(value) is int:
                return bool(least <= value <= most)
            return contains(value)

    elif not open_below:

        def probe(value: Value | None) -> bool:
            if type(value) is float or type(value) is int:
                return bool(least <= value < most)
            return contains(value)

    elif closed_above:

        def probe(value: Value | None) -> bool:
            if type(value) is float or type(value) is int:
                return bool(least < value <= most)
            return contains(value)

    else:

        def probe(value: Value | None) -> bool:
            if type(value) is float or type(value) is int:
                return bool(least < value < most)
            return contains(value)

    return probe
