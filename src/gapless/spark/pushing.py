"""Predicates of a batch query that brokers can evaluate.

Spark passes conjuncts and keeps a row if all of them are true. A conjunct on a declared column is
converted to a filter on the attribute. The filter must match every event whose row Spark would
keep; otherwise rows would be lost. If it matches no others, Spark need not evaluate the conjunct
again: it is *exact*.

- Comparisons with NULL are unknown on both sides, and so are those with an attribute of another
  type, which is NULL in the column. So negations may be pushed too.
- For a STRING and a BOOLEAN all conjuncts are exact.
- A DOUBLE has integers as floats. Below 2⁵³ they are exact; above, an integer may be rounded to the
  literal, so nothing is pushed.
- A BIGINT is NULL if the attribute is not an integer, but the filter compares it nevertheless: not
  exact.
- ``IS NULL`` is also true if an attribute has another type, so it is not pushed; ``IS NOT NULL`` is
  not exact.

Predicates on the columns ``pubend``, ``tick`` and ``timestamp`` limit what is read, and Spark
evaluates them again.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from functools import reduce
from typing import Any, Final

import msgspec
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
    StringEndsWith,
    StringStartsWith,
)
from pyspark.sql.datasource import (
    Filter as Predicate,
)

from gapless.content.builder import F
from gapless.content.filter import Filter
from gapless.content.values import Value
from gapless.core.errors import FilterError
from gapless.core.ticks import Tick
from gapless.spark.columns import STANDARD, ColumnType
from gapless.spark.network import FOREVER

__all__ = ["Pushed", "ReadBounds", "push"]

_EXACT_FLOAT: Final = 2.0**53
"""Below this every int is exact as a float."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_VALUES_MAX: Final = 256
"""The most values of an IN that are pushed; with more the filter costs more than it saves."""


class ReadBounds(msgspec.Struct):
    """Limits of what must be read."""

    pubends: set[str] | None = None
    low: Tick = 0
    high: Tick = FOREVER

    def narrow(
        self, *, pubends: set[str] | None = None, low: Tick = 0, high: Tick = FOREVER
    ) -> None:
        """Read only these pubends, from ``low`` to ``high``."""
        if pubends is not None:
            self.pubends = pubends if self.pubends is None else self.pubends & pubends
        self.low = max(self.low, low)
        self.high = min(self.high, high)


class Pushed(msgspec.Struct):
    """The result of pushing the predicates of a query."""

    filter: Filter
    bounds: ReadBounds
    rest: list[Predicate]
    """The predicates that Spark has to evaluate itself."""

    def narrow(self, filter: Filter) -> None:
        """Add a filter for brokers."""
        self.filter &= filter


def push(
    source_filter: Filter, predicates: Iterable[Predicate], kinds: Mapping[str, ColumnType]
) -> Pushed:
    """Convert predicates to a filter for brokers; ``kinds`` are those of the declared columns."""
    found = Pushed(source_filter, ReadBounds(), [])
    for predicate in predicates:
        if not _push_one(found, predicate, kinds):
            found.rest.append(predicate)
    return found


def _push_one(found: Pushed, predicate: Predicate, kinds: Mapping[str, ColumnType]) -> bool:
    """Use one predicate; return whether Spark need not evaluate it again."""
    inner = predicate.child if isinstance(predicate, Not) else predicate
    path: tuple[str, ...] = getattr(inner, "attribute", ())
    if len(path) != 1:
        return False
    name = path[0]
    if name not in kinds:
        if name in STANDARD and not isinstance(predicate, Not):
            _bound(found.bounds, name, predicate)
        return False
    kind = kinds[name]
    try:
        made = _filter(name, kind, inner)
        if made is None or (isinstance(predicate, Not) and not _is_negatable(inner)):
            return False
        found.narrow(~made if isinstance(predicate, Not) else made)
    except FilterError:  # the filter is too large, or has an invalid text
        return False
    return kind is not ColumnType.BIGINT and not isinstance(inner, IsNotNull)


def _is_negatable(inner: Predicate) -> bool:
    """Return whether NOT means the same for Spark and for brokers."""
    if isinstance(inner, In):
        return None not in inner.value
    return not isinstance(inner, EqualNullSafe | IsNull | IsNotNull)


def _filter(name: str, kind: ColumnType, inner: Predicate) -> Filter | None:
    """Return the filter for a predicate; None if none is certain to match as much."""
    attribute = F[name]
    if isinstance(inner, IsNotNull):
        return attribute.is_not_null()
    if isinstance(inner, In):
        return _among(name, kind, inner)
    value: Value = getattr(inner, "value", "")
    if not _is_literal(kind, value):
        return None
    match inner:
        case EqualTo() | EqualNullSafe():
            return attribute.__eq__(value)
        case StringStartsWith():
            return attribute.like(f"{_escaped(str(value))}%", "!")
        case StringEndsWith():
            return attribute.like(f"%{_escaped(str(value))}", "!")
        case StringContains():
            return attribute.like(f"%{_escaped(str(value))}%", "!")
    if kind is ColumnType.BOOLEAN:
        return None
    match inner:
        case GreaterThan():
            return attribute > value
        case GreaterThanOrEqual():
            return attribute >= value
        case LessThan():
            return attribute < value
        case LessThanOrEqual():
            return attribute <= value
    return None


def _among(name: str, kind: ColumnType, inner: In) -> Filter | None:
    values = [each for each in inner.value if each is not None]
    if not 0 < len(values) <= _VALUES_MAX or not all(_is_literal(kind, each) for each in values):
        return None
    if kind is not ColumnType.BOOLEAN:
        return F[name].in_(*values)
    return reduce(Filter.__or__, (F[name].__eq__(each) for each in values))


def _is_literal(kind: ColumnType, value: Any) -> bool:
    """Return whether a value can be in a filter on a column of this type."""
    if kind is ColumnType.STRING:
        return isinstance(value, str)
    if kind is ColumnType.BOOLEAN:
        return isinstance(value, bool)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    if kind is ColumnType.BIGINT:
        return isinstance(value, int)
    return math.isfinite(value) and abs(value) < _EXACT_FLOAT


def _escaped(text: str) -> str:
    """Return a text escaped with ``!`` for a pattern.

    >>> _escaped("10%!")
    '10!%!!'
    """
    return "".join(f"!{each}" if each in "!%_" else each for each in text)


# --- standard columns -----------------------------------------------------------------------------


def _bound(bounds: ReadBounds, name: str, predicate: Predicate) -> None:
    """Narrow the limits if a predicate is on ``pubend``, ``tick`` or ``timestamp``."""
    value: Any = getattr(predicate, "value", None)
    if name == "pubend" and isinstance(predicate, EqualTo | In):
        names = {str(each) for each in (value if isinstance(predicate, In) else [value])}
        bounds.narrow(pubends=names)
    tick = _tick(name, value)
    if tick is None:
        return
    if isinstance(predicate, EqualTo | GreaterThan | GreaterThanOrEqual):
        bounds.narrow(low=tick + isinstance(predicate, GreaterThan))
    if isinstance(predicate, EqualTo | LessThan | LessThanOrEqual):
        bounds.narrow(high=tick - isinstance(predicate, LessThan))


def _tick(name: str, value: Any) -> Tick | None:
    if name == "tick" and isinstance(value, int) and not isinstance(value, bool):
        return value
    if name == "timestamp" and isinstance(value, datetime) and value.tzinfo is not None:
        return (value - _EPOCH) // timedelta(microseconds=1)
    return None
