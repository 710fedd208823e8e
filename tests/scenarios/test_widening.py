"""A pubend that is opened again with another advertisement (A22, R31)."""

from __future__ import annotations

from typing import Any

import pytest

from gapless.core.ids import PubendId
from gapless.messages.clients import OpenPubend, PubendOpened, Refused, StartKind, StartPoint
from gapless.messages.overlay import Announce, Quality
from tests.scenarios.brokers import Publisher, Subscriber, World, of, shb

P = PubendId("P")


def open_again(ann: Publisher, advertisement: str, quality: Quality = Quality.GUARANTEED) -> Any:
    return ann.call(OpenPubend(ann.number(), "P", advertisement, quality))


def reason(answer: Any) -> str:
    assert isinstance(answer, Refused)
    return answer.reason


def test_subscribers_behind_pruned_tables_get_events_of_a_wider_advertisement() -> None:
    world = World("p-a-n")
    ann = world.publisher("p", advertisement="price < 10")
    low = world.subscriber("n", "low", "price < 10")
    high = world.subscriber("n", "high", "price > 50")
    world.run(s=1)
    ann.publish("e1", price=1)
    assert isinstance(open_again(ann, "price < 100"), PubendOpened)
    record = world.pubend("p", P).record
    assert (record.announcement_version, record.properties.advertisement) == (2, "price < 100")
    for number in range(2, 40):
        ann.publish(f"e{number}", price=60 if number % 2 else 6)
        world.run(ms=20)
    world.run(s=1)
    assert low.events == ["e1", *(f"e{number}" for number in range(2, 40, 2))]
    assert high.events == [f"e{number}" for number in range(3, 40, 2)], "p knew its filter before"
    known = world["n"].components.announcements.get(P)
    assert known is not None
    assert known.version == 2
    stream_epoch = world.pubend("p", P).stream_epochs[-1]
    assert stream_epoch.announcement_version == 2


def test_claims_of_tables_that_know_the_wider_advertisement_open_a_stream_epoch() -> None:
    # R31: after the announcement has arrived, claims for the new version open a stream epoch
    world = World("p-a-n")
    ann = world.publisher("p", advertisement="price < 10")
    world.subscriber("n", "low", "price < 10")
    world.run(s=1)
    open_again(ann, "price < 100")
    world.subscriber("n", "high", "price > 50")
    world.run(s=1)
    stream_epoch = world.pubend("p", P).stream_epochs[-1]
    ((_, entry),) = stream_epoch.entries
    assert entry.time == world["n"].components.exchange.time


def test_claims_of_tables_that_know_only_the_old_advertisement_are_ignored() -> None:
    # A22: those tables are pruned for the old one, however new their entries are
    world = World("p-a-n")
    ann = world.publisher("p", advertisement="price < 10")
    world.subscriber("n", "low", "price < 5")
    world.run(s=1)
    world.lose(of(Announce, source="p", target="a"))
    open_again(ann, "price < 100")
    before = world["n"].components.exchange.time
    world.subscriber("n", "more", "price > 3")
    world.run(s=1)
    assert world["n"].components.exchange.time > before
    assert world["p"].components.exchange.table_store.claim(shb("n"), P, 1) is not None
    ((_, entry),) = world.pubend("p", P).stream_epochs[-1].entries
    assert entry.time == before


def test_an_advertisement_that_is_covered_changes_nothing() -> None:
    world = World("p-a")
    ann = world.publisher("p", advertisement="price < 10")
    assert isinstance(open_again(ann, "price < 5"), PubendOpened)
    assert world.pubend("p", P).record.announcement_version == 1


def test_an_advertisement_that_would_narrow_in_part_is_refused_with_a_remedy() -> None:
    world = World("p-a")
    ann = world.publisher("p", advertisement="price < 10")
    why = reason(open_again(ann, "price > 5"))
    assert "only widens" in why
    assert "(price < 10) OR (price > 5)" in why
    assert isinstance(open_again(ann, "(price < 10) OR (price > 5)"), PubendOpened)
    ann.publish("e1", price=50)


def test_two_calls_for_the_same_wider_advertisement_get_one_version() -> None:
    world = World("p-a")
    ann = world.publisher("p", advertisement="price < 10")
    numbers = [ann.number(), ann.number()]
    for number in numbers:
        ann.request(OpenPubend(number, "P", "price < 100"))
    assert [ann.answer(number) for number in numbers] == [None, None]  # not on disk yet
    world.run(ms=100)
    assert all(isinstance(ann.answer(number), PubendOpened) for number in numbers)
    assert world.pubend("p", P).record.announcement_version == 2


def test_a_wider_advertisement_is_the_same_after_a_restart() -> None:
    world = World("p-a")
    ann = world.publisher("p", advertisement="price < 10")
    open_again(ann, "price < 100")
    world.restart("p")
    world.run(s=2)
    known = world["a"].components.announcements.get(P)
    assert known is not None
    assert (known.version, known.properties.advertisement) == (2, "price < 100")


def test_a_best_effort_pubend_keeps_its_advertisement() -> None:
    world = World("p-a")
    ann = world.publisher("p", advertisement="price < 10", quality=Quality.BEST_EFFORT)
    assert isinstance(open_again(ann, "price < 5", Quality.BEST_EFFORT), PubendOpened)
    why = reason(open_again(ann, "price < 100", Quality.BEST_EFFORT))
    assert "open another pubend for price < 100" in why


def unmatched(world: World, *, leaves: bool) -> tuple[Publisher, Subscriber]:
    """Add a durable subscription whose filter cannot match the advertisement, and let time pass."""
    ann = world.publisher("p", advertisement="price < 10")
    x = world.subscriber("n", "x", "price < 10", durable=True)
    world.run(s=1)
    first = ann.publish("e1", price=1)
    world.run(ms=100)
    x.acknowledge(P, first)
    x.set_filter("price > 50")
    world.run(s=15)
    if leaves:
        x.leave()
    last = ann.publish("e2", price=2)
    world.run(s=3)
    assert world.released("p", P) >= last, "no member needs the log"
    return ann, x


def test_released_events_that_could_not_match_before_a_widening_are_no_gap() -> None:
    # I10: unneeded events were released, and are not missed by a filter that may match more now
    world = World("p-n")
    ann, x = unmatched(world, leaves=True)
    assert isinstance(open_again(ann, "TRUE"), PubendOpened)
    ann.publish("e3", price=60)
    world.run(s=1)
    x.come_back()
    world.run(s=2)
    assert (x.events, x.gaps) == (["e1", "e3"], [])


def test_released_events_that_could_match_before_a_widening_are_a_gap() -> None:
    world = World("p-n")
    ann, x = unmatched(world, leaves=True)
    assert isinstance(open_again(ann, "TRUE"), PubendOpened)
    start = StartPoint(StartKind.POSITION, ((P, ann.ticks["e1"]),))
    y = world.subscriber("n", "y", "price < 10", start=start)
    world.run(s=2)
    (gap,) = y.gaps
    assert gap.low <= ann.ticks["e2"] <= gap.high
    assert x.gaps == []


@pytest.mark.parametrize("leaves", [True, False])
def test_events_of_a_wider_advertisement_are_retained_before_its_announcement_arrives(
    leaves: bool,
) -> None:
    # I9: events of a wider advertisement may arrive before its announcement
    world = World("p-n", member_grace_s=1)
    ann, x = unmatched(world, leaves=leaves)
    announcements = world.hold(of(Announce, source="p", target="n"))
    assert isinstance(open_again(ann, "TRUE"), PubendOpened)
    tick = ann.publish("e3", price=60)
    world.run(s=5)
    assert world.horizon("n", P) >= tick
    assert world.released("p", P) < tick, "the event is not acknowledged"
    announcements.release()
    world.restart("n")
    x.come_back()
    world.run(s=2)
    assert (x.events[-1], x.gaps) == ("e3", [])
