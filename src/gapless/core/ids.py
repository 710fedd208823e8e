"""Ids of brokers, cells, SHBs, pubends and memberships, and the virtual times of the papers.

People name brokers and cells, so their ids are strings. All others are tuples of names and
counters, which are cheap to compare, sort and encode.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

from gapless.core.limits import ROUTE_BROKERS_MAX
from gapless.core.numbers import BrokerName, Count, Name

__all__ = [
    "VIRTUAL_TIME_ZERO",
    "BrokerId",
    "CellId",
    "MembershipId",
    "PubendId",
    "ShbId",
    "VectorEntry",
    "VirtualTime",
    "is_route",
]

BrokerId: TypeAlias = BrokerName
CellId: TypeAlias = BrokerName


def is_route(brokers: Sequence[BrokerId]) -> bool:
    """Return whether these can be the brokers of a route: none comes twice, and they are not many.

    Otherwise one message would go round in a circle for as long as its sender has decided.
    """
    return len(brokers) <= ROUTE_BROKERS_MAX and len(set(brokers)) == len(brokers)


class ShbId(NamedTuple):
    """A broker in its role as SHB: a leaf of its cell.

    A broker that changes its cell is another SHB, so the location of an SHB changes only when an
    edge of the tree changes.
    """

    broker: BrokerId
    cell: CellId

    def __str__(self) -> str:
        return f"{self.broker}@{self.cell}"


class PubendId(NamedTuple):
    """A named stream. It gets the next incarnation when it is created again."""

    name: Name
    incarnation: Count = 1

    def __str__(self) -> str:
        return self.name if self.incarnation == 1 else f"{self.name}#{self.incarnation}"


class VirtualTime(NamedTuple):
    """The incarnation of an SHB, and a counter of its table changes in it (VT 4)."""

    incarnation: Count
    counter: Count

    def __str__(self) -> str:
        return f"{self.incarnation}:{self.counter}"


VIRTUAL_TIME_ZERO = VirtualTime(0, 0)
"""Less than every virtual time of a broker."""


class VectorEntry(NamedTuple):
    """The entry of an SHB in a vector: its virtual time, and the control version that restricts
    it.
    """

    time: VirtualTime
    control_version: Count = 0
    retired: bool = False


class MembershipId(NamedTuple):
    """Identifies a membership of an SHB with a pubend. A later one is greater."""

    incarnation: Count
    counter: Count
