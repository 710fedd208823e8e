"""Retirement: a broker will never return, and nobody has to wait for it (R26).

Told like an announcement, to everybody and again at the start of every session: a broker that is
down meanwhile, or a cell that is cut off, must hear of it later, or the log stays pinned.

It is never forgotten: a place on one of its pubends may be taken anywhere, however much later, and nobody must wait
for it there. But it is **fresh** only for ``tombstone_ttl_s`` from when it was said, wherever and however late it is
heard, and logs and names are given up only by a fresh one. If every hearing counted anew, brokers that begin anew would
retire a host again that is long back. Who hears of one later does not let it count at all: the host may have lived ever
since. It tells it all the same, for somewhere is the retired, and says so if it lives.

An operator may be wrong. A broker that hears of its own retirement says that it is **back**, and that is told in the
same way. Nobody else can say so: a session with a broker that is dead may look open for a while, but only one that
lives can have heard. Of what was said of a broker the last counts, by its version; to be back has the version of the
retirement that it ends, and comes after it.

Both are on disk. That a broker is back is there before anybody acts on it, and it is not forgotten either: else one
who was cut off meanwhile could bring the retirement again to a broker that has begun anew. In total order it matters
for ever up to which tick others may have gone on without its pubends (R51). Its disk may be lost: so it names the
pubends that it has, and nobody waits for others that it had.

Of more than ``RETIREMENTS_MAX`` the oldest is forgotten, by its version, and none that is older is heard from then on:
so who was back before is not retired again by what was said before.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import NamedTuple, Protocol

from gapless.core.ids import BrokerId, PubendId, ShbId
from gapless.core.limits import RETIREMENTS_MAX, RETURNED_PUBENDS_MAX
from gapless.core.machine import Context
from gapless.core.parameters import microseconds
from gapless.core.ticks import Tick
from gapless.messages.overlay import Retire
from gapless.messages.records import DeleteRecord, PutRecord, RetirementRecord
from gapless.overlay.peers import Peers

__all__ = ["OwnPubends", "RetirementListener", "Retirements"]


class RetirementListener(Protocol):
    """Learns whether brokers are retired."""

    def retirement_changed(self, shb: ShbId) -> None:
        """A broker is retired, its retirement is not recent any more or is forgotten, or it returned."""


class OwnPubends(Protocol):
    """The pubends of this broker."""

    @property
    def last_tick(self) -> Tick:
        """The last tick in any log of this broker; 0 if there is none."""

    @property
    def on_disk(self) -> Collection[PubendId]:
        """All pubends of this broker, the corrupt ones included."""


class _RetirementState(NamedTuple):
    """What was said last of a broker, and when that was heard here, by the neighbours' clocks."""

    message: Retire
    heard_at: int
    is_late: bool
    """Whether it was too old by then to count."""
    previously_returned_at: Tick
    """What the broker had said when it was back before; 0 if it was not."""


class Retirements:
    """The brokers that this one has heard to be retired, and those that were and returned."""

    def __init__(
        self,
        context: Context,
        peers: Peers,
        records: Iterable[RetirementRecord],
        own: OwnPubends,
        listener: RetirementListener,
    ) -> None:
        self._context = context
        self._peers = peers
        self._own = own
        self._listener = listener
        self._states: dict[ShbId, _RetirementState] = {}
        """What was said last of each broker."""
        self._recent: set[ShbId] = set()
        for record in records:
            self._states[record.shb] = _restored(record)

    def start(self) -> None:
        """Let the stored retirements grow old."""
        for state in [*self._states.values()]:
            self._remember(state)

    def __contains__(self, shb: ShbId) -> bool:
        state = self._states.get(shb)
        return state is not None and not state.message.is_back and not state.is_late

    def is_recent(self, shb: ShbId) -> bool:
        """Say whether a broker was retired not long ago: logs and names are given up by that only."""
        return shb in self._recent

    def has(self, broker: BrokerId) -> bool:
        """Say whether a broker will not return, whatever its cell."""
        return any(shb.broker == broker and shb in self for shb in self._states)

    def is_back(self, shb: ShbId) -> bool:
        """Say whether a broker was retired and has returned after all."""
        state = self._states.get(shb)
        return state is not None and state.message.is_back

    def returned_without(self, shb: ShbId, pubend: PubendId) -> bool:
        """Say whether a broker has returned without a pubend that it had."""
        state = self._states.get(shb)
        return (
            state is not None and state.message.is_back and state.message.returned_without(pubend)
        )

    def returned_with(self, shb: ShbId, pubend: PubendId) -> bool:
        """Say whether a broker has returned and has named a pubend that it has."""
        state = self._states.get(shb)
        return state is not None and state.message.is_back and state.message.returned_with(pubend)

    def returned_at(self, broker: BrokerId) -> Tick:
        """Return above which tick nobody has gone on without a broker that was retired; 0 if it was not."""
        states = (each for shb, each in self._states.items() if shb.broker == broker)
        return max(
            (max(each.message.returned_at, each.previously_returned_at) for each in states),
            default=0,
        )

    def all(self) -> list[ShbId]:
        """Return all who will not return."""
        return [shb for shb in self._states if shb in self]

    def returned(self) -> list[ShbId]:
        """Return all who were retired and are back."""
        return [shb for shb in self._states if self.is_back(shb)]

    def retire(self, shb: ShbId) -> None:
        """Tell everybody that a host will not return."""
        state = self._states.get(shb)
        least = self._oldest()[1].message.version if state is None and self._is_full else 0
        before = least if state is None else state.message.version
        version = max(self._peers.clock_view(), before + 1)
        self._take(Retire(shb.broker, shb.cell, version), None)

    def received(self, peer: BrokerId, message: Retire) -> None:
        """Take from a peer that a host is retired, or is back."""
        shb = ShbId(message.broker, message.cell)
        if shb == self._context.identity.shb and not message.is_back:
            self._contradict(peer, message)
            return
        state = self._states.get(shb)
        if state is not None and _rank(state.message) >= _rank(message):
            return
        if state is None and self._is_full and _rank(message) <= _rank(self._oldest()[1].message):
            self._context.mark("retirement beyond the limit")
            return
        self._take(message, peer)

    def session_opened(self, peer: BrokerId) -> None:
        """Tell a peer what it may have missed."""
        for state in self._states.values():
            self._context.send(peer, state.message)

    def _contradict(self, peer: BrokerId, message: Retire) -> None:
        """This broker is taken for one that never returns: it is back."""
        self._context.mark("retired by mistake")
        shb = self._context.identity.shb
        state = self._states.get(shb)
        if state is not None and state.message.version >= message.version:
            self._context.send(peer, state.message)
        else:
            returned_at = max(self._peers.clock_view(), self._own.last_tick, 1)
            all_here = tuple(sorted(self._own.on_disk))
            pubends = all_here if len(all_here) <= RETURNED_PUBENDS_MAX else None
            without_pubends = not all_here
            self._take(
                Retire(
                    shb.broker, shb.cell, message.version, returned_at, without_pubends, pubends
                ),
                None,
            )

    def _take(self, message: Retire, source: BrokerId | None) -> None:
        """Pass on what was said; let it count at once, or, that somebody is back, when it is on disk."""
        shb = ShbId(message.broker, message.cell)
        before = (shb in self, self.is_recent(shb))
        changes: list[PutRecord | DeleteRecord] = []
        if shb not in self._states and self._is_full:
            changes.append(self._forget_oldest())
        heard_at = self._peers.clock_view()
        is_old = self._left_us(message.version, heard_at) <= 0
        is_late = is_old and not message.is_back and shb not in self  # what counts, counts on
        previously_returned_at = self.returned_at(shb.broker)
        self._remember(_RetirementState(message, heard_at, is_late, previously_returned_at))
        for peer in self._peers.open_peers():
            if peer != source:
                self._context.send(peer, message)
        record = RetirementRecord(
            shb,
            message.version,
            message.returned_at,
            message.without_pubends,
            heard_at,
            is_late,
            previously_returned_at,
            message.pubends,
        )
        changes.append(PutRecord(record))
        if message.is_back:
            self._context.write(tuple(changes), lambda: self._listener.retirement_changed(shb))
        else:
            self._context.write(tuple(changes), _nothing)
            if before != (shb in self, self.is_recent(shb)):
                self._listener.retirement_changed(shb)

    def _remember(self, state: _RetirementState) -> None:
        shb = ShbId(state.message.broker, state.message.cell)
        self._states[shb] = state
        self._recent.discard(shb)
        left_us = self._left_us(
            min(state.message.version, state.heard_at), self._peers.clock_view()
        )
        if shb in self and left_us > 0:
            self._recent.add(shb)
            self._context.call_later(left_us, lambda: self._grow_old(shb, state))

    def _left_us(self, since: int, clock: int) -> int:
        """Return for how long a retirement is fresh; whoever said it may have a wrong clock."""
        ttl = microseconds(s=self._context.parameters.tombstone_ttl_s)
        return min(ttl, since + ttl - clock)

    def _grow_old(self, shb: ShbId, state: _RetirementState) -> None:
        if self._states.get(shb) is state:
            self._recent.discard(shb)
            self._listener.retirement_changed(shb)

    # --- the limit -----------------------------------------------------------------------------

    @property
    def _is_full(self) -> bool:
        return len(self._states) - (self._context.identity.shb in self._states) >= RETIREMENTS_MAX

    def _oldest(self) -> tuple[ShbId, _RetirementState]:
        """Return what was said first; that this broker itself is back has to be said for ever."""
        others = (each for each in self._states.items() if each[0] != self._context.identity.shb)
        return min(others, key=lambda each: _rank(each[1].message))

    def _forget_oldest(self) -> DeleteRecord:
        self._context.mark("retirement beyond the limit")
        shb, _ = self._oldest()
        del self._states[shb]
        self._recent.discard(shb)
        self._listener.retirement_changed(shb)
        return DeleteRecord(RetirementRecord.key_of(shb))


def _restored(record: RetirementRecord) -> _RetirementState:
    message = Retire(
        record.shb.broker,
        record.shb.cell,
        record.version,
        record.returned_at,
        record.without_pubends,
        record.pubends,
    )
    heard_at = record.heard_at or record.version
    return _RetirementState(message, heard_at, record.late, record.previously_returned_at)


def _rank(message: Retire) -> tuple[int, bool]:
    """Return what to compare by what was said of one broker: the greater counts."""
    return message.version, message.is_back


def _nothing() -> None:
    """Nobody waits for this write."""
