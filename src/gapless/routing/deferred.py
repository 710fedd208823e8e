"""Attach requests whose sender knows another tree than this broker (RS-11).

A feeder with an older tree would filter for the wrong SHBs. So a receiver is fed only if both ends
know the same epochs of the edges between them. If the receiver has older records, it is sent the
newer ones and a refusal in one packet. If this broker has older records, it requests the newer ones
and defers the Attach. The step of the tree that applies them answers it. So no timer is in the
pause of a stream.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from gapless.core.context import Context, Timer
from gapless.core.ids import BrokerId, PubendId
from gapless.core.parameters import microseconds
from gapless.messages.streams import Attach, Detach, FeedUnavailable, FeedUnavailableReason
from gapless.overlay.path_epochs import ViewDifference
from gapless.routing.protocols import RecordPeers

__all__ = ["DeferredAttaches"]


class _Deferred(NamedTuple):
    attach: Attach
    until: int


class DeferredAttaches:
    """The attach requests that wait for newer cell records, one of each attach number."""

    def __init__(self, context: Context, records: RecordPeers) -> None:
        self._context = context
        self._records = records
        self._waiting: dict[tuple[BrokerId, PubendId, int], _Deferred] = {}
        """By peer, pubend and attach number; the one that was deferred last is the last."""
        self._timer: Timer | None = None
        self._exchanged: set[tuple[BrokerId, ViewDifference]] = set()
        """The differences for which records were exchanged at the present time."""
        self._exchanged_at = 0

    def __len__(self) -> int:
        """Return the number of deferred requests."""
        return len(self._waiting)

    def differs(self, peer: BrokerId, attach: Attach, difference: ViewDifference) -> None:
        """Answer an Attach whose sender knows another tree, or defer it."""
        self.exchange(peer, difference)
        if not difference.missing:
            self._context.mark("receiver knows an older tree")
            self._refuse(peer, attach, FeedUnavailableReason.SHAPE_MISMATCH)
            return
        self.forget(peer, attach)
        if len(self) >= self._context.parameters.attachments_max:
            self._refuse(peer, attach, FeedUnavailableReason.LIMIT)
            return
        self._context.mark("attach deferred")
        wait_us = microseconds(ms=self._context.parameters.attach_defer_ms)
        key = (peer, attach.pubend, attach.number)
        self._waiting[key] = _Deferred(attach, self._context.now + wait_us)
        self._plan()

    def exchange(self, peer: BrokerId, difference: ViewDifference) -> None:
        """Send a peer newer records and request newer ones, once for all pubends of a packet."""
        if self._exchanged_at != self._context.now:
            self._exchanged_at = self._context.now
            self._exchanged.clear()
        if (peer, difference) in self._exchanged:
            return
        self._exchanged.add((peer, difference))
        if difference.outdated:
            self._records.push(peer, difference.outdated)
        if difference.missing:
            self._records.want(peer, difference.missing)

    def take(self) -> Iterator[tuple[BrokerId, Attach]]:
        """Remove all requests and return them: a step has applied newer records."""
        waiting, self._waiting = self._waiting, {}
        for (peer, _, _), deferred in waiting.items():
            yield peer, deferred.attach

    def forget(self, peer: BrokerId, message: Attach | Detach) -> None:
        """The receiver has detached, or has attached again."""
        self._waiting.pop((peer, message.pubend, message.number), None)

    def session_closed(self, peer: BrokerId) -> None:
        """Forget the requests of a session (R2)."""
        for key in [key for key in self._waiting if key[0] == peer]:
            del self._waiting[key]

    def _plan(self) -> None:
        if self._timer is None and self._waiting:
            first = next(iter(self._waiting.values()))
            wait_us = max(1, first.until - self._context.now)
            self._timer = self._context.call_later(wait_us, self._expire)

    def _expire(self) -> None:
        """Refuse the requests that have waited long enough: the records have not come."""
        self._timer = None
        for (peer, _, _), deferred in [*self._waiting.items()]:
            if deferred.until > self._context.now:
                break
            self.forget(peer, deferred.attach)
            self._refuse(peer, deferred.attach, FeedUnavailableReason.SHAPE_MISMATCH)
        self._plan()

    def _refuse(self, peer: BrokerId, attach: Attach, reason: FeedUnavailableReason) -> None:
        self._context.send(peer, FeedUnavailable(attach.pubend, attach.number, reason))
