"""The recorded route of a request: every hop adds itself, and the reply returns the same way.

A request has an id, a requester and a route. Every hop adds itself to the route and keeps no state.
The reply carries the route back. Each hop removes itself from it, and the reply is at the requester
when the route is empty. So a hop that crashes loses only messages in flight, and the requester
repeats its request (:mod:`.repetition`).
"""

from __future__ import annotations

from typing import Any, Protocol

import msgspec

from gapless.core.context import Context
from gapless.core.ids import BrokerId, is_route

__all__ = ["RecordedRoutes", "RoutedReply", "RoutedRequest", "reply_route"]


class RoutedRequest(Protocol):
    """A request that records its route."""

    @property
    def request(self) -> int:
        """The id of the attempt."""

    @property
    def requester(self) -> BrokerId:
        """The broker that sent it first."""

    @property
    def route(self) -> tuple[BrokerId, ...]:
        """The brokers that forwarded it, in their order."""


class RoutedReply(Protocol):
    """A reply that returns by the recorded route."""

    @property
    def request(self) -> int:
        """The id of the attempt that it answers."""

    @property
    def route(self) -> tuple[BrokerId, ...]:
        """The brokers that it still has to reach: from the last of them to the first."""


def reply_route(request: RoutedRequest) -> tuple[BrokerId, ...]:
    """Return the route of a reply: from the last of these brokers to the first, the requester."""
    return (request.requester, *request.route)


class RecordedRoutes:
    """Checks, extends and follows recorded routes at one broker."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._me = context.identity.broker

    def accepts(self, peer: BrokerId, request: RoutedRequest) -> bool:
        """Return whether a request may come from a peer by its route, and was not here before."""
        return_route = reply_route(request)
        if return_route[-1] != peer or not is_route(return_route):
            self._context.mark("request with a wrong route")
            return False
        if self._me in return_route:
            self._context.mark("request looped")
            return False
        return True

    def forward(self, hop: BrokerId | None, request: Any) -> None:
        """Send a request of another broker to the next hop; no broker gets it twice."""
        if hop is None:
            self._context.mark("request without a route")
        elif hop in reply_route(request):
            self._context.mark("request looped")
        else:
            route = (*request.route, self._me)
            self._context.send(hop, msgspec.structs.replace(request, route=route))

    def returned(self, reply: Any) -> bool:
        """Pass a reply on; return whether this broker is the requester."""
        if not reply.route or reply.route[-1] != self._me or not is_route(reply.route):
            self._context.mark("reply with a wrong route")
            return False
        rest = reply.route[:-1]
        if rest:
            self._context.send(rest[-1], msgspec.structs.replace(reply, route=rest))
        return not rest
