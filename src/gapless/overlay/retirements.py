"""Retirement: a broker will never return, and nobody has to wait for it (R26).

Told like an announcement, to everybody and again at the start of every session: a broker that is
down meanwhile, or a cell that is cut off, must hear of it later, or the log stays pinned.

It counts for ``tombstone_ttl_s`` from when it was said, wherever and however late it is heard. If every hearing
counted anew, brokers that begin anew would keep it alive among them for ever, and would retire a host again that
is long back.

An operator may be wrong. A broker that hears of its own retirement says that it is **back**, and that is told in the
same way. Nobody else can say so: a session with a broker that is dead may look open for a while, but only one that
lives can have heard. Of what was said of a broker the last counts, by its version; to be back has the version of the
retirement that it ends, and comes after it.

Both are on disk. That a broker is back is there before anybody acts on it, and it is not forgotten: else one who was
cut off meanwhile could bring the retirement again to a broker that has begun anew. In total order it matters for ever
up to which tick others may have gone on without its pubends (R51).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from gapless.core.ids import BrokerId, ShbId
from gapless.core.machine import Context
from gapless.core.parameters import us
from gapless.core.ticks import Tick
from gapless.messages.overlay import Retire
from gapless.messages.records import Erase, Record, RetirementRecord, Store
from gapless.overlay.sessions import Sessions

__all__ = ["Retirements"]


def _nobody_told(shb: ShbId) -> None:
    """Nobody acts on it."""
    del shb


class Retirements:
    """The brokers that this one has heard to be retired, and those that were and are back.

    ``last_tick`` is the last that any pubend of this broker has given.
    ``changed`` is called when a broker is retired, when that is forgotten, and when it is back and that is on disk.
    """

    def __init__(
        self,
        context: Context,
        sessions: Sessions,
        records: Iterable[Record] = (),
        changed: Callable[[ShbId], None] = _nobody_told,
        last_tick: Callable[[], Tick] = lambda: 0,
    ) -> None:
        self._context = context
        self._sessions = sessions
        self._changed = changed
        self._last_tick = last_tick
        self._said: dict[ShbId, Retire] = {}
        """What was said last of each broker."""
        for record in records:
            if isinstance(record, RetirementRecord):
                shb = record.shb
                self._remember(Retire(shb.broker, shb.cell, record.version, record.back))

    def __contains__(self, shb: ShbId) -> bool:
        said = self._said.get(shb)
        return said is not None and not said.is_back

    def has(self, broker: BrokerId) -> bool:
        """Say whether a broker will not return, whatever its cell."""
        return any(shb.broker == broker and shb in self for shb in self._said)

    def is_back(self, shb: ShbId) -> bool:
        """Say whether a broker was retired and has returned after all."""
        said = self._said.get(shb)
        return said is not None and said.is_back

    def back_at(self, broker: BrokerId) -> Tick:
        """Return above which tick nobody has gone on without a broker that was retired; 0 if it was not."""
        return max(
            (said.back for shb, said in self._said.items() if shb.broker == broker), default=0
        )

    def all(self) -> list[ShbId]:
        """Return all who will not return."""
        return [shb for shb in self._said if shb in self]

    def retire(self, shb: ShbId) -> None:
        """Tell everybody that a host will not return."""
        said = self._said.get(shb)
        version = max(self._sessions.clock_view(), 0 if said is None else said.version + 1)
        self._take(Retire(shb.broker, shb.cell, version), None)

    def received(self, peer: BrokerId, message: Retire) -> None:
        """Take from a peer that a host is retired, or is back."""
        shb = ShbId(message.broker, message.cell)
        if shb == self._context.identity.shb and not message.is_back:
            self._contradict(peer, message)
            return
        said = self._said.get(shb)
        counts = message.is_back or self._left_us(message) > 0
        if counts and (said is None or _rank(said) < _rank(message)):
            self._take(message, peer)

    def session_opened(self, peer: BrokerId) -> None:
        """Tell a peer what it may have missed."""
        for message in self._said.values():
            self._context.post(peer, message)

    def _contradict(self, peer: BrokerId, message: Retire) -> None:
        """This broker is taken for one that never returns: it is back."""
        self._context.mark("retired by mistake")
        shb = self._context.identity.shb
        said = self._said.get(shb)
        if said is not None and said.version >= message.version:
            self._context.post(peer, said)
        else:
            back = max(self._sessions.clock_view(), self._last_tick(), 1)
            self._take(Retire(shb.broker, shb.cell, message.version, back), None)

    def _take(self, message: Retire, source: BrokerId | None) -> None:
        """Pass on what was said; let it count at once, or, that somebody is back, when it is on disk."""
        shb = ShbId(message.broker, message.cell)
        was_retired = shb in self
        self._remember(message)
        for peer in self._sessions.open_peers():
            if peer != source:
                self._context.post(peer, message)
        change = Store(RetirementRecord(shb, message.version, message.back))
        if message.is_back:
            self._context.write((change,), lambda: self._changed(shb))
        else:
            self._context.write((change,), _nothing)
            if not was_retired:
                self._changed(shb)

    def _remember(self, message: Retire) -> None:
        shb = ShbId(message.broker, message.cell)
        self._said[shb] = message
        if not message.is_back:
            left_us = max(0, self._left_us(message))
            self._context.after(left_us, lambda: self._forget(shb, message))

    def _left_us(self, message: Retire) -> int:
        """Return for how long a retirement counts from now on; whoever said it may have a wrong clock."""
        ttl = us(s=self._context.parameters.tombstone_ttl_s)
        return min(ttl, message.version + ttl - self._sessions.clock_view())

    def _forget(self, shb: ShbId, message: Retire) -> None:
        if self._said.get(shb) == message:
            del self._said[shb]
            self._context.write((Erase(RetirementRecord.key_of(shb)),), _nothing)
            self._changed(shb)


def _rank(message: Retire) -> tuple[int, bool]:
    """Return what to compare by what was said of one broker: the greater counts."""
    return message.version, message.is_back


def _nothing() -> None:
    """Nobody waits for this write."""
