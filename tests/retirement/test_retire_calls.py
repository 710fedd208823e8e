"""The request to retire a broker: refusals, released logs, and which brokers learn of it (R26)."""

from __future__ import annotations

import pytest

from gapless.messages.operating import BrokerRetired, RetireBroker
from gapless.messages.overlay import Retire
from tests.broker.harness import BrokerHarness, P, reason


def test_a_broker_does_not_retire_itself() -> None:
    world = BrokerHarness("p-n")
    client = world.client("n")
    answer = client.call(RetireBroker(1, "n", "n"))
    assert reason(answer) == "the broker n is alive; stop it before it is retired"


@pytest.mark.parametrize(("broker", "cell"), [("m", "m"), ("n", "a"), ("N", "n")])
def test_the_retirement_of_an_unknown_broker_is_refused_with_the_names_of_known_ones(
    broker: str, cell: str
) -> None:
    world = BrokerHarness("p-a-n")
    world.run(s=1)
    world.crash("n")
    answer = world.client("a").call(RetireBroker(1, broker, cell))
    assert f"no broker {broker} in the cell {cell} is known here" in reason(answer)
    assert "known are n in n, p in p" in reason(answer)


def test_a_broker_outside_the_neighbourhood_is_known_by_its_membership() -> None:
    world = BrokerHarness("p-a-b-n", delta=0)
    world.publisher("p")
    world.subscriber("n", "x", "TRUE", durable=True)
    world.run(s=1)
    assert world["p"].neighbourhood.cell_of("n") is None
    world.crash("n")
    assert world.client("p").call(RetireBroker(1, "n", "n")) == BrokerRetired(1)


def test_a_broker_may_be_retired_twice() -> None:
    world = BrokerHarness("p-n")
    world.run(s=1)
    world.crash("n")
    client = world.client("p")
    assert client.call(RetireBroker(1, "n", "n")) == BrokerRetired(1)
    assert client.call(RetireBroker(2, "n", "n")) == BrokerRetired(2)


def test_the_retirement_of_a_reachable_broker_is_refused() -> None:
    world = BrokerHarness("p-n")
    world.publisher("p")
    world.subscriber("n", "x", "TRUE", durable=True)
    world.run(s=1)
    assert "n is alive" in reason(world.client("p").call(RetireBroker(1, "n", "n")))
    assert world.member("p", P, "n") is not None


def test_no_log_is_retained_for_a_retired_broker_at_a_distant_pubend() -> None:
    # the operator calls a neighbour of the dead broker; the pubend is farther away
    world = BrokerHarness("p-a-n")
    ann = world.publisher("p")
    world.subscriber("n", "x", "TRUE", durable=True)
    world.run(s=1)
    world.crash("n")
    ann.publish("e1")
    world.run(s=2)
    assert world.released("p", P) < ann.ticks["e1"]
    assert world.client("a").call(RetireBroker(1, "n", "n")) == BrokerRetired(1)
    world.run(s=2)
    assert world.sent_over(Retire, "a", "p")
    assert world.member("p", P, "n") is None
    assert world.released("p", P) >= ann.ticks["e1"]


def test_a_broker_that_was_down_learns_of_a_retirement_when_it_restarts() -> None:
    # R26: otherwise the log is retained for ever
    world = BrokerHarness("p-a-n")
    ann = world.publisher("p")
    world.subscriber("n", "x", "TRUE", durable=True)
    world.run(s=1)
    world.crash("n")
    world.crash("p")
    assert world.client("a").call(RetireBroker(1, "n", "n")) == BrokerRetired(1)
    world.start("p")
    world.run(s=2)
    assert world.member("p", P, "n") is None
    ann.connect()
    ann.open()
    ann.publish("e1")
    world.run(s=2)
    assert world.released("p", P) >= ann.ticks["e1"]
