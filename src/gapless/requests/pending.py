"""The pending pubend requests of this broker: each is repeated until answered or cancelled (R48).

Ranges that are read are facts, so a reply to any attempt of a read is used (:mod:`.repetition`). At
most ``reads_per_shb_max`` reads of one pubend have their turn at the same time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Any, Protocol, TypeAlias

from gapless.core.context import Context
from gapless.core.ids import PubendId
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
from gapless.requests.pending_request_state import PendingRequestInput, PendingRequestState
from gapless.requests.repetition import RepeatedRequest, RepeatedRequests
from gapless.stream.ranges import invalid_reason

__all__ = ["PendingRequest", "PendingRequests", "PubendReply", "PubendRequest", "RequestSender"]

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


class PendingRequest(RepeatedRequest):
    """One pubend request of this broker, until it is answered or cancelled."""

    def __init__(
        self,
        requests: PendingRequests,
        number: int,
        pubend: PubendId,
        made: Callable[[int], PubendRequest],
        finish: Callable[[Any], None],
        fault: Callable[[str], None] | None,
        reply_type: type[PubendReply],
        longest_pause_us: int,
    ) -> None:
        self.is_read = fault is not None
        state = PendingRequestState.QUEUED if self.is_read else PendingRequestState.UNSENT
        super().__init__(requests, number, state, made, longest_pause_us)
        self.pubend = pubend
        self.reply_type = reply_type
        self.finish = finish
        self._fault = fault

    @property
    def has_turn(self) -> bool:
        """Whether it counts as an active read (``reads_per_shb_max``)."""
        turns = (PendingRequestState.UNSENT, PendingRequestState.SENT)
        return self.is_read and self.state in turns

    def note_fault(self, reason: str) -> None:
        """Call back with the reason why a read cannot continue; it is repeated as if unanswered."""
        assert self._fault is not None, "only reads have faults"
        self._fault(reason)


class PendingRequests(RepeatedRequests[PendingRequest]):
    """All pending pubend requests of this broker."""

    def __init__(self, context: Context, sender: RequestSender) -> None:
        super().__init__(context, sender.send)
        self._queue: dict[PubendId, dict[int, PendingRequest]] = {}
        """Reads that wait for their turn, by pubend: an unreachable pubend delays no other."""
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
        pending = self._made(pubend, made, finish, fault, ReadReply)
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
        pending = self._made(pubend, made, finish, None, reply_type)
        self._start(pending)
        return pending

    def end_all(self, pubend: PubendId) -> None:
        """End all requests to a pubend that is a tombstone, without callbacks."""
        queued = [*self._queue.get(pubend, {}).values()]
        for pending in queued:
            self.end(pending)
        for pending in [each for each in self._active.values() if each.pubend == pubend]:
            self.end(pending)

    def _made(
        self,
        pubend: PubendId,
        made: Callable[[int], PubendRequest],
        finish: Callable[[Any], None],
        fault: Callable[[str], None] | None,
        reply_type: type[PubendReply],
    ) -> PendingRequest:
        longest_us = microseconds(ms=self._context.parameters.retry_max_ms)
        number = self._next_number()
        return PendingRequest(self, number, pubend, made, finish, fault, reply_type, longest_us)

    @property
    def active_reads(self) -> Mapping[PubendId, int]:
        """The number of active reads of each pubend."""
        return self._reading

    def statistics(self) -> dict[str, int]:
        """Return the number of active requests and of reads that wait for their turn."""
        return {**super().statistics(), "queued": sum(map(len, self._queue.values()))}

    # --- turns -------------------------------------------------------------------------------

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

    def _resume(self, pending: PendingRequest) -> None:
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
        if self._remove(pending) and had_turn:
            self._release_turn(pending.pubend)
