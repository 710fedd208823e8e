"""Wrong changes of the tree: planted bugs of operations, steps and scopes (SM-7)."""

from __future__ import annotations

from typing import Any, Final

from gapless.messages.overlay import CellRecord
from gapless.messages.records import OperationPhase
from gapless.overlay.tree import TreeChange
from gapless.reshape import changes, proposals
from gapless.reshape.coordinator import Coordinator
from gapless.reshape.participant import OperationLock
from gapless_lab.sim.planted_bugs import PlantedBug, constant, replaced

__all__ = ["RESHAPE_BUGS"]


def _stops_at_the_first_lock(original: Any) -> Any:
    """Ask one participant for a lock, and none after it."""

    def next_participant(self: Coordinator, operation: Any) -> Any:
        return None if operation.prepared else original(self, operation)

    return next_participant


def _keeps_the_epoch_of_the_other_edge(
    moved: CellRecord, old: CellRecord, new: CellRecord
) -> tuple[CellRecord, CellRecord, CellRecord]:
    """Return the records after SHIFT(i, j, k), with the former epoch of the edge (j, k)."""
    i, j, k = (changes._raised(each) for each in (moved, old, new))  # noqa: SLF001
    with_edges = changes._with_edges  # noqa: SLF001
    return (
        with_edges(i, without=(j,), to=(k,)),
        with_edges(j, without=(i,)),
        with_edges(k, to=(i,)),
    )


def _drops_a_lock_in_doubt(original: Any) -> Any:
    """Drop a lock after a while, unless the operation is known to be committed."""

    def inquire(self: OperationLock) -> None:
        lock = self.held
        if lock is not None and not lock.switched:
            self._abort(new_term=False, then=lambda: None)
        else:
            original(self)

    return inquire


def _forgets_what_is_committed(original: Any) -> Any:
    """Begin an incarnation without the operations that were decided and not finished."""

    def make(self: Coordinator, *arguments: Any) -> None:
        *others, stored = arguments
        kept = [each for each in stored if each.phase is not OperationPhase.COMMITTED]
        original(self, *others, kept)

    return make


RESHAPE_BUGS: Final = (
    PlantedBug(
        "commits an operation before it has all locks",
        "a coordinator asks one participant for a lock, and commits (RS-6, RS-7)",
        ((Coordinator, "_next", _stops_at_the_first_lock),),
    ),
    PlantedBug(
        "keeps the epoch of the edge behind which a cell moves",
        "SHIFT(i, j, k) does not raise the epoch of (j, k): old and new views look equal (RS-11)",
        ((proposals, "shifted", replaced(_keeps_the_epoch_of_the_other_edge)),),
    ),
    PlantedBug(
        "does not raise the scope of a pubend",
        "a broker keeps silence that was made for fewer SHBs than are behind it now (RS-37)",
        ((TreeChange, "forgets", constant(False)),),
    ),
    PlantedBug(
        "drops a lock by time",
        "a participant unlocks after a while without an outcome (RS-8)",
        ((OperationLock, "_inquire", _drops_a_lock_in_doubt),),
    ),
    PlantedBug(
        "forgets a committed operation",
        "a coordinator that restarts has no record of what it has committed (RS-7, RS-8)",
        ((Coordinator, "__init__", _forgets_what_is_committed),),
    ),
)
"""Each must be detected within 1,000 seeds."""
