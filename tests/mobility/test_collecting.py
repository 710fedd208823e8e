"""The list of all durable subscriptions of an overlay, collected page by page over the tree."""

from __future__ import annotations

import pytest

from gapless.core.limits import SHOWN_ENTRIES_MAX
from gapless.messages.mobility import CollectSubscriptions, DurableEntry, SubscriptionHost
from gapless.messages.operating import AllDurableList, ListAllDurable
from gapless.mobility import collect
from gapless.mobility.collect import first_page
from tests.broker.harness import BrokerHarness, Requester


def listed(operator: Requester) -> tuple[list[tuple[str, str]], set[str], int]:
    """Return all (name, broker), the silent brokers, and the number of pages."""
    found: list[tuple[str, str]] = []
    silent: set[str] = set()
    after, pages = ("", ""), 0
    while True:
        answer = operator.call(ListAllDurable(operator.number(), after), s=5)
        assert isinstance(answer, AllDurableList)
        pages += 1
        found += [each.place for each in answer.entries]
        silent |= set(answer.silent)
        if not answer.more:
            return found, silent, pages
        after = answer.entries[-1].place


def overlay() -> BrokerHarness:
    """Return c1, c2 - d - e with two durable subscriptions at each broker."""
    world = BrokerHarness("c-d-e", cells={"c": ["c1", "c2"], "d": ["d1"], "e": ["e1"]}, delta=0)
    world.run(s=1)
    for broker in ("c1", "c2", "d1", "e1"):
        client = Requester(world, broker, f"client of {broker}")
        for name in (f"a of {broker}", f"z of {broker}"):
            client.subscribe("TRUE", name, durable=True)
        client.subscribe("TRUE", f"not durable of {broker}")
    return world


EVERYTHING = sorted(
    (f"{letter} of {broker}", broker) for letter in "az" for broker in ("c1", "c2", "d1", "e1")
)


def test_every_broker_lists_the_whole_overlay_in_the_order_of_names() -> None:
    world = overlay()
    for broker in ("c1", "c2", "d1", "e1"):
        operator = Requester(world, broker, "operator")
        assert listed(operator) == (EVERYTHING, set(), 1)


def test_short_pages_lose_and_repeat_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    world = overlay()
    monkeypatch.setattr(collect, "SHOWN_ENTRIES_MAX", 3)
    found, silent, pages = listed(Requester(world, "e1", "operator"))
    assert (found, silent) == (EVERYTHING, set())
    assert pages >= len(EVERYTHING) // 3


def test_a_broker_that_does_not_answer_is_named_and_not_waited_for() -> None:
    world = overlay()
    world.crash("e1")
    world.run(s=2)
    since = world.now
    found, silent, _ = listed(Requester(world, "c2", "operator"))
    assert found == [each for each in EVERYTHING if each[1] != "e1"]
    assert silent == {"e1"}
    assert world.now - since < 500_000
    assert world.sent_over(CollectSubscriptions, "c2", "d1", since)


def test_an_entry_that_came_over_two_ways_is_listed_once() -> None:
    entries = [
        DurableEntry(f"s{number % 300:03}", SubscriptionHost("b1", "k", 0), "TRUE", None, 1)
        for number in range(600)
    ]
    page, more = first_page(entries)
    assert len({each.name for each in page}) == len(page) == SHOWN_ENTRIES_MAX
    assert more
