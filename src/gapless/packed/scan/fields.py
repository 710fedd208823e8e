"""What a survey has of every publication, and the kinds of values there are."""

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
"""From here on fields are attributes, in the order in which they were named."""

ABSENT: Final = 0
FALSE: Final = 1
TRUE: Final = 2
INT: Final = 3
FLOAT: Final = 4
TEXT: Final = 5
BYTES: Final = 6
KINDS: Final = 7
"""How many kinds there are."""
