"""Messages of the overlay: peer sessions, heartbeats, announcements of pubends, partitions."""

from __future__ import annotations

from enum import IntEnum
from typing import Any

import msgspec

from gapless.core.ids import BrokerId, CellId, PubendId
from gapless.core.numbers import Clock, ComposedName, Count, Name, Signed
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
    """The delivery guarantee of a pubend. It is never a property of an event (R33)."""

    GUARANTEED = 0
    BEST_EFFORT = 1


class CellInfo(msgspec.Struct, frozen=True, array_like=True):
    """A cell, its brokers and its neighbour cells."""

    name: CellId
    brokers: tuple[BrokerId, ...]
    neighbours: tuple[CellId, ...]
    shape_version: Count = 1
    """Counts the changes of ``neighbours``; 1 in a cell that was never reshaped."""


class PeerSessionId(msgspec.Struct, frozen=True, array_like=True, gc=False, order=True):
    """One end of a peer session: the broker's incarnation and a counter of its sessions with the
    peer.
    """

    incarnation: Count
    number: Count


class Hello(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Opens a peer session. Each side repeats it until it is answered (R1)."""

    broker: BrokerId
    cell: CellId
    own: PeerSessionId
    received: PeerSessionId | None
    """The peer's end, if the sender has received its Hello. Then the session is open."""
    protocol: Count
    topology_version: Count
    """Of the sender's neighbourhood."""


class Packet(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The messages of one step of a broker to a peer, within their session (R1)."""

    sender: PeerSessionId
    receiver: PeerSessionId
    sequence: Count
    messages: tuple[Any, ...]


class TableState(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The version of a table at its sender, and a digest of that version (R19)."""

    direction: ComposedName
    version: Count
    digest: Signed


class Heartbeat(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Shows that the session is alive. ``echo`` is the peer's last received sequence (R1)."""

    sequence: Count
    echo: Count
    clock: Clock
    """The sender's wall clock, in microseconds. R27 uses the median of all clocks."""
    tables: tuple[TableState, ...] = ()


class RelayProbe(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Searches a route to a broker that has no working link (R3)."""

    target: BrokerId
    number: PeerSessionId
    """The incarnation of the origin and a counter of its probes."""
    route: tuple[BrokerId, ...]
    """The brokers that forwarded the probe, the origin first."""


class Relayed(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """A frame of a peer session that other brokers check and forward as bytes (R3)."""

    route: tuple[BrokerId, ...]
    """The whole route, both ends included."""
    index: Count
    """The index of the receiving broker in the route."""
    inner: Any
    """A Hello, Packet, RelayBroken or RelayFull; at a relay its encoded bytes."""


class RelayBroken(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """A relay cannot forward on a route. Sent back inside Relayed (R3)."""

    route: tuple[BrokerId, ...]
    """The whole route, from the broker that receives this message."""


class RelayFull(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """A relay forwards on a route, but its queue is full. Sent back inside Relayed (R3, R40)."""

    route: tuple[BrokerId, ...]
    """The whole route, from the broker that receives this message."""


class PubendProperties(msgspec.Struct, frozen=True, array_like=True):
    """The properties of a pubend that all brokers know. An advertisement only widens."""

    broker: BrokerId
    cell: CellId
    advertisement: str
    """The canonical text of a filter that all its publications match."""
    quality: Quality = Quality.GUARANTEED


class Announce(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """A pubend exists in the sender's direction (R4)."""

    pubend: PubendId
    version: Count
    properties: PubendProperties
    path: tuple[CellId, ...]
    """Cells towards the pubend, nearest to the sender first, at most Δ + 1."""
    tombstone: bool = False
    shape_version: Count = 1
    """Of the sender's cell. A path from before a reshape may be wrong (R13)."""


class Partition(msgspec.Struct, frozen=True, array_like=True):
    """Cells that a broker cannot reach, with an identifier for operators (PT III-B: a pid).

    >>> str(Partition("b1", 3, ("n", "c")))
    'b1/3: cells n, c'
    """

    detector: BrokerId
    counter: Count
    """Counts the partitions of the detector in its incarnation."""
    cells: tuple[CellId, ...]
    """The cell whose last session closed, and the cells beyond it up to cells that are reached."""

    def __str__(self) -> str:
        return f"{self.detector}/{self.counter}: cells {', '.join(self.cells)}"


class PartitionInfo(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """A partition has formed or healed; for operators, no rule reads it (R12)."""

    partition: Partition
    incarnation: Count
    """Of the detector. A new incarnation starts its counter again and ends the older partitions."""
    formed: bool
    hops_left: Count
    """How many more cells it is forwarded."""
    renewal: Count = 0
    """How many times it was sent before. A detector repeats it while it runs."""


class NameStatus(IntEnum):
    """Whether a name is free for a new pubend."""

    FREE = 0
    """No queried broker has a pubend of that name."""
    TAKEN = 1
    """A broker has such a pubend or is creating it."""
    UNKNOWN = 2
    """A queried broker did not answer."""


class NameQuery(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Queries whether the name of a new pubend is free. Forwarded from cell to cell (R4)."""

    name: Name
    requester: BrokerId
    incarnation: Count
    """Of the requester."""
    number: Count
    """Counts the queries of the requester in its incarnation."""

    @property
    def key(self) -> tuple[BrokerId, int, int]:
        """Identifies the query."""
        return self.requester, self.incarnation, self.number


class NameReply(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The reply to a name query, for the sender and the brokers beyond it."""

    key: tuple[BrokerId, Count, Count]
    """Of the query."""
    status: NameStatus
    broker: BrokerId = ""
    """The broker that has the name, if it is taken."""


class Retire(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """A broker is retired, or has returned after that. Flooded like an announcement (R26)."""

    broker: BrokerId
    cell: CellId
    version: Count
    returned_at: Tick = 0
    """0 if the broker is retired. Else it has itself stated that it returned, which ends the
    retirement of this version; none of its pubends had a tick above this one then."""
    without_pubends: bool = False
    """Whether it returned without any pubend: those it had are lost."""
    pubends: tuple[PubendId, ...] | None = None
    """All pubends that it returned with; any other that it had is lost. None if there are too
    many."""

    @property
    def is_back(self) -> bool:
        """Whether the broker has returned."""
        return self.returned_at > 0

    def returned_with(self, pubend: PubendId) -> bool:
        """Return whether it named the pubend at its return."""
        return self.pubends is not None and pubend in self.pubends

    def returned_without(self, pubend: PubendId) -> bool:
        """Return whether it returned without a pubend that it had."""
        return self.without_pubends or (self.pubends is not None and pubend not in self.pubends)
