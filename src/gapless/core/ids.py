"""Who is who: brokers, cells, subscriber hosts, pubends, and the virtual times of the papers.

A broker and a cell are named by people, so their ids are plain texts. All others are tuples of
such names and counters: cheap to compare, to sort and to send.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

__all__ = [
    "VIRTUAL_TIME_ZERO",
    "BrokerId",
    "CellId",
    "MembershipId",
    "PubendId",
    "ShbId",
    "VectorEntry",
    "VirtualTime",
]

BrokerId: TypeAlias = str
CellId: TypeAlias = str


class ShbId(NamedTuple):
    """A broker in its role as host of subscribers: a leaf of its cell.

    A broker that changes its cell is another subscriber host, so the place of one in the tree
    changes only when an edge of the tree does.
    """

    broker: BrokerId
    cell: CellId

    def __str__(self) -> str:
        return f"{self.broker}@{self.cell}"


class PubendId(NamedTuple):
    """A named stream. A stream that has to begin anew gets the next incarnation."""

    name: str
    incarnation: int = 1

    def __str__(self) -> str:
        return self.name if self.incarnation == 1 else f"{self.name}#{self.incarnation}"


class VirtualTime(NamedTuple):
    """A moment of one subscriber host: its life, and how often it changed its table in it (VT 4)."""

    incarnation: int
    counter: int

    def __str__(self) -> str:
        return f"{self.incarnation}:{self.counter}"


VIRTUAL_TIME_ZERO = VirtualTime(0, 0)
"""Before every virtual time that a broker can have."""


class VectorEntry(NamedTuple):
    """What a table says of one subscriber host: up to when, restricted by which control version."""

    time: VirtualTime
    control_version: int = 0
    retired: bool = False


class MembershipId(NamedTuple):
    """One stay of a subscriber host with a pubend; a later stay is greater."""

    incarnation: int
    counter: int
