"""The query to a PHB since when it knew this SHB, for all cursors with start guarantees (R46).

One read of an empty range serves all cursors of a subend, and names the former SHBs of their
subscriptions. It is sent when the membership is on disk. The PHB keeps its log for this SHB from
its reply on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gapless.core.context import Context
from gapless.core.ids import VIRTUAL_TIME_ZERO, ShbId
from gapless.core.limits import FORMER_HOSTS_PER_READ_MAX
from gapless.core.ticks import Tick
from gapless.messages.pubend_requests import ReadReply
from gapless.messages.streams import Member
from gapless.subscribers.protocols import CancellableRequest, PubendRequester

if TYPE_CHECKING:
    from gapless.subscribers.subend import Subend

__all__ = ["StartQuery"]


class StartQuery:
    """The start query of one subend."""

    def __init__(self, context: Context, subend: Subend, requests: PubendRequester) -> None:
        self._context = context
        self._shb = context.identity.shb
        self._subend = subend
        self._requests = requests
        self._pending: CancellableRequest | None = None
        self._hosts: set[ShbId] = set()
        """The former SHBs that the pending query names."""
        self._fed_at: Tick | None = None
        """The base of the stream if the PHB did not know this SHB earlier."""

    @property
    def is_pending(self) -> bool:
        """Whether a query is pending."""
        return self._pending is not None

    def note_feed(self, at: Tick) -> None:
        """A feeder was found during the query; it feeds from a tick on."""
        self._fed_at = at

    def send_if_due(self) -> None:
        """Send a query if a cursor needs one and none is pending."""
        if self._pending is not None or not self._subend.is_open:
            return
        guaranteed = self._subend.groups.guaranteed.values()
        verifications = [cursor.verification for cursor in guaranteed if cursor.verification.is_due]
        if not verifications:
            return
        self._hosts = set()
        for each in verifications:
            if len(self._hosts | each.former_hosts) <= FORMER_HOSTS_PER_READ_MAX:
                self._hosts |= each.former_hosts
        cursors = self._subend.cursors.values()
        durable = any(cursor.subscription.durable for cursor in cursors)
        self._pending = self._requests.read(
            self._subend.pubend,
            "FALSE",
            1,
            0,
            log_hold=None,
            joining_member=Member(self._shb, self._subend.membership, durable, VIRTUAL_TIME_ZERO),
            former_hosts=tuple(sorted(self._hosts)),
            then=self._answered,
        )

    def cancel(self) -> None:
        """Cancel the pending query."""
        if self._pending is not None:
            self._pending.cancel()
            self._pending = None

    def _answered(self, reply: ReadReply) -> None:
        """Start the cursors that the query was for."""
        self._context.mark("start verified by the pubend")
        self._pending = None
        subend = self._subend
        known = {**dict(reply.others), self._shb: reply.known}
        unverified = [
            each
            for each in subend.groups.guaranteed.values()
            if each.verification.is_due and each.verification.former_hosts <= self._hosts
        ]
        starts = [(each, each.verification.guaranteed_start_after(known)) for each in unverified]
        if not subend.has_base:
            ticks = [
                tick for _, tick in starts if tick is not None and tick >= reply.retained_above
            ]
            ticks += [] if self._fed_at is None else [self._fed_at]
            if ticks:
                subend.set_base(min(ticks))
        for cursor, tick in starts:
            if cursor.verification.is_outstanding:
                cursor.verification.answered_earlier(tick, reply)
            else:
                cursor.verification.answered(tick, reply)
        self.send_if_due()  # for cursors added since, and those whose former SHBs did not fit
        subend.starts_verified()
