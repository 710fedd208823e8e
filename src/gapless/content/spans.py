"""Sets of an ordered family, as a sorted sequence of cuts.

A *cut* lies just below a value, ``(value, 0)``, or just above it, ``(value, 1)``. A set is the
flat tuple of the cuts where it starts and ends, in turn: ``[5, 9)`` is ``((5, 0), (9, 0))``, the
point 5 is ``((5, 0), (5, 1))``, everything but 5 has four cuts. So open and closed ends, points
and gaps have one form, and union, intersection and complement are one sweep each.

Numbers range from ``NUMBER_MIN`` to ``NUMBER_MAX`` (which include the infinities), texts from
``TEXT_MIN`` (below the empty text) to ``TEXT_MAX`` (above every text). One cut may lie below
something that is not a text: the texts that begin with U+D7FF end below U+D800, the first of the
surrogates. Only :mod:`gapless.content.text`, which writes it, handles that case.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection
from typing import Any, Final, TypeAlias

__all__ = [
    "ALL_NUMBERS",
    "ALL_TEXTS",
    "EMPTY",
    "NUMBER_MAX",
    "NUMBER_MIN",
    "TEXT_MAX",
    "TEXT_MIN",
    "Cut",
    "Spans",
    "complement",
    "contains",
    "intersection",
    "intersection_of",
    "intersects",
    "is_subset",
    "point",
    "points",
    "prefix",
    "stem",
    "union",
    "union_of",
]


class _AboveAllTexts:
    """Greater than every text; equal only to itself."""

    __slots__ = ()

    def __lt__(self, other: object) -> bool:
        return False

    def __gt__(self, other: object) -> bool:
        return other is not self

    def __le__(self, other: object) -> bool:
        return other is self

    def __ge__(self, other: object) -> bool:
        return True

    def __repr__(self) -> str:
        return "TOP"

    def __reduce__(self) -> str:
        return "_TOP"


_TOP: Final = _AboveAllTexts()

Cut: TypeAlias = tuple[Any, int]
"""A value of the family (or the end of all texts) and its side: 0 below, 1 above."""

Spans: TypeAlias = tuple[Cut, ...]

NUMBER_MIN: Final[Cut] = (float("-inf"), 0)
NUMBER_MAX: Final[Cut] = (float("inf"), 1)
TEXT_MIN: Final[Cut] = ("", 0)
TEXT_MAX: Final[Cut] = (_TOP, 0)

EMPTY: Final[Spans] = ()
ALL_NUMBERS: Final[Spans] = (NUMBER_MIN, NUMBER_MAX)
ALL_TEXTS: Final[Spans] = (TEXT_MIN, TEXT_MAX)

_LAST_CHARACTER = "\U0010ffff"


def point(value: Any) -> Spans:
    """Return the set of one value."""
    return ((value, 0), (value, 1))


def points(spans: Spans) -> tuple[Any, ...] | None:
    """Return the values of a set that consists of single points, or None if it is larger.

    >>> points(union(point(2), point(1)))
    (1, 2)
    """
    values = []
    for index in range(0, len(spans), 2):
        low, high = spans[index], spans[index + 1]
        if low[1] or not high[1] or low[0] != high[0]:
            return None
        values.append(low[0])
    return tuple(values)


def prefix(text: str) -> Spans:
    """Return the set of all texts that begin with ``text``: one interval of the code point order.

    >>> prefix("ab")
    (('ab', 0), ('ac', 0))
    """
    stem = text.rstrip(_LAST_CHARACTER)
    if not stem:
        return ((text, 0), TEXT_MAX)
    return ((text, 0), (stem[:-1] + chr(ord(stem[-1]) + 1), 0))


def stem(interval: Spans) -> str:
    """Return the prefix that all texts of an interval are known to share.

    >>> stem(prefix("ab")), stem((("abba", 0), ("abel", 1)))
    ('ab', 'ab')
    """
    (low, _), (high, _) = interval
    if prefix(low) == interval:
        return str(low)
    if high is _TOP:
        return ""
    shared = 0
    for ours, theirs in zip(low, high, strict=False):
        if ours != theirs:
            break
        shared += 1
    return str(low[:shared])


def contains(spans: Spans, value: Any) -> bool:
    """Return whether the value is in the set."""
    return bool(bisect_right(spans, (value, 0)) & 1)


def intersection(left: Spans, right: Spans) -> Spans:
    """Return the intersection of two sets."""
    if len(left) == 2 and len(right) == 2:
        low = max(left[0], right[0])
        high = min(left[1], right[1])
        return (low, high) if low < high else EMPTY
    return _sweep((left, right), 2)


def intersection_of(sets: Collection[Spans]) -> Spans:
    """Return the intersection of many sets, with one sort."""
    return _sweep(sets, len(sets))


def union(left: Spans, right: Spans) -> Spans:
    """Return the union of two sets."""
    return _sweep((left, right), 1)


def union_of(sets: Collection[Spans]) -> Spans:
    """Return the union of many sets, with one sort."""
    return _sweep(sets, 1)


def complement(spans: Spans, everything: Spans) -> Spans:
    """Return the part of ``everything`` (one interval) that is not in the set."""
    low, high = everything
    inner = spans[1:] if spans and spans[0] == low else (low, *spans)
    return inner[:-1] if inner[-1] == high else (*inner, high)


def intersects(left: Spans, right: Spans) -> bool:
    """Return whether some value is in both sets."""
    if len(left) == 2 and len(right) == 2:
        return bool(max(left[0], right[0]) < min(left[1], right[1]))
    shorter, longer = (left, right) if len(left) <= len(right) else (right, left)
    for place in range(0, len(shorter), 2):  # the first interval in common ends it
        end = bisect_right(longer, shorter[place])
        if end & 1 or (end < len(longer) and longer[end] < shorter[place + 1]):
            return True
    return False


def is_subset(left: Spans, right: Spans) -> bool:
    """Return whether every value of ``left`` is in ``right``."""
    if len(left) == 2 and len(right) == 2:
        return bool(right[0] <= left[0] and left[1] <= right[1])
    if left == right:
        return True
    for place in range(0, len(left), 2):  # the first interval that is not inside of one ends it
        end = bisect_right(right, left[place])
        if not end & 1 or left[place + 1] > right[end]:
            return False
    return True


def _sweep(sets: Collection[Spans], depth: int) -> Spans:
    """Return the set of values that at least ``depth`` of the sets contain.

    The cuts of all sets are processed in order. A cut at an even index opens its set, one at an
    odd index closes it. Opening sorts before closing at the same cut, so touching sets join.
    """
    marks = sorted([(cut, index & 1) for cuts in sets for index, cut in enumerate(cuts)])
    result: list[Cut] = []
    inside = 0
    for cut, closes in marks:
        before = inside
        inside += -1 if closes else 1
        if (before >= depth) != (inside >= depth):
            if result and result[-1] == cut:
                result.pop()  # an empty interval between two equal cuts
            else:
                result.append(cut)
    return tuple(result)
