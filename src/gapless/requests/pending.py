"""The pending requests of this broker: each is repeated until answered or cancelled (R48).

A request is repeated under a new id each time, because the id selects the hop if there is a choice.
The ids of the attempts of one request are consecutive modulo a small number. So requests that are
repeated alternately cannot each get the same dead hop for ever.

A reply to any attempt is accepted: a request may be served twice, and ranges that are read are
facts. Ids grow from incarnation to incarnation, so a reply to an earlier incarnation is not
accepted. The states of a request are in :mod:`.pending_request_state`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Any, Final, Protocol, TypeAlias

from gapless.core.context import Context, Timer
from gapless.core.ids import PubendId
from gapless.core.limits import REQUEST_ATTEMPTS_KEPT
from gapless.core.parameters import microseconds
from gapless.messages.pubend_requests import (
    CountEvents,
    EventCounts,
    LeavePubend,
    Read,
    ReadReply,
    ReleaseLogHold,
    RequestDone,
)
from gapless.requests.pending_request_state import (
    NEXT_STATES,
    PendingRequestInput,
    PendingRequestState,
)
from gapless.stream.ranges import invalid_reason

__all__ = ["PendingRequest", "PendingRequests", "PubendReply", "PubendRequest", "RequestSender"]

_TURNS: Final = 12
"""Ids of attempts are consecutive modulo this number, so they try all of 2, 3, 4, 6 or 12 hops."""

_IDS_PER_INCARNATION: Final = 1_000
"""The least distance between the ids of two incarnations. Incarnations are microseconds unless the
clock was set back; times this they still fit into 63 bits."""

PubendRequest: TypeAlias = Read | ReleaseLogHold | LeavePubend | CountEvents
PubendReply: TypeAlias = ReadReply | RequestDone | EventCounts


class RequestSender(Protocol):
    """Sends requests to their pubends."""

    def send(self, request: PubendRequest) -> bool:
        """Send a request to its pubend; return False if there is no route now."""


def _answers(read: Read, reply: ReadReply) -> bool:
    """Return whether a reply fits a read: valid and contiguous ranges, up to the end of the reply.

    They start with the lowest tick, or with the lowest that is not released.
    """
    ranges = reply.ranges
    if not ranges:
        return True
    return (
        all(invalid_reason(knowledge) is None for knowledge in ranges)
        and read.low <= ranges[0].low <= max(read.low, reply.released + 1)
        and all(left.high + 1 == right.low for left, right in pairwise(ranges))
        and ranges[-1].high <= min(read.high, reply.done)
    )


class PendingRequest:
    """One request of this broker, until it is answered or cancelled."""

    def __init__(
        self,
        requests: PendingRequests,
        number: int,
        pubend: PubendId,
        made: Callable[[int], PubendRequest],
        finish: Callable[[Any], None],
        fault: Callable[[str], None] | None,
        reply_type: type[PubendReply],
    ) -> None:
        self._requests = requests
        self.number = number
        self.pubend = pubend
        self.reply_type = reply_type
        self.made = made
        """Returns the request with an id."""
        self.finish = finish
        self.is_read = fault is not None
        self._fault = fault
        self.state = PendingRequestState.QUEUED if self.is_read else PendingRequestState.UNSENT
        self.ids: list[int] = []
        """The ids of the attempts that may still be answered, the oldest first."""
        self.pause_us = 0
        self._turn = number
        """The id of the next attempt, modulo ``_TURNS``."""
        self._is_sent = False
        """Whether the last attempt was sent; kept while the request has no turn."""
        self._timer: Timer | None = None

    def cancel(self) -> None:
        """End the request without a callback. An attempt that was sent may still be served."""
        self._requests.end(self)

    @property
    def has_turn(self) -> bool:
        """Whether it counts as an active read (``reads_per_shb_max``)."""
        turns = (PendingRequestState.UNSENT, PendingRequestState.SENT)
        return self.is_read and self.state in turns

    @property
    def is_sent(self) -> bool:
        """Whether the last attempt was sent."""
        return self._is_sent

    @property
    def due(self) -> int:
        """The time of the next attempt."""
        assert self._timer is not None
        return self._timer.at

    def enter(self, cause: PendingRequestInput) -> None:
        """Change the state by the table."""
        assert (self.state, cause) in NEXT_STATES, f"{cause} in {self.state}"
        self.state = NEXT_STATES[self.state, cause]

    def attempted(self, *, sent: bool) -> None:
        """Note whether an attempt was sent."""
        self._is_sent = sent
        self.enter(PendingRequestInput.ATTEMPT_SENT if sent else PendingRequestInput.ATTEMPT_FAILED)

    def next_id(self, last_id: int) -> int:
        """Return the next id above ``last_id`` that is in turn modulo ``_TURNS``."""
        last_id += 1
        last_id += (self._turn - last_id) % _TURNS
        self._turn += 1
        return last_id

    def keep_id(self, request: int) -> int | None:
        """Accept replies to another attempt; return the oldest id if it is dropped for it."""
        self.ids.append(request)
        return self.ids.pop(0) if len(self.ids) > REQUEST_ATTEMPTS_KEPT else None

    def wait(self, timer: Timer) -> None:
        """Set the timer of the next attempt."""
        self._timer = timer

    def stop_waiting(self) -> None:
        """Cancel the timer."""
        assert self._timer is not None
        self._timer.cancel()

    def set_pause(self, pause_us: int) -> None:
        """Set the pause before the next attempt."""
        self.pause_us = pause_us

    def note_fault(self, reason: str) -> None:
        """Call back with the reason why a read cannot continue; it is repeated as if unanswered."""
        assert self._fault is not None, "only reads have faults"
        self._fault(reason)


class PendingRequests:
    """All pending requests of this broker."""

    def __init__(self, context: Context, sender: RequestSender) -> None:
        self._context = context
        self._sender = sender
        self._last_id = context.identity.incarnation * _IDS_PER_INCARNATION
        self._count = 0
        self._active: dict[int, PendingRequest] = {}
        """By number, so in the order of creation."""
        self._queue: dict[PubendId, dict[int, PendingRequest]] = {}
        """Reads that wait for their turn, by pubend: an unreachable pubend delays no other."""
        self._by_id: dict[int, PendingRequest] = {}
        self._reading: dict[PubendId, int] = {}

    # --- requests ----------------------------------------------------------------------------

    def read(
        self,
        pubend: PubendId,
        made: Callable[[int], Read],
        finish: Callable[[ReadReply], None],
        fault: Callable[[str], None],
    ) -> PendingRequest:
        """Send a read in its turn; ``fault`` is called if the log cannot be read (P8)."""
        self._count += 1
        pending = PendingRequest(self, self._count, pubend, made, finish, fault, ReadReply)
        self._queue.setdefault(pubend, {})[pending.number] = pending
        self._start_reads(pubend)
        return pending

    def request(
        self,
        pubend: PubendId,
        made: Callable[[int], ReleaseLogHold | LeavePubend | CountEvents],
        finish: Callable[[Any], None],
        reply_type: type[RequestDone | EventCounts] = RequestDone,
    ) -> PendingRequest:
        """Send a request other than a read."""
        self._count += 1
        pending = PendingRequest(self, self._count, pubend, made, finish, None, reply_type)
        self._start(pending)
        return pending

    def session_opened(self) -> None:
        """A peer session has opened: send requests that had no route, repeat the others sooner."""
        first = self._first_pause_us
        for pending in list(self._active.values()):
            pending.set_pause(first)
            if not pending.is_sent:
                pending.stop_waiting()
                self._attempt(pending)
            elif pending.due > self._context.now + first:
                pending.stop_waiting()
                self._wait(pending)

    def end_all(self, pubend: PubendId) -> None:
        """End all requests to a pubend that is a tombstone, without callbacks."""
        queued = [*self._queue.get(pubend, {}).values()]
        for pending in queued:
            self.end(pending)
        for pending in [each for each in self._active.values() if each.pubend == pubend]:
            self.end(pending)

    def is_awaited(self, request: int) -> bool:
        """Return whether a reply to an attempt is still accepted."""
        return request in self._by_id

    @property
    def active_reads(self) -> Mapping[PubendId, int]:
        """The number of active reads of each pubend."""
        return self._reading

    def statistics(self) -> dict[str, int]:
        """Return the number of active requests and of reads that wait for their turn."""
        return {
            "active": len(self._active),
            "queued": sum(map(len, self._queue.values())),
            "ids": len(self._by_id),
        }

    # --- turns and attempts ------------------------------------------------------------------

    @property
    def _first_pause_us(self) -> int:
        return microseconds(ms=self._context.parameters.attach_timeout_ms)

    def _start_reads(self, pubend: PubendId) -> None:
        """Start waiting reads of a pubend, in order, up to ``reads_per_shb_max``."""
        waiting = self._queue.get(pubend, {})
        while waiting and (
            self._reading.get(pubend, 0) < self._context.parameters.reads_per_shb_max
        ):
            self._reading[pubend] = self._reading.get(pubend, 0) + 1
            pending = waiting.pop(next(iter(waiting)))
            pending.enter(PendingRequestInput.TURN)
            if pending.number in self._active:
                self._attempt(pending)  # it had yielded
            else:
                self._start(pending)
        if not waiting:
            self._queue.pop(pubend, None)

    def _start(self, pending: PendingRequest) -> None:
        self._active[pending.number] = pending
        pending.set_pause(self._first_pause_us)
        self._attempt(pending)

    def _attempt(self, pending: PendingRequest) -> None:
        """Send a request under a new id, and start its timer."""
        self._last_id = pending.next_id(self._last_id)
        request = pending.made(self._last_id)
        sent = self._sender.send(request)
        pending.attempted(sent=sent)
        if sent:
            self._remember(pending, request.request)
        self._wait(pending)

    def _remember(self, pending: PendingRequest, request: int) -> None:
        self._by_id[request] = pending
        forgotten = pending.keep_id(request)
        if forgotten is not None:
            del self._by_id[forgotten]

    def _wait(self, pending: PendingRequest) -> None:
        pending.wait(self._context.call_later(pending.pause_us, lambda: self._repeat(pending)))

    def _repeat(self, pending: PendingRequest) -> None:
        self._context.mark("request repeated")
        longest = microseconds(ms=self._context.parameters.retry_max_ms)
        pending.set_pause(max(pending.pause_us, min(2 * pending.pause_us, longest)))
        pending.enter(PendingRequestInput.TIMER)
        if pending.state is PendingRequestState.QUEUED:
            self._queue.setdefault(pending.pubend, {})[pending.number] = pending
            self._start_reads(pending.pubend)
        else:
            self._attempt(pending)

    def _release_turn(self, pubend: PubendId) -> None:
        self._reading[pubend] -= 1
        self._start_reads(pubend)

    # --- replies -----------------------------------------------------------------------------

    def answered(self, reply: PubendReply, *, examined: bool = True) -> None:
        """Finish the request of a reply; a reply of a peer is checked first."""
        pending = self._by_id.get(reply.request)
        if pending is None:
            self._context.mark("reply to an ended request")
        elif reply.pubend != pending.pubend or type(reply) is not pending.reply_type:
            self._context.mark("reply to another request")
        elif not examined and self._refuses(pending, reply):
            self._context.mark("invalid reply")
        elif isinstance(reply, ReadReply) and reply.fault:
            pending.note_fault(reply.fault)  # the callback may end the request
            had_turn = pending.has_turn
            pending.enter(PendingRequestInput.FAULT)
            if had_turn:
                # other reads get the turn: the fault may be permanent
                self._release_turn(pending.pubend)
        else:
            self.end(pending)
            pending.finish(reply)

    def _refuses(self, pending: PendingRequest, reply: PubendReply) -> bool:
        if not isinstance(reply, ReadReply):
            return False
        request = pending.made(reply.request)
        assert isinstance(request, Read)
        return not _answers(request, reply)

    def end(self, pending: PendingRequest) -> None:
        """End a request, and give its turn to a waiting read."""
        had_turn = pending.has_turn
        pending.enter(PendingRequestInput.END)
        self._queue.get(pending.pubend, {}).pop(pending.number, None)
        if self._active.pop(pending.number, None) is None:
            return
        pending.stop_waiting()
        for each in pending.ids:
            del self._by_id[each]
        if had_turn:
            self._release_turn(pending.pubend)
