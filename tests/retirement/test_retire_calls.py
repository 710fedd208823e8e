"""The request to retire a broker: what is refused, what it releases, and who learns of it (R26)."""

from __future__ import annotations

import pytest

from gapless.messages.clients import BrokerRetired, RetireBroker
from gapless.messages.overlay import Retire
from tests.broker.harness import BrokerHarness, P, reason


def test_a_broker_does_not_retire_itself() -> None:
    world = BrokerHarness("p-n")
    client = world.client("n")
    told = client.call(RetireBroker(1, "n", "n"))
    assert reason(told) == "the broker n is alive; stop it before it is retired"


@pytest.mark.parametrize(("broker", "cell"), [("m", "m"), ("n", "a"), ("N", "n")])
def test_a_broker_that_is_not_known_is_not_retired_and_the_known_ones_are_named(
    broker: str, cell: str
) -> None:
    world = BrokerHarness("p-a-n")
    world.run(s=1)
    world.crash("n")
    told = world.client("a").call(RetireBroker(1, broker, cell))
    assert f"no broker {broker} in the cell {cell} is known here" in reason(told)
    assert "known are n in n, p in p" in reason(told)


def test_a_broker_beyond_the_known_cells_is_known_by_what_is_kept_for_it() -> None:
    world = BrokerHarness("p-a-b-n", delta=0)
    world.publisher("p")
    world.subscriber("n", "x", "TRUE", durable=True)
    world.run(s=1)
    assert world["p"].neighbourhood.cell_of("n") is None
    world.crash("n")
    assert world.client("p").call(RetireBroker(1, "n", "n")) == BrokerRetired(1)


def test_that_a_broker_is_retired_may_be_said_twice() -> None:
    world = BrokerHarness("p-n")
    world.run(s=1)
    world.crash("n")
    client = world.client("p")
    assert client.call(RetireBroker(1, "n", "n")) == BrokerRetired(1)
    assert client.call(RetireBroker(2, "n", "n")) == BrokerRetired(2)


def test_a_broker_that_is_alive_next_door_is_not_retired() -> None:
    world = BrokerHarness("p-n")
    world.publisher("p")
    world.subscriber("n", "x", "TRUE", durable=True)
    world.run(s=1)
    assert "n is alive" in reason(world.client("p").call(RetireBroker(1, "n", "n")))
    assert world.member("p", P, "n") is not None


def test_a_retired_broker_keeps_no_log_wherever_the_pubend_is() -> None:
    # the operator tells a neighbour of the dead broker; the pubend is farther away
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


def test_a_broker_that_was_down_hears_of_a_retirement_when_it_is_back() -> None:
    # section 17, R26: otherwise the log stays pinned
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
