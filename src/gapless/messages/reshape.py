"""Messages of the operations that change the tree, and of takeovers of cells.

A coordinator runs an operation as a transaction with the leaders of the cells concerned:
OpPrepare, OpSwitch and OpFinish, or OpAbort (RS-5 to RS-8). They travel in peer sessions, in control
sessions, and from a broker to itself. OpRequest, TakeOverCell and ReadmitBroker are requests of
operators; like all requests of clients they have a number that the reply contains.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Annotated

import msgspec

from gapless.core.ids import BrokerId, CellId
from gapless.core.limits import CELL_BROKERS_MAX
from gapless.core.numbers import ClientCount, Count, Name
from gapless.core.reshape_limits import (
    NEIGHBOURHOOD_CELLS_MAX,
    OPERATION_CELLS_MAX,
    OPERATION_PARTICIPANTS_MAX,
    OPERATIONS_KEPT,
    REMAINDER_CHARACTERS_MAX,
    REMAINDERS_NAMED_MAX,
)
from gapless.messages.overlay import CellMember, CellRecord, ShapeVersion, Term

__all__ = [
    "NO_OPERATION",
    "ExpectedCell",
    "OpAbort",
    "OpAborted",
    "OpFinish",
    "OpFinished",
    "OpInquire",
    "OpOutcome",
    "OpPrepare",
    "OpPrepared",
    "OpRefused",
    "OpReply",
    "OpRequest",
    "OpSwitch",
    "OpSwitched",
    "OperationId",
    "OperationKind",
    "OperationOutcome",
    "OperationRequestId",
    "OperationStatus",
    "Participant",
    "Promise",
    "PromisedOutcome",
    "ReadmitBroker",
    "RefusalReason",
    "ReportedLock",
    "TakeOverCell",
    "Takeover",
    "TakeoverReply",
]


class OperationId(msgspec.Struct, frozen=True, array_like=True, gc=False, order=True):
    """Identifies one attempt of an operation.

    >>> str(OperationId("b1", 3))
    'b1.3'
    """

    broker: BrokerId
    """The coordinator that began it."""
    counter: Count
    """Counts the operations of that broker. No number is given twice."""

    def __str__(self) -> str:
        return f"{self.broker}.{self.counter}"


NO_OPERATION = OperationId("", 0)
"""Stands for no operation where a message has room for one."""


class OperationRequestId(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Identifies a requested operation, whatever attempts it takes: a plan and a step of it (RS-19)."""

    plan: Name
    step: Count = 0


class OperationKind(IntEnum):
    """What an operation does."""

    APPEND = 0
    """The new, empty cell i becomes a neighbour of j."""
    DETACH = 1
    """The empty outer cell i leaves its neighbour j."""
    SHIFT = 2
    """The edge between i and j becomes one between i and k."""
    HAND_OVER = 3
    """Another member leads the cell (RS-16)."""
    READMIT = 4
    """A replaced member takes part in the routing again (RS-18)."""


class RefusalReason(IntEnum):
    """Why an operation or a part of it is refused."""

    LOCKED = 0
    """Another operation has locked a cell."""
    FENCED = 1
    """A greater term of a cell is promised or known."""
    STALE = 2
    """The tree is not as the operation expects."""
    BOUND = 3
    """A cell would have more than ``cell_degree_max`` neighbours, or its id would be too long."""
    TOO_MANY = 4
    """A limit is reached."""
    NOT_EMPTY = 5
    """Something is left at the brokers of the cell."""
    NO_SESSION = 6
    """The leader of i has no session with the leader of k (RS-10)."""
    NOT_LEADER = 7
    """The asked broker does not lead the cell that coordinates the operation."""
    UNANSWERED = 8
    """A participant did not answer within ``op_prepare_ms``."""
    NAME_TAKEN = 9
    """A cell or a broker of that name exists."""
    INVALID = 10
    """The request cannot be carried out in any tree."""
    LEAVING = 11
    """The brokers of the cell still leave the pubends of which they are members."""


RefusalText = Annotated[str, msgspec.Meta(max_length=1_000)]
"""A reason for people."""


class ExpectedCell(msgspec.Struct, frozen=True, array_like=True):
    """The state of a cell that an operation begins with."""

    cell: CellId
    term: Term
    shape_version: ShapeVersion


class Participant(msgspec.Struct, frozen=True, array_like=True):
    """A broker that locks for an operation: a cell leader or a newcomer (RS-5)."""

    cell: CellId
    member: CellMember
    term: Term
    """In which it leads its cell."""

    @property
    def broker(self) -> BrokerId:
        """The broker."""
        return self.member.broker


OperationCells = Annotated[tuple[CellId, ...], msgspec.Meta(max_length=OPERATION_CELLS_MAX)]
ProposedRecords = Annotated[tuple[CellRecord, ...], msgspec.Meta(max_length=OPERATION_CELLS_MAX)]
ExpectedCells = Annotated[tuple[ExpectedCell, ...], msgspec.Meta(max_length=OPERATION_CELLS_MAX)]
Participants = Annotated[
    tuple[Participant, ...], msgspec.Meta(max_length=OPERATION_PARTICIPANTS_MAX)
]
HeldRecords = Annotated[tuple[CellRecord, ...], msgspec.Meta(max_length=NEIGHBOURHOOD_CELLS_MAX)]
Remainder = Annotated[str, msgspec.Meta(max_length=REMAINDER_CHARACTERS_MAX)]
Remainders = Annotated[tuple[Remainder, ...], msgspec.Meta(max_length=REMAINDERS_NAMED_MAX)]
HeldCells = Annotated[tuple[CellId, ...], msgspec.Meta(max_length=NEIGHBOURHOOD_CELLS_MAX)]
ReplacedBrokers = Annotated[tuple[BrokerId, ...], msgspec.Meta(max_length=CELL_BROKERS_MAX)]


# --- requests -----------------------------------------------------------------------------------


class OpRequest(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Requests an operation from its coordinator. The same id may be requested again."""

    request: ClientCount
    """The number of a client's request; 0 if a broker asks."""
    id: OperationRequestId
    kind: OperationKind
    cells: OperationCells
    """(i, j, k) of a SHIFT, (i, j) of an APPEND or a DETACH, else the cell alone."""
    broker: CellMember | None = None
    """The newcomer of an APPEND, the next leader of a HAND_OVER, the member that READMIT means."""
    expected: ExpectedCells = ()
    """The states of cells that the operation was planned for; others are taken as they are."""


class OperationStatus(IntEnum):
    """The state of a requested operation."""

    DONE = 0
    REFUSED = 1
    UNDER_WAY = 2
    """The coordinator is still working on it. Ask again."""


class OpReply(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The reply to a request of an operation."""

    request: Count
    id: OperationRequestId
    status: OperationStatus
    op: OperationId = NO_OPERATION
    """The last attempt."""
    reason: RefusalReason | None = None
    text: RefusalText = ""
    leader: BrokerId = ""
    """The leader of the coordinating cell as far as it is known, if the reason is NOT_LEADER."""
    time_us: Count = 0
    """Of an operation that is done: how long it took at its coordinator, with all attempts."""


class TakeOverCell(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Declares brokers replaced, and requests that another broker leads their cell (RS-17)."""

    request: ClientCount
    replaced: ReplacedBrokers = ()
    cell: CellId = ""
    """The cell: one of its members takes over. Empty: the asked broker takes over its own."""


class TakeoverReply(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The asked broker leads its cell, or it does not."""

    request: Count
    done: bool
    term: Term = Term()
    """In which it leads its cell."""
    cells: tuple[CellId, ...] = ()
    """All cells that it took over."""
    text: RefusalText = ""
    silent: tuple[BrokerId, ...] = ()
    """The brokers that have not promised."""


class ReadmitBroker(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Requests that the leader of a cell makes a replaced member active again (RS-18)."""

    request: ClientCount
    broker: BrokerId


# --- the transaction ----------------------------------------------------------------------------


class OpPrepare(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Requests a lock of the receiver."""

    op: OperationId
    kind: OperationKind
    cells: OperationCells
    cell: CellId
    """Of the coordinator."""
    term: Term
    """In which the coordinator leads its cell."""
    expected: ExpectedCells
    participants: Participants
    records: ProposedRecords
    """The records that the operation gives the cells, with the members known to the coordinator."""


class OpPrepared(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The lock of the sender is durable."""

    op: OperationId
    record: CellRecord
    """The sender's cell, whose members the new record takes (RS-6)."""


class OpRefused(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The sender does not do what a message of the operation requests."""

    op: OperationId
    reason: RefusalReason
    record: CellRecord | None = None
    """The newest record that explains the refusal."""
    locked_by: OperationId = NO_OPERATION
    left: Remainders = ()
    """What is left at the sender, if the reason is NOT_EMPTY."""


class OpSwitch(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The operation is committed: the receiver applies its records in one step."""

    op: OperationId
    cell: CellId
    term: Term
    records: ProposedRecords


class OpSwitched(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The records of the operation are durable at the sender."""

    op: OperationId


class OpFinish(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Every participant has switched: the receiver unlocks."""

    op: OperationId
    cell: CellId
    term: Term


class OpFinished(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The sender has no lock for the operation, and the operation is applied there."""

    op: OperationId


class OpAbort(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The operation has no effect: the receiver unlocks."""

    op: OperationId
    cell: CellId
    term: Term
    new_term: bool = False
    """Whether the receiver raises the term of its cell, because a takeover aborts (RS-17)."""


class OpAborted(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The sender has no lock for the operation."""

    op: OperationId


class OpInquire(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """A locked participant asks for the outcome of an operation (RS-8)."""

    op: OperationId
    kind: OperationKind
    cell: CellId
    """Of the coordinator."""
    term: Term
    """Of the coordinator in that cell, when it asked for the lock."""
    own: CellId
    """The participant's cell, which no other operation changes meanwhile."""
    records: ProposedRecords


class OperationOutcome(IntEnum):
    """What a broker knows of an operation."""

    UNKNOWN = 0
    PREPARING = 1
    COMMITTED = 2
    ABORTED = 3
    FINISHED = 4
    """It is committed, and nobody repeats its messages."""


class OpOutcome(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The answer to OpInquire."""

    op: OperationId
    outcome: OperationOutcome
    term: Term | None = None
    """The sender's term, if it decides for the coordinator's cell."""
    new_term: bool = False
    """As in OpAbort, if the operation is aborted."""
    records: ProposedRecords = ()
    """Those of a committed operation."""


# --- takeover -----------------------------------------------------------------------------------


class Takeover(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """A candidate asks for a promise: the receiver refuses lower terms of these cells (RS-17)."""

    cells: HeldCells
    term: Term
    """The new term of each of these cells."""
    replaced: ReplacedBrokers


class ReportedLock(msgspec.Struct, frozen=True, array_like=True):
    """The lock of a broker that promises."""

    op: OperationId
    kind: OperationKind
    cell: CellId
    """Of the coordinator."""
    own: CellId
    """The cell of the broker that promises."""
    participants: Participants
    records: ProposedRecords
    switched: bool


class PromisedOutcome(msgspec.Struct, frozen=True, array_like=True):
    """A decision that the broker that promises has made as a coordinator."""

    op: OperationId
    committed: bool
    records: ProposedRecords = ()


PromisedOutcomes = Annotated[tuple[PromisedOutcome, ...], msgspec.Meta(max_length=OPERATIONS_KEPT)]


class Promise(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The sender refuses lower terms from now on; or it knows a greater term and has refused."""

    cells: HeldCells
    term: Term
    fenced_by: Term | None = None
    """The greatest term that the sender knows of any of the cells, if it refuses."""
    records: HeldRecords = ()
    """All records that the sender holds."""
    lock: ReportedLock | None = None
    outcomes: PromisedOutcomes = ()
