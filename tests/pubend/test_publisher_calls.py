"""Pubends of a broker: opening, finding, widening, refusals, and restarts."""

from __future__ import annotations

from typing import Any

import pytest

from gapless.core.ids import PubendId
from gapless.messages.clients import (
    OpenPubend,
    OpenPublisher,
    PubendOpened,
    Publish,
    PublisherOpened,
)
from gapless.messages.overlay import Announce, Quality
from gapless.messages.records import PubendRecord
from gapless.messages.streams import StreamData
from tests.broker.harness import BrokerHarness, P, Q, reason
from tests.scenarios.brokers import Client

OPENED = PubendOpened(1, P)


def opened(client: Client, name: str = "P", advertisement: str = "TRUE", **options: Any) -> Any:
    """Open a pubend and return the answer."""
    answer = client.call(OpenPubend(client.number(), name, advertisement, **options))
    client.world.run(ms=50)
    return answer


def hosted(world: BrokerHarness, broker: str = "p", pubend: PubendId = P) -> PubendRecord:
    return world[broker].components.hosted[pubend].record


# --- refusals -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["", "x" * 257, "a#b", "#", "a#2#3"])
def test_a_pubend_name_that_is_empty_or_invalid_is_refused(name: str) -> None:
    answer = opened(BrokerHarness("p").client(), name)
    assert reason(answer) == "the name of a pubend must have 1 to 256 characters and no #"


def test_a_name_may_be_as_long_as_the_limit() -> None:
    assert isinstance(opened(BrokerHarness("p").client(), "x" * 256), PubendOpened)


def test_an_invalid_advertisement_is_refused_with_the_column_of_the_error() -> None:
    text = reason(opened(BrokerHarness("p").client(), "P", "price >"))
    assert text.startswith("the advertisement is not a valid filter: ")
    assert "column 8" in text


def test_opening_a_pubend_of_another_broker_is_refused_with_the_name_of_the_broker() -> None:
    world = BrokerHarness("p-n")
    world.publisher("p")
    client = world.client("n")
    assert reason(opened(client)) == "the pubend 'P' is at the broker p; publish there"
    text = reason(client.call(OpenPublisher(8, P, "ann")))
    assert text == "the pubend P is at the broker p; publish there"
    text = reason(client.call(Publish(9, P, "ann", 1, 1, (({}, b""),))))
    assert text == "the pubend P is at the broker p; publish there"


def test_publishing_to_an_unknown_pubend_is_refused() -> None:
    client = BrokerHarness("p").client()
    text = "there is no pubend P here; open it first"
    assert reason(client.call(OpenPublisher(1, P, "ann"))) == text
    assert reason(client.call(Publish(2, P, "ann", 1, 1, (({}, b""),)))) == text


@pytest.mark.parametrize("name", ["", "x" * 257])
def test_a_publisher_needs_a_name(name: str) -> None:
    world = BrokerHarness("p")
    client = world.client()
    opened(client)
    text = reason(client.call(OpenPublisher(2, P, name)))
    assert text == "a publisher's name has 1 to 256 characters"


def test_an_event_outside_the_advertisement_is_refused() -> None:
    # A22
    world = BrokerHarness("p")
    ann = world.publisher("p", advertisement="price > 10")
    number = ann.send_event("e1", price=5)
    world.run(ms=50)
    assert "price > 10" in reason(ann.answer(number))


def test_publishing_without_a_publisher_session_is_refused() -> None:
    world = BrokerHarness("p")
    client = world.client()
    opened(client)
    text = reason(client.call(Publish(2, P, "ann", 1, 1, (({}, b""),))))
    assert "open" in text


def test_opening_a_pubend_with_another_quality_is_refused() -> None:
    # A26: it belongs to the pubend
    world = BrokerHarness("p")
    client = world.client()
    opened(client)
    opened(client, "Q", quality=Quality.BEST_EFFORT)
    text = reason(opened(client, quality=Quality.BEST_EFFORT))
    assert text == (
        "the pubend 'P' is guaranteed, and the quality of a pubend cannot be changed; open another pubend"
    )
    assert reason(opened(client, "Q")) == (
        "the pubend 'Q' is best_effort, and the quality of a pubend cannot be changed; open another pubend"
    )


# --- advertisements only widen (A22) --------------------------------------------------------------


def test_opening_an_existing_pubend_returns_it() -> None:
    world = BrokerHarness("p-n")
    client = world.client()
    assert opened(client, advertisement="price > 10") == OPENED
    answer = opened(client, advertisement="price > 20")
    assert answer == PubendOpened(2, P), "the advertisement is the same"
    assert hosted(world).properties.advertisement == "price > 10"
    assert {each.version for each in world.sent_over(Announce, "p", "n")} == {1}


def test_an_advertisement_that_is_neither_wider_nor_narrower_is_refused_with_a_remedy() -> None:
    client = BrokerHarness("p").client()
    opened(client, advertisement="price > 10")
    text = reason(opened(client, advertisement="size = 1"))
    assert text == (
        "the pubend P advertises price > 10, and an advertisement only widens; "
        "open it with (price > 10) OR (size = 1), or open another pubend"
    )


def test_the_advertisement_of_a_best_effort_pubend_cannot_widen() -> None:
    client = BrokerHarness("p").client()
    opened(client, "P", "price > 10", quality=Quality.BEST_EFFORT)
    text = reason(opened(client, "P", "TRUE", quality=Quality.BEST_EFFORT))
    assert "of a best-effort pubend cannot be changed; open another pubend for TRUE" in text
    answer = opened(client, "P", "price > 11", quality=Quality.BEST_EFFORT)
    assert isinstance(answer, PubendOpened)


def test_a_wider_advertisement_is_on_disk_before_it_is_announced_or_answered() -> None:
    # I13
    world = BrokerHarness("p-n")
    client = world.client()
    opened(client, advertisement="price > 10")
    world.stop_disk("p")
    assert opened(client, advertisement="price > 5") is None
    also = opened(client, advertisement="price > 7")
    assert also is None, "it waits for the pending write"
    assert {each.version for each in world.sent_over(Announce, "p", "n")} == {1}
    world.resume_disk("p")
    world.run(ms=50)
    assert client.answer(2) == PubendOpened(2, P)
    assert client.answer(3) == PubendOpened(3, P)
    text = world.sent_over(Announce, "p", "n")[-1]
    assert (text.version, text.properties.advertisement) == (2, "price > 5")


# --- opening --------------------------------------------------------------------------------------


def test_a_pubend_is_on_disk_before_it_is_announced() -> None:
    # I13: after a crash it would be lost, and its name free
    world = BrokerHarness("p-n")
    client = world.client()
    world.stop_disk("p")
    assert opened(client) is None
    assert world.sent_over(Announce, "p", "n") == []
    world.restart("p")
    world.run(s=1)
    assert world["p"].components.hosted == {}
    assert world["n"].components.announcements.get(P) is None


def test_a_second_open_call_waits_for_the_creation_and_gets_the_same_pubend() -> None:
    world = BrokerHarness("p")
    one, two = world.client(name="one"), world.client(name="two")
    world.stop_disk("p")
    assert opened(one) is None
    assert opened(two) is None
    world.resume_disk("p")
    assert one.answer(1) == two.answer(1) == OPENED


def test_an_open_call_with_another_quality_during_the_creation_is_refused() -> None:
    # A26: PubendOpened would promise a quality that the pubend does not have
    world = BrokerHarness("p")
    one, two = world.client(name="one"), world.client(name="two")
    world.stop_disk("p")
    opened(one)
    opened(two, quality=Quality.BEST_EFFORT)
    world.resume_disk("p")
    world.run(ms=50)
    assert one.answer(1) == OPENED
    assert reason(two.answer(1)) == (
        "the pubend 'P' is guaranteed, and the quality of a pubend cannot be changed; open another pubend"
    )


def test_a_wider_advertisement_during_the_creation_applies_when_the_pubend_is_open() -> None:
    world = BrokerHarness("p")
    one, two = world.client(name="one"), world.client(name="two")
    world.stop_disk("p")
    opened(one, advertisement="price > 10")
    opened(two, advertisement="TRUE")
    world.resume_disk("p")
    world.run(ms=50)
    assert two.answer(1) == OPENED
    assert hosted(world).properties.advertisement == "TRUE"


# --- restarts -------------------------------------------------------------------------------------


def test_after_a_restart_a_pubend_has_its_log_its_publishers_and_its_members() -> None:
    world = BrokerHarness("p-n")
    ann = world.publisher("p")
    x = world.subscriber("n", "x", "TRUE", durable=True)
    world.run(s=1)
    ann.publish("e1")
    ann.publish("e2")
    world.run(ms=200)
    member, latest = world.member("p", P, "n"), world.pubend("p", P).stream_epochs[-1]
    assert member is not None
    x.leave()
    world.restart("p")
    world.run(s=1)
    assert world.member("p", P, "n") is not None
    assert world.pubend("p", P).members.row(member.shb) is not None
    assert latest in world.pubend("p", P).stream_epochs
    ann.connect()
    assert ann.open().last_sequence == 2, "its publishers are known"
    x.come_back()
    world.run(s=1)
    assert x.events == ["e1", "e2", "e1", "e2"], "nothing was acknowledged"


def test_best_effort_pubends_are_restored_without_events() -> None:
    world = BrokerHarness("p-n")
    ann = world.publisher("p", quality=Quality.BEST_EFFORT)
    x = world.subscriber("n", "x", "TRUE")
    world.run(s=1)
    first = ann.session
    ann.publish("e1")
    world.run(ms=50)
    world.restart("p", clock_back_s=100)
    world.run(s=1)
    ann.connect()
    again = ann.open()
    assert isinstance(again, PublisherOpened)
    assert again.last_sequence == 0
    assert again.session > first, "a session of an earlier incarnation is fenced"
    ann.send_event("e2", sequence=1)
    world.run(ms=100)
    assert x.events == ["e1", "e2"], "a new incarnation may have lower ticks"


def test_a_report_for_a_pubend_of_another_broker_is_ignored() -> None:
    world = BrokerHarness("p-n")
    client = world.client()
    opened(client, "Q", quality=Quality.BEST_EFFORT)
    world.subscriber("n", "x", "TRUE", durable=True)
    world.run(s=2)
    assert world.member("p", Q, "n") is None, "best effort has no members"
    assert world["p"].components.pubends.serving(Q) is None
    assert world.sent_over(StreamData, "p", "n") == []


def test_a_publisher_is_not_forgotten_when_a_slow_clock_is_corrected() -> None:
    # P3: a repeated event would be published twice
    world = BrokerHarness("p-a", "p-b", publisher_ttl_s=80)
    ann = world.publisher("p")
    x = world.subscriber("a", "x", "TRUE")
    world.run(s=2)
    world.set_clock("p", -2_000)
    world.run(s=9)
    ann.publish("e1")
    world.set_clock("p", 2_000)
    world.run(s=12)
    ann.open()
    ann.send_event("e1", sequence=1)
    world.run(s=3)
    assert x.events == ["e1"]


def test_the_log_is_not_retained_for_a_host_that_left_before_a_crash() -> None:
    # R43, R55
    world = BrokerHarness("p-a-n")
    ann = world.publisher("p")
    x = world.subscriber("n", "x", "TRUE")
    world.run(s=3)
    x.end()
    assert world.wait(lambda: world.member("p", P, "n") is None, s=120)
    world.run(ms=50)
    world.restart("p")
    world.run(s=5)
    ann.connect()
    ann.open()
    ann.publish("e1")
    world.run(s=400)
    assert world.released("p", P) >= ann.ticks["e1"]
