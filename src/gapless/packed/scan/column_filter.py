"""Decides by columns which publications may match a filter, and which do.

Of a text only the first eight bytes are compared, and of a large int its value as a float. Both are
rounded but keep their order. So a value outside a span does not match, and a value strictly inside
matches. A value at an end is undecided, unless the span is one short text or one small number.
Everything that depends on patterns and derived terms is undecided too.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gapless.content.filter import Filter
from gapless.content.spans import TEXT_MAX, Cut, Spans
from gapless.content.valueset import ValueSet
from gapless.core.limits import COLUMN_FILTER_ATTRIBUTES_MAX
from gapless.packed.scan.fallback import word_of_text
from gapless.packed.scan.fields import ABSENT, FALSE, FLOAT, INT, KINDS, NAMED, TEXT, TRUE

if TYPE_CHECKING:
    from gapless.packed.scan.fallback import ColumnScan

__all__ = ["ColumnFilter"]

_WORD_MAX: Final = 2**64 - 1

_WORD_BYTES: Final = 8
"""The bytes of a text in its word."""

_EXACT_MAX: Final = 2.0**53
"""Below this, different ints are different floats."""

_ROUNDED: Final = -1
"""Equal to no size of a value."""


class _Values:
    """One attribute of all publications."""

    def __init__(self, column_scan: ColumnScan, field: int) -> None:
        self._column_scan = column_scan
        self._field = field
        self.kinds: NDArray[np.uint32] = np.ascontiguousarray(column_scan.kinds(field))
        self.words: NDArray[np.uint64] = np.ascontiguousarray(column_scan.words(field))

    @cached_property
    def numbers(self) -> NDArray[np.float64]:
        """The numbers; meaningless for other kinds."""
        ints, floats = self.words.view(np.int64), self.words.view(np.float64)
        return np.where(self.kinds == INT, ints, floats)

    @cached_property
    def sizes(self) -> NDArray[np.uint32]:
        """The sizes of the texts in bytes."""
        return self._column_scan.sizes(self._field)


class _Verdict(NamedTuple):
    """For every publication, whether it may match, and whether it certainly does."""

    may: NDArray[np.bool_]
    does: NDArray[np.bool_]


class _Range(NamedTuple):
    """Spans as arrays of their lowest and highest values, in order."""

    lows: NDArray[Any]
    highs: NDArray[Any]
    sizes: NDArray[np.int64]
    """The size of the text that is the whole span, 0 for a number, otherwise _ROUNDED."""

    def holds(self, values: NDArray[Any], sizes: NDArray[np.uint32] | int) -> _Verdict:
        """Return which values may be within one of the spans, and which certainly are."""
        if len(self.lows) == 1:
            (low,), (high,), (size,) = self
            may = (low <= values) & (values <= high)
        else:
            index = np.searchsorted(self.lows, values, "right") - 1
            low, high, size = (each[index] for each in self)
            may = (index >= 0) & (values <= high)
        return _Verdict(may, may & ((low < values) & (values < high) | (sizes == size)))


class _Gate:
    """The constraint of one conjunction on one attribute."""

    def __init__(self, allowed: ValueSet) -> None:
        self._does = np.zeros(KINDS, np.bool_)
        """The kinds that are allowed with any value."""
        self._does[ABSENT] = allowed.null
        self._does[FALSE] = bool(allowed.bools & 1)
        self._does[TRUE] = bool(allowed.bools & 2)
        self._may = self._does.copy()
        self._may[FLOAT] = allowed.nan
        self._numbers = _range_of(allowed.numbers, np.float64, _float_of, _size_of_number)
        self._texts = _range_of(allowed.texts, np.uint64, _word_of, _size_of_text)
        self._has_patterns = bool(allowed.patterns)

    def judge(self, values: _Values) -> _Verdict:
        """Return which values may satisfy the constraint, and which do."""
        may, does = self._may[values.kinds], self._does[values.kinds]
        if self._numbers is not None:
            is_number = (values.kinds == INT) | (values.kinds == FLOAT)
            held = self._numbers.holds(values.numbers, 0)
            may |= is_number & held.may
            does |= is_number & held.does
        if self._texts is not None:
            is_text = values.kinds == TEXT
            held = self._texts.holds(values.words, values.sizes)
            may |= is_text & held.may
            if not self._has_patterns:
                does |= is_text & held.does
        return _Verdict(may, does)


class _Conjunction(NamedTuple):
    """The constraints of one conjunction."""

    gates: list[tuple[int, _Gate]]
    """Each with the index of its attribute among the names."""
    is_all: bool
    """Whether the conjunction has no other constraints."""


class ColumnFilter:
    """Evaluates one filter over columns."""

    def __init__(self, event_filter: Filter) -> None:
        names = sorted(event_filter.attributes)
        self.names: tuple[str, ...] = (
            tuple(names) if len(names) <= COLUMN_FILTER_ATTRIBUTES_MAX else ()
        )
        """The attributes that the column scan must record."""
        self._conjunctions = [
            _Conjunction(
                [
                    (self.names.index(name), _Gate(allowed))
                    for name, allowed in one.constraints
                    if name in self.names
                ],
                is_all=len(self.names) == len(names) and not one.residuals,
            )
            for one in event_filter.conjunctions
        ]

    def left(self, column_scan: ColumnScan) -> tuple[NDArray[np.intp], NDArray[np.bool_]]:
        """Return the indexes of publications that may match, and which of them do."""
        columns = [_Values(column_scan, NAMED + index) for index in range(len(self.names))]
        any_may, any_does = np.zeros((2, len(column_scan)), np.bool_)
        for gates, is_all in self._conjunctions:
            may, does = np.ones((2, len(column_scan)), np.bool_)
            for field, gate in gates:
                verdict = gate.judge(columns[field])
                may &= verdict.may
                does &= verdict.does
            any_may |= may
            if is_all:
                any_does |= does
        indexes = np.flatnonzero(any_may)
        return indexes, any_does[indexes]


def _range_of(
    spans: Spans, kind: type, end_of: Callable[[Cut], float], size_of: Callable[[Cut], int]
) -> _Range | None:
    if not spans:
        return None
    ends: NDArray[Any] = np.array([end_of(cut) for cut in spans], kind)
    pairs = zip(spans[::2], spans[1::2], strict=True)
    sizes = [size_of(low) if low[0] == high[0] else _ROUNDED for low, high in pairs]
    return _Range(ends[::2], ends[1::2], np.array(sizes, np.int64))


def _float_of(cut: Cut) -> float:
    return float(cut[0])


def _size_of_number(cut: Cut) -> int:
    return 0 if abs(cut[0]) < _EXACT_MAX else _ROUNDED


def _size_of_text(cut: Cut) -> int:
    size = len(cut[0].encode("utf-8", "surrogatepass"))
    return size if size <= _WORD_BYTES else _ROUNDED


def _word_of(cut: Cut) -> int:
    return _WORD_MAX if cut == TEXT_MAX else word_of_text(cut[0])
