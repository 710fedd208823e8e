"""Retirements: brokers that will not return, and those that returned nevertheless (R26).

A retirement is sent to all brokers, and again at the start of every session. A broker that is down
or cut off must receive it later; otherwise the log is kept for ever.

A retirement is stored for ever, because a subscription may need a pubend of the broker much later
and must not wait for it. It is **recent** only for ``tombstone_ttl_s`` from its issue, at every
broker. Only a recent retirement releases logs and names. If every receipt counted as new, brokers
that restart would retire again a broker that has long returned. A broker that receives an older
retirement for the first time does not apply it, because the retired broker may be alive. It
forwards it all the same, so that the retired broker can answer.

An operator may be wrong. A broker that receives its own retirement sends that it has **returned**.
No other broker may send that: a session with a dead broker may look open for a while. Of the
messages of one broker the newest version applies. A return has the version of the retirement that
it ends, and ranks above it.

Both are durable. A return is on disk before any component applies it. It is stored for ever too:
otherwise a broker that was cut off could bring the retirement again to one that has restarted. In
total order the tick up to which merges may have excluded its pubends is needed for ever (R51). A
returned broker may have lost its disk. So it sends the pubends that it has, and no subscription
waits for others that it had.

If there are more than ``RETIREMENTS_MAX``, the one of the oldest version is removed, and older ones
are ignored from then on. So an older message cannot retire a returned broker again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import NamedTuple, Protocol

from gapless.core.context import Context
from gapless.core.ids import BrokerId, PubendId, ShbId
from gapless.core.limits import RETIREMENTS_MAX, RETURNED_PUBENDS_MAX
from gapless.core.numbers import following
from gapless.core.parameters import microseconds
from gapless.core.ticks import Tick
from gapless.messages.overlay import Retire
from gapless.messages.records import DeleteRecord, PutRecord, RetirementRecord
from gapless.overlay.peers import Peers

__all__ = ["OwnPubends", "RetirementListener", "Retirements"]


class RetirementListener(Protocol):
    """Is called when the retirement of a broker changes."""

    def retirement_changed(self, shb: ShbId) -> None:
        """A broker was retired or has returned, or its retirement is old now or was removed."""


class OwnPubends(Protocol):
    """The pubends of this broker."""

    @property
    def last_tick(self) -> Tick:
        """The last tick in any log of this broker; 0 if there is none."""

    @property
    def on_disk(self) -> Collection[PubendId]:
        """All pubends of this broker, the corrupt ones included."""


class _RetirementState(NamedTuple):
    """The newest Retire message of a broker, and the time of its receipt by the median clock."""

    message: Retire
    heard_at: int
    is_late: bool
    """Whether it was too old at its receipt to apply."""
    previously_returned_at: Tick
    """The greatest ``returned_at`` of earlier messages; 0 if the broker had not returned."""


class Retirements:
    """The known retired brokers, and those that have returned."""

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
        """The newest state of each broker."""
        self._recent: set[ShbId] = set()
        for record in records:
            self._states[record.shb] = _restored(record)

    def start(self) -> None:
        """Schedule the expiry of the stored retirements."""
        for state in [*self._states.values()]:
            self._remember(state)

    def __contains__(self, shb: ShbId) -> bool:
        state = self._states.get(shb)
        return state is not None and not state.message.is_back and not state.is_late

    def is_recent(self, shb: ShbId) -> bool:
        """Return whether a retirement is recent; only then logs and names are released."""
        return shb in self._recent

    def has(self, broker: BrokerId) -> bool:
        """Return whether a broker is retired, in any cell."""
        return any(shb.broker == broker and shb in self for shb in self._states)

    def is_away(self, shb: ShbId) -> bool:
        """Return whether a broker was retired, however long ago, and has not returned."""
        state = self._states.get(shb)
        return state is not None and not state.message.is_back

    def is_back(self, shb: ShbId) -> bool:
        """Return whether a broker was retired and has returned."""
        state = self._states.get(shb)
        return state is not None and state.message.is_back

    def returned_without(self, shb: ShbId, pubend: PubendId) -> bool:
        """Return whether a broker has returned without a pubend that it had."""
        state = self._states.get(shb)
        return (
            state is not None and state.message.is_back and state.message.returned_without(pubend)
        )

    def returned_with(self, shb: ShbId, pubend: PubendId) -> bool:
        """Return whether a broker has returned with a pubend."""
        state = self._states.get(shb)
        return state is not None and state.message.is_back and state.message.returned_with(pubend)

    def returned_at(self, broker: BrokerId) -> Tick:
        """Return the tick above which no merge excluded a returned broker, or 0."""
        states = (each for shb, each in self._states.items() if shb.broker == broker)
        return max(
            (max(each.message.returned_at, each.previously_returned_at) for each in states),
            default=0,
        )

    def all(self) -> list[ShbId]:
        """Return all retired brokers."""
        return [shb for shb in self._states if shb in self]

    def returned(self) -> list[ShbId]:
        """Return all brokers that were retired and have returned."""
        return [shb for shb in self._states if self.is_back(shb)]

    def retire(self, shb: ShbId) -> None:
        """Retire a broker and send that to all peers."""
        state = self._states.get(shb)
        least = self._oldest()[1].message.version if state is None and self._is_full else 0
        before = least if state is None else state.message.version
        version = max(self._peers.clock_view(), following(before))
        self._take(Retire(shb.broker, shb.cell, version), None)

    def received(self, peer: BrokerId, message: Retire) -> None:
        """Process a message of a peer that a broker is retired or has returned."""
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
        """Send all states to a peer, which may have missed some."""
        for state in self._states.values():
            self._context.send(peer, state.message)

    def _contradict(self, peer: BrokerId, message: Retire) -> None:
        """This broker was retired and is alive: send that it has returned."""
        self._context.mark("retired broker is alive")
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
        """Store and forward a message. A return applies only after the write is durable."""
        shb = ShbId(message.broker, message.cell)
        before = (shb in self, self.is_recent(shb))
        changes: list[PutRecord | DeleteRecord] = []
        if shb not in self._states and self._is_full:
            changes.append(self._forget_oldest())
        heard_at = self._peers.clock_view()
        is_old = self._left_us(message.version, heard_at) <= 0
        is_late = (
            is_old and not message.is_back and shb not in self
        )  # a retirement that applies remains
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
            self._context.write(tuple(changes))
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
        """Return how long a retirement remains recent, at most the TTL, as clocks may be wrong."""
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
        """Return the oldest state, except that of this broker itself, which is kept for ever."""
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
    """Return the sort key of the messages of one broker: the greatest applies."""
    return message.version, message.is_back
