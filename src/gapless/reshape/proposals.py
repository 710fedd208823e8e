"""What an operation would change: its participants and the proposed records (RS-5, RS-15, RS-16).

A proposal is a function of the request and of the records that the coordinator holds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from gapless.core.ids import BrokerId, CellId
from gapless.core.limits import BROKER_NAME_BYTES_MAX
from gapless.messages.overlay import CellMember, CellRecord, CellRole, Term
from gapless.messages.reshape import (
    ExpectedCell,
    OperationId,
    OperationKind,
    OpRequest,
    Participant,
    RefusalReason,
)
from gapless.reshape.changes import appended, detached, shifted

__all__ = ["Proposal", "Refusal", "Surroundings", "expected_of", "live_neighbours", "propose"]


class Refusal(NamedTuple):
    """Why an operation is not begun, or has failed."""

    reason: RefusalReason
    text: str = ""


class Proposal(NamedTuple):
    """An operation that can be attempted."""

    participants: tuple[Participant, ...]
    """In ascending order of their cells, in which they are asked (RS-6)."""
    expected: tuple[ExpectedCell, ...]
    records: tuple[CellRecord, ...]


class Surroundings(NamedTuple):
    """What a proposal is made from."""

    own: CellRecord
    """The cell of the coordinator."""
    get: Callable[[CellId], CellRecord | None]
    degree_max: int
    is_open: Callable[[BrokerId], bool]


_CELLS = {
    OperationKind.APPEND: 2,
    OperationKind.DETACH: 2,
    OperationKind.SHIFT: 3,
    OperationKind.HAND_OVER: 1,
    OperationKind.READMIT: 1,
}
_OWN_CELL = {OperationKind.HAND_OVER: 0, OperationKind.READMIT: 0}
"""The place of the coordinator's cell among the cells of a request, where it is not the second."""


def live_neighbours(
    cell: CellRecord, get: Callable[[CellId], CellRecord | None]
) -> list[CellRecord]:
    """Return the neighbours of a cell with which both records list the edge under one epoch (RS-2)."""
    known = ((get(edge.cell), edge.epoch) for edge in cell.edges)
    return [
        other for other, epoch in known if other is not None and other.epoch(cell.name) == epoch
    ]


def propose(request: OpRequest, op: OperationId, around: Surroundings) -> Proposal | Refusal:
    """Return what a requested operation would change, or why it is refused."""
    own, cells = around.own, request.cells
    if len(cells) != _CELLS[request.kind] or len(set(cells)) != len(cells):
        return Refusal(RefusalReason.INVALID, f"{request.kind.name} does not take these cells")
    if cells[_OWN_CELL.get(request.kind, 1)] != own.name:
        return Refusal(
            RefusalReason.NOT_LEADER, f"the leader of another cell than {own.name} decides"
        )
    made = _made(request, op, around)
    if isinstance(made, Refusal):
        return made
    too_many = [each.name for each in made.records if len(each.edges) > around.degree_max]
    if too_many:
        text = f"{', '.join(too_many)} would have more than {around.degree_max} neighbours"
        return Refusal(RefusalReason.BOUND, text)
    known = {each.cell: each for each in made.expected}
    for each in request.expected:
        if known.get(each.cell, each) != each:
            return Refusal(RefusalReason.STALE, f"the cell {each.cell} has changed")
    return made


def expected_of(record: CellRecord) -> ExpectedCell:
    """Return the state of a cell that an operation begins with."""
    return ExpectedCell(record.name, record.term, record.shape_version)


def _made(request: OpRequest, op: OperationId, around: Surroundings) -> Proposal | Refusal:
    match request.kind:
        case OperationKind.SHIFT:
            return _shift(request.cells, around)
        case OperationKind.APPEND:
            return _append(request, op, around)
        case OperationKind.DETACH:
            return _detach(request.cells[0], around)
        case OperationKind.HAND_OVER:
            return _hand_over(request.broker, around)
        case _:
            return _readmit(request.broker, around)


def _shift(cells: Sequence[CellId], around: Surroundings) -> Proposal | Refusal:
    neighbours = {each.name: each for each in live_neighbours(around.own, around.get)}
    i, k = neighbours.get(cells[0]), neighbours.get(cells[2])
    if i is None or k is None:
        missing = cells[0] if i is None else cells[2]
        return Refusal(RefusalReason.STALE, f"{missing} is no neighbour of {around.own.name}")
    return _proposal((i, around.own, k), shifted(i, around.own, k))


def _append(request: OpRequest, op: OperationId, around: Surroundings) -> Proposal | Refusal:
    newcomer, name = request.broker, request.cells[0]
    if newcomer is None or not newcomer.broker or not name or "#" in name:
        return Refusal(RefusalReason.INVALID, "APPEND needs a broker and the plain name of a cell")
    cell = f"{name}#{op}"
    if len(cell.encode()) > BROKER_NAME_BYTES_MAX:
        return Refusal(RefusalReason.BOUND, f"the id {cell} of the new cell would be too long")
    member = CellMember(newcomer.broker, CellRole.ACTIVE, newcomer.addresses)
    records = appended(cell, (member,), around.own)
    return _proposal(
        (around.own,), records, Participant(cell, member, Term()), _auxiliary(around, cell)
    )


def _detach(cell: CellId, around: Surroundings) -> Proposal | Refusal:
    i = next((e for e in live_neighbours(around.own, around.get) if e.name == cell), None)
    if i is None:
        return Refusal(RefusalReason.STALE, f"{cell} is no neighbour of {around.own.name}")
    if i.neighbours != (around.own.name,):
        return Refusal(RefusalReason.STALE, f"{cell} has neighbours beside {around.own.name}")
    return _proposal((i, around.own), detached(i, around.own), _auxiliary(around, cell))


def _hand_over(member: CellMember | None, around: Surroundings) -> Proposal | Refusal:
    own = around.own
    active = {each.broker for each in own.members if each.role is CellRole.ACTIVE}
    if member is None or member.broker not in active or member.broker == own.leader:
        return Refusal(RefusalReason.INVALID, f"choose another active member of {own.name}")
    term = Term(own.term.number + 1, own.leader)
    after = replace(own, leader=member.broker, term=term)
    return _proposal((own,), (after,), _auxiliary(around, own.name))


def _readmit(member: CellMember | None, around: Surroundings) -> Proposal | Refusal:
    own = around.own
    known = next((e for e in own.members if member and e.broker == member.broker), None)
    if known is None or known.role is not CellRole.REPLACED:
        return Refusal(RefusalReason.INVALID, f"choose a replaced member of {own.name}")
    members = tuple(
        replace(each, role=CellRole.ACTIVE) if each == known else each for each in own.members
    )
    after = replace(own, members=members, member_version=own.member_version + 1)
    return _proposal((own,), (after,), _auxiliary(around, own.name))


def _auxiliary(around: Surroundings, without: CellId) -> CellRecord | Refusal | None:
    """Return another neighbour whose leader locks too (RS-5); one with a session, if possible."""
    if not set(around.own.neighbours) - {without}:
        return None
    others = [e for e in live_neighbours(around.own, around.get) if e.name != without and e.leader]
    others.sort(key=lambda each: not around.is_open(each.leader))
    return others[0] if others else Refusal(RefusalReason.STALE, "no neighbour has a leader")


def _proposal(
    before: tuple[CellRecord, ...],
    after: tuple[CellRecord, ...],
    *others: Participant | CellRecord | Refusal | None,
) -> Proposal | Refusal:
    """Return a proposal in which the leaders of the cells take part, and others."""
    participants = []
    for each in (*before, *others):
        if isinstance(each, CellRecord):
            if not each.leader:
                return Refusal(RefusalReason.STALE, f"the cell {each.name} has no leader")
            participants.append(_leader_of(each))
        elif isinstance(each, Refusal):
            return each
        elif each is not None:
            participants.append(each)
    participants.sort(key=lambda each: each.cell)
    return Proposal(tuple(participants), tuple(map(expected_of, before)), after)


def _leader_of(record: CellRecord) -> Participant:
    member = next(each for each in record.members if each.broker == record.leader)
    return Participant(record.name, member, record.term)
