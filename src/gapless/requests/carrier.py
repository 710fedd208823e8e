"""Requests to the broker of a pubend: hop by hop there, back along the recorded way (2.4 of the rules).

A request has an id, an asker and a route. Every hop adds itself to the route and keeps nothing; the
reply carries the way back, takes itself off at every hop, and is at the asker when nothing is left.
So a hop that crashes loses what was under way and no more: the asker repeats its request, always
under a new id, because the id picks the hop where there is a choice (section 17). The attempts of one
errand have ids that follow each other modulo a small number, so that no two errands that take turns
can each meet the same dead hop for ever.

An answer to any attempt is as good as another: what is asked may be done twice, and what is read is
a fact. Ids grow from life to life, so that an answer to an earlier life is not taken for one to this.

What a peer has read is examined where it was asked for, not at the hops between, which keep nothing of
it. An answer that makes no sense is refused as a whole, as if it was lost.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any, Final, Protocol, TypeAlias

import msgspec

from gapless.core.ids import BrokerId, MembershipId, PubendId, ShbId
from gapless.core.limits import REQUEST_ATTEMPTS_KEPT, REQUEST_HOPS_MAX
from gapless.core.machine import Context, Timer
from gapless.core.parameters import microseconds
from gapless.core.ticks import Tick
from gapless.messages.pubend_requests import (
    LeavePubend,
    LogHoldId,
    Read,
    ReadReply,
    ReleaseLogHold,
    RequestDone,
)
from gapless.messages.streams import Member, ReadForm
from gapless.stream.ranges import invalid_reason

__all__ = ["PendingRequest", "PubendRequests", "RequestTarget", "reply_route"]

_TURNS: Final = 12
"""The attempts of an errand follow each other modulo this, so they try all of 2, 3, 4, 6 or 12 hops."""

_IDS_PER_INCARNATION: Final = 1_000
"""What the ids of two lives are apart, at least. Lives are microseconds unless the clock was set back;
times this they still fit into 63 bits."""

_Request: TypeAlias = Read | ReleaseLogHold | LeavePubend
_Reply: TypeAlias = ReadReply | RequestDone


class RequestTarget(Protocol):
    """A pubend of this broker as requests see it. What cannot be answered is left unanswered."""

    def read(self, request: Read, then: Callable[[ReadReply], None]) -> None:
        """Answer with what matches, when the hold that the request names is on disk."""

    def release_log_hold(self, log_hold: LogHoldId, then: Callable[[], None]) -> None:
        """Let a hold go; call back when that is on disk."""

    def leave(self, shb: ShbId, membership: MembershipId, then: Callable[[], None]) -> None:
        """End a stay; call back when that is on disk."""


def reply_route(request: Read | ReleaseLogHold | LeavePubend) -> tuple[BrokerId, ...]:
    """Return the route of a reply: it goes to the last of these first, and ends at the asker."""
    return (request.requester, *request.route)


def _answers(read: Read, reply: ReadReply) -> bool:
    """Whether a reply tells what was asked for: in sound pieces, in a row, up to where it ends.

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


def _ignore_fault(reason: str) -> None:
    """Who asks does not want to know why it takes so long."""


class PendingRequest:
    """One request of this broker, under way until it is answered or cancelled."""

    def __init__(
        self,
        requests: PubendRequests,
        number: int,
        pubend: PubendId,
        made: Callable[[int], _Request],
        finish: Callable[[Any], None],
        fault: Callable[[str], None],
    ) -> None:
        self._requests = requests
        self.number = number
        self.pubend = pubend
        self.made = made
        """Returns the request with an id."""
        self.finish = finish
        self.fault = fault
        """Is told why a read cannot go on; it is repeated as if it were not answered."""
        self.ids: list[int] = []
        """Of the attempts that may still be answered, the oldest first."""
        self.turn = number
        """Modulo ``_TURNS`` what the id of the next attempt is."""
        self.is_read = False
        self.has_turn = False
        """Whether it counts among the reads that are under way (``reads_per_shb_max``)."""
        self.is_sent = False
        """Whether the last attempt went to somebody."""
        self.pause_us = 0
        self.timer: Timer | None = None

    def cancel(self) -> None:
        """Let it be; it is not called back. What was sent may still be done."""
        self._requests.end(self)


class PubendRequests:
    """The requests of this broker, and those that pass through it or end here.

    ``next_hop`` says whom to ask for a pubend, given the id of the request; None if there is no way
    now.
    """

    def __init__(
        self,
        context: Context,
        hosted: Callable[[PubendId], RequestTarget | None],
        next_hop: Callable[[PubendId, int], BrokerId | None],
    ) -> None:
        self._context = context
        self._hosted = hosted
        self._next_hop = next_hop
        self._me = context.identity.broker
        self._last_id = context.identity.incarnation * _IDS_PER_INCARNATION
        self._count = 0
        self._active: dict[int, PendingRequest] = {}
        """By number, so in the order of asking."""
        self._queue: dict[PubendId, dict[int, PendingRequest]] = {}
        """Reads that wait for their turn, by pubend: one that cannot be reached keeps no other back."""
        self._by_id: dict[int, PendingRequest] = {}
        self._reading: dict[PubendId, int] = {}

    # --- what this broker asks ---------------------------------------------------------------

    def read(
        self,
        pubend: PubendId,
        filter_text: str,
        low: Tick,
        high: Tick,
        *,
        log_hold: LogHoldId | None,
        then: Callable[[ReadReply], None],
        log_hold_tick: Tick | None = None,
        joining_member: Member | None = None,
        former_hosts: tuple[ShbId, ...] = (),
        fault: Callable[[str], None] = _ignore_fault,
        bytes_max: int = 0,
        form: ReadForm = ReadForm.EVENTS,
    ) -> PendingRequest:
        """Read the log of a pubend (R48); the answer may end below ``high``.

        A hold is put, or raised, to ``log_hold_tick``, which is just below ``low`` unless it is given
        (R49). A ``newcomer`` is a host that asks since when it was known, and other ``hosts`` (R46). Above
        ``reads_per_shb_max`` under way for a pubend a read waits for its turn. While the log cannot be
        read at ``low``, ``fault`` is told why, others take its turn, and it is tried again (P8).
        """
        most = bytes_max if bytes_max > 0 else self._context.parameters.read_chunk_bytes
        above = max(0, low - 1) if log_hold_tick is None else log_hold_tick

        def made(number: int) -> Read:
            return Read(
                pubend,
                number,
                self._me,
                (),
                filter_text,
                low,
                high,
                log_hold,
                most,
                above,
                joining_member,
                form,
                former_hosts,
            )

        pending_request = self._pending_request(pubend, made, then, fault)
        pending_request.is_read = True
        self._queue.setdefault(pubend, {})[pending_request.number] = pending_request
        self._start_reads(pubend)
        return pending_request

    def release_log_hold(
        self, pubend: PubendId, log_hold: LogHoldId, then: Callable[[], None]
    ) -> PendingRequest:
        """Let a hold go (R49); reads that name it are to be cancelled before."""

        def made(number: int) -> ReleaseLogHold:
            return ReleaseLogHold(pubend, number, self._me, (), log_hold)

        pending_request = self._pending_request(pubend, made, lambda _: then())
        self._start(pending_request)
        return pending_request

    def leave(
        self, pubend: PubendId, shb: ShbId, membership: MembershipId, then: Callable[[], None]
    ) -> PendingRequest:
        """End a stay of a subscriber host with a pubend (R43, R55)."""

        def made(number: int) -> LeavePubend:
            return LeavePubend(pubend, number, self._me, (), shb, membership)

        pending_request = self._pending_request(pubend, made, lambda _: then())
        self._start(pending_request)
        return pending_request

    def session_opened(self) -> None:
        """Somebody can be asked who could not before: send what had no way, wait less for the rest."""
        for pending_request in list(self._active.values()):
            first = self._first_pause_us
            pending_request.pause_us = first
            assert pending_request.timer is not None
            if not pending_request.is_sent:
                pending_request.timer.cancel()
                self._attempt(pending_request)
            elif pending_request.timer.at > self._context.now + first:
                pending_request.timer.cancel()
                self._wait(pending_request)

    def statistics(self) -> dict[str, int]:
        """Return how many errands are under way, and how many reads wait for their turn."""
        return {
            "active": len(self._active),
            "queued": sum(map(len, self._queue.values())),
            "ids": len(self._by_id),
        }

    # --- what comes in -----------------------------------------------------------------------

    def received(self, peer: BrokerId, message: Any) -> bool:
        """Take a message of a session; False if it is no request and no reply."""
        del peer  # the route says where it came from
        if isinstance(message, Read | ReleaseLogHold | LeavePubend):
            self._take_request(message)
        elif isinstance(message, ReadReply | RequestDone):
            self._take_reply(message)
        else:
            return False
        return True

    def _take_request(self, request: _Request) -> None:
        return_route = reply_route(request)
        if self._me in return_route or len(return_route) > REQUEST_HOPS_MAX:
            self._context.mark("request in a circle")
            return
        hosted = self._hosted(request.pubend)
        if hosted is not None:
            self._serve(hosted, request, lambda reply: self._context.send(return_route[-1], reply))
            return
        hop = self._next_hop(request.pubend, request.request)
        if hop is None:
            self._context.mark("request without a route")
        elif hop in return_route:
            self._context.mark("request in a circle")
        else:
            route = (*request.route, self._me)
            self._context.send(hop, msgspec.structs.replace(request, route=route))

    def _take_reply(self, reply: _Reply) -> None:
        if not reply.route or reply.route[-1] != self._me:
            self._context.mark("reply astray")
            return
        rest = reply.route[:-1]
        if rest:
            self._context.send(rest[-1], msgspec.structs.replace(reply, route=rest))
        else:
            self._answered(reply, examined=False)

    def _serve(
        self, hosted: RequestTarget, request: _Request, answer: Callable[[_Reply], None]
    ) -> None:
        """Let a pubend of this broker do what is asked, and answer."""
        done = RequestDone(request.pubend, request.request, reply_route(request))
        if isinstance(request, LeavePubend):
            hosted.leave(request.shb, request.membership, lambda: answer(done))
        elif isinstance(request, ReleaseLogHold):
            hosted.release_log_hold(request.log_hold, lambda: answer(done))
        else:
            hosted.read(request, answer)

    # --- errands -----------------------------------------------------------------------------

    @property
    def _first_pause_us(self) -> int:
        return microseconds(ms=self._context.parameters.attach_timeout_ms)

    def _pending_request(
        self,
        pubend: PubendId,
        made: Callable[[int], _Request],
        finish: Callable[[Any], None],
        fault: Callable[[str], None] = _ignore_fault,
    ) -> PendingRequest:
        self._count += 1
        return PendingRequest(self, self._count, pubend, made, finish, fault)

    def _start_reads(self, pubend: PubendId) -> None:
        """Start reads that wait for a pubend, first come first served, as far as there is room."""
        waiting = self._queue.get(pubend, {})
        while waiting and (
            self._reading.get(pubend, 0) < self._context.parameters.reads_per_shb_max
        ):
            self._reading[pubend] = self._reading.get(pubend, 0) + 1
            pending_request = waiting.pop(next(iter(waiting)))
            pending_request.has_turn = True
            if pending_request.number in self._active:
                self._attempt(pending_request)  # it gave way, and goes on
            else:
                self._start(pending_request)
        if not waiting:
            self._queue.pop(pubend, None)

    def _start(self, pending_request: PendingRequest) -> None:
        self._active[pending_request.number] = pending_request
        pending_request.pause_us = self._first_pause_us
        self._attempt(pending_request)

    def _attempt(self, pending_request: PendingRequest) -> None:
        """Ask, under a new id, and wait for a while."""
        request = pending_request.made(self._new_id(pending_request))
        if self._hosted(pending_request.pubend) is not None:
            self._remember(pending_request, request.request)
            # a little later, so that nobody is called back before he knows what he asked
            self._context.call_later(1, lambda: self._serve_own(pending_request, request))
            pending_request.is_sent = True
        else:
            hop = self._next_hop(pending_request.pubend, request.request)
            pending_request.is_sent = hop is not None
            if hop is not None:
                self._remember(pending_request, request.request)
                self._context.send(hop, request)
        self._wait(pending_request)

    def _wait(self, pending_request: PendingRequest) -> None:
        pending_request.timer = self._context.call_later(
            pending_request.pause_us, lambda: self._retry(pending_request)
        )

    def _retry(self, pending_request: PendingRequest) -> None:
        self._context.mark("request repeated")
        longest = microseconds(ms=self._context.parameters.retry_max_ms)
        pending_request.pause_us = max(
            pending_request.pause_us, min(2 * pending_request.pause_us, longest)
        )
        if pending_request.is_read and not pending_request.has_turn:
            self._queue.setdefault(pending_request.pubend, {})[pending_request.number] = (
                pending_request
            )
            self._start_reads(pending_request.pubend)
        else:
            self._attempt(pending_request)

    def _yield_turn(self, pending_request: PendingRequest) -> None:
        """Let others read while the log cannot be read where this one is: it may be so for ever."""
        if pending_request.has_turn:
            pending_request.has_turn = False
            self._reading[pending_request.pubend] -= 1
            self._start_reads(pending_request.pubend)

    def _serve_own(self, pending_request: PendingRequest, request: _Request) -> None:
        hosted = self._hosted(pending_request.pubend)
        if hosted is not None and request.request in self._by_id:
            self._serve(hosted, request, self._answered)

    def _answered(self, reply: _Reply, *, examined: bool = True) -> None:
        """Finish the errand that a reply is for; what a peer has sent is examined first."""
        pending_request = self._by_id.get(reply.request)
        if pending_request is None:
            self._context.mark("answer to nobody")
        elif (
            reply.pubend != pending_request.pubend
            or isinstance(reply, ReadReply) != pending_request.is_read
        ):
            self._context.mark("answer to another question")
        elif not examined and self._refuses(pending_request, reply):
            self._context.mark("answer that makes no sense")
        elif isinstance(reply, ReadReply) and reply.fault:
            pending_request.fault(reply.fault)
            self._yield_turn(pending_request)
        else:
            self.end(pending_request)
            pending_request.finish(reply)

    def _refuses(self, pending_request: PendingRequest, reply: _Reply) -> bool:
        if not isinstance(reply, ReadReply):
            return False
        asked = pending_request.made(reply.request)
        assert isinstance(asked, Read)
        return not _answers(asked, reply)

    def end(self, pending_request: PendingRequest) -> None:
        """Forget an errand; a read that waits may take its place."""
        self._queue.get(pending_request.pubend, {}).pop(pending_request.number, None)
        if self._active.pop(pending_request.number, None) is None:
            return
        assert pending_request.timer is not None
        pending_request.timer.cancel()
        for each in pending_request.ids:
            del self._by_id[each]
        self._yield_turn(pending_request)

    def _new_id(self, pending_request: PendingRequest) -> int:
        """Return an id above all before, one further than the errand's last modulo ``_TURNS``."""
        self._last_id += 1
        self._last_id += (pending_request.turn - self._last_id) % _TURNS
        pending_request.turn += 1
        return self._last_id

    def _remember(self, pending_request: PendingRequest, request: int) -> None:
        pending_request.ids.append(request)
        self._by_id[request] = pending_request
        if len(pending_request.ids) > REQUEST_ATTEMPTS_KEPT:
            del self._by_id[pending_request.ids.pop(0)]
