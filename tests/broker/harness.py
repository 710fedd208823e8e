"""A world of whole brokers that also notes who is dismissed and why, and whose disks can go on.

The faults are those of :mod:`tests.scenarios.brokers`; a stopped disk may go on as if nothing was.
"""

from __future__ import annotations

from typing import Any

from gapless.broker import Broker
from gapless.core.ids import BrokerId, CellId, PubendId
from gapless.core.machine import DisconnectClient, Effect
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
    """Whole brokers, and what their clients can see."""

    def __init__(
        self, *chains: str, cells: dict[CellId, list[BrokerId]] | None = None, **parameters: int
    ) -> None:
        self.disconnected: dict[str, str] = {}
        """By client, why its connection was ended."""
        super().__init__(*chains, cells=cells, **parameters)

    def _carry_out(self, node: Node, broker: Broker, effect: Effect) -> None:
        if isinstance(effect, DisconnectClient):
            self.disconnected[effect.client] = effect.reason
        super()._carry_out(node, broker, effect)

    def stop_disk(self, name: BrokerId) -> None:
        """Let writes stay unsynced."""
        self.nodes[name].disk.stopped = True

    def resume_disk(self, name: BrokerId) -> None:
        """Let a stopped disk sync what waits, and what comes."""
        node = self.nodes[name]
        node.disk.stopped = False
        assert node.broker is not None
        self._synced(node, node.broker)

    def client(self, broker: BrokerId = "p", name: str = "client") -> Client:
        """Return a client that has only connected."""
        return Client(self, broker, name)

    def subscription(self, broker: BrokerId, name: str) -> HostedSubscription:
        """Return a subscription of a host."""
        return self[broker].components.registry.subscriptions[name]

    def cursor(self, broker: BrokerId, name: str, pubend: PubendId = P) -> Cursor:
        """Return a strand of a subscription."""
        return self.subscription(broker, name).cursors[pubend]

    def record(self, broker: BrokerId, name: str) -> SubscriptionRecord | None:
        """Return a durable subscription as it is on disk."""
        found = self.nodes[broker].disk.records.get(SubscriptionRecord.key_of(name))
        assert found is None or isinstance(found, SubscriptionRecord)
        return found

    def log_holds(self, broker: BrokerId) -> list[LogHoldRecord]:
        """Return the holds on the disk of a pubend's broker."""
        records = self.nodes[broker].disk.records.values()
        return [each for each in records if isinstance(each, LogHoldRecord)]


class Requester(Client):
    """A client that subscribes with all options and keeps what it was told of each call."""

    def subscribe(
        self,
        wanted: str = "TRUE",
        name: str | None = None,
        *,
        durable: bool = False,
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
    """Return after which ticks a subscription goes on."""
    assert isinstance(answer, Subscribed), answer
    return dict(answer.position)


def started(client: Client) -> dict[PubendId, Tick]:
    """Return the pubends that a client was told of after its call was answered."""
    return {each.pubend: each.after for each in client.of_kind(SubscriptionStarted)}


def state_of(cursor: Cursor) -> CursorPhase:
    """Return the state of a strand as it is now."""
    return cursor.phase
