"""Pubend requests: hop by hop to the PHB, and back along the recorded route (2.4 of the rules).

A request has an id, a requester and a route. Every hop adds itself to the route and keeps nothing. The
reply carries the route back. Each hop takes itself off it, and the requester has the reply when nothing
is left. So a hop that crashes loses only what was under way, and the requester repeats its request
(:mod:`.pending`).

The requester examines what a peer has read. The hops between do not, because they keep nothing of the
request. An answer that makes no sense is refused as a whole, as if it was lost.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import msgspec

from gapless.core.ids import BrokerId, MembershipId, PubendId, ShbId
from gapless.core.limits import REQUEST_HOPS_MAX
from gapless.core.machine import Context
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
from gapless.requests.pending import PendingRequest, PendingRequests, PubendReply, PubendRequest
from gapless.routing.protocols import Feeders

__all__ = [
    "PendingRequest",
    "PubendRequests",
    "RequestPaths",
    "RequestTarget",
    "RequestTargets",
    "reply_route",
]


class RequestTarget(Protocol):
    """A pubend of this broker as requests see it. What cannot be answered is left unanswered."""

    def read(self, request: Read, then: Callable[[ReadReply], None]) -> None:
        """Answer with what matches, when the log hold that the request names is on disk."""

    def release_log_hold(self, log_hold: LogHoldId, then: Callable[[], None]) -> None:
        """Release a log hold; call back when that is on disk."""

    def leave(self, shb: ShbId, membership: MembershipId, then: Callable[[], None]) -> None:
        """End a membership; call back when that is on disk."""


class RequestTargets(Protocol):
    """The pubends of this broker that serve requests."""

    def serving(self, pubend: PubendId) -> RequestTarget | None:
        """Return what answers requests for a pubend, None if the pubend is not at this broker."""


class RequestPaths(Protocol):
    """The paths from this broker to pubends."""

    def next_hop(self, pubend: PubendId, request: int, feeder: BrokerId | None) -> BrokerId | None:
        """Return the broker to pass a request to, given its id; None if there is no path now."""


def reply_route(request: Read | ReleaseLogHold | LeavePubend) -> tuple[BrokerId, ...]:
    """Return the route of a reply: it goes to the last of these first, and ends at the requester."""
    return (request.requester, *request.route)


def _ignore_fault(reason: str) -> None:
    """The requester does not need to know why it takes so long."""


class PubendRequests:
    """The requests of this broker, and those that pass through it or end here."""

    def __init__(
        self, context: Context, targets: RequestTargets, paths: RequestPaths, feeders: Feeders
    ) -> None:
        self._context = context
        self._targets = targets
        self._paths = paths
        self._feeders = feeders
        self._me = context.identity.broker
        self._pending = PendingRequests(context, self)

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

        The log hold is taken at ``log_hold_tick``, or raised to it. It is just below ``low`` unless it is
        given (R49). A ``joining_member`` asks since when the pubend knew it and its ``former_hosts``
        (R46). If ``reads_per_shb_max`` reads of a pubend are under way, a read waits for its turn. While
        the log cannot be read at ``low``, ``fault`` is told why, other reads take the turn, and the read
        is repeated (P8).
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

        return self._pending.read(pubend, made, then, fault)

    def release_log_hold(
        self, pubend: PubendId, log_hold: LogHoldId, then: Callable[[], None]
    ) -> PendingRequest:
        """Release a log hold (R49); reads that name it are to be cancelled before."""

        def made(number: int) -> ReleaseLogHold:
            return ReleaseLogHold(pubend, number, self._me, (), log_hold)

        return self._pending.request(pubend, made, lambda _: then())

    def leave(
        self, pubend: PubendId, shb: ShbId, membership: MembershipId, then: Callable[[], None]
    ) -> PendingRequest:
        """End a membership of an SHB at a pubend (R43, R55)."""

        def made(number: int) -> LeavePubend:
            return LeavePubend(pubend, number, self._me, (), shb, membership)

        return self._pending.request(pubend, made, lambda _: then())

    def session_opened(self) -> None:
        """A peer session has opened: send what had no route, repeat the rest sooner."""
        self._pending.session_opened()

    def statistics(self) -> dict[str, int]:
        """Return how many requests are under way, and how many reads wait for their turn."""
        return self._pending.statistics()

    # --- on the way --------------------------------------------------------------------------

    def send(self, request: PubendRequest) -> bool:
        """Send a request of this broker to its pubend; False if there is no route now."""
        if self._targets.serving(request.pubend) is not None:
            # a little later: nobody is called back before it knows what it asked
            self._context.call_later(1, lambda: self._serve_own(request))
            return True
        hop = self._next_hop(request)
        if hop is not None:
            self._context.send(hop, request)
        return hop is not None

    def _next_hop(self, request: PubendRequest) -> BrokerId | None:
        pubend = request.pubend
        return self._paths.next_hop(pubend, request.request, self._feeders.feeder(pubend))

    @property
    def handlers(self) -> dict[type, Callable[[BrokerId, Any], None]]:
        """The requests and replies, each with its handler."""
        return {
            Read: self._take_request,
            ReleaseLogHold: self._take_request,
            LeavePubend: self._take_request,
            ReadReply: self._take_reply,
            RequestDone: self._take_reply,
        }

    def _take_request(self, peer: BrokerId, request: PubendRequest) -> None:
        del peer  # the route of the request names it
        return_route = reply_route(request)
        if self._me in return_route or len(return_route) > REQUEST_HOPS_MAX:
            self._context.mark("request in a circle")
            return
        hosted = self._targets.serving(request.pubend)
        if hosted is not None:
            self._serve(hosted, request, lambda reply: self._context.send(return_route[-1], reply))
            return
        hop = self._next_hop(request)
        if hop is None:
            self._context.mark("request without a route")
        elif hop in return_route:
            self._context.mark("request in a circle")
        else:
            route = (*request.route, self._me)
            self._context.send(hop, msgspec.structs.replace(request, route=route))

    def _take_reply(self, peer: BrokerId, reply: PubendReply) -> None:
        del peer  # the route of the reply names it
        if not reply.route or reply.route[-1] != self._me:
            self._context.mark("reply astray")
            return
        rest = reply.route[:-1]
        if rest:
            self._context.send(rest[-1], msgspec.structs.replace(reply, route=rest))
        else:
            self._pending.answered(reply, examined=False)

    # --- at the pubend -----------------------------------------------------------------------

    def _serve_own(self, request: PubendRequest) -> None:
        hosted = self._targets.serving(request.pubend)
        if hosted is not None and self._pending.is_awaited(request.request):
            self._serve(hosted, request, self._pending.answered)

    def _serve(
        self, hosted: RequestTarget, request: PubendRequest, answer: Callable[[PubendReply], None]
    ) -> None:
        """Let a pubend of this broker do what is asked, and answer."""
        done = RequestDone(request.pubend, request.request, reply_route(request))
        if isinstance(request, LeavePubend):
            hosted.leave(request.shb, request.membership, lambda: answer(done))
        elif isinstance(request, ReleaseLogHold):
            hosted.release_log_hold(request.log_hold, lambda: answer(done))
        else:
            hosted.read(request, answer)
