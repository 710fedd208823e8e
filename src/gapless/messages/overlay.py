"""Messages of the overlay: sessions, signs of life, announcements of pubends, partitions."""

from __future__ import annotations

from enum import IntEnum
from typing import Any

import msgspec

from gapless.core.ids import BrokerId, CellId, PubendId
from gapless.core.ticks import Tick

__all__ = [
    "Announce",
    "CellInfo",
    "Heartbeat",
    "Hello",
    "NameQuery",
    "NameReply",
    "NameStatus",
    "Packet",
    "Partition",
    "PartitionInfo",
    "PeerSessionId",
    "PubendProperties",
    "Quality",
    "RelayBroken",
    "RelayFull",
    "RelayProbe",
    "Relayed",
    "Retire",
    "TableState",
]


class Quality(IntEnum):
    """What a pubend promises; a property of the pubend, never of an event (R33)."""

    GUARANTEED = 0
    BEST_EFFORT = 1


class CellInfo(msgspec.Struct, frozen=True, array_like=True):
    """A cell: its brokers, and the cells it has an edge to."""

    name: CellId
    brokers: tuple[BrokerId, ...]
    neighbours: tuple[CellId, ...]
    shape_version: int = 1
    """Counts the changes of ``neighbours``; 1 in a cell that was never reshaped."""


class PeerSessionId(msgspec.Struct, frozen=True, array_like=True, gc=False, order=True):
    """One end of a session: the broker's life, and its how-manieth session with that peer."""

    incarnation: int
    number: int


class Hello(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Opens a session; each side sends it until it was answered (R1)."""

    broker: BrokerId
    cell: CellId
    own: PeerSessionId
    received: PeerSessionId | None
    """The peer's end, if a Hello of it was heard: then the session is open."""
    protocol: int
    topology_version: int
    """Of the sender's neighbourhood."""


class Packet(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """What one step of a broker has to say to a peer, inside their session (R1)."""

    sender: PeerSessionId
    receiver: PeerSessionId
    sequence: int
    messages: tuple[Any, ...]


class TableState(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Which version of a table its sender has, and a digest of that version (R19)."""

    direction: str
    version: int
    digest: int


class Heartbeat(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """A sign of life that says which sign of the peer was heard last (R1)."""

    sequence: int
    echo: int
    clock: int
    """The sender's wall clock, in microseconds; the median of all is the view of R27."""
    tables: tuple[TableState, ...] = ()


class RelayProbe(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Looks for a way to a broker that cannot be reached over a link (R3)."""

    target: BrokerId
    number: PeerSessionId
    """The origin's life, and its how-manieth probe in that."""
    route: tuple[BrokerId, ...]
    """Who has sent it on, the origin first."""


class Relayed(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Carries a packet of a session over other brokers, which only pass it on (R3)."""

    route: tuple[BrokerId, ...]
    """The whole way, both ends included."""
    index: int
    """The place on it of who receives this."""
    inner: Any
    """A Hello, a packet, or that the way is broken or full; on the way, the bytes of it."""


class RelayBroken(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """A relay cannot pass on what came by a way; travels back inside of Relayed (R3)."""

    route: tuple[BrokerId, ...]
    """The whole way, from the end that is told."""


class RelayFull(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """A relay has passed on what came by a way, but much waits there; travels as above (R3, R40)."""

    route: tuple[BrokerId, ...]
    """The whole way, from the end that is told."""


class PubendProperties(msgspec.Struct, frozen=True, array_like=True):
    """What all brokers must know of a pubend. An advertisement only ever widens."""

    broker: BrokerId
    cell: CellId
    advertisement: str
    """The canonical text of the filter that all its publications match."""
    quality: Quality = Quality.GUARANTEED


class Announce(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """A pubend exists in the sender's direction (R4)."""

    pubend: PubendId
    version: int
    properties: PubendProperties
    path: tuple[CellId, ...]
    """Cells towards the pubend, nearest to the sender first, at most Δ + 1."""
    tombstone: bool = False
    shape_version: int = 1
    """Of the sender's cell: a way from before a reshape may lead elsewhere now (R13)."""


class Partition(msgspec.Struct, frozen=True, array_like=True):
    """Cells that a broker cannot reach, and how people name that (PT III-B: a pid).

    >>> str(Partition("b1", 3, ("n", "c")))
    'b1/3: cells n, c'
    """

    detector: BrokerId
    counter: int
    """The detector's how-manieth partition in its life."""
    cells: tuple[CellId, ...]
    """The cell whose last session died, and what lies beyond it up to cells that are reached."""

    def __str__(self) -> str:
        return f"{self.detector}/{self.counter}: cells {', '.join(self.cells)}"


class PartitionInfo(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """A partition has formed or healed; for people, no rule reads it (R12)."""

    partition: Partition
    incarnation: int
    """The detector's: counters begin anew in the next, and its partitions are over."""
    formed: bool
    hops_left: int
    """How many cells farther it may travel."""
    renewal: int = 0
    """How often it was told before: a detector that lives tells it again and again."""


class NameStatus(IntEnum):
    """What brokers say of a name that another wants to give to a new pubend."""

    FREE = 0
    """No broker here or beyond has a pubend of that name."""
    TAKEN = 1
    """A broker has such a pubend, or is making it."""
    UNKNOWN = 2
    """Somebody here or beyond did not answer."""


class NameQuery(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """A broker wants to make a pubend: is its name free? Asked on from cell to cell (R4)."""

    name: str
    requester: BrokerId
    incarnation: int
    """The asker's."""
    number: int
    """The asker's how-manieth question in its life."""

    @property
    def key(self) -> tuple[BrokerId, int, int]:
        """What tells it from all other questions."""
        return self.requester, self.incarnation, self.number


class NameReply(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """What is known of a name, here and beyond."""

    key: tuple[BrokerId, int, int]
    """Of the question."""
    status: NameStatus
    broker: BrokerId = ""
    """Who has the name, if it is taken."""


class Retire(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """A broker will never return; or it was said to, and is back. Flooded like an announcement (R26)."""

    broker: BrokerId
    cell: CellId
    version: int
    returned_at: Tick = 0
    """Not 0: it has returned after all, as it says itself, which ends the retirement of that version. None of its
    pubends had a tick above this then."""
    without_pubends: bool = False
    """Whether it has returned without any pubend: what it had is lost with its disk."""
    pubends: tuple[PubendId, ...] | None = None
    """All pubends that it has returned with: any other that it had is lost. None if there are too many to name."""

    @property
    def is_back(self) -> bool:
        """Whether it has returned after all."""
        return self.returned_at > 0

    def returned_with(self, pubend: PubendId) -> bool:
        """Say whether it surely has a pubend."""
        return self.pubends is not None and pubend in self.pubends

    def returned_without(self, pubend: PubendId) -> bool:
        """Say whether it has returned without a pubend that it had."""
        return self.without_pubends or (self.pubends is not None and pubend not in self.pubends)
