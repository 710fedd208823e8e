"""The columns of a row: standard columns, and attributes that were declared with a type.

A declared column has the value of the attribute if it has the column's type, otherwise NULL.
Numbers are one type, as in filters: 5 is 5.0 in a DOUBLE, and 5.0 is 5 in a BIGINT, while 5.5 in a
BIGINT is NULL. NaN is NULL: in filters a comparison with NaN is never true, nor is one with NULL in
Spark.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from enum import Enum
from typing import Final

import msgspec

from gapless.core.errors import UsageError, shortened

__all__ = ["STANDARD", "AttributeColumn", "ColumnType", "check_names", "parse_columns"]


class ColumnType(Enum):
    """The type of a column in SQL."""

    STRING = "STRING"
    BIGINT = "BIGINT"
    DOUBLE = "DOUBLE"
    BOOLEAN = "BOOLEAN"
    TIMESTAMP = "TIMESTAMP"
    BINARY = "BINARY"


class AttributeColumn(msgspec.Struct, frozen=True):
    """A column of an attribute of the same name."""

    name: str
    kind: ColumnType


STANDARD: Final = {
    "pubend": ColumnType.STRING,
    "tick": ColumnType.BIGINT,
    "timestamp": ColumnType.TIMESTAMP,
    "publisher": ColumnType.STRING,
    "sequence": ColumnType.BIGINT,
    "attributes": ColumnType.STRING,
    "payload": ColumnType.BINARY,
}
"""The columns of every row, in their order. ``timestamp`` is the tick as a time; ``attributes`` is
JSON."""

TYPES: Final = {
    "STRING": ColumnType.STRING,
    "BIGINT": ColumnType.BIGINT,
    "LONG": ColumnType.BIGINT,
    "DOUBLE": ColumnType.DOUBLE,
    "BOOLEAN": ColumnType.BOOLEAN,
}
"""The types that may be declared for an attribute."""

_DECLARED: Final = re.compile(r"\s*(?:`((?:[^`]|``)+)`|([^\s`,:]+))[\s:]+(\w+)\s*(?:,|$)")


def parse_columns(text: str) -> tuple[AttributeColumn, ...]:
    """Return the columns that a text declares.

    >>> [f"{each.name}: {each.kind.value}" for each in parse_columns("n LONG, `unit price` double")]
    ['n: BIGINT', 'unit price: DOUBLE']
    """
    found: list[AttributeColumn] = []
    index = 0
    while index < len(text.rstrip()):
        match = _DECLARED.match(text, index)
        if match is None:
            rest = text[index:].strip()
            raise UsageError(
                f"option columns: cannot read {shortened(rest)!r}; write 'symbol STRING, price DOUBLE'"
            )
        name = match[1].replace("``", "`") if match[1] else match[2]
        found.append(AttributeColumn(name, _declared_kind(name, match[3])))
        index = match.end()
    try:
        check_names(each.name for each in found)
    except UsageError as error:
        raise UsageError(f"option columns: {error}") from None
    return tuple(found)


def check_names(names: Iterable[str]) -> None:
    """Raise if two names are the same for Spark, which ignores case."""
    taken: dict[str, str] = {}
    for name in names:
        other = taken.get(name.lower())
        if other == name:
            raise UsageError(f"{name!r} is declared twice")
        if other is not None:
            raise UsageError(
                f"{name!r} and {other!r} are one name for Spark; declare only one, the other is "
                "in the column 'attributes'"
            )
        taken[name.lower()] = name


def _declared_kind(name: str, word: str) -> ColumnType:
    if name.lower() in STANDARD:
        raise UsageError(
            f"option columns: every row has a column {name.lower()!r} already; an attribute {name!r} "
            "is in the column 'attributes'"
        )
    kind = TYPES.get(word.upper())
    if kind is None:
        raise UsageError(
            f"option columns: {name!r} cannot be {word!r}; an attribute is {', '.join(TYPES)}"
        )
    return kind
