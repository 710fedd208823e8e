"""Requests for a durable subscription by its name alone: executed here, or redirected (MV-15).

A program that starts again has no hosting reference. Its request is executed if this broker hosts
the subscription. Otherwise the broker searches the overlay (:mod:`.find`): a subscription at another
broker is a redirection to it, and only if every broker has answered that it hosts none, a new one
is created. If some broker is silent, the request is refused, unless the client wants to create the
subscription all the same.

A subscription that was restored from disk may have been moved to another broker while this one was
down. So the first request by name searches too, for a newer hosting broker. If none answers in time,
this broker continues: it never has less than what was acknowledged to it. A search that ended early,
because another broker searches too, says nothing.

The same holds when a session has closed: this broker may have been cut off meanwhile. Then only
brokers that can be reached are waited for.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from gapless.core.context import Context
from gapless.core.ids import BrokerId
from gapless.core.limits import CONFIRMED_NAMES_MAX, SEARCHES_PER_CLIENT_MAX, WALKS_MAX
from gapless.messages.clients import DurableFound, FindDurable, RefusalCause, Refused
from gapless.messages.mobility import FindStatus, SubscriptionHost
from gapless.mobility.find import FindResult, SubscriptionFinder
from gapless.mobility.protocols import ConnectedClients

__all__ = ["Lookups"]

_GIVEN_UP: Final = "the client has left the subscription while it was searched for"
_BUSY: Final = "too many searches for durable subscriptions are pending; retry later"


class Lookups:
    """The requests of clients that name a durable subscription and present no reference."""

    def __init__(
        self,
        context: Context,
        finder: SubscriptionFinder,
        clients: ConnectedClients,
        restored: Iterable[str],
    ) -> None:
        self._context = context
        self._me = context.identity.broker
        self._finder = finder
        self._clients = clients
        self._restored = set(restored)
        """Subscriptions from disk that may have been moved while this broker was down."""
        self._is_in_doubt = False
        """Whether a session has closed, so that the others may have been moved too."""
        self._confirmed: set[str] = set()
        """In doubt: names of which this broker is the host, as was found since."""
        self._waiting: Counter[str] = Counter()
        """How many requests of each client wait for a search."""
        self._pending: dict[tuple[str, int], str] = {}
        """By client and number: the requests that wait, each with the name of its subscription."""
        self.handlers: Mapping[type, Callable[[str, Any], None]] = {FindDurable: self._find}

    def confirm(self, name: str) -> None:
        """This broker is the host, by the reference of a client or by a search."""
        self._restored.discard(name)
        if self._is_in_doubt:
            if len(self._confirmed) >= CONFIRMED_NAMES_MAX:
                self._confirmed.clear()
            self._confirmed.add(name)

    def give_up(self, client: str, name: str) -> None:
        """A client does not want a subscription any more: its requests are not executed."""
        for key in [key for key, each in self._pending.items() if (key[0], each) == (client, name)]:
            self._context.mark("request given up during a search")
            del self._pending[key]

    def session_closed(self) -> None:
        """This broker may be cut off: its clients may move their subscriptions."""
        self._is_in_doubt = True
        self._confirmed.clear()

    def resolve(
        self,
        client: str,
        request: int,
        name: str,
        execute: Callable[[], None],
        *,
        anyway: bool = False,
        wait_ms: int = 0,
    ) -> None:
        """Execute a request here if this broker hosts the subscription, or none does.

        Otherwise redirect or refuse it. ``anyway``: execute it also if some broker is silent.
        ``wait_ms``: how long the others are waited for at most, if it is above 0.
        """

        def redirect(host: SubscriptionHost) -> None:
            self._context.mark("client redirected to the hosting broker")
            reason = f"the subscription {name!r} is hosted by the broker {host.broker}"
            refused = Refused(
                request,
                reason,
                RefusalCause.WRONG_BROKER,
                host.broker,
                addresses=host.addresses,
            )
            self._context.notify(client, refused)

        self._search(client, request, name, execute, redirect, anyway=anyway, wait_ms=wait_ms)

    def _find(self, client: str, call: FindDurable) -> None:
        """Answer which broker hosts a subscription; nothing is executed."""

        def here() -> None:
            host = self._finder.host_here(call.subscription)
            found = (
                DurableFound(call.request, "")
                if host is None
                else DurableFound(call.request, host.broker, host.addresses)
            )
            self._context.notify(client, found)

        def elsewhere(host: SubscriptionHost) -> None:
            self._context.notify(client, DurableFound(call.request, host.broker, host.addresses))

        self._search(
            client,
            call.request,
            call.subscription,
            here,
            elsewhere,
            anyway=False,
            wait_ms=call.wait_ms,
        )

    def _search(
        self,
        client: str,
        request: int,
        name: str,
        here: Callable[[], None],
        elsewhere: Callable[[SubscriptionHost], None],
        *,
        anyway: bool,
        wait_ms: int,
    ) -> None:
        found = self._finder.host_here(name)
        is_hosted = found is not None and not found.corrupt and name not in self._restored
        if is_hosted and (not self._is_in_doubt or name in self._confirmed):
            here()
            return
        waiting = self._waiting[client]
        is_busy = waiting >= SEARCHES_PER_CLIENT_MAX or self._waiting.total() >= WALKS_MAX
        if self._finder.is_full or is_busy:
            refused = Refused(request, _BUSY, RefusalCause.HOST_UNKNOWN)
            self._context.notify(client, refused)
            return
        self._waiting[client] += 1
        self._pending[client, request] = name

        def done(result: FindResult) -> None:
            self._waiting[client] -= 1
            if not self._waiting[client]:
                del self._waiting[client]
            is_wanted = self._pending.pop((client, request), None) is not None
            if not self._clients.is_connected(client):
                self._context.mark("client left during a search")
                return
            if not is_wanted:
                refused = Refused(request, _GIVEN_UP, RefusalCause.HOST_UNKNOWN)
                self._context.notify(client, refused)
                return
            newer = self._newer_host(name, result)
            if newer is not None:
                elsewhere(self._finder.with_addresses(newer))
            elif self._may_execute(name, result, anyway=anyway):
                self.confirm(name)
                here()
            else:
                self._context.notify(client, _unknown(request, name, result))

        self._finder.find(name, done, wait_ms, hosted=is_hosted)

    def _newer_host(self, name: str, result: FindResult) -> SubscriptionHost | None:
        """Return the other broker that hosts a subscription; None if this one does, or none."""
        host, here = result.host, self._finder.host_here(name)
        if host is None or here is None:
            return host
        if here.corrupt:
            return None if host.corrupt else host
        if here.incarnation_key != host.incarnation_key:
            return None  # a second subscription from before: this broker continues its own
        is_newer = (host.epoch, host.broker) > (here.epoch, here.broker)
        return host if is_newer else None

    def _may_execute(self, name: str, result: FindResult, *, anyway: bool) -> bool:
        if result.status is FindStatus.CONTESTED:
            return False  # the search has ended before a newer hosting broker could answer
        self._restored.discard(name)
        here = self._finder.host_here(name)
        if here is not None and not here.corrupt:
            return True
        if result.status is FindStatus.UNKNOWN:
            return anyway
        return result.status is FindStatus.NONE or here is not None  # refused, if it is corrupt


def _unknown(request: int, name: str, result: FindResult) -> Refused:
    silent: tuple[BrokerId, ...] = result.silent
    brokers = ", ".join(silent)
    if result.status is FindStatus.CONTESTED:
        reason = f"the broker {brokers} searches for the subscription {name!r} too; retry"
        return Refused(request, reason, RefusalCause.HOST_UNKNOWN)
    reason = (
        f"the subscription {name!r} may be hosted by a broker that did not answer: {brokers}; "
        "wait for it, retire it, or create the subscription anyway"
    )
    return Refused(request, reason, RefusalCause.HOST_UNKNOWN, silent=silent)
