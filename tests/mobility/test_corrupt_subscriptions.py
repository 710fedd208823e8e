"""A durable subscription whose record is corrupt keeps its name in use, and nothing is served (P8)."""

from __future__ import annotations

from typing import Any

import pytest

from gapless.messages.clients import (
    FindDurable,
    RefusalCause,
    Refused,
    StartPoint,
    Unsubscribe,
    Unsubscribed,
)
from gapless.messages.operating import (
    GetSubscription,
    ListAllDurable,
    RemoveDurable,
    SeekDurable,
)
from gapless.subscribers.corrupt import CorruptSubscriptions
from tests.broker.harness import BrokerHarness
from tests.mobility.test_finding import (
    is_new,
    line,
    moved,
    opens,
    program,
    redirected_to,
    silent_brokers,
)


def corrupt(world: BrokerHarness, broker: str) -> None:
    """Make the record of a subscription corrupt, as if it had been found so at the start."""
    corrupt = world[broker].components.finder._corrupt
    assert isinstance(corrupt, CorruptSubscriptions)
    corrupt._problems["desk"] = "its checksum does not fit"


def refused_as_corrupt(answer: Any) -> bool:
    """Return whether a request was refused because of the record."""
    assert isinstance(answer, Refused), answer
    assert answer.cause is RefusalCause.OTHER
    return "could not be restored: its checksum does not fit" in answer.reason


def test_a_corrupt_subscription_is_found_and_not_created_again() -> None:
    world = line()
    corrupt(world, "b")
    assert redirected_to(opens(program(world, "p"))) == "b"
    assert refused_as_corrupt(opens(program(world, "b", "there")))
    assert refused_as_corrupt(opens(program(world, "b", "there too"), create=True))


def test_a_subscription_that_has_moved_is_found_in_place_of_its_corrupt_former_record() -> None:
    # a is asked first and its name is the lesser one
    world, client, _ = moved()
    client.leave()
    world.start("a")
    world.run(s=3)
    corrupt(world, "a")
    for broker in ("a", "p"):
        assert redirected_to(opens(program(world, broker, f"again at {broker}"))) == "b"


def test_a_broker_with_a_corrupt_record_waits_for_one_that_may_host_the_subscription() -> None:
    world = line()
    corrupt(world, "b")
    world.crash("p")
    world.run(s=2)
    assert silent_brokers(opens(program(world, "b"))) == ("p",)


@pytest.mark.parametrize(
    "request_",
    [
        Unsubscribe(7, "desk", durable=True),
        SeekDurable(7, "desk", StartPoint()),
        GetSubscription(7, "desk", durable=True),
    ],
    ids=["unsubscribe", "seek", "info"],
)
def test_requests_are_refused_because_the_record_is_corrupt(request_: Any) -> None:
    world = line()
    corrupt(world, "b")
    assert refused_as_corrupt(program(world, "b").call(request_, s=5))


def test_an_operator_sees_a_corrupt_subscription_and_removes_it() -> None:
    world = line()
    corrupt(world, "b")
    operator = program(world, "p", "operator")
    (entry,) = operator.call(ListAllDurable(operator.number()), s=5).entries
    assert (entry.name, entry.host.broker, entry.host.corrupt) == ("desk", "b", True)
    there = program(world, "b", "there")
    answer = there.call(RemoveDurable(there.number(), "desk", here=True), s=2)
    assert isinstance(answer, Unsubscribed)
    assert operator.call(FindDurable(operator.number(), "desk"), s=5).broker == ""
    assert is_new(opens(program(world, "p")))
