"""Messages of the overlay: cells, peer sessions, heartbeats, announcements of pubends, partitions."""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum
from functools import cached_property
from typing import Annotated, Any, Final, TypeAlias

import msgspec

from gapless.core.ids import BrokerId, CellId, PubendId
from gapless.core.limits import DELTA_MAX
from gapless.core.numbers import Clock, ComposedName, Count, Name, Signed
from gapless.core.overlay_limits import RECORDS_MAX
from gapless.core.ticks import Tick

__all__ = [
    "FIRST_SHAPE",
    "Announce",
    "CellEdge",
    "CellMember",
    "CellRecord",
    "CellRole",
    "ControlFrame",
    "Heartbeat",
    "Hello",
    "NameQuery",
    "NameReply",
    "NameStatus",
    "Packet",
    "Partition",
    "PartitionInfo",
    "PathEpochs",
    "PeerSessionId",
    "PubendProperties",
    "Quality",
    "RecordList",
    "RecordPush",
    "RecordVersion",
    "RecordWant",
    "RelayBroken",
    "RelayFull",
    "RelayProbe",
    "Relayed",
    "Retire",
    "ShapeVersion",
    "TableState",
    "Term",
]


class Quality(IntEnum):
    """The delivery guarantee of a pubend. It is never a property of an event (R33)."""

    GUARANTEED = 0
    BEST_EFFORT = 1


class Term(msgspec.Struct, frozen=True, array_like=True, gc=False, order=True):
    """Numbers the leaders of a cell; the greater term is the newer one (RS-1)."""

    number: Count = 0
    broker: BrokerId = ""
    """The broker that asked for this term; empty in the first one. So no two brokers that ask at once
    get the same term."""


class ShapeVersion(msgspec.Struct, frozen=True, array_like=True, gc=False, order=True):
    """A version of the edges of a cell (RS-1).

    The epoch of an edge is one too: the greater one of both cells after the operation that last
    changed what lies behind the edge.
    """

    term: Term = Term()
    """The term in which the far ends of the cell's edges last changed."""
    count: Count = 1
    """Counts the changes; 1 in a cell that was never reshaped."""


FIRST_SHAPE: Final = ShapeVersion()
"""The shape version of a cell, and the epoch of an edge, that no operation has changed."""


PathEpochs: TypeAlias = Annotated[
    tuple[tuple[CellId, CellId, ShapeVersion], ...], msgspec.Meta(max_length=DELTA_MAX + 1)
]
"""The edges of a path that have an epoch above the first one: both cells, in order, and the epoch."""


class CellRole(IntEnum):
    """Whether a member of a cell takes part in its routing (RS-3)."""

    ACTIVE = 0
    REPLACED = 1
    """Another member does its routing. Its pubends and durable subscriptions wait for its disk."""


class CellMember(msgspec.Struct, frozen=True, array_like=True):
    """A broker of a cell."""

    broker: BrokerId
    role: CellRole = CellRole.ACTIVE
    addresses: tuple[Name, ...] = ()
    """Where other brokers reach it, as ``host:port``."""


class CellEdge(msgspec.Struct, frozen=True, array_like=True):
    """An edge from a cell to another one, as the record of the first cell lists it."""

    cell: CellId
    """The other cell."""
    epoch: ShapeVersion = FIRST_SHAPE


class CellRecord(msgspec.Struct, frozen=True, array_like=True, dict=True):
    """A cell: its leader, its members and its edges. Only its leader changes it (RS-2)."""

    name: CellId
    members: tuple[CellMember, ...]
    edges: tuple[CellEdge, ...]
    leader: BrokerId = ""
    """Empty if a takeover has left the cell without one."""
    term: Term = Term()
    shape_version: ShapeVersion = FIRST_SHAPE
    member_version: Count = 1
    """Counts the changes of the members."""

    @classmethod
    def first(
        cls, name: CellId, brokers: Iterable[BrokerId], neighbours: Iterable[CellId]
    ) -> CellRecord:
        """Return the record of a cell as an operator configures it: the least name leads."""
        members = tuple(map(CellMember, sorted(brokers)))
        edges = tuple(map(CellEdge, sorted(neighbours)))
        return cls(name, members, edges, members[0].broker if members else "")

    @property
    def version(self) -> tuple[Term, ShapeVersion, int]:
        """Of two records of a cell the one with the greater version is kept (RS-1)."""
        return self.term, self.shape_version, self.member_version

    @cached_property
    def brokers(self) -> tuple[BrokerId, ...]:
        """All members, in the order of the record."""
        return tuple(member.broker for member in self.members)

    @cached_property
    def active_brokers(self) -> tuple[BrokerId, ...]:
        """The members that take part in routing, in the order of the record (RS-3)."""
        active = (each for each in self.members if each.role is CellRole.ACTIVE)
        return tuple(member.broker for member in active)

    @cached_property
    def neighbours(self) -> tuple[CellId, ...]:
        """The cells that this record lists an edge to."""
        return tuple(edge.cell for edge in self.edges)

    def without_addresses(self) -> CellRecord:
        """Return the record with its members' names and roles only."""
        members = tuple(CellMember(each.broker, each.role) for each in self.members)
        return msgspec.structs.replace(self, members=members)

    def epoch(self, cell: CellId) -> ShapeVersion | None:
        """Return the epoch of the edge to a cell, or None if this record lists no such edge."""
        return next((edge.epoch for edge in self.edges if edge.cell == cell), None)


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
    digest: Signed
    """Of the records of the cells within Δ of both ends; 0 in a control session (RS-4)."""


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
    digest: Signed = 0
    """Of the records of the cells within Δ of both ends (RS-4)."""


class ControlFrame(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """A frame of a control session, between brokers of which one may not be in the other's
    neighbourhood (RS-35).
    """

    inner: Any
    """A Hello or a Packet."""


class RecordVersion(msgspec.Struct, frozen=True, array_like=True):
    """The version of the record of a cell that the sender holds (RS-1)."""

    cell: CellId
    term: Term
    shape_version: ShapeVersion
    member_version: Count

    @property
    def version(self) -> tuple[Term, ShapeVersion, int]:
        """The version in the form of :attr:`CellRecord.version`."""
        return self.term, self.shape_version, self.member_version


class RecordPush(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Records of cells that are newer than what the receiver holds, or new to it (RS-4)."""

    records: Annotated[tuple[CellRecord, ...], msgspec.Meta(max_length=RECORDS_MAX)]


class RecordList(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """What the sender holds of the cells within Δ of the receiver; sent if digests differ (RS-4)."""

    versions: Annotated[tuple[RecordVersion, ...], msgspec.Meta(max_length=RECORDS_MAX)]


class RecordWant(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Asks for the records of some cells (RS-4)."""

    cells: Annotated[tuple[CellId, ...], msgspec.Meta(max_length=RECORDS_MAX)]


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
    shape_version: ShapeVersion = FIRST_SHAPE
    """Of the sender's cell. A path from before a reshape may be wrong (R13)."""
    sealed: Tick | None = None
    """The last tick of a pubend that is sealed, or is a tombstone (RS-32); 0 under best effort. All
    ticks above it are F for ever. None while the pubend is open."""
    last_event: Tick = 0
    """The last tick of a tombstone that may have had an event. No position above it misses one."""


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
    RETRY = 3
    """The tree has changed meanwhile: the requester queries anew (RS-15a)."""


class NameQuery(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Queries whether the name of a new pubend is free. Forwarded from cell to cell (R4)."""

    name: Name
    requester: BrokerId
    incarnation: Count
    """Of the requester."""
    number: Count
    """Counts the queries of the requester in its incarnation."""
    path_epochs: PathEpochs = ()
    """Of the edge that the query crosses (RS-15a)."""

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
