"""Dispatch: passes events, messages of peers and requests of clients to their components."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from gapless.core.context import Context
from gapless.core.events import (
    ClientDown,
    ClientDrained,
    ClientFull,
    ClientRequest,
    ClientUp,
    Fetched,
    LinkDown,
    LinkDrained,
    LinkFull,
    LinkUp,
    MachineEvent,
    Received,
    Stopping,
    Written,
)
from gapless.core.ids import BrokerId
from gapless.messages.clients import Refused
from gapless.messages.mobility import (
    CollectSubscriptions,
    FindSubscription,
    SubscriptionFound,
    SubscriptionsCollected,
    Superseded,
)
from gapless.messages.overlay import Announce, NameQuery, NameReply, PartitionInfo, Retire
from gapless.messages.streams import (
    AckReport,
    AdvanceRequest,
    Attach,
    DefineMemberSet,
    Detach,
    ForgetMemberSet,
    Nack,
    StreamEpochRequest,
)
from gapless.messages.unicast import UnicastBody
from gapless.requests.unicast import UnicastAnswer, UnicastHandler

if TYPE_CHECKING:
    from gapless.broker.assembly import Components

__all__ = ["Dispatch", "MessageObserver"]

MessageObserver: TypeAlias = Callable[[BrokerId, Any], None]
"""Called with each message and the peer that sent it, before the component handles the message."""


class Dispatch:
    """Finds the component for each event, message and request."""

    def __init__(
        self,
        context: Context,
        components: Components,
        observers: Sequence[MessageObserver],
    ) -> None:
        self._context = context
        self._components = components
        self._observers = observers
        self._messages = self._message_handlers()
        self._requests: dict[type, Callable[[str, Any], None]] = {}
        for calls in components.calls:
            assert self._requests.keys().isdisjoint(calls.handlers)
            self._requests.update(calls.handlers)
        self._unicast: dict[type, UnicastHandler] = {}
        for server in components.unicast_servers:
            assert self._unicast.keys().isdisjoint(server.unicast_handlers)
            self._unicast.update(server.unicast_handlers)

    def event(self, event: MachineEvent) -> None:
        """Pass an event to its component."""
        each = self._components
        match event:
            case Received(peer, packet):
                each.sessions.received(peer, packet)
            case Written() | Fetched():
                self._context.resume(event)
            case ClientRequest(client, request):
                self.request(client, request)
            case LinkUp(peer):
                each.sessions.link_up(peer)
                each.control_sessions.link_up(peer)
            case LinkDown(peer):
                each.sessions.link_down(peer)
                each.control_sessions.link_down(peer)
            case LinkFull(peer):
                each.sessions.link_full(peer)
            case LinkDrained(peer):
                each.sessions.link_drained(peer)
            case ClientFull(client):
                each.registry.pause_client(client)
                each.reads.client_full(client)
            case ClientDrained(client):
                each.registry.resume_client(client)
                each.reads.client_drained(client)
            case ClientDown(client):
                each.registry.client_down(client)
                each.reads.client_down(client)
            case ClientUp(client, capabilities):
                each.registry.client_up(client, capabilities)
            case Stopping():
                each.registry.save_positions()
            case None:
                pass

    # --- clients -------------------------------------------------------------------------------

    def request(self, client: str, request: Any) -> None:
        """Pass a request of a client to its component, or refuse it."""
        handler = self._requests.get(type(request))
        if handler is None:
            reason = f"{type(request).__name__} is no request"
            self._context.notify(client, Refused(getattr(request, "request", 0), reason))
        else:
            handler(client, request)

    # --- peers ---------------------------------------------------------------------------------

    def message(self, peer: BrokerId, message: Any) -> None:
        """Pass a message of a peer, or of this broker to itself, to its component."""
        for observe in self._observers:
            observe(peer, message)
        handler = self._messages.get(type(message))
        if handler is None:
            self._context.mark("message of no component")
        else:
            handler(peer, message)

    def unicast(self, requester: BrokerId, body: UnicastBody, answer: UnicastAnswer) -> None:
        """Pass a unicast request to this broker to its component (D9)."""
        self._unicast[type(body)](requester, body, answer)

    def _message_handlers(self) -> dict[type, Callable[[BrokerId, Any], object]]:
        each = self._components
        return {
            **each.stream_messages.handlers,
            Nack: each.router.nack,
            Attach: each.router.attach,
            Detach: each.router.detach,
            StreamEpochRequest: each.router.stream_epoch_requested,
            AdvanceRequest: each.router.advance,
            DefineMemberSet: each.reports.define,
            ForgetMemberSet: each.reports.forget,
            AckReport: each.reports.report,
            Announce: self._announced,
            Retire: each.retirements.received,
            NameQuery: each.name_queries.query_received,
            NameReply: each.name_queries.reply_received,
            Superseded: each.hosting.received,
            FindSubscription: each.finder.asked,
            SubscriptionFound: each.finder.answered,
            CollectSubscriptions: each.collector.asked,
            SubscriptionsCollected: each.collector.answered,
            PartitionInfo: each.partitions.received,
            **each.record_exchange.handlers,
            **each.exchange.handlers,
            **each.requests.handlers,
            **each.unicast.handlers,
            **each.operations.handlers,
        }

    def _announced(self, peer: BrokerId, message: Announce) -> None:
        self._components.exchange.announcement_received(peer, message)
        self._components.announcements.received(peer, message)
