"""The columns of a row: what every event has, and attributes that were declared with a type.

A declared column has the value of the attribute if that is of the column's kind, else NULL. Numbers are
one kind, as in filters: 5 is 5.0 in a DOUBLE, and 5.0 is 5 in a BIGINT, while 5.5 in a BIGINT is NULL.
NaN is NULL: in filters it compares with nothing, and so does NULL in Spark.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from enum import Enum
from typing import Final

import msgspec

from gapless.core.errors import UsageError

__all__ = ["STANDARD", "AttributeColumn", "ColumnType", "check_names", "parse_columns"]


class ColumnType(Enum):
    """The type of a column, as SQL writes it."""

    STRING = "STRING"
    BIGINT = "BIGINT"
    DOUBLE = "DOUBLE"
    BOOLEAN = "BOOLEAN"
    TIMESTAMP = "TIMESTAMP"
    BINARY = "BINARY"


class AttributeColumn(msgspec.Struct, frozen=True):
    """A column that is an attribute of the same name."""

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
"""What every event has, in the order of the columns. ``timestamp`` is the tick as a time; attributes
are JSON."""

TYPES: Final = {
    "STRING": ColumnType.STRING,
    "BIGINT": ColumnType.BIGINT,
    "LONG": ColumnType.BIGINT,
    "DOUBLE": ColumnType.DOUBLE,
    "BOOLEAN": ColumnType.BOOLEAN,
}
"""What may be declared of an attribute: the kinds of values that there are."""

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
                f"option columns: cannot read {rest!r}; write 'symbol STRING, price DOUBLE'"
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
    """Raise if Spark could not tell two columns apart: to it capitals and small letters are the same."""
    taken: dict[str, str] = {}
    for name in names:
        other = taken.get(name.lower())
        if other == name:
            raise UsageError(f"{name!r} is declared twice")
        if other is not None:
            raise UsageError(
                f"{name!r} and {other!r} are one name to Spark; declare one of them, the other attribute is "
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
