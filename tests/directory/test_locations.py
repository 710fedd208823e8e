"""A broker stores the location of pubends, so that there are no two logs of one identity."""

from __future__ import annotations

from gapless.messages.clients import OpenPubend, PubendOpened, RefusalCause, Refused
from gapless.messages.operating import RetireBroker
from gapless.messages.records import PubendLocationRecord
from tests.broker.harness import BrokerHarness, P, Requester


def locations(harness: BrokerHarness, broker: str) -> list[tuple[str, str]]:
    """Return the pubend locations on a broker's disk."""
    return [
        (pubend, broker_name)
        for pubend, broker_name, left in all_locations(harness, broker)
        if not left
    ]


def all_locations(harness: BrokerHarness, broker: str) -> list[tuple[str, str, bool]]:
    """Return the current and former pubend locations on a broker's disk."""
    records = harness.nodes[broker].disk.records.values()
    found = [each for each in records if isinstance(each, PubendLocationRecord)]
    return [(str(each.pubend), each.broker, each.host_retired) for each in found]


def restarted_without_p() -> BrokerHarness:
    """P is at p; then p crashes, and a and n restart without it."""
    harness = BrokerHarness("p-a-n", delta=1)
    harness.publisher("p")
    harness.run(s=1)
    for broker in ("p", "a", "n"):
        harness.crash(broker)
    for broker in ("a", "n"):
        harness.start(broker)
    harness.run(s=1)
    return harness


def test_a_pubend_of_a_broker_that_is_down_is_not_created_at_another() -> None:
    harness = restarted_without_p()
    for broker in ("a", "n"):
        assert harness[broker].components.announcements.get(P) is None, "no broker announces it"
        assert locations(harness, broker) == [(str(P), "p")]
        answer = Requester(harness, broker, "client").call(OpenPubend(1, P.name, "TRUE"))
        assert isinstance(answer, Refused)
        assert (answer.cause, answer.broker) == (RefusalCause.WRONG_BROKER, "p")


def test_the_phb_stores_no_location_of_its_own_pubend() -> None:
    harness = restarted_without_p()
    harness.start("p")
    harness.run(s=1)
    assert locations(harness, "p") == []
    answer = Requester(harness, "p", "client").call(OpenPubend(1, P.name, "TRUE"))
    assert isinstance(answer, PubendOpened)


def test_names_of_a_retired_broker_are_free() -> None:
    harness = restarted_without_p()
    Requester(harness, "a", "operator").call(RetireBroker(1, "p", "p"))
    harness.run(s=1)
    assert locations(harness, "a") == locations(harness, "n") == []
    answer = Requester(harness, "n", "client").call(OpenPubend(2, P.name, "TRUE"))
    assert isinstance(answer, PubendOpened)


def test_the_former_location_of_a_free_name_is_kept_until_the_name_is_used_again() -> None:
    # no merge waits for a position on it meanwhile (R26)
    harness = restarted_without_p()
    Requester(harness, "a", "operator").call(RetireBroker(1, "p", "p"))
    harness.run(s=1)
    assert all_locations(harness, "a") == all_locations(harness, "n") == [(str(P), "p", True)]
    Requester(harness, "n", "client").call(OpenPubend(2, P.name, "TRUE"))
    harness.run(s=1)
    assert (all_locations(harness, "a"), all_locations(harness, "n")) == (
        [(str(P), "n", False)],
        [],
    )
