"""No two pubends have one identity, whichever brokers create them and cannot be queried (R4)."""

from __future__ import annotations

from typing import Any

import pytest

from gapless.core.context import Identity
from gapless.directory import name_query
from gapless.directory.name_query import numbered
from gapless.messages.clients import OpenPubend, PubendOpened, RefusalCause, Refused
from gapless.messages.operating import RetireBroker
from gapless.messages.overlay import Announce, NameQuery, NameReply, NameStatus, PubendProperties
from tests.broker.harness import BrokerHarness, P, Requester
from tests.scenarios.brokers import Client, of


def opened(harness: BrokerHarness, broker: str, name: str = "P", *, s: int = 5) -> Any:
    """Open a pubend at a broker and return the answer."""
    return Client(harness, broker, f"client of {broker}").call(OpenPubend(1, name), s=s)


def broker_of(answer: Any) -> str:
    """Return the broker to which a client was redirected."""
    assert isinstance(answer, Refused)
    assert answer.cause is RefusalCause.WRONG_BROKER
    return answer.broker


def both_open(harness: BrokerHarness, one: str, other: str, *, s: int = 3) -> tuple[Any, Any]:
    """Open pubends of one name at two brokers at once and return both answers."""
    clients = [Client(harness, broker, f"client of {broker}") for broker in (one, other)]
    for client in clients:
        client.request(OpenPubend(1, "P"))
    harness.run(s=s)
    first, second = (client.answer(1) for client in clients)
    return first, second


def test_a_name_that_is_free_at_all_brokers_is_used_unchanged() -> None:
    harness = BrokerHarness("p-a-n", "a-m", delta=0)
    harness.run(s=1)
    since = harness.now
    assert opened(harness, "p") == PubendOpened(1, P)
    assert harness.now - since < 100_000, "no timeout was needed"
    for source, target in (("p", "a"), ("a", "n"), ("a", "m")):
        assert len(harness.sent_over(NameQuery, source, target, since)) == 1
        assert len(harness.sent_over(NameReply, target, source, since)) == 1


def test_of_two_simultaneous_queries_one_creates_the_pubend_and_the_other_is_redirected() -> None:
    harness = BrokerHarness("p-a-n", delta=0)
    harness.run(s=1)
    at_p, at_n = both_open(harness, "p", "n")
    assert at_n == PubendOpened(1, P), "the name n is less than p"
    assert broker_of(at_p) == "n"
    assert broker_of(opened(harness, "p")) == "n"


def test_of_two_simultaneous_queries_in_one_cell_one_wins() -> None:
    harness = BrokerHarness("c-d", cells={"c": ["c1", "c2", "c3"], "d": ["d1", "d2"]}, delta=0)
    harness.run(s=1)
    at_c3, at_c2 = both_open(harness, "c3", "c2")
    assert at_c2 == PubendOpened(1, P)
    assert broker_of(at_c3) == "c2"


def test_every_broker_of_every_cell_is_queried_once() -> None:
    harness = BrokerHarness(
        "c-d-e", cells={"c": ["c1", "c2"], "d": ["d1", "d2"], "e": ["e1"]}, delta=0
    )
    harness.run(s=1)
    since = harness.now
    assert opened(harness, "c1") == PubendOpened(1, P)
    queried = sorted(
        target
        for at, _, target, each in harness.sent
        if at >= since and isinstance(each, NameQuery)
    )
    assert queried == ["c2", "d1", "d2", "e1"]


def test_a_name_in_use_is_refused_at_a_broker_without_its_announcement() -> None:
    harness = BrokerHarness("p-a-n", delta=0)
    harness.run(s=1)
    harness.lose(of(Announce))
    assert opened(harness, "p") == PubendOpened(1, P)
    assert broker_of(opened(harness, "n")) == "p"


def test_a_name_gets_a_number_if_a_broker_does_not_answer() -> None:
    harness = BrokerHarness("p-a-n", delta=0)
    harness.run(s=1)
    harness.crash("n")
    harness.run(s=2)
    answer = opened(harness, "p")
    assert isinstance(answer, PubendOpened)
    assert answer.pubend.name == "P"
    assert answer.pubend != P
    assert opened(harness, "p") == answer, "the pubend is found by its name"
    harness.start("n")
    harness.run(s=2)
    assert broker_of(opened(harness, "n")) == "p"


def test_pubends_of_one_name_created_in_two_partitions_are_both_announced_after_healing() -> None:
    harness = BrokerHarness("p-a-n", delta=0)
    listener = harness.subscriber("a", "s", "TRUE")
    harness.run(s=2)
    harness.cut("a", "n")
    harness.run(s=2)
    publishers = []
    for broker in ("p", "n"):
        answer = opened(harness, broker)
        assert isinstance(answer, PubendOpened)
        publishers.append(harness.publisher(broker, str(answer.pubend)))
    assert publishers[0].pubend != publishers[1].pubend
    publishers[0].publish("of p")
    publishers[1].publish("of n")
    harness.heal("a", "n")
    harness.run(s=5)
    assert sorted(listener.events) == ["of n", "of p"]


def test_a_name_gets_a_number_if_a_queried_broker_crashes() -> None:
    harness = BrokerHarness("p-a-n", delta=0)
    harness.run(s=1)
    harness.lose(of(NameQuery, target="n"))
    client = Client(harness, "p", "ann")
    client.request(OpenPubend(1, "P"))
    harness.run(ms=100)
    assert client.answer(1) is None
    harness.crash("n")
    harness.wait(lambda: client.answer(1) is not None, s=5)
    assert client.answer(1).pubend == numbered("P", harness["p"].context.identity)


def test_a_broker_that_restarts_in_time_is_queried_again() -> None:
    harness = BrokerHarness("p-a-n", delta=0)
    harness.run(s=1)
    lost = harness.lose(of(NameQuery, target="n"))
    client = Client(harness, "p", "ann")
    client.request(OpenPubend(1, "P"))
    harness.run(ms=100)
    lost.end()
    harness.cut("a", "n")
    harness.run(ms=100)
    harness.heal("a", "n")
    assert harness.wait(lambda: client.answer(1) == PubendOpened(1, P), s=3)


def test_if_the_queried_broker_of_a_cell_crashes_its_peer_is_queried() -> None:
    harness = BrokerHarness("c-d-e", cells={"c": ["c1"], "d": ["d1", "d2"], "e": ["e1"]}, delta=0)
    harness.run(s=1)
    lost = harness.lose(of(NameReply, source="d1"))
    client = Client(harness, "c1", "ann")
    client.request(OpenPubend(1, "P"))
    harness.run(ms=100)
    assert client.answer(1) is None
    harness.crash("d1")
    harness.run(ms=100)
    assert client.answer(1) is None, "d1 may have the name"
    lost.end()
    harness.start("d1")
    assert harness.wait(lambda: client.answer(1) == PubendOpened(1, P), s=3)


def test_a_broker_that_starts_in_time_is_queried() -> None:
    harness = BrokerHarness("p-a-n", delta=0)
    harness.run(s=1)
    harness.crash("n")
    harness.run(s=2)
    client = Client(harness, "p", "ann")
    client.request(OpenPubend(1, "P"))
    harness.run(s=1)
    assert client.answer(1) is None
    harness.start("n")
    assert harness.wait(lambda: client.answer(1) == PubendOpened(1, P), s=3)


def test_a_name_that_is_announced_during_its_query_is_not_used() -> None:
    harness = BrokerHarness("p-a-n", delta=0)
    harness.run(s=1)
    harness.lose(of(NameQuery, target="n"))
    client = Client(harness, "p", "ann")
    client.request(OpenPubend(1, "P"))
    harness.run(ms=100)
    properties = PubendProperties("n", "n", "TRUE")
    harness.receive("p", "a", Announce(P, 1, properties, ("a", "n")))
    harness.run(s=5)
    assert broker_of(client.answer(1)) == "n"


def test_a_numbered_pubend_is_opened_at_its_broker_and_never_created_at_another() -> None:
    harness = BrokerHarness("p-n", delta=0)
    harness.run(s=1)
    harness.crash("n")
    harness.run(s=2)
    made = opened(harness, "p").pubend
    harness.start("n")
    harness.run(s=2)
    assert opened(harness, "p", str(made)) == PubendOpened(1, made)
    assert broker_of(opened(harness, "n", str(made))) == "p"
    unknown = opened(harness, "p", "P#2")
    assert unknown.reason == "no pubend P#2 is known here, and only brokers assign numbers"


def test_a_broker_that_has_lost_its_disk_does_not_reuse_its_former_names() -> None:
    harness = BrokerHarness("p-n", delta=0)
    harness.run(s=1)
    assert opened(harness, "p") == PubendOpened(1, P)
    harness.run(s=1)
    harness.crash("p")
    harness.nodes["p"].disk.records.clear()
    harness.nodes["p"].disk.logs.clear()
    harness.start("p")
    harness.crash("n")
    harness.start("n")
    harness.run(s=2)
    answer = opened(harness, "p")
    assert isinstance(answer, PubendOpened)
    assert answer.pubend != P


def test_a_retired_broker_is_not_queried() -> None:
    harness = BrokerHarness("p-a-n", delta=0)
    harness.run(s=1)
    harness.crash("n")
    harness.run(s=2)
    Requester(harness, "a", "operator").call(RetireBroker(1, "n", "n"))
    harness.run(s=1)
    since = harness.now
    assert opened(harness, "p") == PubendOpened(1, P)
    assert harness.now - since < 100_000


def test_a_name_gets_a_number_if_brokers_behind_a_retired_cell_cannot_be_queried() -> None:
    harness = BrokerHarness("p-a-n", delta=0)
    harness.run(s=1)
    harness.crash("a")
    harness.run(s=2)
    for broker in ("p", "n"):
        Requester(harness, broker, f"operator of {broker}").call(RetireBroker(1, "a", "a"))
    first, second = both_open(harness, "p", "n", s=5)
    assert first.pubend.name == second.pubend.name == "P"
    assert len({first.pubend, second.pubend, P}) == 3


def test_a_broker_that_has_lost_its_disk_is_not_redirected_to_itself() -> None:
    harness = BrokerHarness("c-d", cells={"c": ["c1", "c2"], "d": ["d1"]}, delta=0)
    harness.run(s=1)
    assert opened(harness, "c1") == PubendOpened(1, P)
    harness.run(s=1)
    harness.crash("c1")
    harness.nodes["c1"].disk.records.clear()
    harness.nodes["c1"].disk.logs.clear()
    harness.start("c1")
    harness.run(s=2)
    answer = opened(harness, "c1")
    assert isinstance(answer, PubendOpened)
    assert answer.pubend != P
    assert broker_of(opened(harness, "d1")) == "c1"


def test_a_name_of_a_retired_broker_gets_a_number_while_its_location_is_remembered() -> None:
    harness = BrokerHarness("p-a-n", delta=0)
    harness.run(s=1)
    assert opened(harness, "n") == PubendOpened(1, P)
    harness.run(s=1)
    harness.crash("n")
    harness.run(s=2)
    Requester(harness, "a", "operator").call(RetireBroker(1, "n", "n"))
    harness.run(s=1)
    answer = opened(harness, "p")
    assert isinstance(answer, PubendOpened)
    assert answer.pubend != P


@pytest.mark.parametrize("durable", [False, True])
def test_a_name_gets_a_number_if_the_winner_crashes_before_it_answers(
    durable: bool,
) -> None:
    harness = BrokerHarness("n-a-p", delta=0)
    harness.run(s=1)
    harness.stop_disk("n")
    at_n = Client(harness, "n", "ann")
    at_n.request(OpenPubend(1, "P"))
    harness.run(ms=100)
    assert broker_of(opened(harness, "p")) == "n", "n is creating it"
    if durable:
        harness.lose(of(Announce))
        harness.resume_disk("n")
    harness.crash("n")
    harness.run(s=2)
    answer = opened(harness, "p")
    assert isinstance(answer, PubendOpened)
    assert answer.pubend != P, "n may have created it"
    harness.nodes["n"].disk.stopped = False
    harness.start("n")
    harness.run(s=2)
    hosted = {*harness["n"].components.hosted}
    assert hosted == ({P} if durable else set())


def test_more_simultaneous_name_queries_than_the_limit_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(name_query, "NAME_QUERIES_MAX", 1)
    harness = BrokerHarness("p-a-n", delta=0)
    harness.run(s=1)
    harness.crash("n")
    harness.run(s=2)
    client = Client(harness, "p", "ann")
    client.request(OpenPubend(1, "P"))
    client.request(OpenPubend(2, "Q"))
    client.request(OpenPubend(3, "P"))
    harness.run(s=5)
    refused = client.answer(2)
    assert isinstance(refused, Refused)
    assert refused.cause is RefusalCause.UNAVAILABLE
    assert client.answer(1).pubend == client.answer(3).pubend


def test_numbers_differ_by_broker_by_incarnation_and_by_name() -> None:
    drawn = {
        numbered(name, Identity(broker, "c", incarnation))
        for name in ("P", "Q")
        for broker in ("a", "b")
        for incarnation in (1, 2)
    }
    assert len(drawn) == 8
    assert all(1 < each.incarnation < 2**53 for each in drawn)


@pytest.mark.parametrize("verdict", list(NameStatus))
def test_an_unexpected_name_reply_is_ignored(verdict: NameStatus) -> None:
    harness = BrokerHarness("p-n", delta=0)
    harness.run(s=1)
    harness.receive("p", "n", NameReply(("p", 1, 1), verdict, "n"))
    assert opened(harness, "p") == PubendOpened(1, P)
