"""The subscriptions of this SHB, by name and by client session (R46, R50).

A durable subscription has one client at a time. A client that subscribes under its name fences the
connection before it, which may be dead without the broker having noticed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

from gapless.content.filter import Filter
from gapless.core.context import Context
from gapless.core.ids import PubendId
from gapless.core.parameters import microseconds
from gapless.core.ticks import Tick
from gapless.messages.clients import Closed, Order, StartPoint
from gapless.messages.records import DeleteRecord, SubscriptionRecord
from gapless.subscribers.buffer import Backlog
from gapless.subscribers.filters import Filters
from gapless.subscribers.protocols import PubendRequester, PubendStatus
from gapless.subscribers.resources import Resources
from gapless.subscribers.slow_consumers import SlowConsumers
from gapless.subscribers.step_end import StepEnd
from gapless.subscribers.subends import Subends
from gapless.subscribers.subscription import HostedSubscription

__all__ = ["Registry"]


class Registry:
    """The subscriptions of this SHB, and their clients."""

    def __init__(
        self,
        context: Context,
        filters: Filters,
        subends: Subends,
        requests: PubendRequester,
        status: PubendStatus,
    ) -> None:
        self._context = context
        self._filters = filters
        self._subends = subends
        self.step_end = StepEnd(context)
        self.slow_consumers = SlowConsumers(context)
        self.backlog = Backlog()
        self._resources = Resources(
            context=context,
            requests=requests,
            status=status,
            filters=filters,
            subends=subends,
            step_end=self.step_end,
            slow_consumers=self.slow_consumers,
            backlog=self.backlog,
        )
        self.subscriptions: dict[str, HostedSubscription] = {}
        self._by_client: dict[str, dict[str, HostedSubscription]] = {}
        self._capabilities: dict[str, frozenset[str]] = {}
        """By connected client: what it understands beyond the first version (D14)."""
        self._arrivals: dict[str, int] = {}
        """The order in which clients connected."""
        self._arrived = 0

    # --- by name and by client session ---------------------------------------------------------

    def durable(self) -> list[HostedSubscription]:
        """Return the durable subscriptions."""
        return [each for each in self.subscriptions.values() if each.durable]

    def durable_named(self, name: str) -> HostedSubscription | None:
        """Return the durable subscription of a name, or None."""
        found = self.subscriptions.get(name)
        return found if found is not None and found.durable else None

    def is_connected(self, client: str) -> bool:
        """Return whether a client is connected."""
        return client in self._arrivals

    @property
    def clients_connected(self) -> int:
        """How many clients are connected."""
        return len(self._arrivals)

    @property
    def joined_pubends(self) -> Collection[PubendId]:
        """The guaranteed pubends on which subscriptions have cursors, or had until recently."""
        return self._subends.guaranteed.keys()

    def of_client(self, client: str) -> dict[str, HostedSubscription]:
        """Return the subscriptions of a connected client, by name."""
        return self._by_client.get(client, {})

    def is_older(self, client: str, subscription: HostedSubscription) -> bool:
        """Return whether a subscription belongs to a newer connection than that of a client."""
        owner = self._arrivals.get(subscription.client or "", 0)
        return owner > self._arrivals.get(client, 0)

    def has_capability(self, client: str, capability: str) -> bool:
        """Return whether a connected client has named a capability (D14)."""
        return capability in self._capabilities.get(client, ())

    def client_up(self, client: str, capabilities: Iterable[str] = ()) -> None:
        """A client has connected; it is newer than all other clients."""
        self._capabilities[client] = frozenset(capabilities)
        self._arrived += 1
        self._arrivals[client] = self._arrived

    def client_down(self, client: str) -> None:
        """A client has disconnected."""
        self._arrivals.pop(client, None)
        self._capabilities.pop(client, None)
        self.resume_client(client)
        for subscription in [*self.of_client(client).values()]:
            self.disconnect(subscription)
        self._by_client.pop(client, None)

    def pause_client(self, client: str) -> None:
        """Send a client no events until it has read its pending data, whatever credit it gave."""
        self.step_end.pause_client(client)

    def resume_client(self, client: str) -> None:
        """End the pause of a client that reads again or has disconnected."""
        if self.step_end.resume_client(client):
            for subscription in self.subscriptions.values():
                if subscription.client == client:
                    subscription.mark_dirty()

    # --- creating and ending subscriptions -----------------------------------------------------

    def add(
        self,
        name: str,
        *,
        durable: bool,
        order: Order,
        start: StartPoint,
        expiry_s: int,
        incarnation_key: str = "",
        epoch: int = 0,
    ) -> HostedSubscription:
        """Add a subscription; it has no filter and no client yet."""
        made = self.subscriptions[name] = HostedSubscription(
            self._resources,
            name,
            durable=durable,
            order=order,
            start=start,
            expiry_s=expiry_s,
            incarnation_key=incarnation_key,
            epoch=epoch,
        )
        return made

    def restore(self, record: SubscriptionRecord) -> HostedSubscription:
        """Restore a durable subscription from its record, without a client."""
        made = self.add(
            record.subscription,
            durable=True,
            order=record.order,
            start=record.start,
            expiry_s=record.expiry_s,
            incarnation_key=record.incarnation_key,
            epoch=record.epoch,
        )
        made.restore(record)
        made.start_interest_grace()
        return made

    def give(self, subscription: HostedSubscription, client: str) -> None:
        """Note that a subscription belongs to a client."""
        self._by_client.setdefault(client, {})[subscription.name] = subscription

    def _take_from_client(self, subscription: HostedSubscription) -> None:
        if subscription.client is not None:
            self.of_client(subscription.client).pop(subscription.name, None)

    def disconnect(self, subscription: HostedSubscription) -> None:
        """Disconnect a subscription from its client, or end it if it is not durable (R50)."""
        if subscription.client is None:
            return
        self._take_from_client(subscription)
        if subscription.durable:
            subscription.disconnect()
        else:
            self.end(subscription)

    def end(self, subscription: HostedSubscription) -> None:
        """End a subscription, also on disk. The logs are kept until its record is deleted (I10).

        A crash before the deletion restores the subscription as it was.
        """
        if subscription.durable:
            let_go = self.retain_logs(subscription)
            key = SubscriptionRecord.key_of(subscription.name)
            self._context.write((DeleteRecord(key),), let_go)
        self.take_down(subscription)

    def retain_logs(self, subscription: HostedSubscription) -> Callable[[], None]:
        """Keep the logs for a subscription that ends. Return a function that stops keeping them."""
        return self._subends.reporter.retain(subscription.needed_logs())

    def take_down(self, subscription: HostedSubscription) -> None:
        """End a subscription in memory only. The caller deletes or replaces its record."""
        self._take_from_client(subscription)
        subscription.end()
        del self.subscriptions[subscription.name]

    def expire(self) -> None:
        """End durable subscriptions whose clients have not returned before the expiry."""
        for subscription in [*self.subscriptions.values()]:
            disconnected_us = self._context.now - subscription.disconnected_since
            expiry_us = microseconds(s=subscription.expiry_s)
            if subscription.client is None and disconnected_us > expiry_us:
                self._context.mark("durable subscription expired")
                self.end(subscription)

    def save_acknowledgements(self) -> None:
        """Store acknowledgements and other changes of durable subscriptions."""
        for subscription in self.subscriptions.values():
            subscription.save_changes()

    def save_positions(self) -> None:
        """Store the position of every durable subscription with a client: the broker stops."""
        for subscription in self.subscriptions.values():
            if subscription.client is not None:
                subscription.note_change()
        self.save_acknowledgements()

    # --- pubends and steps ---------------------------------------------------------------------

    def announced(
        self, pubend: PubendId, advertisement: Filter, version: int, *, best_effort: bool
    ) -> None:
        """A pubend was announced, or its advertisement became wider."""
        self._filters.announced(pubend, advertisement, version, best_effort=best_effort)
        for subscription in self.subscriptions.values():
            subscription.cursor_set.pubend_announced(pubend)
        self._subends.announced(pubend)

    def pubend_ended(self, pubend: PubendId, last: Tick, last_event: Tick) -> None:
        """A pubend is a tombstone (RS-34). Under best effort its subscribers are notified now."""
        if self._filters.is_best_effort(pubend):
            self._notify_best_effort_end(pubend, last)
        self._subends.pubend_ended(pubend, last, last_event)
        for subscription in self.subscriptions.values():
            subscription.guarantees.clear(pubend)
        self._filters.pubend_ended(pubend)

    def _notify_best_effort_end(self, pubend: PubendId, last: Tick) -> None:
        for subscription in self.subscriptions.values():
            is_answered = subscription.client is not None and not subscription.reply.is_pending
            if is_answered and self._filters.may_match(pubend, subscription.newest):
                subscription.delivery.send_available()
                subscription.notify(Closed(subscription.name, pubend, last))

    def needs_best_effort(self, pubend: PubendId) -> bool:
        """Return whether a subscription may match events of a best-effort pubend."""
        may_match = self._filters.may_match
        return pubend in self._filters.announced_pubends and any(
            may_match(pubend, subscription.newest) for subscription in self.subscriptions.values()
        )

    def flush(self) -> None:
        """Send the results of a step, and end the slow consumers."""
        for subscription in self.slow_consumers.take():
            if subscription.client is not None:
                self.slow_consumers.notify(subscription, subscription.client)
                self.disconnect(subscription)
        self.step_end.flush()
