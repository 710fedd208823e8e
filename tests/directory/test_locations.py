"""A broker remembers whose pubend a name is, so that there are no two logs of one identity."""

from __future__ import annotations

from gapless.messages.clients import OpenPubend, PubendOpened, RefusalCause, Refused, RetireBroker
from gapless.messages.records import PubendLocationRecord
from tests.broker.harness import BrokerHarness, P, Requester


def locations(desk: BrokerHarness, broker: str) -> list[tuple[str, str]]:
    """Return what is on a broker's disk of where pubends are."""
    return [
        (pubend, broker_name)
        for pubend, broker_name, left in all_locations(desk, broker)
        if not left
    ]


def all_locations(desk: BrokerHarness, broker: str) -> list[tuple[str, str, bool]]:
    """Return what is on a broker's disk of where pubends are, or were."""
    records = desk.nodes[broker].disk.records.values()
    found = [each for each in records if isinstance(each, PubendLocationRecord)]
    return [(str(each.pubend), each.broker, each.host_retired) for each in found]


def forgetful() -> BrokerHarness:
    """P is at p; then p dies, and a and n begin anew without it."""
    desk = BrokerHarness("p-a-n", delta=1)
    desk.publisher("p")
    desk.run(s=1)
    for broker in ("p", "a", "n"):
        desk.crash(broker)
    for broker in ("a", "n"):
        desk.start(broker)
    desk.run(s=1)
    return desk


def test_a_pubend_of_a_broker_that_is_away_is_not_made_again_elsewhere() -> None:
    desk = forgetful()
    for broker in ("a", "n"):
        assert desk[broker].components.announcements.get(P) is None, "nobody tells of it"
        assert locations(desk, broker) == [(str(P), "p")]
        answer = Requester(desk, broker, "client").call(OpenPubend(1, P.name, "TRUE"))
        assert isinstance(answer, Refused)
        assert (answer.cause, answer.broker) == (RefusalCause.WRONG_BROKER, "p")


def test_the_broker_of_a_pubend_remembers_nothing_of_it_but_itself() -> None:
    desk = forgetful()
    desk.start("p")
    desk.run(s=1)
    assert locations(desk, "p") == []
    answer = Requester(desk, "p", "client").call(OpenPubend(1, P.name, "TRUE"))
    assert isinstance(answer, PubendOpened)


def test_names_of_a_broker_that_is_retired_are_free() -> None:
    desk = forgetful()
    Requester(desk, "a", "operator").call(RetireBroker(1, "p", "p"))
    desk.run(s=1)
    assert locations(desk, "a") == locations(desk, "n") == []
    answer = Requester(desk, "n", "client").call(OpenPubend(2, P.name, "TRUE"))
    assert isinstance(answer, PubendOpened)


def test_whose_a_free_name_was_is_remembered_until_somebody_has_it() -> None:
    # nobody waits for a place on it meanwhile (R26)
    desk = forgetful()
    Requester(desk, "a", "operator").call(RetireBroker(1, "p", "p"))
    desk.run(s=1)
    assert all_locations(desk, "a") == all_locations(desk, "n") == [(str(P), "p", True)]
    Requester(desk, "n", "client").call(OpenPubend(2, P.name, "TRUE"))
    desk.run(s=1)
    assert (all_locations(desk, "a"), all_locations(desk, "n")) == ([(str(P), "n", False)], [])
