"""Retirement: a broker will never return, and nobody has to wait for it (R26).

Told like an announcement, to everybody and again at the start of every session: a broker that is
down meanwhile, or a cell that is cut off, must hear of it later, or the log stays pinned.

It counts for ``tombstone_ttl_s`` from when it was said, wherever and however late it is heard. If every hearing
counted anew, brokers that begin anew would keep it alive among them for ever, and would retire a host again that
is long back.
"""

from __future__ import annotations

from gapless.core.ids import BrokerId, ShbId
from gapless.core.machine import Context
from gapless.core.parameters import us
from gapless.messages.overlay import Retire
from gapless.overlay.sessions import Sessions

__all__ = ["Retirements"]


class Retirements:
    """The subscriber hosts that this broker has heard to be retired."""

    def __init__(self, context: Context, sessions: Sessions) -> None:
        self._context = context
        self._sessions = sessions
        self._retired: dict[ShbId, int] = {}

    def __contains__(self, shb: ShbId) -> bool:
        return shb in self._retired

    def has(self, broker: BrokerId) -> bool:
        """Say whether a broker will not return, whatever its cell."""
        return any(shb.broker == broker for shb in self._retired)

    def retire(self, shb: ShbId) -> None:
        """Tell everybody that a host will not return."""
        self._store(Retire(shb.broker, shb.cell, self._sessions.clock_view()), None)

    def received(self, peer: BrokerId, message: Retire) -> bool:
        """Take a retirement from a peer; say whether it was news."""
        known = self._retired.get(ShbId(message.broker, message.cell))
        if self._left_us(message) <= 0 or (known is not None and known >= message.version):
            return False
        self._store(message, peer)
        return known is None

    def session_opened(self, peer: BrokerId) -> None:
        """Tell a peer what it may have missed."""
        for shb, version in self._retired.items():
            self._context.post(peer, Retire(shb.broker, shb.cell, version))

    def _store(self, message: Retire, source: BrokerId | None) -> None:
        shb = ShbId(message.broker, message.cell)
        self._retired[shb] = message.version
        for peer in self._sessions.open_peers():
            if peer not in {source, message.broker}:
                self._context.post(peer, message)
        self._context.after(self._left_us(message), lambda: self._forget(shb, message.version))

    def _left_us(self, message: Retire) -> int:
        """Return for how long a retirement counts from now on; whoever said it may have a wrong clock."""
        ttl = us(s=self._context.parameters.tombstone_ttl_s)
        return min(ttl, message.version + ttl - self._sessions.clock_view())

    def _forget(self, shb: ShbId, version: int) -> None:
        if self._retired.get(shb) == version:
            del self._retired[shb]
