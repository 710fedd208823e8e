"""Rules of the operations taken out of the components, one at a time.

Each function patches the classes and makes one rule void. A run of :mod:`.runs` or a scenario must
notice it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import pytest
from msgspec.structs import replace

from gapless.messages.overlay import CellRecord, ShapeVersion, Term
from gapless.reshape import changes, proposals, takeover
from gapless.reshape.coordinator import Coordinator
from gapless.reshape.operation_run import OperationRun
from gapless.reshape.operations import Operations
from gapless.reshape.participant import OperationLock
from gapless.reshape.promises import Promises
from gapless.reshape.takeover import TakeoverCandidate

__all__ = ["TAKEN_OUT"]

Patch = pytest.MonkeyPatch


def auxiliary_participant(patch: Patch) -> None:
    patch.setattr(proposals, "_auxiliary", lambda *_: None)


def participants_first(patch: Patch) -> None:
    patch.setattr(OperationRun, "others", property(lambda _: []))


def promises(patch: Patch) -> None:
    """A candidate decides by its own promise alone."""
    wanted = TakeoverCandidate._wanted

    def alone(self: TakeoverCandidate, term: Term) -> Any:
        found = wanted(self, term)
        me = tuple(each for each in found.members if each.broker == self._me)
        return found._replace(members=me, unknown=())

    patch.setattr(TakeoverCandidate, "_wanted", alone)


def refusal_of_lower_terms(patch: Patch) -> None:
    patch.setattr(Promises, "is_fenced", lambda *_: False)


def abort_of_undecided_operations(patch: Patch) -> None:
    patch.setattr(Coordinator, "abort_undecided", lambda *_: None)


def locks_of_newcomers(patch: Patch) -> None:
    """A newcomer agrees to everything."""
    prepare = OperationLock.prepare

    def agree(self: OperationLock, peer: str, message: Any) -> None:
        mine = next(each for each in message.participants if each.broker == self._me)
        if mine.cell == self._records.own or not self._records.own_record.edges:
            if mine.cell != self._records.own:
                self._lock = None
            prepare(self, peer, message)

    patch.setattr(OperationLock, "prepare", agree)


def locks_without_end(patch: Patch) -> None:
    """A lock that is in doubt is dropped."""
    inquire = OperationLock._inquire

    def drop(self: OperationLock) -> None:
        if self._lock is not None and not self._lock.switched:
            self._abort(new_term=False, then=lambda: None)
        else:
            inquire(self)

    patch.setattr(OperationLock, "_inquire", drop)


def connected_cells(patch: Patch) -> None:
    """A candidate takes over its own cell alone."""
    wanted = TakeoverCandidate._wanted

    def own_cell(self: TakeoverCandidate, term: Term) -> Any:
        replaced, self._replaced = self._replaced, frozenset()
        found = wanted(self, term)
        self._replaced = replaced
        members = tuple(each for each in found.members if each.broker not in replaced)
        return found._replace(members=members)

    patch.setattr(TakeoverCandidate, "_wanted", own_cell)


def new_term_at_abort(patch: Patch) -> None:
    abort = OperationLock._abort

    def same_term(self: OperationLock, *, new_term: bool, then: Callable[[], None]) -> None:
        del new_term
        abort(self, new_term=False, then=then)

    patch.setattr(OperationLock, "_abort", same_term)


def names_in_terms(patch: Patch) -> None:
    patch.setattr(takeover, "Term", lambda number=0, _="": Term(number, ""))


def terms_in_shape_versions(patch: Patch) -> None:
    def raised(cell: CellRecord) -> CellRecord:
        return replace(cell, shape_version=ShapeVersion(Term(), cell.shape_version.count + 1))

    patch.setattr(changes, "_raised", raised)


def locks_that_pass(patch: Patch) -> None:
    patch.setattr(OperationLock, "pass_on", lambda *_: ())


def own_record_is_own(patch: Patch) -> None:
    patch.setattr(Operations, "_is_own", lambda *_: False)


TAKEN_OUT: Final[dict[str, Callable[[Patch], None]]] = {
    each.__name__.replace("_", " "): each
    for each in (
        auxiliary_participant,
        participants_first,
        promises,
        refusal_of_lower_terms,
        abort_of_undecided_operations,
        locks_of_newcomers,
        locks_without_end,
        connected_cells,
        new_term_at_abort,
        names_in_terms,
        terms_in_shape_versions,
        locks_that_pass,
        own_record_is_own,
    )
}
