"""The ranges of the numbers, and the length of the names, in messages. Decoding a message checks them.

Brokers compute with what they receive and send it on. So the numbers of clients have room below the
greatest number that a broker accepts from another one: no client can make one of its brokers send
what the others refuse.
"""

from __future__ import annotations

from typing import Annotated, TypeAlias

import msgspec

from gapless.core.limits import (
    BROKER_NAME_BYTES_MAX,
    CLIENT_COUNT_MAX,
    COMPOSED_NAME_MAX,
    INT_MAX,
    INT_MIN,
    NAME_MAX,
    SEQUENCE_MAX,
)

__all__ = [
    "BrokerName",
    "ClientCount",
    "ClientSigned",
    "Clock",
    "ComposedName",
    "Count",
    "Epoch",
    "Name",
    "Signed",
    "following",
    "next_epoch",
]

Count: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=INT_MAX)]
"""A number from 0 of a broker: a counter, a version, a size."""

Signed: TypeAlias = Annotated[int, msgspec.Meta(ge=INT_MIN, le=INT_MAX)]
"""A number of a broker that may be negative: a clock, a digest."""

ClientCount: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=CLIENT_COUNT_MAX)]
"""A number from 0 of a client."""

ClientSigned: TypeAlias = Annotated[int, msgspec.Meta(ge=-SEQUENCE_MAX, le=SEQUENCE_MAX)]
"""A number of a client that may be negative: a tick, a clock, a number that the machine refuses."""

Clock: TypeAlias = Annotated[int, msgspec.Meta(ge=-SEQUENCE_MAX, le=SEQUENCE_MAX)]
"""The wall clock of a broker, in microseconds."""

Epoch: TypeAlias = ClientCount
"""The epoch of a durable subscription, which clients, brokers and records exchange."""

Name: TypeAlias = Annotated[str, msgspec.Meta(max_length=NAME_MAX)]
"""The name of a pubend, a publisher or a subscription."""

BrokerName: TypeAlias = Annotated[str, msgspec.Meta(max_length=BROKER_NAME_BYTES_MAX)]
"""The name of a broker or a cell."""

ComposedName: TypeAlias = Annotated[str, msgspec.Meta(max_length=COMPOSED_NAME_MAX)]
"""A name that a broker composes: a direction, an incarnation key, the name of a log hold."""


def following(number: int) -> int:
    """Return the next number after one of another broker; the greatest one stays.

    >>> following(7), following(INT_MAX) == INT_MAX
    (8, True)
    """
    return min(number + 1, INT_MAX)


def next_epoch(epoch: int) -> int:
    """Return the epoch of the next change of the hosting broker.

    The greatest epoch has no next one: nobody reaches it by counting, and a claim with a number
    beyond the range would be malformed for every other broker.

    >>> next_epoch(7), next_epoch(CLIENT_COUNT_MAX) == CLIENT_COUNT_MAX
    (8, True)
    """
    return min(epoch + 1, CLIENT_COUNT_MAX)
