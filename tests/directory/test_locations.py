"""A broker remembers whose pubend a name is, so that there are no two logs of one identity."""

from __future__ import annotations

from gapless.messages.clients import Cause, OpenPubend, PubendOpened, Refused, RetireHost
from gapless.messages.records import PlaceRecord
from tests.broker.harness import Asker, Desk, P


def places(desk: Desk, broker: str) -> list[tuple[str, str]]:
    """Return what is on a broker's disk of where pubends are."""
    return [(pubend, home) for pubend, home, left in all_places(desk, broker) if not left]


def all_places(desk: Desk, broker: str) -> list[tuple[str, str, bool]]:
    """Return what is on a broker's disk of where pubends are, or were."""
    records = desk.nodes[broker].disk.records.values()
    found = [each for each in records if isinstance(each, PlaceRecord)]
    return [(str(each.pubend), each.broker, each.left) for each in found]


def forgetful() -> Desk:
    """P is at p; then p dies, and a and n begin anew without it."""
    desk = Desk("p-a-n", delta=1)
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
        assert desk[broker].announcements.get(P) is None, "nobody tells of it"
        assert places(desk, broker) == [(str(P), "p")]
        answer = Asker(desk, broker, "client").call(OpenPubend(1, P.name, "TRUE"))
        assert isinstance(answer, Refused)
        assert (answer.cause, answer.broker) == (Cause.ELSEWHERE, "p")


def test_the_broker_of_a_pubend_remembers_nothing_of_it_but_itself() -> None:
    desk = forgetful()
    desk.start("p")
    desk.run(s=1)
    assert places(desk, "p") == []
    answer = Asker(desk, "p", "client").call(OpenPubend(1, P.name, "TRUE"))
    assert isinstance(answer, PubendOpened)


def test_names_of_a_broker_that_is_retired_are_free() -> None:
    desk = forgetful()
    Asker(desk, "a", "operator").call(RetireHost(1, "p", "p"))
    desk.run(s=1)
    assert places(desk, "a") == places(desk, "n") == []
    answer = Asker(desk, "n", "client").call(OpenPubend(2, P.name, "TRUE"))
    assert isinstance(answer, PubendOpened)


def test_whose_a_free_name_was_is_remembered_until_somebody_has_it() -> None:
    # nobody waits for a place on it meanwhile (R26)
    desk = forgetful()
    Asker(desk, "a", "operator").call(RetireHost(1, "p", "p"))
    desk.run(s=1)
    assert all_places(desk, "a") == all_places(desk, "n") == [(str(P), "p", True)]
    Asker(desk, "n", "client").call(OpenPubend(2, P.name, "TRUE"))
    desk.run(s=1)
    assert (all_places(desk, "a"), all_places(desk, "n")) == ([(str(P), "n", False)], [])
