"""The pending requests of this broker: each is repeated until it is answered or cancelled (2.4, R48).

A request is repeated under a new id each time, because the id picks the hop where there is a choice
(section 17). The attempts of one request have ids that follow each other modulo a small number. So no
two requests that take turns can each meet the same dead hop for ever.

An answer to any attempt is as good as another: what is asked may be done twice, and what is read is a
fact. Ids grow from incarnation to incarnation, so that an answer to an earlier incarnation is not taken
for one to this. The states of a request are in :mod:`.pending_request_state`.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any, Final, Protocol, TypeAlias

from gapless.core.ids import PubendId
from gapless.core.limits import REQUEST_ATTEMPTS_KEPT
from gapless.core.machine import Context, Timer
from gapless.core.parameters import microseconds
from gapless.messages.pubend_requests import (
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
"""The attempts of a request follow each other modulo this, so they try all of 2, 3, 4, 6 or 12 hops."""

_IDS_PER_INCARNATION: Final = 1_000
"""The least distance between the ids of two incarnations. Incarnations are microseconds unless the
clock was set back; times this they still fit into 63 bits."""

PubendRequest: TypeAlias = Read | ReleaseLogHold | LeavePubend
PubendReply: TypeAlias = ReadReply | RequestDone


class RequestSender(Protocol):
    """The way of requests to their pubends."""

    def send(self, request: PubendRequest) -> bool:
        """Send a request to its pubend, here or by the next hop; False if there is no route now."""


def _answers(read: Read, reply: ReadReply) -> bool:
    """Say whether a reply fits a read: sound ranges, in a row, up to where the reply ends.

    They begin with the lowest tick, or with the lowest that the log still has.
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
    ) -> None:
        self._requests = requests
        self.number = number
        self.pubend = pubend
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
        """Modulo ``_TURNS`` the id of the next attempt."""
        self._is_sent = False
        """Whether the last attempt was sent; remembered while it has no turn."""
        self._timer: Timer | None = None

    def cancel(self) -> None:
        """End it; it is not called back. What was sent may still be done."""
        self._requests.end(self)

    @property
    def has_turn(self) -> bool:
        """Whether it counts among the reads that are under way (``reads_per_shb_max``)."""
        turns = (PendingRequestState.UNSENT, PendingRequestState.SENT)
        return self.is_read and self.state in turns

    @property
    def is_sent(self) -> bool:
        """Whether the last attempt was sent."""
        return self._is_sent

    @property
    def due(self) -> int:
        """When it is repeated."""
        assert self._timer is not None
        return self._timer.at

    def enter(self, cause: PendingRequestInput) -> None:
        """Change the state, as the table says for an input."""
        assert (self.state, cause) in NEXT_STATES, f"{cause} in {self.state}"
        self.state = NEXT_STATES[self.state, cause]

    def attempted(self, *, sent: bool) -> None:
        """Note whether an attempt was sent."""
        self._is_sent = sent
        self.enter(PendingRequestInput.ATTEMPT_SENT if sent else PendingRequestInput.ATTEMPT_FAILED)

    def next_id(self, last_id: int) -> int:
        """Return an id above another, one further than the request's last modulo ``_TURNS``."""
        last_id += 1
        last_id += (self._turn - last_id) % _TURNS
        self._turn += 1
        return last_id

    def keep_id(self, request: int) -> int | None:
        """Take answers to another attempt; return the id of one that is answered no more."""
        self.ids.append(request)
        return self.ids.pop(0) if len(self.ids) > REQUEST_ATTEMPTS_KEPT else None

    def wait(self, timer: Timer) -> None:
        """Wait for a timer to repeat it."""
        self._timer = timer

    def stop_waiting(self) -> None:
        """Cancel the timer."""
        assert self._timer is not None
        self._timer.cancel()

    def set_pause(self, pause_us: int) -> None:
        """Wait as long as this before the next repetition."""
        self.pause_us = pause_us

    def note_fault(self, reason: str) -> None:
        """Tell the requester why a read cannot go on; it is repeated as if it were not answered."""
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
        """By number, so in the order of asking."""
        self._queue: dict[PubendId, dict[int, PendingRequest]] = {}
        """Reads that wait for their turn, by pubend: one that cannot be reached delays no other."""
        self._by_id: dict[int, PendingRequest] = {}
        self._reading: dict[PubendId, int] = {}
        """How many reads of each pubend have their turn."""

    # --- what is asked -----------------------------------------------------------------------

    def read(
        self,
        pubend: PubendId,
        made: Callable[[int], Read],
        finish: Callable[[ReadReply], None],
        fault: Callable[[str], None],
    ) -> PendingRequest:
        """Send a read when it is its turn; ``fault`` is told why the log cannot be read (P8)."""
        self._count += 1
        pending = PendingRequest(self, self._count, pubend, made, finish, fault)
        self._queue.setdefault(pubend, {})[pending.number] = pending
        self._start_reads(pubend)
        return pending

    def request(
        self,
        pubend: PubendId,
        made: Callable[[int], ReleaseLogHold | LeavePubend],
        finish: Callable[[RequestDone], None],
    ) -> PendingRequest:
        """Send a request that is no read."""
        self._count += 1
        pending = PendingRequest(self, self._count, pubend, made, finish, None)
        self._start(pending)
        return pending

    def session_opened(self) -> None:
        """A peer session has opened: send what had no route, repeat the rest sooner."""
        first = self._first_pause_us
        for pending in list(self._active.values()):
            pending.set_pause(first)
            if not pending.is_sent:
                pending.stop_waiting()
                self._attempt(pending)
            elif pending.due > self._context.now + first:
                pending.stop_waiting()
                self._wait(pending)

    def is_awaited(self, request: int) -> bool:
        """Say whether an answer to an attempt is still taken."""
        return request in self._by_id

    def statistics(self) -> dict[str, int]:
        """Return how many requests are under way, and how many reads wait for their turn."""
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
        """Start reads that wait for a pubend, first come first served, as far as there is room."""
        waiting = self._queue.get(pubend, {})
        while waiting and (
            self._reading.get(pubend, 0) < self._context.parameters.reads_per_shb_max
        ):
            self._reading[pubend] = self._reading.get(pubend, 0) + 1
            pending = waiting.pop(next(iter(waiting)))
            pending.enter(PendingRequestInput.TURN)
            if pending.number in self._active:
                self._attempt(pending)  # it yielded, and goes on
            else:
                self._start(pending)
        if not waiting:
            self._queue.pop(pubend, None)

    def _start(self, pending: PendingRequest) -> None:
        self._active[pending.number] = pending
        pending.set_pause(self._first_pause_us)
        self._attempt(pending)

    def _attempt(self, pending: PendingRequest) -> None:
        """Send it under a new id, and wait for a while."""
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

    # --- answers -----------------------------------------------------------------------------

    def answered(self, reply: PubendReply, *, examined: bool = True) -> None:
        """Finish the request that a reply is for; what a peer has sent is examined first."""
        pending = self._by_id.get(reply.request)
        if pending is None:
            self._context.mark("answer to nobody")
        elif reply.pubend != pending.pubend or isinstance(reply, ReadReply) != pending.is_read:
            self._context.mark("answer to another question")
        elif not examined and self._refuses(pending, reply):
            self._context.mark("answer that makes no sense")
        elif isinstance(reply, ReadReply) and reply.fault:
            pending.note_fault(reply.fault)  # which may end it
            had_turn = pending.has_turn
            pending.enter(PendingRequestInput.FAULT)
            if had_turn:
                # let others read meanwhile: it may be so for ever
                self._release_turn(pending.pubend)
        else:
            self.end(pending)
            pending.finish(reply)

    def _refuses(self, pending: PendingRequest, reply: PubendReply) -> bool:
        if not isinstance(reply, ReadReply):
            return False
        asked = pending.made(reply.request)
        assert isinstance(asked, Read)
        return not _answers(asked, reply)

    def end(self, pending: PendingRequest) -> None:
        """Forget a request; a read that waits may take its place."""
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
