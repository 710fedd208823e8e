"""Pubends that are made while subscriptions are there: these get them from their first event on (R46).

A host hears of a new pubend later than that can publish. The pubend's broker remembers from which
tick on it had the news of each host, so the subscriptions of that host begin there and not where
their host came.
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
    """Return a world in which n hears late of what is made at p."""
    world = BrokerHarness("p-a-n", **parameters)
    return world, world.hold(of(Announce, source="a", target="n"))


@pytest.mark.parametrize("durable", [False, True])
@pytest.mark.parametrize("order", [Order.PUBLISHER, Order.TOTAL])
def test_who_subscribed_before_a_pubend_was_made_gets_its_first_event(
    durable: bool, order: Order
) -> None:
    world, news = late_updates()
    x = world.subscriber("n", "x", "number > 0", durable=durable, order=order)
    world.run(s=2)
    assert x.of_kind(Subscribed)
    ann = world.publisher("p")
    ann.publish("e0", number=0)
    ann.publish("e1", number=1)
    world.run(s=1)
    assert x.events == [], "its host has not heard of the pubend"
    news.release()
    world.run(s=1)
    ann.publish("e2", number=2)
    world.run(s=1)
    assert (x.events, x.gaps) == (["e1", "e2"], [])
    assert x.starts[P] < ann.ticks["e0"]


def test_a_subscription_at_the_broker_of_the_pubend_gets_its_first_event_too() -> None:
    world = BrokerHarness("p-n")
    x = world.subscriber("p", "x", "TRUE")
    world.run(s=2)
    ann = Publisher(world, "p", "P", "TRUE", Quality.GUARANTEED)
    ann.publish("e1")
    world.run(s=1)
    assert x.events == ["e1"]


def test_an_event_that_came_after_the_news_of_a_subscription_is_not_missed() -> None:
    # the news was not there when the pubend was made, but when the event was published
    world, news = late_updates()
    slow = world.hold(of(TableDelta, TableFull, source="a", target="p"))
    x = world.subscriber("n", "x", "TRUE")
    world.run(s=2)
    assert x.of_kind(Subscribed)
    ann = world.publisher("p")
    before = ann.publish("before")
    slow.release()
    world.run(ms=100)
    ann.publish("after")
    news.release()
    world.run(s=1)
    assert x.events == ["after"]
    assert x.starts[P] >= before


def test_news_that_comes_after_its_host_has_asked_is_not_too_late() -> None:
    # what is published between the news and the regime that follows it
    world, news = late_updates(stream_epoch_interval_ms=90)
    slow = world.hold(of(TableDelta, TableFull, source="a", target="p"))
    x = world.subscriber("n", "x", "number > 0")
    world.run(s=2)
    ann = world.publisher("p")
    news.release()
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


@pytest.mark.parametrize(("home", "host"), [("p", "n1"), ("p", "n2"), ("n2", "n1")])
def test_a_peer_that_has_heard_of_a_pubend_does_not_speak_for_who_has_not(
    home: str, host: str
) -> None:
    # it has the table of the host, and knows the pubend at once, or has it itself
    world = BrokerHarness("p-a-n", cells={"n": ["n1", "n2"]})
    news = world.hold(of(Announce, target=host))
    ann = world.publisher(home)
    world.run(s=2 * world.parameters.member_grace_s)
    x = world.subscriber(host, "x", "number > 0")
    world.run(s=2)
    assert x.of_kind(Subscribed)
    ann.publish("e1", number=1)
    news.release()
    world.run(s=1)
    ann.publish("e2", number=2)
    world.run(s=1)
    assert (x.events, x.gaps) == (["e1", "e2"], [])


def test_who_subscribes_later_than_a_pubend_was_made_begins_where_its_host_comes() -> None:
    world, news = late_updates()
    ann = world.publisher("p")
    ann.publish("before")
    x = world.subscriber("n", "x", "TRUE")
    news.release()
    world.run(s=2)
    ann.publish("after")
    world.run(s=1)
    assert x.events == ["after"]


def test_what_was_known_of_hosts_is_on_disk_with_the_event() -> None:
    world, news = late_updates()
    x = world.subscriber("n", "x", "TRUE")
    world.run(s=2)
    ann = world.publisher("p")
    ann.publish("e1")
    world.restart("p")
    news.end()
    world.run(s=5)
    assert x.events == ["e1"]


def test_a_durable_subscription_whose_client_is_away_is_owed_the_first_event() -> None:
    world, news = late_updates()
    x = world.subscriber("n", "x", "TRUE", durable=True)
    world.run(s=2)
    x.leave()
    ann = world.publisher("p")
    ann.publish("e1")
    news.release()
    world.run(s=1)
    x.come_back()
    world.run(s=1)
    assert x.events == ["e1"]


def test_a_durable_subscription_that_was_stored_before_a_crash_is_owed_the_first_event() -> None:
    world, news = late_updates()
    x = world.subscriber("n", "x", "TRUE", durable=True)
    world.run(s=2)
    ann = world.publisher("p")
    ann.publish("e1")
    world.crash("n")
    news.end()
    world.start("n")
    world.run(s=5)
    x.come_back()
    world.run(s=2)
    assert x.events == ["e1"]


def test_the_log_is_kept_for_a_host_from_its_beginning_on() -> None:
    # the row of the host is on disk before it is told where it begins
    world, news = late_updates(member_grace_s=1)
    x = world.subscriber("n", "x", "TRUE")
    world.run(s=2)
    ann = world.publisher("p")
    reports = world.lose(of(AckReport, source="a", target="p"))
    ann.publish("e1")
    news.release()
    lost = world.lose(of(ReadReply, source="a", target="n"))
    world.run(s=10)
    assert world.released("p", P) < ann.ticks["e1"]
    assert x.events == []
    lost.end()
    reports.end()
    world.run(s=10)
    assert (x.events, x.gaps) == (["e1"], [])


def test_what_the_log_lost_before_the_host_came_is_a_gap() -> None:
    # P5: retention is over, and nobody had come
    world, news = late_updates(member_grace_s=1)
    x = world.subscriber("n", "x", "TRUE", durable=True)
    world.run(s=2)
    ann = world.publisher("p")
    ann.publish("e1")
    world.run(s=10)
    assert world.released("p", P) >= ann.ticks["e1"]
    news.release()
    world.run(s=2)
    ann.publish("e2")
    world.run(s=1)
    assert x.events == ["e2"]
    (gap,) = x.gaps
    assert gap.low <= ann.ticks["e1"] <= gap.high < ann.ticks["e2"]


def test_in_total_order_a_pubend_begins_above_what_was_merged() -> None:
    # R51: what was handed out cannot be preceded by what is older
    world = BrokerHarness("p-a-n", "n-q")
    bob = world.publisher("q", "Q")
    x = world.subscriber("n", "x", "TRUE", order=Order.TOTAL)
    world.run(s=2)
    news = world.hold(of(Announce, source="a", target="n"))
    ann = world.publisher("p")
    ann.publish("e1")
    merged = bob.publish("q1")
    world.run(s=1)
    assert x.events == ["q1"]
    news.release()
    world.run(s=1)
    ann.publish("e2")
    world.run(s=1)
    assert x.events == ["q1", "e2"]
    assert x.starts[P] >= merged
    assert x.starts[Q] < merged


def test_what_a_wider_advertisement_allows_is_not_missed() -> None:
    world = BrokerHarness("p-a-n")
    ann = world.publisher("p", advertisement="number > 0")
    x = world.subscriber("n", "x", "number = 0")
    world.run(s=60)
    assert x.of_kind(Subscribed)
    news = world.hold(of(Announce, source="a", target="n"))
    wide = world.publisher("p", advertisement="TRUE")
    wide.publish("e0", number=0)
    news.release()
    world.run(s=1)
    assert x.events == ["e0"]
    del ann


@pytest.mark.parametrize("crashes", [False, True])
def test_a_filter_that_is_changed_before_the_beginning_governs_from_there(crashes: bool) -> None:
    # the host has known the pubend for long, and is not answered: of what comes then nothing is noted
    # any more, so the beginning is where the pubend knew of the filter before
    world, news = late_updates(member_grace_s=1)
    x = world.subscriber("n", "x", "number = 1", durable=True)
    world.run(s=2)
    ann = world.publisher("p")
    lost = world.lose(of(Attached, ReadReply, source="a", target="n"))
    news.release()
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


def test_a_filter_change_that_is_not_through_is_not_what_a_client_was_told() -> None:
    # the pubend is heard of between a change and its write: the filter before it counts
    world, news = late_updates()
    x = world.subscriber("n", "x", "number < 3", durable=True)
    world.run(s=2)
    ann = world.publisher("p")
    ann.publish("e1", number=2)
    news.release()
    x.set_filter("number > 1")  # on disk when the news is there, and not sooner
    world.run(s=2)
    assert x.events == ["e1"]


@pytest.mark.parametrize("crashes", [False, True])
def test_a_change_that_was_never_answered_does_not_count_after_a_crash(crashes: bool) -> None:
    # it is on disk and waits for another stream; the client knows of the filter before it alone
    world = BrokerHarness("p-a-n", "n-q", retention_s=3600)
    world.publisher("q", "Q")
    x = world.subscriber("n", "x", "number < 3", durable=True)
    world.run(s=3)
    news = world.hold(of(Announce, source="a", target="n"))
    ann = world.publisher("p")
    tables = world.hold(of(TableDelta, TableFull, source="n"))
    change = x.set_filter("number > 1")
    world.run(ms=20)
    assert x.answer(change) is None
    ann.publish("e1", number=2)
    if crashes:
        world.crash("n")
        tables.end()
        news.end()
        world.start("n")
        world.run(s=5)
        x.come_back()
    else:
        news.release()
        world.run(ms=100)
        tables.release()
    world.run(s=10)
    ann.publish("e2", number=2)
    world.run(s=2)
    assert (x.events, x.gaps) == (["e1", "e2"], [])


def test_the_change_that_was_answered_last_says_from_where_a_pubend_is_owed() -> None:
    world, news = late_updates(retention_s=3600)
    x = world.subscriber("n", "x", "number < 3", durable=True)
    world.run(s=2)
    ann = world.publisher("p")
    ann.publish("e1", number=2)
    change = x.set_filter("number > 1")
    world.run(s=2)
    assert x.answer(change) is not None
    ann.publish("e2", number=2)
    news.release()
    world.run(s=2)
    assert x.events == ["e2"]


def test_a_filter_that_could_match_nothing_of_a_pubend_is_owed_nothing_of_it() -> None:
    # the pubend is heard of while the first filter that could is on its way to the disk
    world = BrokerHarness("p-a-n", retention_s=3600)
    x = world.subscriber("n", "x", "number = -5", durable=True)
    world.run(s=2)
    ann = world.publisher("p", advertisement="number > 0")
    world.run(s=70)
    ann.publish("old", number=3)
    news = world.hold(of(Announce, source="a", target="n"))
    world.restart("n")
    world.run(s=2)
    x.come_back()
    world.run(s=2)
    assert x.of_kind(Subscribed)
    news.release()
    x.set_filter("number = 3")
    world.run(s=5)
    ann.publish("new", number=3)
    world.run(s=2)
    assert (x.events, x.gaps) == (["new"], [])


@pytest.mark.parametrize("crashes", [False, True])
def test_who_left_a_pubend_before_it_began_is_owed_nothing_of_it_later(crashes: bool) -> None:
    world, news = late_updates(retention_s=3600)
    x = world.subscriber("n", "x", "number = 1", durable=True)
    world.run(s=2)
    ann = world.publisher("p", advertisement="number > 0")
    lost = world.lose(of(Attached, ReadReply, source="a", target="n"))
    news.release()
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
def test_in_total_order_the_oldest_of_a_pubend_is_above_what_was_merged(changes: bool) -> None:
    # R51: a filter change lets a strand that waits for the oldest begin
    world = BrokerHarness("p-a-q", retention_s=3600)
    ann = world.publisher("p")
    news = world.hold(of(Announce, source="q", target="a"))
    oldest = StartPoint(StartKind.EARLIEST)
    x = world.subscriber("a", "x", "number > 0", durable=True, order=Order.TOTAL, start=oldest)
    world.run(s=1)
    bob = world.publisher("q", "Q")
    bob.publish("q1", number=2)
    ann.publish("p1", number=2)
    world.run(s=1)
    assert x.events == ["p1"]
    mute = world.lose(of(Read, source="a", target="q"))
    news.release()
    world.run(ms=500)
    if changes:
        x.set_filter("number > 1")
        world.run(s=1)
    mute.end()
    world.run(s=4)
    assert x.events == ["p1"]


def test_a_change_that_was_answered_just_before_a_crash_counts() -> None:
    # the record that says so was not written yet; the filter before could match nothing of the pubend
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


def test_what_an_operator_sets_is_not_what_the_client_knows() -> None:
    world, news = late_updates(retention_s=3600)
    x = world.subscriber("n", "x", "number < 3", durable=True)
    world.run(s=2)
    x.leave()
    ann = world.publisher("p")
    ann.publish("e1", number=2)
    operator = world.client("n", "operator")
    answer = operator.call(SetDurableFilter(operator.number(), "x", "number > 1"), s=5)
    assert isinstance(answer, FilterSet)
    news.release()
    world.run(s=2)
    x.come_back()
    world.run(s=2)
    assert (x.events, x.gaps) == (["e1"], [])


@pytest.mark.parametrize("crashes", [False, True])
def test_what_an_operator_sets_is_owed_where_the_filter_before_could_match_nothing(
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
    news = world.hold(of(Announce, source="a", target="n"))
    ann = world.publisher("p", advertisement="number > 2")
    ann.publish("e1", number=3)
    if crashes:
        world.crash("n")
        news.end()
        world.start("n")
    else:
        news.release()
    world.run(s=5)
    x.come_back()
    world.run(s=2)
    assert (x.events, x.gaps) == (["e1"], [])


@pytest.mark.parametrize("crashes", [False, True])
def test_that_a_pubend_is_owed_from_its_beginning_is_on_disk(crashes: bool) -> None:
    # the filter is changed after a crash, before the pubend is heard of again
    world = BrokerHarness("p-a-n", retention_s=3600)
    x = world.subscriber("n", "x", "number < 3", durable=True)
    world.run(s=2)
    lost = world.lose(of(Attached, ReadReply, source="a", target="n"))
    ann = world.publisher("p")
    world.run(s=10)
    ann.publish("e1", number=2)
    world.run(s=10)
    news = world.hold(of(Announce, source="a", target="n"))
    if crashes:
        world.restart("n")
        world.run(s=5)
        x.come_back()
        world.run(s=2)
    change = x.set_filter("number > 1")
    world.run(s=2)
    assert x.answer(change) is not None
    lost.end()
    news.release()
    world.run(s=10)
    assert (x.events, x.gaps) == (["e1"], [])


def restart(world: BrokerHarness, client: Subscriber) -> None:
    """Let the host of a client begin anew, and the client come back."""
    world.restart("n")
    world.run(s=5)
    client.come_back()
    world.run(s=2)


@pytest.mark.parametrize("crashes_again", [False, True])
def test_what_a_client_knew_counts_when_a_crash_follows_the_news_of_a_pubend(
    crashes_again: bool,
) -> None:
    # seed 5797: the join was on disk and the subscription's record was not; then its filter is changed
    world = BrokerHarness("p-a-n", retention_s=3600)
    x = world.subscriber("n", "x", "number < 3", durable=True)
    world.run(s=2)
    lost = world.lose(of(Attached, ReadReply, source="a", target="n"))
    ann = world.publisher("p")
    assert world.wait(lambda: bool(world["n"].components.subends.memberships))
    world.run(ms=5)
    ann.publish("e1", number=2)
    news = world.lose(of(Announce, source="a", target="n"))
    restart(world, x)
    change = x.set_filter("number > 1")
    world.run(s=2)
    answer = x.answer(change)
    assert isinstance(answer, FilterSet)
    assert answer.start_guarantees is not None
    # a client that flees now takes along that it is owed more of this pubend than of others
    [(_, moments)] = answer.start_guarantees.by_pubend
    assert moments[0].time < answer.start_guarantees.default[0].time
    if crashes_again:
        restart(world, x)
    lost.end()
    news.end()
    world.cut("a", "n")
    world.run(s=3)
    world.heal("a", "n")
    world.run(s=10)
    assert (x.events, x.gaps) == (["e1"], [])


def test_what_a_client_knows_counts_for_no_limit() -> None:
    # segments_max: the first filter governs nothing
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
    """Let a pubend begin anew a dozen times; then both ends, and a client is there before the news."""
    world = BrokerHarness("p-a-n", retention_s=retention_s)
    ann = world.publisher("p")
    for incarnation in range(12):
        world.subscriber("n", f"k{incarnation}", f"number = {incarnation}")
        world.run(s=61)
        world.restart("p")
        world.run(s=5)
        ann.connect()
        ann.open()
        ann.publish(f"old{incarnation}", number=1_000)
    world.run(s=60)
    updates = world.hold(of(Announce, source="a", target="n"))
    world.restart("p")
    world.restart("n")
    world.run(ms=5)
    x = world.subscriber("n", "x", "number = 1000")
    world.run(s=2)
    updates.release()
    world.run(s=5)
    return world, ann, x


def test_who_subscribes_today_gets_nothing_of_long_ago() -> None:
    # R46
    _, _, x = after_many_incarnations(retention_s=100_000)
    assert x.events == []


def test_who_subscribes_today_is_told_of_no_gap_of_long_ago() -> None:
    _, _, x = after_many_incarnations(retention_s=0)
    assert x.gaps == []


def test_who_waited_when_its_host_crashed_begins_where_its_news_comes() -> None:
    # the pubend notes nothing more of a host that has known it for long; the answer is slow
    world = BrokerHarness("p-n", member_grace_s=20)
    world.subscriber("n", "other", "number < 0")
    ann = world.publisher("p")
    world.run(s=30)
    world.cut("p", "n")
    x = world.subscriber("n", "x", "number > 0", durable=True)
    world.run(s=20)
    assert x.of_kind(Subscribed), "it waits for P"
    world.restart("n")
    world.heal("p", "n")
    news = world.hold(of(TableDelta, TableFull, source="n", target="p"))
    x.come_back()
    world.run(s=3)
    answers = world.hold(of(ReadReply, source="p", target="n"))
    news.release()
    world.run(s=3)
    ann.publish("e1", number=1)
    world.run(s=1)
    answers.release()
    world.run(s=3)
    assert (x.events, x.gaps) == (["e1"], [])
