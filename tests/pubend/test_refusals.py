"""Refusals have a cause on which a program can act."""

from __future__ import annotations

from gapless.messages.clients import (
    OpenPubend,
    OpenPublisher,
    Publish,
    PublisherOpened,
    RefusalCause,
    Refused,
    Subscribe,
)
from tests.broker.harness import BrokerHarness, P


def test_a_call_for_a_pubend_of_another_broker_is_refused_with_its_name() -> None:
    harness = BrokerHarness("p-s")
    harness.client("p").request(OpenPubend(1, "P"))
    harness.run(ms=500)
    client = harness.client("s", "other")
    client.request(OpenPubend(1, "P"))
    client.request(OpenPublisher(2, P, "ann"))
    harness.run(ms=100)
    refusals = [each for each in client.notices if isinstance(each, Refused)]
    assert [(each.cause, each.broker) for each in refusals] == [
        (RefusalCause.WRONG_BROKER, "p")
    ] * 2


def test_a_fenced_session_and_an_unknown_publisher_have_different_refusal_causes() -> None:
    harness = BrokerHarness("p-s")
    client = harness.client("p")
    client.request(OpenPubend(1, "P"))
    harness.run(ms=100)
    client.request(Publish(2, P, "ann", 1, 1, (({}, b""),)))
    client.request(OpenPublisher(3, P, "ann"))
    harness.run(ms=100)
    (opened,) = [each for each in client.notices if isinstance(each, PublisherOpened)]
    client.request(OpenPublisher(4, P, "ann"))
    harness.run(ms=100)
    client.request(Publish(5, P, "ann", opened.session, 1, (({}, b""),)))
    client.request(Publish(6, P, "ann", opened.session + 1, 0, (({}, b""),)))
    harness.run(ms=100)
    causes = {each.request: each.cause for each in client.notices if isinstance(each, Refused)}
    assert causes == {2: RefusalCause.NOT_OPEN, 5: RefusalCause.FENCED, 6: RefusalCause.OTHER}


def test_a_call_on_a_subscription_of_a_newer_connection_is_refused_as_fenced() -> None:
    harness = BrokerHarness("p-s")
    old = harness.client("p", "old")
    new = harness.client("p", "new")
    harness.run(ms=10)
    new.request(Subscribe(1, "harness", "", durable=True))
    harness.run(ms=100)
    old.request(Subscribe(2, "harness", "", durable=True))
    harness.run(ms=100)
    (refused,) = [each for each in old.notices if isinstance(each, Refused)]
    assert refused.cause is RefusalCause.FENCED
