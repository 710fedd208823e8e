"""A world of whole brokers that also records disconnects and can resume stopped disks.

The faults are those of :mod:`tests.scenarios.brokers`; a stopped disk may resume without loss.
"""

from __future__ import annotations

from typing import Any

from gapless.broker import Broker
from gapless.core.effects import DisconnectClient, Effect
from gapless.core.ids import BrokerId, CellId, PubendId
from gapless.core.ticks import Tick
from gapless.messages.clients import (
    Order,
    Refused,
    StartPoint,
    Subscribe,
    Subscribed,
    SubscriptionStarted,
    Unsubscribe,
)
from gapless.messages.records import LogHoldRecord, SubscriptionRecord
from gapless.subscribers.cursor import Cursor
from gapless.subscribers.cursor_state import CursorPhase
from gapless.subscribers.subscription import HostedSubscription
from tests.scenarios.brokers import Client, Node, World

P, Q, R = PubendId("P"), PubendId("Q"), PubendId("R")


class BrokerHarness(World):
    """Whole brokers, and what their clients receive."""

    def __init__(
        self, *chains: str, cells: dict[CellId, list[BrokerId]] | None = None, **parameters: int
    ) -> None:
        self.disconnected: dict[str, str] = {}
        """By client, the reason why its connection was ended."""
        super().__init__(*chains, cells=cells, **parameters)

    def _carry_out(self, node: Node, broker: Broker, effect: Effect) -> None:
        if isinstance(effect, DisconnectClient):
            self.disconnected[effect.client] = effect.reason
        super()._carry_out(node, broker, effect)

    def stop_disk(self, name: BrokerId) -> None:
        """Stop syncing writes."""
        self.nodes[name].disk.stopped = True

    def resume_disk(self, name: BrokerId) -> None:
        """Sync the waiting writes of a stopped disk, and later ones."""
        node = self.nodes[name]
        node.disk.stopped = False
        assert node.broker is not None
        self._synced(node, node.broker)

    def client(self, broker: BrokerId = "p", name: str = "client") -> Client:
        """Return a client that has only connected."""
        return Client(self, broker, name)

    def subscription(self, broker: BrokerId, name: str) -> HostedSubscription:
        """Return a subscription of an SHB."""
        return self[broker].components.registry.subscriptions[name]

    def cursor(self, broker: BrokerId, name: str, pubend: PubendId = P) -> Cursor:
        """Return a cursor of a subscription."""
        return self.subscription(broker, name).cursors[pubend]

    def record(self, broker: BrokerId, name: str) -> SubscriptionRecord | None:
        """Return the record of a durable subscription on disk."""
        found = self.nodes[broker].disk.records.get(SubscriptionRecord.key_of(name))
        assert found is None or isinstance(found, SubscriptionRecord)
        return found

    def log_holds(self, broker: BrokerId) -> list[LogHoldRecord]:
        """Return the log holds on the disk of a PHB."""
        records = self.nodes[broker].disk.records.values()
        return [each for each in records if isinstance(each, LogHoldRecord)]


class Requester(Client):
    """A client that subscribes with all options and returns the answer of each call."""

    def subscribe(
        self,
        wanted: str | None = "TRUE",
        name: str | None = None,
        *,
        durable: bool = False,
        take_over: bool = True,
        start: StartPoint | None = None,
        order: Order = Order.PUBLISHER,
        credit: int = 1_000,
        expiry_s: int = 604_800,
        s: int = 2,
    ) -> Any:
        """Subscribe and return the answer, None if there is none in time."""
        call = Subscribe(
            self.number(),
            name or self.name,
            wanted,
            durable,
            start or StartPoint(),
            order,
            credit,
            expiry_s,
            take_over=take_over,
            create=durable,  # scenarios cut brokers off before they subscribe
        )
        return self.call(call, s=s)

    def unsubscribe(self, name: str | None = None) -> Any:
        """End a subscription and return the answer."""
        return self.call(Unsubscribe(self.number(), name or self.name))


def reason(answer: Any) -> str:
    """Return why a call was refused."""
    assert isinstance(answer, Refused), answer
    return answer.reason


def position(answer: Any) -> dict[PubendId, Tick]:
    """Return the ticks after which a subscription continues."""
    assert isinstance(answer, Subscribed), answer
    return dict(answer.position)


def started(client: Client) -> dict[PubendId, Tick]:
    """Return the starts that a client received after the answer to its call."""
    return {each.pubend: each.after for each in client.of_kind(SubscriptionStarted)}


def state_of(cursor: Cursor) -> CursorPhase:
    """Return the current phase of a cursor."""
    return cursor.phase
