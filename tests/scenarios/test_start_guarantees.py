"""Subscriptions older than a pubend get its events from the first on (R46).

An SHB learns of a new pubend later than the first events are published. The PHB stores from which tick
on it knew the filters of each SHB, so the subscriptions of that SHB start there and not at the tick
where their SHB joins.
"""

from __future__ import annotations

from typing import Any

import pytest

from gapless.messages.clients import FilterSet, Order, StartKind, StartPoint, Subscribed
from gapless.messages.operating import SetDurableFilter
from gapless.messages.overlay import Announce, Quality
from gapless.messages.propagation import TableDelta, TableFull
from gapless.messages.pubend_requests import Read, ReadReply
from gapless.messages.streams import AckReport, Attached
from tests.broker.harness import BrokerHarness, P, Q
from tests.scenarios.brokers import Fault, Publisher, Subscriber, of


def late_updates(**parameters: Any) -> tuple[BrokerHarness, Fault]:
    """Return a world in which n learns late of pubends created at p."""
    world = BrokerHarness("p-a-n", **parameters)
    return world, world.hold(of(Announce, source="a", target="n"))


@pytest.mark.parametrize("durable", [False, True])
@pytest.mark.parametrize("order", [Order.PUBLISHER, Order.TOTAL])
def test_a_subscription_older_than_a_pubend_gets_its_first_event(
    durable: bool, order: Order
) -> None:
    world, announcements = late_updates()
    x = world.subscriber("n", "x", "number > 0", durable=durable, order=order)
    world.run(s=2)
    assert x.of_kind(Subscribed)
    ann = world.publisher("p")
    ann.publish("e0", number=0)
    ann.publish("e1", number=1)
    world.run(s=1)
    assert x.events == [], "its SHB does not know the pubend"
    announcements.release()
    world.run(s=1)
    ann.publish("e2", number=2)
    world.run(s=1)
    assert (x.events, x.gaps) == (["e1", "e2"], [])
    assert x.starts[P] < ann.ticks["e0"]


def test_a_subscription_at_the_phb_gets_the_first_event() -> None:
    world = BrokerHarness("p-n")
    x = world.subscriber("p", "x", "TRUE")
    world.run(s=2)
    ann = Publisher(world, "p", "P", "TRUE", Quality.GUARANTEED)
    ann.publish("e1")
    world.run(s=1)
    assert x.events == ["e1"]


def test_an_event_published_after_the_table_update_of_a_subscription_is_delivered() -> None:
    # p did not know the filter when the pubend was created, but when the event was published
    world, announcements = late_updates()
    slow = world.hold(of(TableDelta, TableFull, source="a", target="p"))
    x = world.subscriber("n", "x", "TRUE")
    world.run(s=2)
    assert x.of_kind(Subscribed)
    ann = world.publisher("p")
    before = ann.publish("before")
    slow.release()
    world.run(ms=100)
    ann.publish("after")
    announcements.release()
    world.run(s=1)
    assert x.events == ["after"]
    assert x.starts[P] >= before


def test_a_table_update_that_arrives_after_the_join_request_is_not_too_late() -> None:
    # events between the table update and the stream epoch that follows it
    world, announcements = late_updates(stream_epoch_interval_ms=90)
    slow = world.hold(of(TableDelta, TableFull, source="a", target="p"))
    x = world.subscriber("n", "x", "number > 0")
    world.run(s=2)
    ann = world.publisher("p")
    announcements.release()
    world.run(ms=500)
    ann.publish("before", number=1)
    reports = world.hold(of(AckReport, source="a", target="p"))
    slow.release()
    world.run(ms=10)
    ann.publish("between", number=1)
    world.run(s=1)
    reports.release()
    world.run(s=2)
    ann.publish("after", number=1)
    world.run(s=1)
    assert x.events == ["between", "after"]
    assert x.gaps == []


@pytest.mark.parametrize(("phb", "host"), [("p", "n1"), ("p", "n2"), ("n2", "n1")])
def test_a_peer_that_knows_a_pubend_does_not_claim_a_host_that_does_not(
    phb: str, host: str
) -> None:
    # it has the table of the SHB, and knows the pubend at once, or hosts it
    world = BrokerHarness("p-a-n", cells={"n": ["n1", "n2"]})
    announcements = world.hold(of(Announce, target=host))
    ann = world.publisher(phb)
    world.run(s=2 * world.parameters.member_grace_s)
    x = world.subscriber(host, "x", "number > 0")
    world.run(s=2)
    assert x.of_kind(Subscribed)
    ann.publish("e1", number=1)
    announcements.release()
    world.run(s=1)
    ann.publish("e2", number=2)
    world.run(s=1)
    assert (x.events, x.gaps) == (["e1", "e2"], [])


def test_a_subscription_created_after_a_pubend_starts_where_its_shb_joins() -> None:
    world, announcements = late_updates()
    ann = world.publisher("p")
    ann.publish("before")
    x = world.subscriber("n", "x", "TRUE")
    announcements.release()
    world.run(s=2)
    ann.publish("after")
    world.run(s=1)
    assert x.events == ["after"]


def test_known_hosts_are_on_disk_with_the_event() -> None:
    world, announcements = late_updates()
    x = world.subscriber("n", "x", "TRUE")
    world.run(s=2)
    ann = world.publisher("p")
    ann.publish("e1")
    world.restart("p")
    announcements.end()
    world.run(s=5)
    assert x.events == ["e1"]


def test_a_durable_subscription_of_a_disconnected_client_gets_the_first_event() -> None:
    world, announcements = late_updates()
    x = world.subscriber("n", "x", "TRUE", durable=True)
    world.run(s=2)
    x.leave()
    ann = world.publisher("p")
    ann.publish("e1")
    announcements.release()
    world.run(s=1)
    x.come_back()
    world.run(s=1)
    assert x.events == ["e1"]


def test_a_durable_subscription_stored_before_a_crash_gets_the_first_event() -> None:
    world, announcements = late_updates()
    x = world.subscriber("n", "x", "TRUE", durable=True)
    world.run(s=2)
    ann = world.publisher("p")
    ann.publish("e1")
    world.crash("n")
    announcements.end()
    world.start("n")
    world.run(s=5)
    x.come_back()
    world.run(s=2)
    assert x.events == ["e1"]


def test_the_log_is_retained_for_an_shb_from_its_start_on() -> None:
    # the row of the SHB is on disk before its start is sent
    world, announcements = late_updates(member_grace_s=1)
    x = world.subscriber("n", "x", "TRUE")
    world.run(s=2)
    ann = world.publisher("p")
    reports = world.lose(of(AckReport, source="a", target="p"))
    ann.publish("e1")
    announcements.release()
    lost = world.lose(of(ReadReply, source="a", target="n"))
    world.run(s=10)
    assert world.released("p", P) < ann.ticks["e1"]
    assert x.events == []
    lost.end()
    reports.end()
    world.run(s=10)
    assert (x.events, x.gaps) == (["e1"], [])


def test_events_released_before_the_shb_joined_are_a_gap() -> None:
    # P5: the retention time is over, and no SHB had joined
    world, announcements = late_updates(member_grace_s=1)
    x = world.subscriber("n", "x", "TRUE", durable=True)
    world.run(s=2)
    ann = world.publisher("p")
    ann.publish("e1")
    world.run(s=10)
    assert world.released("p", P) >= ann.ticks["e1"]
    announcements.release()
    world.run(s=2)
    ann.publish("e2")
    world.run(s=1)
    assert x.events == ["e2"]
    (gap,) = x.gaps
    assert gap.low <= ann.ticks["e1"] <= gap.high < ann.ticks["e2"]


def test_in_total_order_a_pubend_starts_above_the_merged_ticks() -> None:
    # R51: delivered events cannot be preceded by older ones
    world = BrokerHarness("p-a-n", "n-q")
    bob = world.publisher("q", "Q")
    x = world.subscriber("n", "x", "TRUE", order=Order.TOTAL)
    world.run(s=2)
    announcements = world.hold(of(Announce, source="a", target="n"))
    ann = world.publisher("p")
    ann.publish("e1")
    merged = bob.publish("q1")
    world.run(s=1)
    assert x.events == ["q1"]
    announcements.release()
    world.run(s=1)
    ann.publish("e2")
    world.run(s=1)
    assert x.events == ["q1", "e2"]
    assert x.starts[P] >= merged
    assert x.starts[Q] < merged


def test_the_first_event_of_a_wider_advertisement_is_delivered() -> None:
    world = BrokerHarness("p-a-n")
    ann = world.publisher("p", advertisement="number > 0")
    x = world.subscriber("n", "x", "number = 0")
    world.run(s=60)
    assert x.of_kind(Subscribed)
    announcements = world.hold(of(Announce, source="a", target="n"))
    wide = world.publisher("p", advertisement="TRUE")
    wide.publish("e0", number=0)
    announcements.release()
    world.run(s=1)
    assert x.events == ["e0"]
    del ann


@pytest.mark.parametrize("crashes", [False, True])
def test_a_filter_changed_before_the_start_applies_from_the_start(crashes: bool) -> None:
    # the SHB has known the pubend for long, and gets no reply: later times are not noted any more,
    # so it starts where the PHB knew the former filter
    world, announcements = late_updates(member_grace_s=1)
    x = world.subscriber("n", "x", "number = 1", durable=True)
    world.run(s=2)
    ann = world.publisher("p")
    lost = world.lose(of(Attached, ReadReply, source="a", target="n"))
    announcements.release()
    world.run(s=10)
    x.set_filter("number = 2")
    world.run(s=1)
    if crashes:
        world.restart("n")
        world.run(s=5)
        x.come_back()
    ann.publish("e1", number=1)
    ann.publish("e2", number=2)
    world.run(s=1)
    lost.end()
    world.run(s=10)
    assert (x.events, x.gaps) == (["e2"], [])


def test_an_incomplete_filter_change_does_not_replace_the_confirmed_filter() -> None:
    # the announcement arrives between a change and its write: the former filter counts
    world, announcements = late_updates()
    x = world.subscriber("n", "x", "number < 3", durable=True)
    world.run(s=2)
    ann = world.publisher("p")
    ann.publish("e1", number=2)
    announcements.release()
    x.set_filter("number > 1")  # on disk when the announcement arrives, and not before
    world.run(s=2)
    assert x.events == ["e1"]


@pytest.mark.parametrize("crashes", [False, True])
def test_an_unanswered_filter_change_does_not_change_the_start_guarantee(crashes: bool) -> None:
    # it is on disk and waits for another stream; the client knows only the former filter
    world = BrokerHarness("p-a-n", "n-q", retention_s=3600)
    world.publisher("q", "Q")
    x = world.subscriber("n", "x", "number < 3", durable=True)
    world.run(s=3)
    announcements = world.hold(of(Announce, source="a", target="n"))
    ann = world.publisher("p")
    tables = world.hold(of(TableDelta, TableFull, source="n"))
    change = x.set_filter("number > 1")
    world.run(ms=20)
    assert x.answer(change) is None
    ann.publish("e1", number=2)
    if crashes:
        world.crash("n")
        tables.end()
        announcements.end()
        world.start("n")
        world.run(s=5)
        x.come_back()
    else:
        announcements.release()
        world.run(ms=100)
        tables.release()
    world.run(s=10)
    ann.publish("e2", number=2)
    world.run(s=2)
    assert (x.events, x.gaps) == (["e1", "e2"], [])


def test_the_last_confirmed_filter_change_decides_the_start_guarantee() -> None:
    world, announcements = late_updates(retention_s=3600)
    x = world.subscriber("n", "x", "number < 3", durable=True)
    world.run(s=2)
    ann = world.publisher("p")
    ann.publish("e1", number=2)
    change = x.set_filter("number > 1")
    world.run(s=2)
    assert x.answer(change) is not None
    ann.publish("e2", number=2)
    announcements.release()
    world.run(s=2)
    assert x.events == ["e2"]


def test_a_filter_that_cannot_match_a_pubend_has_no_start_guarantee_for_it() -> None:
    # the announcement arrives while the first matching filter is being written
    world = BrokerHarness("p-a-n", retention_s=3600)
    x = world.subscriber("n", "x", "number = -5", durable=True)
    world.run(s=2)
    ann = world.publisher("p", advertisement="number > 0")
    world.run(s=70)
    ann.publish("old", number=3)
    announcements = world.hold(of(Announce, source="a", target="n"))
    world.restart("n")
    world.run(s=2)
    x.come_back()
    world.run(s=2)
    assert x.of_kind(Subscribed)
    announcements.release()
    x.set_filter("number = 3")
    world.run(s=5)
    ann.publish("new", number=3)
    world.run(s=2)
    assert (x.events, x.gaps) == (["new"], [])


@pytest.mark.parametrize("crashes", [False, True])
def test_a_filter_change_before_the_start_that_excludes_a_pubend_ends_its_start_guarantee(
    crashes: bool,
) -> None:
    world, announcements = late_updates(retention_s=3600)
    x = world.subscriber("n", "x", "number = 1", durable=True)
    world.run(s=2)
    ann = world.publisher("p", advertisement="number > 0")
    lost = world.lose(of(Attached, ReadReply, source="a", target="n"))
    announcements.release()
    world.run(s=2)
    x.set_filter("number = -5")
    world.run(s=2)
    lost.end()
    ann.publish("old", number=3)
    world.run(s=70)
    if crashes:
        world.restart("n")
        world.run(s=5)
        x.come_back()
        world.run(s=5)
    x.set_filter("number = 3")
    world.run(s=5)
    ann.publish("new", number=3)
    world.run(s=2)
    assert (x.events, x.gaps) == (["new"], [])


@pytest.mark.parametrize("changes", [False, True])
def test_in_total_order_the_earliest_of_a_pubend_is_above_the_merged_ticks(changes: bool) -> None:
    # R51: a filter change lets a cursor that is pending at the earliest start
    world = BrokerHarness("p-a-q", retention_s=3600)
    ann = world.publisher("p")
    announcements = world.hold(of(Announce, source="q", target="a"))
    oldest = StartPoint(StartKind.EARLIEST)
    x = world.subscriber("a", "x", "number > 0", durable=True, order=Order.TOTAL, start=oldest)
    world.run(s=1)
    bob = world.publisher("q", "Q")
    bob.publish("q1", number=2)
    ann.publish("p1", number=2)
    world.run(s=1)
    assert x.events == ["p1"]
    mute = world.lose(of(Read, source="a", target="q"))
    announcements.release()
    world.run(ms=500)
    if changes:
        x.set_filter("number > 1")
        world.run(s=1)
    mute.end()
    world.run(s=4)
    assert x.events == ["p1"]


def test_a_filter_change_confirmed_just_before_a_crash_decides_the_start_guarantee() -> None:
    # the confirmation was not on disk yet; the former filter could not match the pubend
    world = BrokerHarness("p-a-n", retention_s=3600)
    x = world.subscriber("n", "x", "number = 1", durable=True)
    world.run(s=2)
    change = x.set_filter("number = 3")
    world.wait(lambda: x.answer(change) is not None)
    world.run(ms=20)
    world.crash("n")
    ann = world.publisher("p", advertisement="number > 2")
    ann.publish("e1", number=3)
    world.start("n")
    world.run(s=5)
    x.come_back()
    world.run(s=2)
    assert (x.events, x.gaps) == (["e1"], [])


def test_a_filter_set_by_an_operator_does_not_change_the_start_guarantee() -> None:
    world, announcements = late_updates(retention_s=3600)
    x = world.subscriber("n", "x", "number < 3", durable=True)
    world.run(s=2)
    x.leave()
    ann = world.publisher("p")
    ann.publish("e1", number=2)
    operator = world.client("n", "operator")
    answer = operator.call(SetDurableFilter(operator.number(), "x", "number > 1"), s=5)
    assert isinstance(answer, FilterSet)
    announcements.release()
    world.run(s=2)
    x.come_back()
    world.run(s=2)
    assert (x.events, x.gaps) == (["e1"], [])


@pytest.mark.parametrize("crashes", [False, True])
def test_a_filter_set_by_an_operator_has_a_start_guarantee_if_the_former_could_not_match(
    crashes: bool,
) -> None:
    world = BrokerHarness("p-a-n", retention_s=3600)
    x = world.subscriber("n", "x", "number = 1", durable=True)
    world.run(s=2)
    x.leave()
    operator = world.client("n", "operator")
    answer = operator.call(SetDurableFilter(operator.number(), "x", "number = 3"), s=5)
    assert isinstance(answer, FilterSet)
    world.run(s=5)
    announcements = world.hold(of(Announce, source="a", target="n"))
    ann = world.publisher("p", advertisement="number > 2")
    ann.publish("e1", number=3)
    if crashes:
        world.crash("n")
        announcements.end()
        world.start("n")
    else:
        announcements.release()
    world.run(s=5)
    x.come_back()
    world.run(s=2)
    assert (x.events, x.gaps) == (["e1"], [])


@pytest.mark.parametrize("crashes", [False, True])
def test_a_start_guarantee_from_the_first_event_is_on_disk(crashes: bool) -> None:
    # the filter is changed after a crash, before the pubend is announced again
    world = BrokerHarness("p-a-n", retention_s=3600)
    x = world.subscriber("n", "x", "number < 3", durable=True)
    world.run(s=2)
    lost = world.lose(of(Attached, ReadReply, source="a", target="n"))
    ann = world.publisher("p")
    world.run(s=10)
    ann.publish("e1", number=2)
    world.run(s=10)
    announcements = world.hold(of(Announce, source="a", target="n"))
    if crashes:
        world.restart("n")
        world.run(s=5)
        x.come_back()
        world.run(s=2)
    change = x.set_filter("number > 1")
    world.run(s=2)
    assert x.answer(change) is not None
    lost.end()
    announcements.release()
    world.run(s=10)
    assert (x.events, x.gaps) == (["e1"], [])


def restart(world: BrokerHarness, client: Subscriber) -> None:
    """Restart the SHB of a client, and let the client resume."""
    world.restart("n")
    world.run(s=5)
    client.come_back()
    world.run(s=2)


@pytest.mark.parametrize("crashes_again", [False, True])
def test_the_confirmed_filter_decides_when_a_crash_follows_the_announcement(
    crashes_again: bool,
) -> None:
    # seed 5797: the membership was on disk and the subscription's record was not; then its filter
    # changes
    world = BrokerHarness("p-a-n", retention_s=3600)
    x = world.subscriber("n", "x", "number < 3", durable=True)
    world.run(s=2)
    lost = world.lose(of(Attached, ReadReply, source="a", target="n"))
    ann = world.publisher("p")
    assert world.wait(lambda: bool(world["n"].components.subends.memberships))
    world.run(ms=5)
    ann.publish("e1", number=2)
    announcements = world.lose(of(Announce, source="a", target="n"))
    restart(world, x)
    change = x.set_filter("number > 1")
    world.run(s=2)
    answer = x.answer(change)
    assert isinstance(answer, FilterSet)
    assert answer.start_guarantees is not None
    # a client that fails over now has a start guarantee for this pubend other than the default
    [(_, host_times)] = answer.start_guarantees.by_pubend
    assert host_times[0].time < answer.start_guarantees.default[0].time
    if crashes_again:
        restart(world, x)
    lost.end()
    announcements.end()
    world.cut("a", "n")
    world.run(s=3)
    world.heal("a", "n")
    world.run(s=10)
    assert (x.events, x.gaps) == (["e1"], [])


def test_the_confirmed_filter_does_not_count_towards_segments_max() -> None:
    # segments_max: the first filter applies to no tick
    world = BrokerHarness("p-a", segments_max=1)
    x = world.subscriber("a", "x", "number = 1", durable=True)
    world.run(s=2)
    x.set_filter("number = 2")
    x.leave()
    world.run(s=100)
    operator = world.client("a", "operator")
    answer = operator.call(SetDurableFilter(operator.number(), "x", "number = 3"), s=60)
    assert isinstance(answer, FilterSet)


def after_many_incarnations(retention_s: int) -> tuple[BrokerHarness, Publisher, Subscriber]:
    """Restart a PHB a dozen times, then both ends; a client subscribes before the announcement."""
    world = BrokerHarness("p-a-n", retention_s=retention_s)
    ann = world.publisher("p")
    for incarnation in range(12):
        world.subscriber("n", f"k{incarnation}", f"number = {incarnation}")
        world.run(s=62)
        world.restart("p")
        world.run(s=5)
        ann.connect()
        ann.open()
        ann.publish(f"old{incarnation}", number=1_000)
    world.run(s=75)  # longer than before: of many known times the nearest are merged
    updates = world.hold(of(Announce, source="a", target="n"))
    world.restart("p")
    world.restart("n")
    world.run(ms=5)
    x = world.subscriber("n", "x", "number = 1000")
    world.run(s=2)
    updates.release()
    world.run(s=5)
    return world, ann, x


def test_a_new_subscription_gets_no_event_of_earlier_incarnations() -> None:
    # R46
    _, _, x = after_many_incarnations(retention_s=100_000)
    assert x.events == []


def test_a_new_subscription_gets_no_gap_of_earlier_incarnations() -> None:
    _, _, x = after_many_incarnations(retention_s=0)
    assert x.gaps == []


def test_a_subscription_pending_at_a_crash_starts_where_its_table_update_arrives() -> None:
    # times of an SHB that has known the pubend for long are not noted; the reply is slow
    world = BrokerHarness("p-n", member_grace_s=20)
    world.subscriber("n", "other", "number < 0")
    ann = world.publisher("p")
    world.run(s=30)
    world.cut("p", "n")
    x = world.subscriber("n", "x", "number > 0", durable=True)
    world.run(s=20)
    assert x.of_kind(Subscribed), "P is pending"
    world.restart("n")
    world.heal("p", "n")
    announcements = world.hold(of(TableDelta, TableFull, source="n", target="p"))
    x.come_back()
    world.run(s=3)
    answers = world.hold(of(ReadReply, source="p", target="n"))
    announcements.release()
    world.run(s=3)
    ann.publish("e1", number=1)
    world.run(s=1)
    answers.release()
    world.run(s=3)
    assert (x.events, x.gaps) == (["e1"], [])
