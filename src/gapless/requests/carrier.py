"""Pubend requests: hop by hop to the PHB, and back along the recorded route.

The requester checks the ranges in a reply. The hops between do not, because they keep no state of
the request. An invalid reply is dropped whole, as if it was lost.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from gapless.core.context import Context
from gapless.core.ids import BrokerId, MembershipId, PubendId, ShbId
from gapless.core.ticks import Tick
from gapless.messages.pubend_requests import (
    CountEvents,
    EventCounts,
    LeavePubend,
    LogHoldId,
    Read,
    ReadReply,
    ReleaseLogHold,
    RequestDone,
)
from gapless.messages.streams import Member, ReadForm
from gapless.requests.pending import PendingRequest, PendingRequests, PubendReply, PubendRequest
from gapless.requests.recorded_route import RecordedRoutes, reply_route
from gapless.routing.protocols import Feeders

__all__ = [
    "PendingRequest",
    "PubendRequests",
    "RequestPaths",
    "RequestTarget",
    "RequestTargets",
]


class RequestTarget(Protocol):
    """A pubend of this broker, as the target of requests. It may leave a request unanswered."""

    def read(self, request: Read, then: Callable[[ReadReply], None]) -> None:
        """Call back with the matching events when the log hold of the request is on disk."""

    def release_log_hold(self, log_hold: LogHoldId, then: Callable[[], None]) -> None:
        """Release a log hold; call back when that is on disk."""

    def leave(self, shb: ShbId, membership: MembershipId, then: Callable[[], None]) -> None:
        """End a membership; call back when that is on disk."""

    def count(self, request: CountEvents, then: Callable[[EventCounts], None]) -> None:
        """Call back with the number of publications up to some ticks."""


class RequestTargets(Protocol):
    """The pubends of this broker that serve requests."""

    def serving(self, pubend: PubendId) -> RequestTarget | None:
        """Return the request target of a pubend, or None if it is not at this broker."""


class RequestPaths(Protocol):
    """The paths from this broker to pubends."""

    def next_hop(self, pubend: PubendId, request: int, feeder: BrokerId | None) -> BrokerId | None:
        """Return the next hop of a request with an id, or None if there is no path now."""


def _ignore_fault(reason: str) -> None:
    """Do nothing: the requester does not need the reason of the delay."""


class PubendRequests:
    """Sends, forwards and serves pubend requests."""

    def __init__(
        self, context: Context, targets: RequestTargets, paths: RequestPaths, feeders: Feeders
    ) -> None:
        self._context = context
        self._targets = targets
        self._paths = paths
        self._feeders = feeders
        self._me = context.identity.broker
        self._routes = RecordedRoutes(context)
        self._pending = PendingRequests(context, self)

    # --- requests of this broker -------------------------------------------------------------

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
        """Read the log of a pubend (R48); the reply may end below ``high``.

        The log hold is taken at ``log_hold_tick``, or raised to it; the default is just below
        ``low`` (R49). A ``joining_member`` requests the known times of itself and its
        ``former_hosts`` (R46). At most ``reads_per_shb_max`` reads of a pubend are active; further
        reads wait for their turn. While the log cannot be read at ``low``, ``fault`` is called with
        the reason, other reads get the turn, and the read is repeated (P8).
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
        """Release a log hold (R49); reads that name it must be cancelled before."""

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

    def count_events(
        self, pubend: PubendId, ticks: tuple[Tick, ...], then: Callable[[EventCounts], None]
    ) -> PendingRequest:
        """Request how many publications a pubend had logged, in total and up to some ticks."""

        def made(number: int) -> CountEvents:
            return CountEvents(pubend, number, self._me, (), ticks)

        return self._pending.request(pubend, made, then, EventCounts)

    def session_opened(self) -> None:
        """A peer session has opened: send requests that had no route, repeat the others sooner."""
        self._pending.session_opened()

    def pubend_ended(self, pubend: PubendId) -> None:
        """End all requests to a pubend that is a tombstone: nobody will answer (RS-34)."""
        self._pending.end_all(pubend)

    @property
    def active_reads(self) -> Mapping[PubendId, int]:
        """The number of active reads of each pubend."""
        return self._pending.active_reads

    def statistics(self) -> dict[str, int]:
        """Return the number of active requests and of reads that wait for their turn."""
        return self._pending.statistics()

    # --- forwarding --------------------------------------------------------------------------

    def send(self, request: PubendRequest) -> bool:
        """Send a request of this broker to its pubend; return False if there is no route now."""
        if self._targets.serving(request.pubend) is not None:
            # in a later step: the caller must have its PendingRequest before it is called back
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
            CountEvents: self._take_request,
            ReadReply: self._take_reply,
            RequestDone: self._take_reply,
            EventCounts: self._take_reply,
        }

    def _take_request(self, peer: BrokerId, request: PubendRequest) -> None:
        if not self._routes.accepts(peer, request):
            return
        hosted = self._targets.serving(request.pubend)
        if hosted is None:
            self._routes.forward(self._next_hop(request), request)
        else:
            self.serve(hosted, request, lambda reply: self._context.send(peer, reply))

    def _take_reply(self, peer: BrokerId, reply: PubendReply) -> None:
        del peer  # the route of the reply names it
        if self._routes.returned(reply):
            self._pending.answered(reply, examined=False)

    # --- at the pubend -----------------------------------------------------------------------

    def _serve_own(self, request: PubendRequest) -> None:
        hosted = self._targets.serving(request.pubend)
        if hosted is not None and self._pending.is_awaited(request.request):
            self.serve(hosted, request, self._pending.answered)

    def serve(
        self, hosted: RequestTarget, request: PubendRequest, answer: Callable[[PubendReply], None]
    ) -> None:
        """Serve a request at a pubend of this broker, and reply."""
        done = RequestDone(request.pubend, request.request, reply_route(request))
        if isinstance(request, LeavePubend):
            hosted.leave(request.shb, request.membership, lambda: answer(done))
        elif isinstance(request, ReleaseLogHold):
            hosted.release_log_hold(request.log_hold, lambda: answer(done))
        elif isinstance(request, CountEvents):
            hosted.count(request, answer)
        else:
            hosted.read(request, answer)
