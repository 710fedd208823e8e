"""Refusals say what a client's program can do about them."""

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


def test_a_pubend_that_is_elsewhere_is_refused_with_the_name_of_its_broker() -> None:
    desk = BrokerHarness("p-s")
    desk.client("p").request(OpenPubend(1, "P"))
    desk.run(ms=500)
    client = desk.client("s", "other")
    client.request(OpenPubend(1, "P"))
    client.request(OpenPublisher(2, P, "ann"))
    desk.run(ms=100)
    refusals = [each for each in client.notices if isinstance(each, Refused)]
    assert [(each.cause, each.broker) for each in refusals] == [
        (RefusalCause.WRONG_BROKER, "p")
    ] * 2


def test_a_batch_of_a_session_that_is_over_is_told_from_one_of_a_publisher_nobody_knows() -> None:
    desk = BrokerHarness("p-s")
    client = desk.client("p")
    client.request(OpenPubend(1, "P"))
    desk.run(ms=100)
    client.request(Publish(2, P, "ann", 1, 1, (({}, b""),)))
    client.request(OpenPublisher(3, P, "ann"))
    desk.run(ms=100)
    (opened,) = [each for each in client.notices if isinstance(each, PublisherOpened)]
    client.request(OpenPublisher(4, P, "ann"))
    desk.run(ms=100)
    client.request(Publish(5, P, "ann", opened.session, 1, (({}, b""),)))
    client.request(Publish(6, P, "ann", opened.session + 1, 0, (({}, b""),)))
    desk.run(ms=100)
    causes = {each.request: each.cause for each in client.notices if isinstance(each, Refused)}
    assert causes == {2: RefusalCause.NOT_OPEN, 5: RefusalCause.FENCED, 6: RefusalCause.OTHER}


def test_a_subscription_that_a_newer_connection_has_is_refused_as_taken_over() -> None:
    desk = BrokerHarness("p-s")
    old = desk.client("p", "old")
    new = desk.client("p", "new")
    desk.run(ms=10)
    new.request(Subscribe(1, "desk", "", durable=True))
    desk.run(ms=100)
    old.request(Subscribe(2, "desk", "", durable=True))
    desk.run(ms=100)
    (refused,) = [each for each in old.notices if isinstance(each, Refused)]
    assert refused.cause is RefusalCause.FENCED
