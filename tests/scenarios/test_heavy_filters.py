"""Filters that take longer than a step may: their events arrive later, all of them and in order."""

from __future__ import annotations

from typing import Any

import pytest

from gapless.broker import Broker
from gapless.content.matching.work import UNLIMITED_WORK, MatchWork
from gapless.messages.clients import Order, Publish
from gapless.messages.overlay import Quality
from gapless.messages.streams import Events
from tests.scenarios.brokers import Client, Subscriber, World

ALLOWANCE = 30
CHECK_MAX = 8
"""More than the work of any filter here."""
FILTERS = [f"p LIKE '%{letter}_{number}%'" for letter in "ab" for number in range(1, 10)]


@pytest.fixture
def spent(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The work of each search index in each step, with a small allowance."""
    found: list[int] = []
    step_all, spend = Broker.step_all, MatchWork.spend
    current: dict[MatchWork, int] = {}

    def counted(work: MatchWork, units: int) -> None:
        assert work.allowance < UNLIMITED_WORK
        current[work] = current.get(work, 0) + units
        spend(work, units)

    def stepped(broker: Broker, events: Any, now: Any) -> Any:
        current.clear()
        try:
            return step_all(broker, events, now)
        finally:
            found.extend(current.values())

    monkeypatch.setattr("gapless.broker.entry.MATCH_WORK_MAX", ALLOWANCE)
    monkeypatch.setattr(MatchWork, "spend", counted)
    monkeypatch.setattr(Broker, "step_all", stepped)
    return found


def publish(publisher: Any, texts: list[str], first: int = 1) -> None:
    events: Events = tuple(({"p": text}, text.encode()) for text in texts)
    number, pubend, session = publisher.number(), publisher.pubend, publisher.session
    Client.request(publisher, Publish(number, pubend, "ann", session, first, events))


def wanted(subscriber: Subscriber, texts: list[str]) -> list[str]:
    letter, number = subscriber.wanted[9], subscriber.wanted[11]
    return [text for text in texts if text[0] == letter and text[2] == number]


@pytest.mark.parametrize("quality", Quality)
@pytest.mark.parametrize("order", Order)
@pytest.mark.parametrize("together", [True, False])
def test_all_matching_events_arrive_in_order_over_several_steps(
    quality: Quality,
    order: Order,
    together: bool,
    spent: list[int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World("p-n")
    publishers = [world.publisher("p", name, quality=quality) for name in "PQ"]
    for each in publishers:
        monkeypatch.setattr(each, "take_notice", each.notices.append)
    where = "p" if together else "n"
    subscribers = [world.subscriber(where, text, text, order=order) for text in FILTERS]
    world.run(s=3)
    texts = [f"{letter}x{number % 10}-{number}" for number in range(40) for letter in "abc"]
    for publisher in publishers:
        publish(publisher, texts[:60])
        publish(publisher, texts[60:], first=61)
    world.run(s=3)
    for subscriber in subscribers:
        for publisher in publishers:
            got = [
                each.payload.decode()
                for pubend, each in subscriber.publications
                if pubend == publisher.pubend
            ]
            assert got == wanted(subscriber, texts)
    assert world[where].coverage_marks["match divided over steps"]
    assert ALLOWANCE <= max(spent) <= ALLOWANCE + CHECK_MAX


def test_a_stream_that_waits_does_not_prevent_others_from_ending(spent: list[int]) -> None:
    """Each event takes several steps, in two streams at once; both end."""
    world = World("p")
    publishers = [world.publisher("p", name) for name in "PQ"]
    subscribers = [world.subscriber("p", text, text) for text in FILTERS]
    world.run(s=3)
    for publisher in publishers:
        publisher.send_event("ax1", p="ax1")
    world.run(s=1)
    assert sum(len(each.publications) for each in subscribers) == 2
    assert sum(spent) < 3 * len(FILTERS) * CHECK_MAX
