"""Takeover of cells: promises, and the candidate that asks for them (RS-17)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple

from gapless.core.context import Context, Timer
from gapless.core.ids import BrokerId, CellId
from gapless.core.parameters import microseconds
from gapless.core.reshape_limits import NEIGHBOURHOOD_CELLS_MAX
from gapless.messages.overlay import CellMember, CellRecord, CellRole, Term
from gapless.messages.records import PutRecord, StorageChange
from gapless.messages.reshape import Promise, Takeover, TakeoverReply
from gapless.reshape.cell_records import CellRecords, newest_records
from gapless.reshape.coordinator import Coordinator
from gapless.reshape.decision import decide
from gapless.reshape.participant import OperationLock
from gapless.reshape.promises import Promises
from gapless.reshape.protocols import OperationPeers
from gapless.reshape.takeover_state import TakeoverInput, TakeoverState, next_takeover_state

__all__ = ["Promiser", "TakeoverCandidate"]


class Promiser:
    """Promises the terms that candidates ask for, and tells what this broker knows."""

    def __init__(
        self,
        context: Context,
        records: CellRecords,
        promises: Promises,
        peers: OperationPeers,
        lock: OperationLock,
        coordinator: Coordinator,
    ) -> None:
        self._context = context
        self._me = context.identity.broker
        self._records = records
        self._promises = promises
        self._peers = peers
        self._lock = lock
        self._coordinator = coordinator
        self.handlers: Mapping[type, Callable[[BrokerId, Any], None]] = {Takeover: self.asked}

    def asked(self, peer: BrokerId, message: Takeover) -> None:
        """Promise the terms durably, or answer with the greatest term that is known."""
        cells, term = message.cells, message.term
        greatest = max((self._promises.greatest(each) for each in cells), default=Term())
        records = tuple(self._records.all().values())
        if greatest > term or not cells:
            refusal = Promise(cells, term, greatest, records)
            self._context.write((), lambda: self._send(peer, refusal))
            return
        changes = self._promises.promise(cells, term)
        self._coordinator.abort_undecided(cells)
        changes += self._lock.pass_on(cells, term)
        outcomes = self._coordinator.outcomes()
        promise = Promise(cells, term, None, records, self._lock.report(), outcomes)
        self._context.write(changes, lambda: self._send(peer, promise))

    def _send(self, broker: BrokerId, message: Promise) -> None:
        if broker == self._me:
            self._context.send(broker, message)
        else:
            self._peers.send(broker, message)


class _Asked(NamedTuple):
    """What a takeover asks for now."""

    cells: tuple[CellId, ...]
    term: Term
    members: tuple[CellMember, ...]
    """All that must promise, this broker among them."""
    unknown: tuple[CellId, ...] = ()
    """Neighbours whose records have not arrived: nothing is decided without their leaders."""


class TakeoverCandidate:
    """Takes over the cell of this broker, and the cells connected with it (RS-17)."""

    def __init__(
        self,
        context: Context,
        records: CellRecords,
        promises: Promises,
        peers: OperationPeers,
        lock: OperationLock,
        coordinator: Coordinator,
    ) -> None:
        self._context = context
        self._me = context.identity.broker
        self._records = records
        self._promises = promises
        self._peers = peers
        self._lock = lock
        self._coordinator = coordinator
        self._state = TakeoverState.IDLE
        self._replaced: frozenset[BrokerId] = frozenset()
        self._asked = _Asked((), Term(), ())
        self._promised: dict[BrokerId, Promise] = {}
        self._known: dict[CellId, CellRecord] = {}
        """The newest records of all answers, also of those to former questions."""
        self._refusals = 0
        self._ended: Callable[[TakeoverReply], None] = _ignore
        self._timer: Timer | None = None
        self.handlers: Mapping[type, Callable[[BrokerId, Any], None]] = {Promise: self.promised}

    @property
    def state(self) -> TakeoverState:
        """The state of the takeover."""
        return self._state

    @property
    def silent(self) -> tuple[BrokerId, ...]:
        """The brokers that have not promised yet."""
        asked = (each.broker for each in self._asked.members)
        silent = (broker for broker in asked if broker not in self._promised)
        return (*silent, *self._asked.unknown)

    def declare(
        self, replaced: Collection[BrokerId], ended: Callable[[TakeoverReply], None]
    ) -> str | None:
        """Begin a takeover; return why it cannot begin. ``ended`` is called once with request 0."""
        own = self._records.own_record
        active = {each.broker for each in own.members if each.role is CellRole.ACTIVE}
        if self._me in replaced or self._me not in active:
            return f"{self._me} is no active member of {own.name}: ask one that is"
        if not own.leader and not own.edges:
            return f"{own.name} was detached: append its broker again, with an empty disk"
        if own.leader and own.leader != self._me and own.leader not in replaced:
            return f"{own.leader} leads {own.name}: declare it replaced if it will not return"
        if self._state is TakeoverState.DECIDING:
            return "the decision of a takeover is being written: ask again"
        if self._state is TakeoverState.ASKING:
            self._end("another takeover was requested")
        self._change(TakeoverInput.DECLARED)
        self._replaced, self._ended = frozenset(replaced), ended
        self._promised, self._known, self._refusals = {}, {}, 0
        self._ask(Term())
        return None

    def promised(self, peer: BrokerId, message: Promise) -> None:
        """Take an answer: decide if all have promised, or ask again for more."""
        if self._state is not TakeoverState.ASKING:
            return
        asked = self._asked
        if (message.cells, message.term) != (asked.cells, asked.term):
            return
        if peer not in (each.broker for each in asked.members):
            return
        self._known = newest_records((*self._known.values(), *message.records))
        if message.fenced_by is not None:
            self._refused(message.fenced_by)
            return
        self._promised[peer] = message
        self._continue()

    def session_opened(self, broker: BrokerId) -> None:
        """Ask a broker that can be reached now."""
        asked = {each.broker for each in self._asked.members}
        if self._state is TakeoverState.ASKING and broker in asked - self._promised.keys():
            self._send(broker)

    # --- asking --------------------------------------------------------------------------------

    def _continue(self) -> None:
        """Decide if all have promised; ask again if there is more to ask for."""
        if self._wanted(self._asked.term) != self._asked:
            self._change(TakeoverInput.WIDENED)
            self._ask(self._asked.term)
        elif not self.silent:
            self._decide()

    def _refused(self, term: Term) -> None:
        self._refusals += 1
        if self._refusals > self._context.parameters.op_attempts:
            self._end("other brokers take over too: run one takeover at a time")
            return
        self._change(TakeoverInput.WIDENED)
        self._ask(term)

    def _ask(self, above: Term) -> None:
        """Ask for promises in a term above all that are known."""
        wanted = self._wanted(Term())
        greatest = max((above, *map(self._greatest, wanted.cells)))
        term = Term(greatest.number + 1, self._me)
        if len(wanted.cells) > NEIGHBOURHOOD_CELLS_MAX:
            self._end("too many cells would be taken over: declare fewer brokers")
            return
        self._asked = wanted._replace(term=term)
        self._promised = {}
        self._peers.require(_OWNER, [e for e in wanted.members if e.broker != self._me])
        self._repeat()

    def records_changed(self) -> None:
        """Newer records are durable: those of a neighbour, or those of another candidate."""
        if self._state is not TakeoverState.ASKING:
            return
        if self._records.own_record.term > self._asked.term:
            self._end("another takeover has ended")
        elif self._asked.unknown:
            self._continue()

    def _repeat(self) -> None:
        for each in self._asked.members:
            if each.broker not in self._promised:
                self._send(each.broker)
        delay_us = microseconds(ms=self._context.parameters.op_inquire_ms)
        self._stop()
        self._timer = self._context.call_later(delay_us, self._repeat)

    def _wanted(self, term: Term) -> _Asked:
        """Return the cells to take over and the brokers that must promise, as known now.

        A cell without a leader is taken over like one whose leader is declared. Every listed edge
        counts, live or not: this broker may have missed what an operation did at one end.
        """
        cells, leaders, unknown = [self._records.own], dict[BrokerId, CellMember](), set[CellId]()
        for cell in cells:  # grows while it is walked
            record = self._record(cell)
            assert record is not None
            for neighbour in record.neighbours:
                other = self._record(neighbour)
                if neighbour in cells:
                    continue
                if other is None:
                    unknown.add(neighbour)
                elif not other.leader or other.leader in self._replaced:
                    cells.append(neighbour)
                else:
                    leader = next(e for e in other.members if e.broker == other.leader)
                    leaders[leader.broker] = leader
        members = dict(leaders)
        for cell in cells:
            record = self._record(cell)
            assert record is not None
            for each in record.members:
                if each.role is CellRole.ACTIVE and each.broker not in self._replaced:
                    members[each.broker] = each
        asked = tuple(members[each] for each in sorted(members))
        return _Asked(tuple(sorted(cells)), term, asked, tuple(sorted(unknown)))

    def _record(self, cell: CellId) -> CellRecord | None:
        known, held = self._known.get(cell), self._records.get(cell)
        if known is None or held is None:
            return known or held
        return max(known, held, key=lambda each: each.version)

    def _greatest(self, cell: CellId) -> Term:
        record = self._record(cell)
        known = Term() if record is None else record.term
        return max(known, self._promises.greatest(cell), self._coordinator.greatest_term(cell))

    def _send(self, broker: BrokerId) -> None:
        message = Takeover(self._asked.cells, self._asked.term, tuple(sorted(self._replaced)))
        if broker == self._me:
            self._context.send(broker, message)
        else:
            self._peers.send(broker, message)

    # --- the decision --------------------------------------------------------------------------

    def _decide(self) -> None:
        asked = self._asked
        answers = [self._promised[broker] for broker in sorted(self._promised)]
        own = self._records.own
        greatest = max(map(self._promises.greatest, asked.cells))
        if greatest > asked.term:  # this broker has promised another candidate meanwhile
            self._refused(greatest)
            return
        decision = decide(self._me, own, asked.cells, asked.term, self._replaced, answers)
        self._change(TakeoverInput.ALL_PROMISED)
        operations = [each for each in decision.operations if each.participants]
        changes: tuple[StorageChange, ...] = tuple(map(PutRecord, operations))
        changes += self._lock.deposed()

        def durable() -> None:
            self._change(TakeoverInput.DURABLE)
            self._coordinator.adopt(operations)
            self._finish(TakeoverReply(0, done=True, term=asked.term, cells=asked.cells))

        self._records.apply(decision.records, changes, durable)

    def _end(self, text: str) -> None:
        self._change(TakeoverInput.GIVEN_UP)
        self._finish(TakeoverReply(0, done=False, text=text, silent=self.silent))

    def _finish(self, reply: TakeoverReply) -> None:
        self._peers.require(_OWNER, ())
        self._stop()
        ended, self._ended = self._ended, _ignore
        ended(reply)

    def _change(self, happened: TakeoverInput) -> None:
        self._state = next_takeover_state(self._state, happened)
        if self._state is not TakeoverState.ASKING:
            self._stop()

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


_OWNER = "takeover"
"""Under this name sessions with the brokers that must promise are kept."""


def _ignore(reply: TakeoverReply) -> None:
    """Nobody waits for the end."""
