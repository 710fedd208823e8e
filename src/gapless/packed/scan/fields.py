"""The fields that a column scan records of every publication, and the kinds of values."""

from __future__ import annotations

from typing import Final

__all__ = [
    "ABSENT",
    "BYTES",
    "FALSE",
    "FLOAT",
    "INT",
    "KINDS",
    "NAMED",
    "PAYLOAD",
    "PUBLISHER",
    "SEQUENCE",
    "TEXT",
    "TICK",
    "TRUE",
]

TICK: Final = 0
PUBLISHER: Final = 1
SEQUENCE: Final = 2
PAYLOAD: Final = 3
NAMED: Final = 4
"""The first of the attributes, which follow in the order of their names in the call."""

ABSENT: Final = 0
FALSE: Final = 1
TRUE: Final = 2
INT: Final = 3
FLOAT: Final = 4
TEXT: Final = 5
BYTES: Final = 6
KINDS: Final = 7
"""The number of kinds."""
