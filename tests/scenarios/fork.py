"""Two pubends, a client of both, and a broker that is retired, perhaps by mistake (R26)."""

from __future__ import annotations

from gapless.core.ids import PubendId
from gapless.core.ticks import Tick
from gapless.messages.clients import Order, StartKind, StartPoint
from gapless.messages.operating import BrokerRetired, RetireBroker
from tests.broker.harness import BrokerHarness, P, Q
from tests.scenarios.brokers import Publisher, Subscriber

__all__ = ["Fork", "acknowledge", "at", "retire"]


def retire(world: BrokerHarness, name: str, *, at: str = "a") -> None:
    """Let an operator retire a broker."""
    operator = world.client(at, "operator")
    assert isinstance(
        operator.call(RetireBroker(operator.number(), name, name), s=2), BrokerRetired
    )


def acknowledge(x: Subscriber, **publishers: Publisher) -> None:
    """Let a client acknowledge the last event of each pubend."""
    for name, publisher in publishers.items():
        x.acknowledge(PubendId(name), max(publisher.ticks.values()))


def at(p: Tick, q: Tick, *, merged: Tick | None = None) -> StartPoint:
    """Return the start point of a client with positions on P and Q."""
    return StartPoint(StartKind.POSITION, ((P, p), (Q, q)), merged=merged)


class Fork:
    """P at p and Q at q, and a client at n that has one event of each; then q is retired."""

    def __init__(
        self, *, durable: bool = True, order: Order = Order.TOTAL, **parameters: int
    ) -> None:
        world = self.world = BrokerHarness("p-a-n", "a-q", "a-m", cells=None, **parameters)
        self.ann, self.bob = world.publisher("p"), world.publisher("q", "Q")
        self.x = world.subscriber("n", "x", "TRUE", durable=durable, order=order)
        world.run(s=3)
        self.ann.publish("a1")
        self.bob.publish("b1")
        world.run(s=1)
        acknowledge(self.x, P=self.ann, Q=self.bob)
        world.run(s=1)

    def lose_q(self) -> None:
        """Let q crash and be retired."""
        self.world.crash("q")
        self.world.run(s=3)
        retire(self.world, "q")
        self.world.run(s=3)

    def cut_q_off(self) -> None:
        """Cut q off, and retire it by mistake."""
        self.world.cut("a", "q")
        self.world.run(s=3)
        retire(self.world, "q")
        self.world.run(s=3)
