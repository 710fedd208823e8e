"""Unicast requests: to a named broker, forwarded hop by hop, repeated until answered (D9).

Components above send them by :meth:`UnicastRequests.request`, and serve them: a request to this
broker goes up as a notification, with a callback for its reply. The bodies and their replies are in
:mod:`gapless.messages.unicast`. A body that exceeds ``UNICAST_BODY_BYTES_MAX`` goes no further.

The reply has no sender that its receiver could check: any broker on the way may have written it, as
with every other message. The component that made the request checks what a reply states.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Protocol, TypeAlias

import msgspec

from gapless.core.context import Context
from gapless.core.ids import BrokerId, ShbId
from gapless.core.parameters import microseconds
from gapless.core.request_limits import (
    DUTY_PAUSE_MAX_S,
    UNICAST_BODY_BYTES_MAX,
    UNICAST_REQUESTS_MAX,
)
from gapless.messages.unicast import (
    REPLY_BODIES,
    UnicastBody,
    UnicastReply,
    UnicastReplyBody,
    UnicastRequest,
)
from gapless.overlay.peers import Peers
from gapless.overlay.tree import Tree
from gapless.requests.broker_paths import BrokerPaths, ShbLocations
from gapless.requests.pending_request_state import PendingRequestState
from gapless.requests.recorded_route import RecordedRoutes, reply_route
from gapless.requests.repetition import RepeatedRequest, RepeatedRequests

__all__ = [
    "PendingUnicast",
    "UnicastAnswer",
    "UnicastHandler",
    "UnicastListener",
    "UnicastRequester",
    "UnicastRequests",
]

UnicastAnswer: TypeAlias = Callable[[UnicastReplyBody | None], None]
"""Sends the reply to a request; None if the request only had to be done."""

UnicastHandler: TypeAlias = Callable[[BrokerId, Any, UnicastAnswer], None]
"""Serves the body of a request of a broker, and answers it now or later."""

_ENCODER: Final = msgspec.msgpack.Encoder()


class UnicastListener(Protocol):
    """Is called with the requests to this broker."""

    def unicast_requested(
        self, requester: BrokerId, body: UnicastBody, answer: UnicastAnswer
    ) -> None:
        """A broker requests something of this one. It may stay unanswered: it is repeated."""


class UnicastRequester(Protocol):
    """Sends requests to named brokers."""

    @property
    def is_full(self) -> bool:
        """Whether no further request is made for a client."""

    def request(
        self,
        to: ShbId,
        body: UnicastBody,
        then: Callable[[Any], None],
        *,
        forever: bool = False,
    ) -> RepeatedRequest:
        """Request something of a broker; call back with the body of its reply."""


class PendingUnicast(RepeatedRequest):
    """One unicast request of this broker, until it is answered or cancelled."""

    def __init__(
        self,
        requests: _PendingUnicasts,
        number: int,
        made: Callable[[int], UnicastRequest],
        reply_type: type,
        finish: Callable[[Any], None],
        longest_pause_us: int,
    ) -> None:
        super().__init__(requests, number, PendingRequestState.UNSENT, made, longest_pause_us)
        self.reply_type = reply_type
        self.finish = finish


class _PendingUnicasts(RepeatedRequests[PendingUnicast]):
    """All pending unicast requests of this broker."""

    def request(
        self,
        made: Callable[[int], UnicastRequest],
        reply_type: type,
        finish: Callable[[Any], None],
        longest_pause_us: int,
    ) -> PendingUnicast:
        """Send a request and repeat it."""
        number = self._next_number()
        pending = PendingUnicast(self, number, made, reply_type, finish, longest_pause_us)
        self._start(pending)
        return pending

    @property
    def is_full(self) -> bool:
        """Whether the limit of requests is reached."""
        return len(self._active) >= UNICAST_REQUESTS_MAX

    def answered(self, reply: UnicastReply) -> None:
        """Finish the request of a reply."""
        pending = self._by_id.get(reply.request)
        if pending is None:
            self._context.mark("reply to an ended request")
        elif type(reply.body) is not pending.reply_type:
            self._context.mark("reply to another request")
        else:
            self.end(pending)
            pending.finish(reply.body)


class UnicastRequests:
    """Sends, forwards and answers unicast requests."""

    def __init__(
        self,
        context: Context,
        tree: Tree,
        peers: Peers,
        locations: ShbLocations,
        listener: UnicastListener,
    ) -> None:
        self._context = context
        self._me = context.identity.shb
        self._listener = listener
        self._paths = BrokerPaths(context.identity, tree, peers, locations)
        self._routes = RecordedRoutes(context)
        self._pending = _PendingUnicasts(context, self._send)
        self.handlers: dict[type, Callable[[BrokerId, Any], None]] = {
            UnicastRequest: self._take_request,
            UnicastReply: self._take_reply,
        }
        """The messages, each with its handler."""

    # --- requests of this broker -------------------------------------------------------------

    @property
    def is_full(self) -> bool:
        """Whether no further request is made for a client.

        Those that a broker makes for itself are bounded by what is on its disk.
        """
        return self._pending.is_full

    def request(
        self,
        to: ShbId,
        body: UnicastBody,
        then: Callable[[Any], None],
        *,
        forever: bool = False,
    ) -> RepeatedRequest:
        """Request something of a broker; call back with the body of its reply.

        Pauses between attempts double up to ``retry_max_ms``, or if the duty has no end
        (``forever``) up to ``DUTY_PAUSE_MAX_S``. Only an answer or a cancellation ends the request.
        """
        longest_us = microseconds(ms=self._context.parameters.retry_max_ms)
        if forever:
            longest_us = max(longest_us, microseconds(s=DUTY_PAUSE_MAX_S))

        def made(number: int) -> UnicastRequest:
            return UnicastRequest(to, number, self._me.broker, (), body)

        reply_type = REPLY_BODIES.get(type(body), type(None))
        return self._pending.request(made, reply_type, then, longest_us)

    def session_opened(self) -> None:
        """A peer session has opened: send requests that had no route, repeat the others sooner."""
        self._pending.session_opened()

    def statistics(self) -> dict[str, int]:
        """Return the number of active requests."""
        return self._pending.statistics()

    def _send(self, request: UnicastRequest) -> bool:
        if request.to == self._me:
            # in a later step: the caller must have its request before it is called back
            self._context.call_later(1, lambda: self._serve_own(request))
            return True
        hop = self._paths.next_hop(request.to, request.request)
        if hop is not None:
            self._context.send(hop, request)
        return hop is not None

    def _serve_own(self, request: UnicastRequest) -> None:
        if self._pending.is_awaited(request.request):
            self._serve(request, self._pending.answered)

    # --- requests of others ------------------------------------------------------------------

    def _take_request(self, peer: BrokerId, request: UnicastRequest) -> None:
        if not self._routes.accepts(peer, request) or not self._fits(request.body):
            return
        if request.to == self._me:
            self._serve(request, lambda reply: self._context.send(peer, reply))
        else:
            passed = reply_route(request)
            hop = self._paths.next_hop(request.to, request.request, passed)
            self._routes.forward(hop, request)

    def _take_reply(self, peer: BrokerId, reply: UnicastReply) -> None:
        del peer  # the route of the reply names it
        if self._fits(reply.body) and self._routes.returned(reply):
            self._pending.answered(reply)

    def _serve(self, request: UnicastRequest, answer: Callable[[UnicastReply], None]) -> None:
        route = reply_route(request)

        def reply(body: UnicastReplyBody | None) -> None:
            if self._fits(body):
                answer(UnicastReply(request.request, route, body))

        self._listener.unicast_requested(request.requester, request.body, reply)

    def _fits(self, body: UnicastBody | UnicastReplyBody | None) -> bool:
        """Return whether a body has a size that is sent; another one is dropped."""
        fits = len(_ENCODER.encode(body)) <= UNICAST_BODY_BYTES_MAX
        if not fits:
            self._context.mark("unicast body above its limit")
        return fits
