"""A broker stores the location of pubends, so that there are no two logs of one identity."""

from __future__ import annotations

from gapless.messages.clients import OpenPubend, PubendOpened, RefusalCause, Refused
from gapless.messages.operating import RetireBroker
from gapless.messages.records import PubendLocationRecord
from tests.broker.harness import BrokerHarness, P, Requester


def locations(desk: BrokerHarness, broker: str) -> list[tuple[str, str]]:
    """Return the pubend locations on a broker's disk."""
    return [
        (pubend, broker_name)
        for pubend, broker_name, left in all_locations(desk, broker)
        if not left
    ]


def all_locations(desk: BrokerHarness, broker: str) -> list[tuple[str, str, bool]]:
    """Return the current and former pubend locations on a broker's disk."""
    records = desk.nodes[broker].disk.records.values()
    found = [each for each in records if isinstance(each, PubendLocationRecord)]
    return [(str(each.pubend), each.broker, each.host_retired) for each in found]


def restarted_without_p() -> BrokerHarness:
    """P is at p; then p crashes, and a and n restart without it."""
    desk = BrokerHarness("p-a-n", delta=1)
    desk.publisher("p")
    desk.run(s=1)
    for broker in ("p", "a", "n"):
        desk.crash(broker)
    for broker in ("a", "n"):
        desk.start(broker)
    desk.run(s=1)
    return desk


def test_a_pubend_of_a_broker_that_is_down_is_not_created_at_another() -> None:
    desk = restarted_without_p()
    for broker in ("a", "n"):
        assert desk[broker].components.announcements.get(P) is None, "no broker announces it"
        assert locations(desk, broker) == [(str(P), "p")]
        answer = Requester(desk, broker, "client").call(OpenPubend(1, P.name, "TRUE"))
        assert isinstance(answer, Refused)
        assert (answer.cause, answer.broker) == (RefusalCause.WRONG_BROKER, "p")


def test_the_phb_stores_no_location_of_its_own_pubend() -> None:
    desk = restarted_without_p()
    desk.start("p")
    desk.run(s=1)
    assert locations(desk, "p") == []
    answer = Requester(desk, "p", "client").call(OpenPubend(1, P.name, "TRUE"))
    assert isinstance(answer, PubendOpened)


def test_names_of_a_retired_broker_are_free() -> None:
    desk = restarted_without_p()
    Requester(desk, "a", "operator").call(RetireBroker(1, "p", "p"))
    desk.run(s=1)
    assert locations(desk, "a") == locations(desk, "n") == []
    answer = Requester(desk, "n", "client").call(OpenPubend(2, P.name, "TRUE"))
    assert isinstance(answer, PubendOpened)


def test_the_former_location_of_a_free_name_is_kept_until_the_name_is_used_again() -> None:
    # no merge waits for a position on it meanwhile (R26)
    desk = restarted_without_p()
    Requester(desk, "a", "operator").call(RetireBroker(1, "p", "p"))
    desk.run(s=1)
    assert all_locations(desk, "a") == all_locations(desk, "n") == [(str(P), "p", True)]
    Requester(desk, "n", "client").call(OpenPubend(2, P.name, "TRUE"))
    desk.run(s=1)
    assert (all_locations(desk, "a"), all_locations(desk, "n")) == ([(str(P), "n", False)], [])
