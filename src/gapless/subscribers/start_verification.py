"""The start of a cursor by a start guarantee: the tick since which the PHB knew the subscription
(R46).

The PHB is queried at once. If it did not know the subscription yet, it is queried again when the
stream serves the cursor, because by then it does. The cursor starts at the lower of both ticks. If
a cursor started while its client was at another broker, the PHB is queried whether it knew the
other hosting brokers earlier, before the client is sent the start (MV-13).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from gapless.core.ids import ShbId, VirtualTime
from gapless.core.ticks import Tick
from gapless.messages.clients import HostTime
from gapless.messages.pubend_requests import ReadReply
from gapless.pubend.known_hosts import KnownTimes
from gapless.subscribers.cursor_state import CursorInput, CursorPhase, Started
from gapless.subscribers.start_guarantee import StartGuarantee, earliest_times

if TYPE_CHECKING:
    from gapless.subscribers.cursor import Cursor

__all__ = ["StartVerification"]


class StartVerification:
    """The query of one cursor to its PHB since when that knew the subscription."""

    def __init__(self, cursor: Cursor) -> None:
        self._cursor = cursor
        self._pubend = cursor.pubend
        self._guarantees = cursor.subscription.guarantees
        self._context = cursor.subscription.resources.context
        self.is_due = False
        """Whether the PHB must be queried now."""
        self.started_by: tuple[HostTime, ...] = ()
        """The host times by which the cursor started; needed until the client knows the start."""
        self._reached_after: Tick | None = None
        """The tick after which the stream first served the waiting cursor."""

    @property
    def has_guarantee(self) -> bool:
        """Whether the cursor has a start guarantee: only the reply of the PHB starts it."""
        return self._guarantees.has(self._pubend)

    @property
    def is_outstanding(self) -> bool:
        """Whether the cursor started without its client, and the PHB may have known it earlier.

        Then the client is not sent the start before the PHB has answered (MV-13).
        """
        return isinstance(self._cursor.start, Started) and self.has_guarantee

    @property
    def former_hosts(self) -> set[ShbId]:
        """The former SHBs about which the PHB is queried."""
        return self._guarantee.former_hosts

    @property
    def _guarantee(self) -> StartGuarantee:
        return self._guarantees.by_pubend[self._pubend]

    # --- queries -------------------------------------------------------------------------------

    def wait(self) -> None:
        """Query the PHB if there is a start guarantee."""
        self.is_due = self.has_guarantee

    def cancel(self) -> None:
        """Do not query: the cursor starts by other means."""
        self.is_due = False

    def restore(self) -> None:
        """Query again for an earlier start if the query was not answered before the crash."""
        self.is_due = self.is_outstanding

    def verify_earlier(self, host_times: tuple[HostTime, ...]) -> None:
        """Query whether the PHB knew other hosting brokers before the tick of the start."""
        joint = earliest_times(*self.started_by, *host_times)
        self._guarantees.set_former(self._pubend, joint)
        self.is_due = True
        self._cursor.subend.register(self._cursor)
        self._cursor.subend.verify_starts()

    def stop(self) -> None:
        """Cancel the query for an earlier start."""
        if self.is_outstanding:
            self.is_due = False
            self._guarantees.clear(self._pubend)
            self._cursor.subend.register(self._cursor)

    def reached(self, low: Tick, time: VirtualTime) -> None:
        """Query again if a range serves this SHB up to a virtual time that is enough."""
        cursor = self._cursor
        if self.is_outstanding:
            return
        guaranteed_from = self._guarantee.time or cursor.required_from
        if self._reached_after is None and guaranteed_from is not None and guaranteed_from <= time:
            self._reached_after = low - 1
            cursor.wait_at(min(cursor.position, low - 1))  # the cursor may have to start there
            self.is_due = True

    # --- answers -------------------------------------------------------------------------------

    def guaranteed_start_after(self, known: Mapping[ShbId, KnownTimes]) -> Tick | None:
        """Return the tick after which the PHB knew the subscription; None if it did not."""
        return self._guarantee.start_after(self._context.identity.shb, known)

    def answered(self, after: Tick | None, reply: ReadReply) -> None:
        """Start where the PHB knew the subscription, or where the stream served the cursor (R46).

        A filter that was set meanwhile applies from the start on. If the start lies below what is
        kept for this SHB or below the horizon, the cursor reads the log.
        """
        cursor, subscription = self._cursor, self._cursor.subscription
        self.is_due = False
        found = [each for each in (after, self._reached_after) if each is not None]
        last = cursor.subend.sealed_at
        if not found and last is not None and reply.top >= last:
            found = [last]  # the PHB did not know the subscription before the end
        elif not found and last is not None:
            self.is_due = True  # it was sealed since
        if not found:
            cursor.wait_at(reply.top)  # the PHB will know the subscription above this
            return
        after = min(found)
        self.started_by = self._guarantee.all_times(self._context.identity.shb)
        self._guarantees.clear(self._pubend)
        if reply.last_released_match <= after:
            after = max(after, reply.released)  # the released range had no matching events
        after = max(after, subscription.merged)
        is_disconnected = subscription.client is None
        cursor.note_unconfirmed(unconfirmed=is_disconnected)
        if after < max(reply.retained_above, cursor.subend.horizon):
            cursor.start_in_past(after)
        else:
            cursor.start_after(after)
            phase = CursorPhase.DISCONNECTED if is_disconnected else CursorPhase.LIVE
            cursor.enter(phase, CursorInput.VERIFIED)

    def answered_earlier(self, after: Tick | None, reply: ReadReply) -> None:
        """Start where the PHB knew another hosting broker, if that is below the current start.

        In any case the start is stored before the client is sent it.
        """
        cursor = self._cursor
        assert isinstance(cursor.start, Started)
        self.stop()
        if after is not None and reply.last_released_match <= after:
            after = max(after, reply.released)  # the released range had no matching events
        started = cursor.start.after
        earliest = started if after is None else max(after, cursor.subscription.merged)
        if earliest < started and cursor.merge_exclusion.record() is None:
            self._context.mark("start moved back")
            cursor.move_start_back(earliest)
        cursor.store_start()
