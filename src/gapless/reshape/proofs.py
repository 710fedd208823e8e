"""Which records prove that an operation was committed (RS-8).

A participant that is locked and in doubt may learn the outcome from a record. No other operation
changes the participant's cell meanwhile, but others may change the other cells, if this one was
aborted. So a record of another cell proves the commit only if it is exactly as proposed, or lists an
edge that only an operation with the participant's cell can make, or one to a newcomer, whose id is
unique. Terms are no part of a proof, because a takeover raises them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from gapless.core.ids import CellId
from gapless.messages.overlay import CellRecord, ShapeVersion
from gapless.messages.reshape import OperationKind

__all__ = ["completed", "given_epochs", "proves_commit"]


def proves_commit(
    kind: OperationKind, record: CellRecord, proposed: Sequence[CellRecord], own: CellId
) -> bool:
    """Return whether a record proves an operation, for the participant of the cell ``own``."""
    same = next((each for each in proposed if each.name == record.name), None)
    if same is not None and _is_proposed(kind, record, same):
        return True
    if kind is OperationKind.DETACH and own == _detached(proposed):
        return _has_lost(record, own, same)
    if kind not in (OperationKind.APPEND, OperationKind.SHIFT):
        return False
    newcomer = {_newcomer(proposed)} if kind is OperationKind.APPEND else set()
    return any(
        record.name in ends and record.epoch(_other(ends, record.name)) == epoch
        for ends, epoch in given_epochs(proposed)
        if {own, *newcomer} & set(ends)
    )


def completed(proposed: CellRecord, known: CellRecord | None) -> CellRecord:
    """Return a proposed record with the members that are known now (RS-6)."""
    if known is None or known.member_version <= proposed.member_version:
        return proposed
    return replace(proposed, members=known.members, member_version=known.member_version)


def given_epochs(
    proposed: Sequence[CellRecord],
) -> Iterator[tuple[tuple[CellId, CellId], ShapeVersion]]:
    """Return the edges that an operation makes or renews, with their epochs."""
    for record in proposed:
        for other in proposed:
            epoch = max(record.shape_version, other.shape_version)
            if record.name < other.name and record.epoch(other.name) == epoch:
                yield (record.name, other.name), epoch


def _is_proposed(kind: OperationKind, record: CellRecord, proposed: CellRecord) -> bool:
    if kind is OperationKind.HAND_OVER:
        return record.term == proposed.term
    if kind is OperationKind.READMIT:
        return (record.member_version, record.members) == (
            proposed.member_version,
            proposed.members,
        )
    return (record.shape_version, record.edges) == (proposed.shape_version, proposed.edges)


def _detached(proposed: Sequence[CellRecord]) -> CellId:
    return proposed[0].name


def _newcomer(proposed: Sequence[CellRecord]) -> CellId:
    return proposed[0].name


def _has_lost(record: CellRecord, cell: CellId, proposed: CellRecord | None) -> bool:
    """Return whether a record of the former neighbour is a later one, without the cell."""
    return (
        proposed is not None
        and record.shape_version >= proposed.shape_version
        and record.epoch(cell) is None
    )


def _other(ends: tuple[CellId, CellId], cell: CellId) -> CellId:
    return ends[1] if ends[0] == cell else ends[0]
