"""What is known and not mended: each test fails until its rule is there (GUARANTEES.md lists them)."""

from __future__ import annotations

import pytest

from gapless.messages.clients import HostRetired, Order, RetireHost
from gapless.messages.requests import Leave
from tests.broker.desk import Desk, P, Q


def retire(world: Desk, name: str) -> None:
    """Let an operator say that a broker never returns."""
    operator = world.client("a", "operator")
    assert isinstance(operator.call(RetireHost(operator.number(), name, name), s=2), HostRetired)


@pytest.mark.xfail(
    strict=True, reason="nothing ends the strands on the pubends of a broker that was retired"
)
def test_total_order_does_not_wait_for_a_retired_broker() -> None:
    # R26, R51
    world = Desk("p-a-n", "a-q")
    ann, bob = world.publisher("p"), world.publisher("q", "Q")
    x = world.subscriber("n", "x", "TRUE", durable=True, order=Order.TOTAL)
    world.run(s=3)
    ann.publish("a1")
    bob.publish("b1")
    world.run(s=1)
    x.acknowledge(P, ann.ticks["a1"])
    x.acknowledge(Q, bob.ticks["b1"])
    world.run(s=1)
    world.crash("q")
    world.run(s=3)
    retire(world, "q")
    ann.publish("a2")
    world.run(s=60)
    assert x.events == ["a1", "b1", "a2"]


@pytest.mark.xfail(strict=True, reason="a leave is repeated until its pubend answers")
def test_nobody_takes_leave_of_a_retired_broker_for_ever() -> None:
    # R26, R43
    world = Desk("p-a-n", "a-q")
    world.publisher("q", "Q")
    x = world.subscriber("n", "x", "TRUE")
    world.run(s=3)
    world.crash("q")
    world.run(s=3)
    retire(world, "q")
    x.end()
    world.run(s=120)
    since = world.now
    world.run(s=100)
    assert world.sent_over(Leave, "n", "a", since) == []


@pytest.mark.xfail(strict=True, reason="a session with a retired host does not end its retirement")
def test_a_host_that_was_retired_by_mistake_is_served_when_it_is_back() -> None:
    # R26
    world = Desk("p-a-n", retention_s=0)
    ann = world.publisher("p")
    world.cut("a", "n")
    world.run(s=3)
    retire(world, "n")
    world.heal("a", "n")
    world.run(s=5)
    x = world.subscriber("n", "x", "TRUE", durable=True)
    world.run(s=60)
    ann.publish("e1")
    world.run(s=60)
    assert x.events == ["e1"]
