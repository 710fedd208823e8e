"""What a candidate decides when everybody has promised (RS-17).

These are functions of the promises. The candidate writes the result at once.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import NamedTuple

from msgspec.structs import replace

from gapless.core.ids import BrokerId, CellId
from gapless.messages.overlay import CellRecord, CellRole, Term
from gapless.messages.records import OperationRecord
from gapless.messages.records.reshape import OperationPhase
from gapless.messages.reshape import (
    OperationId,
    OperationRequestId,
    Promise,
    PromisedOutcome,
    ReportedLock,
)
from gapless.reshape.cell_records import newest_records
from gapless.reshape.proofs import completed, proves_commit

__all__ = ["Decision", "decide"]


class Decision(NamedTuple):
    """The records and operations that a takeover writes."""

    records: tuple[CellRecord, ...]
    operations: tuple[OperationRecord, ...]


def decide(
    me: BrokerId,
    own: CellId,
    cells: Collection[CellId],
    term: Term,
    replaced: Collection[BrokerId],
    promises: Iterable[Promise],
) -> Decision:
    """Return the newest records with the new terms, and the outcome of every operation that has to
    be decided.
    """
    promises = tuple(promises)
    view = newest_records(record for each in promises for record in each.records)
    outcomes = _outcomes(promises)
    locks = [each.lock for each in promises if each.lock is not None]
    for outcome in outcomes.values():
        if outcome.committed:
            view = newest_records((*view.values(), *outcome.records))
    operations = {}
    for lock in locks:
        if lock.cell in cells and lock.op not in operations:
            of_it = [each for each in locks if each.op == lock.op]
            operations[lock.op] = _decided(of_it, outcomes.get(lock.op), view, term, cells)
    committed = (e for e in operations.values() if e.phase is OperationPhase.COMMITTED)
    view = newest_records(
        (*view.values(), *(record for each in committed for record in each.records))
    )
    taken = [
        _taken(view[cell], me if cell == own else "", term, replaced) for cell in sorted(cells)
    ]
    records = newest_records((*view.values(), *taken))
    return Decision(tuple(records.values()), tuple(operations.values()))


def _outcomes(promises: Iterable[Promise]) -> dict[OperationId, PromisedOutcome]:
    """Return the known decisions. An abort of a takeover precedes a commit that it fenced."""
    found: dict[OperationId, PromisedOutcome] = {}
    for promise in promises:
        for outcome in promise.outcomes:
            known = found.get(outcome.op)
            if known is None or known.committed:
                found[outcome.op] = outcome
    return found


def _decided(
    locks: list[ReportedLock],
    outcome: PromisedOutcome | None,
    view: dict[CellId, CellRecord],
    term: Term,
    cells: Collection[CellId],
) -> OperationRecord:
    """Return an operation whose coordinator's cell is taken over, committed or aborted."""
    lock = locks[0]
    switched = next((each for each in locks if each.switched), None)
    proven = any(
        proves_commit(each.kind, record, each.records, each.own)
        for each in locks
        for record in view.values()
    )
    commits = (switched is not None or proven) if outcome is None else outcome.committed
    records = lock.records
    if outcome is not None and outcome.committed:
        records = outcome.records
    elif switched is not None:
        records = switched.records
    elif commits:
        records = tuple(completed(each, view.get(each.name)) for each in records)
    return OperationRecord(
        lock.op,
        OperationRequestId(""),
        lock.kind,
        lock.cell,
        term,
        tuple(each for each in lock.participants if each.cell not in cells),
        records,
        OperationPhase.COMMITTED if commits else OperationPhase.ABORTED,
        new_term=not commits,
    )


def _taken(
    record: CellRecord, leader: BrokerId, term: Term, replaced: Collection[BrokerId]
) -> CellRecord:
    """Return the record of a cell that is taken over."""
    members = tuple(
        replace(each, role=CellRole.REPLACED) if each.broker in replaced else each
        for each in record.members
    )
    version = record.member_version + (members != record.members)
    return replace(record, leader=leader, term=term, members=members, member_version=version)
