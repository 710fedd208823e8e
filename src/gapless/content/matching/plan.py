"""How a conjunction is stored in the index: its access, its ranges, and what Python evaluates.

An engine (compiled or fallback) does not know value sets. It stores for each slot:

- an **access**: the one condition by which events find the slot: an attribute equals one of a few
  values, begins with a prefix, or is present; or nothing (every event);
- **ranges**: for each attribute, the alternatives of which one must hold: a closed interval of
  numbers, one text, any text, TRUE, FALSE, NaN, or missing;
- a **check**: a smaller conjunction with the conditions that ranges cannot express (ranges of
  texts, patterns, derived terms), evaluated last and only for the remaining slots.

Numbers are compared exactly, although the engine stores doubles: a number is the pair (nearest
double, twice the rounding error), and pairs are ordered like the numbers. An open end is one
half-step inside: ``> 5`` is ``>= (5.0, 1)``, ``< 5`` is ``<= (5.0, -1)``. So every interval is
closed and ints above 2**53 need no special case.
"""

from __future__ import annotations

import enum
import zlib
from hashlib import blake2b
from itertools import repeat
from typing import Final, TypeAlias

import msgspec

from gapless.content import spans
from gapless.content.conjunction import Conjunction
from gapless.content.matching.work import Check
from gapless.content.spans import ALL_TEXTS, Cut
from gapless.content.values import Number, Value
from gapless.content.valueset import ValueSet
from gapless.core.limits import ACCESS_VALUES_MAX

__all__ = [
    "Access",
    "AccessKind",
    "Plan",
    "Planner",
    "Ranges",
    "ValueKind",
    "encode_number",
    "points",
]

_EXACT_INT: Final = 2**53
_SIMILAR: Final = 16
_ZEROS: Final = repeat(0)


class ValueKind(enum.IntEnum):
    """The kind of an event's value or of an alternative. The engines share the numbers."""

    MISSING = 0
    FALSE = 1
    TRUE = 2
    NAN = 3
    NUMBER = 4
    TEXT = 5
    """A text; as an alternative: any text."""
    ONE_TEXT = 6
    """As an alternative: this text."""


class AccessKind(enum.IntEnum):
    """The kind of condition by which events find a slot."""

    EQUAL = 0
    PREFIX = 1
    PRESENT = 2
    ALWAYS = 3


Alternative: TypeAlias = tuple[int, float, int, float, int, str | None]
"""(kind, low, low step, high, high step, text)"""

Ranges: TypeAlias = tuple[tuple[str, tuple[Alternative, ...]], ...]
"""Alternatives by attribute."""

# plain ints: to look up a member of an enum costs more than to use it
_NUMBER: Final = ValueKind.NUMBER.value
_ONE_TEXT: Final = ValueKind.ONE_TEXT.value
_MISSING: Final[Alternative] = (ValueKind.MISSING.value, 0.0, 0, 0.0, 0, None)
_FALSE: Final[Alternative] = (ValueKind.FALSE.value, 0.0, 0, 0.0, 0, None)
_TRUE: Final[Alternative] = (ValueKind.TRUE.value, 0.0, 0, 0.0, 0, None)
_NAN: Final[Alternative] = (ValueKind.NAN.value, 0.0, 0, 0.0, 0, None)
_TEXT: Final[Alternative] = (ValueKind.TEXT.value, 0.0, 0, 0.0, 0, None)


class Access(msgspec.Struct, frozen=True, gc=False):
    """The condition by which events find a slot: the points of EQUAL, or the prefix of PREFIX."""

    kind: AccessKind
    attribute: str
    values: tuple[Value, ...]


class Plan(msgspec.Struct, frozen=True, gc=False):
    """A conjunction in the form that an engine stores."""

    access: Access
    ranges: Ranges
    implied: bool
    """Whether the access alone implies the ranges of its attribute."""
    check: Check | None
    stems: tuple[tuple[str, str], ...]
    """Prefixes that all texts of an attribute share; coverers are found in their groups."""
    rivals: tuple[Access, ...]
    """All equalities that could be its access, if there are several."""
    identity: bytes
    """A digest of the conjunction: equal conjunctions have equal digests with any access."""


# looked up once, as above
_EQUAL: Final = AccessKind.EQUAL
_PREFIX: Final = AccessKind.PREFIX
_PRESENT: Final = AccessKind.PRESENT
_ALWAYS: Final = Access(AccessKind.ALWAYS, "", ())

_bytes_of: Final = msgspec.msgpack.Encoder().encode


class Planner:
    """Plans conjunctions for one index, from the uses of its attributes so far."""

    def __init__(self) -> None:
        self._compared: dict[str, int] = {}
        """The values with which an attribute is compared, as hashed bits, if that matters."""
        self._required: dict[str, int] = {}
        """The number of conjunctions found by presence that constrain the attribute."""
        self._anchored: dict[str, int] = {}
        """The number of conjunctions found by the presence of this attribute."""

    def plan(self, conjunction: Conjunction) -> Plan:
        """Choose the access and compute the ranges and the check."""
        ranges: list[tuple[str, tuple[Alternative, ...]]] = []
        unsaid: list[tuple[str, ValueSet]] = []
        equal: list[Access] = []
        prefixes: list[Access] = []
        present: list[str] = []
        for name, allowed in conjunction.constraints:
            cuts = allowed.numbers
            if len(cuts) == 2 and not (
                allowed.texts or allowed.bools or allowed.null or allowed.nan
            ):
                interval = _interval(cuts[0], cuts[1])  # by far the most frequent case
                ranges.append((name, (interval,)))
                present.append(name)
                if interval[1] == interval[3] and (values := points((interval,))):
                    equal.append(Access(_EQUAL, name, values))
                continue
            alternatives, exact = _alternatives(allowed)
            ranges.append((name, alternatives))
            if not allowed.null:
                present.append(name)
            if not exact:
                unsaid.append((name, allowed))
                if stem := _common_prefix(allowed):
                    prefixes.append(Access(_PREFIX, name, (stem,)))
            elif values := points(alternatives):
                equal.append(Access(_EQUAL, name, values))
        identity = _identity(ranges, unsaid, conjunction)
        access = self._choose(equal, prefixes, present)
        implied = access.kind is _EQUAL
        if access.kind is _PREFIX:
            whole = ValueSet(texts=spans.prefix(str(access.values[0])))
            if (access.attribute, whole) in unsaid:
                unsaid.remove((access.attribute, whole))
                implied = True
        check = None
        if unsaid or conjunction.residuals:
            check = Conjunction(tuple(unsaid), conjunction.residuals)
        rivals = tuple(equal) if len(equal) > 1 else ()
        stems = tuple([(each.attribute, str(each.values[0])) for each in prefixes])
        return Plan(access, tuple(ranges), implied, check, stems, rivals, identity)

    def added(self, plan: Plan) -> None:
        """Count a plan that was stored."""
        for rival in plan.rivals:
            seen = self._compared.get(rival.attribute, 0)
            for value in rival.values:
                seen |= 1 << (_mark(value) % 1021)
            self._compared[rival.attribute] = seen
        if plan.access.kind is _PRESENT:
            required = self._required
            for name, _ in plan.ranges:
                required[name] = required.get(name, 0) + 1
            anchor = plan.access.attribute
            self._anchored[anchor] = self._anchored.get(anchor, 0) + 1

    def forget(self, names: list[str]) -> None:
        """Remove the counts of attributes that no stored plan constrains any more."""
        for name in names:
            self._compared.pop(name, None)
            self._required.pop(name, None)
            self._anchored.pop(name, None)

    def _choose(self, equal: list[Access], prefixes: list[Access], present: list[str]) -> Access:
        """Choose the most selective access: equality, then prefix, then presence."""
        if len(equal) == 1 and not (prefixes and isinstance(equal[0].values[0], bool)):
            return equal[0]
        if equal:
            best = max(equal, key=self._selectivity)
            if not (prefixes and isinstance(best.values[0], bool)):
                return best
        if prefixes:
            return max(prefixes, key=lambda access: len(str(access.values[0])))
        return self._anchor(present) if present else _ALWAYS

    def _selectivity(self, access: Access) -> tuple[bool, float]:
        """Rank an equality: by the number of values compared with its attribute, per value here."""
        seen = self._compared.get(access.attribute, 0).bit_count() + 1
        return not isinstance(access.values[0], bool), seen / len(access.values)

    def _anchor(self, present: list[str]) -> Access:
        """Choose the attribute whose presence is the access: a rare one, as few events have it.

        Of about equally rare ones the one that is already the access of most slots is chosen:
        events then reach few large groups instead of many small ones.
        """
        required, anchored = self._required.get, self._anchored.get
        limit = 2 * min(map(required, present, _ZEROS)) + _SIMILAR
        chosen, most = "", -1
        for name in present:
            if required(name, 0) <= limit and (slots := anchored(name, 0)) > most:
                chosen, most = name, slots
        return Access(_PRESENT, chosen, ())


def _mark(value: Value) -> int:
    """Return a hash that is the same in every process."""
    return zlib.crc32(value.encode(errors="replace")) if isinstance(value, str) else hash(value)


def encode_number(value: Number) -> tuple[float, int]:
    """Return the nearest double and twice the rounding error.

    >>> encode_number(5), encode_number(2**53 + 1)
    ((5.0, 0), (9007199254740992.0, 2))
    """
    if isinstance(value, float):
        return value, 0
    nearest = float(value)
    if -_EXACT_INT <= value <= _EXACT_INT:
        return nearest, 0
    return nearest, 2 * (value - int(nearest))


def _identity(
    ranges: list[tuple[str, tuple[Alternative, ...]]],
    unsaid: list[tuple[str, ValueSet]],
    conjunction: Conjunction,
) -> bytes:
    """Return a digest of 120 bits, which is assumed to be unique.

    So a table of a million conjunctions need not keep a million trees of Python objects.
    """
    rest = repr((unsaid, conjunction.residuals)) if unsaid or conjunction.residuals else ""
    try:
        written = _bytes_of((ranges, rest))
    except UnicodeEncodeError:  # half of a surrogate pair, which no parsed filter has
        written = repr((ranges, rest)).encode()
    return blake2b(written, digest_size=15).digest()


def _interval(low: Cut, high: Cut) -> Alternative:
    # a cut above its value excludes it as a low end, a cut below its value as a high end
    start, above = low
    end, beyond = high
    if type(start) is not float:
        start, lost = encode_number(start)
        above += lost
    if type(end) is not float:
        end, lost = encode_number(end)
        beyond += lost
    return _NUMBER, start, above, end, beyond - 1, None


def _alternatives(allowed: ValueSet) -> tuple[tuple[Alternative, ...], bool]:
    """Return the alternatives of a set, and whether they describe it exactly."""
    cuts = allowed.numbers
    found: list[Alternative] = []
    if cuts:
        found += [_interval(cuts[i], cuts[i + 1]) for i in range(0, len(cuts), 2)]
    exact = True
    if allowed.texts:
        values = spans.points(allowed.texts)
        if values is not None:
            found += [(_ONE_TEXT, 0.0, 0, 0.0, 0, value) for value in values]
        else:
            found.append(_TEXT)
            exact = allowed.texts == ALL_TEXTS and not allowed.patterns
    if allowed.bools & 1:
        found.append(_FALSE)
    if allowed.bools & 2:
        found.append(_TRUE)
    if allowed.nan:
        found.append(_NAN)
    if allowed.null:
        found.append(_MISSING)
    return tuple(found), exact


def points(
    alternatives: tuple[Alternative, ...], at_most: int | None = ACCESS_VALUES_MAX
) -> tuple[Value, ...] | None:
    """Return the values of a condition that allows single values only, or None."""
    if at_most is not None and len(alternatives) > at_most:
        return None
    values: list[Value] = []
    for kind, low, low_step, high, high_step, text in alternatives:
        if kind == _NUMBER and low == high and low_step == high_step and not low_step & 1:
            values.append(int(low) + low_step // 2 if low_step else low)
        elif text is not None:
            values.append(text)
        elif kind == _TRUE[0] or kind == _FALSE[0]:
            values.append(kind == _TRUE[0])
        else:
            return None
    return tuple(values)


def _common_prefix(allowed: ValueSet) -> str:
    """Return the common prefix of all texts of a set; empty if the set has other values."""
    if not allowed.texts or allowed.numbers or allowed.bools or allowed.null or allowed.nan:
        return ""
    return spans.stem((allowed.texts[0], allowed.texts[-1]))
