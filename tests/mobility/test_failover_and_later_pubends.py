"""What a client that flees is owed of pubends that are younger than its subscription (R46, MV-13)."""

from __future__ import annotations

import pytest

from gapless.core.ids import PubendId, ShbId, VirtualTime
from gapless.core.limits import (
    FORMER_HOSTS_PER_READ_MAX,
    START_GUARANTEE_PUBENDS_MAX,
    START_GUARANTEE_TIMES_MAX,
)
from gapless.messages.clients import (
    Delivery,
    FilterSet,
    HostingReference,
    HostTime,
    Order,
    Refused,
    StartGuarantees,
    StartPoint,
    Subscribe,
)
from gapless.messages.operating import SetDurableFilter
from gapless.messages.overlay import Announce
from gapless.messages.propagation import TableDelta, TableFull
from gapless.messages.pubend_requests import Read, ReadReply
from gapless.messages.streams import AckReport, Attach
from gapless.subscribers import start_guarantee
from gapless.subscribers.start_guarantee import earliest_times, guarantees_message, invalid_reason
from tests.broker.harness import BrokerHarness, P, Q
from tests.mobility.library import Program, opened, publish, uninformed
from tests.scenarios.brokers import of


def star(*, retention_s: int = 3600) -> BrokerHarness:
    """Return a world with three homes around the broker of the pubends."""
    return BrokerHarness("a-p-b", "p-c", retention_s=retention_s)


def confirmed_guarantees(program: Program) -> StartGuarantees:
    """Return what a program was last told that it is owed."""
    guarantees = program.inbox._resume._start_guarantees
    assert guarantees is not None
    return guarantees


def test_a_pubend_is_seen_from_its_beginning_after_several_failovers() -> None:
    # b never hears of Q; only what it was told of a says that q1 is owed
    world = star()
    ann = world.publisher("p")
    program = opened(world, "a", "one")
    publish(ann, "e1")
    program.take()
    world.lose(of(Announce, source="p", target="b"))
    world.lose(of(TableDelta, TableFull, source="b", target="p"))
    world.crash("a")
    bob = world.publisher("p", "Q")
    publish(bob, "q1")
    program.go("b")
    world.run(s=3)
    assert [each.host.broker for each in confirmed_guarantees(program).default] == ["a", "b"]
    world.crash("b")
    program.go("c")
    world.run(s=3)
    publish(bob, "q2")
    assert program.take() == ["q1", "q2"]


def test_a_pubend_is_seen_from_its_beginning_where_others_have_followed_it_for_long() -> None:
    # the new home keeps its log only from where it is
    world = star()
    other = world.subscriber("b", "other", "TRUE")
    program = opened(world, "a", "one")
    world.run(s=1)
    world.crash("a")
    bob = world.publisher("p", "Q")
    publish(bob, "q1", "q2")
    world.run(s=60)
    program.go("b")
    world.run(s=3)
    publish(bob, "q3")
    assert other.events == ["q1", "q2", "q3"]
    assert program.take() == ["q1", "q2", "q3"]


def test_a_client_without_moments_begins_with_what_comes() -> None:
    # one of an older version, or whose home was of one
    world = star()
    program = opened(world, "a", "one")
    world.run(s=1)
    program.inbox._resume._start_guarantees = None
    world.crash("a")
    bob = world.publisher("p", "Q")
    publish(bob, "q1")
    program.go("b")
    world.run(s=3)
    publish(bob, "q2")
    assert program.take() == ["q2"]


@pytest.mark.parametrize("crashes", [False, True])
def test_who_comes_home_is_owed_what_was_known_of_it_elsewhere(crashes: bool) -> None:
    # the news of a was not at p when q1 came, that of b was; if a crashes, before that is on its disk
    world = uninformed("a-p-b", retention_s=3600)
    slow = world.hold(of(TableDelta, TableFull, source="a", target="p"))
    program = opened(world, "a", "one")
    world.cut("a", "p")
    program.lose()
    program.go("b")
    world.run(s=1)
    world.lose(of(Announce, source="p", target="b"))
    bob = world.publisher("p", "Q")
    publish(bob, "q1")
    slow.end()
    program.lose()
    if crashes:
        world.stop_disk("a")
        program.request_at("a")
        world.run(s=20)
        assert not program.inbox.is_answered
        world.restart("a")
    program.go("a")
    world.heal("a", "p")
    world.run(s=5)
    assert program.take() == ["q1"]


def test_a_pubend_that_is_heard_of_while_the_new_home_writes_is_seen_from_its_beginning() -> None:
    world = star()
    program = opened(world, "a", "one")
    world.run(s=1)
    world.crash("a")
    news = world.hold(of(Announce, source="p", target="b"))
    bob = world.publisher("p", "Q")
    publish(bob, "q1")
    world.stop_disk("b")
    program.request_at("b")
    news.release()
    world.run(ms=10)
    world.resume_disk("b")
    world.run(s=5)
    assert program.take() == ["q1"]


@pytest.mark.parametrize("crashes", [False, True])
def test_an_old_form_that_is_made_anew_hands_over_what_it_was_owed(crashes: bool) -> None:
    # it has heard of Q when its client knew an older filter; a crash leaves the first record only
    world = uninformed("a-p-b", retention_s=3600)
    program = opened(world, "a", "one", "number > 0")
    world.run(s=1)
    answers = world.lose(of(ReadReply, source="p", target="a"))
    world.lose(of(Announce, source="p", target="b"))
    bob = world.publisher("p", "Q")
    publish(bob, "q1", number=2)
    program.lose()
    program.go("b")
    assert isinstance(program.set_filter("number > 1"), FilterSet)
    world.run(s=1)
    program.lose()
    world.stop_disk("a")
    program.request_at("a")
    if crashes:
        disk = world.nodes["a"].disk
        del disk.unsynced[1:]
        disk.sync()
        world.restart("a")
        program = Program(world, "a", "two", "number > 1")
    else:
        world.resume_disk("a")
    answers.end()
    world.run(s=10)
    assert program.take() == ["q1"]


@pytest.mark.parametrize("first", [False, True])
def test_a_crash_of_the_new_home_forgets_nothing_that_is_owed(first: bool) -> None:
    world = star()
    program = opened(world, "a", "one")
    world.run(s=1)
    world.crash("a")
    bob = world.publisher("p", "Q")
    publish(bob, "q1")
    cut = world.lose(of(ReadReply, source="p", target="b"))
    if first:  # only the first record of the new home is on its disk
        world.stop_disk("b")
        program.request_at("b")
        disk = world.nodes["b"].disk
        del disk.unsynced[1:]
        disk.sync()
    else:
        program.go("b")
        world.run(s=2)
    world.restart("b")
    cut.end()
    successor = opened(world, "b", "two")
    world.run(s=5)
    assert successor.take() == ["q1"]


@pytest.mark.parametrize("changes", [False, True])
def test_a_crash_of_the_new_home_forgets_nothing_of_pubends_that_it_has_not_heard_of(
    changes: bool,
) -> None:
    # if an operator has changed the filter meanwhile: by the one that the client knew of
    world = star()
    program = opened(world, "a", "one")
    world.run(s=1)
    news = world.hold(of(Announce, source="p", target="b"))
    world.lose(of(TableDelta, TableFull, source="b", target="p"))
    world.crash("a")
    bob = world.publisher("p", "Q")
    publish(bob, "q1", number=1)
    program.go("b")
    program.lose()
    if changes:
        operator = world.client("b", "operator")
        operator.call(SetDurableFilter(operator.number(), "desk", "number > 0"), s=5)
    world.restart("b")
    news.end()
    world.run(s=5)
    successor = opened(world, "b", "two")
    world.run(s=5)
    assert successor.take() == ["q1"]


def test_what_is_owed_is_owed_by_the_filter_that_the_client_was_told_of_last() -> None:
    world = star()
    world.lose(of(Announce, source="p", target="a"))
    program = opened(world, "a", "one", "number < 3")
    world.run(s=1)
    bob = world.publisher("p", "Q")
    publish(bob, "q1", number=2)
    assert isinstance(program.set_filter("number > 1"), FilterSet)
    world.run(s=1)
    publish(bob, "q2", number=2)
    world.crash("a")
    program.go("b")
    world.run(s=3)
    assert program.take() == ["q2"]


def test_a_filter_governs_from_the_beginning_that_is_set_before_a_known_pubend_has_begun() -> None:
    # as at one home: the one before counts for where it begins
    world = star()
    program = opened(world, "a", "one", "number < 3")
    world.run(s=1)
    world.lose(of(ReadReply, source="p", target="a"))
    bob = world.publisher("p", "Q")
    publish(bob, "q1", number=2)
    publish(bob, "q1b", number=1)
    assert isinstance(program.set_filter("number > 1"), FilterSet)
    publish(bob, "q2", number=5)
    world.crash("a")
    program.go("b")
    world.run(s=3)
    assert program.take() == ["q1", "q2"]


def test_in_total_order_a_younger_pubend_begins_above_what_was_merged_before_the_failover() -> None:
    world = star()
    world.lose(of(Announce, source="p", target="a"))
    ann = world.publisher("p", "P")
    world.faults.clear()
    program = opened(world, "a", "one", order=Order.TOTAL)
    world.run(s=2)
    world.lose(of(Announce, source="p", target="a"))
    bob = world.publisher("p", "Q")
    publish(bob, "q1")
    publish(ann, "e1")
    assert program.take() == ["e1"]
    publish(bob, "q2")
    world.crash("a")
    program.go("b")
    world.run(s=3)
    publish(ann, "e2")
    world.run(s=3)
    assert program.take() == ["q2", "e2"]


def test_a_pubend_that_was_there_before_the_subscription_begins_with_what_comes() -> None:
    # its filter is covered by one that is older than the pubend, so its virtual time says nothing
    world = star()
    world.subscriber("a", "older", "TRUE")
    world.run(s=1)
    bob = world.publisher("p", "Q")
    publish(bob, "old")
    world.cut("a", "p")
    program = Program(world, "a", "one")
    world.run(s=20)
    assert program.inbox.pending
    assert confirmed_guarantees(program).by_pubend == ((Q, ()),)
    world.crash("a")
    program.go("b")
    world.run(s=3)
    publish(bob, "new")
    assert program.take() == ["new"]


@pytest.mark.parametrize("restarts", [False, True])
def test_a_pubend_that_was_there_before_stays_so_over_several_failovers(restarts: bool) -> None:
    world = star()
    world.subscriber("a", "older", "TRUE")
    world.run(s=1)
    bob = world.publisher("p", "Q")
    publish(bob, "old")
    world.cut("a", "p")
    program = Program(world, "a", "one")
    world.run(s=20)
    world.crash("a")
    world.cut("b", "p")
    program.go("b")
    world.run(s=20)
    if restarts:
        world.restart("b")
        program.lose()
        program.go("b")
        world.run(s=20)
    assert ShbId("a", "a") not in [
        each.host for each in dict(confirmed_guarantees(program).by_pubend)[Q]
    ]
    world.crash("b")
    program.go("c")
    world.run(s=3)
    publish(bob, "new")
    assert program.take() == ["new"]


def test_if_the_old_home_is_unknown_at_the_pubend_it_begins_where_it_would_have_without_asking() -> (
    None
):
    world = star()
    world.lose(of(TableDelta, TableFull, source="a", target="p"))
    world.subscriber("b", "older", "TRUE")
    program = opened(world, "a", "one")
    world.crash("a")
    bob = world.publisher("p", "Q")
    publish(bob, "q1")
    answers = world.hold(of(ReadReply, source="p", target="b"))
    program.request_at("b")
    world.run(s=1)
    publish(bob, "q2")
    answers.end()
    world.run(s=10)
    publish(bob, "q3")
    assert program.take() == ["q2", "q3"]


def test_a_beginning_that_was_not_on_disk_when_its_client_was_answered_is_owed_elsewhere() -> None:
    world = star()
    program = opened(world, "a", "one")
    world.run(s=1)
    program.lose()
    answers = world.hold(of(ReadReply, source="p", target="a"))
    bob = world.publisher("p", "Q")
    publish(bob, "q1")
    program.request_at("a")
    world.run(ms=10)
    world.stop_disk("a")
    answers.release()
    world.run(s=20)
    assert program.inbox.is_answered
    assert Q not in program.inbox.prefetch.received
    world.crash("a")
    program.go("b")
    world.run(s=3)
    assert program.take() == ["q1"]


def test_the_old_home_keeps_a_log_until_the_new_one_has_begun_on_what_is_owed() -> None:
    # its client was not told that it has begun there; P2, R56
    world = BrokerHarness("a-p-b", retention_s=0, member_grace_s=1)
    program = opened(world, "a", "one")
    world.run(s=1)
    program.is_deaf = True
    bob = world.publisher("p", "Q")
    publish(bob, "q1")
    program.lose()
    program.is_deaf = False
    asks = world.lose(of(Attach, Read, AckReport, source="b", target="p"))
    program.go("b")
    world.run(s=60)
    asks.end()
    world.run(s=10)
    assert program.take() == ["q1"]


def test_more_moments_than_a_broker_tells_are_refused() -> None:
    world = BrokerHarness("p-b")
    client = world.client("b", "c")
    moments = tuple(
        HostTime(ShbId(f"a{number}", "a"), VirtualTime(1, 1))
        for number in range(START_GUARANTEE_TIMES_MAX + 1)
    )
    for owed in (StartGuarantees(moments), StartGuarantees((), ((P, moments),))):
        call = Subscribe(client.number(), "desk", "TRUE", True, start_guarantees=owed)
        answer = client.call(call)
        assert isinstance(answer, Refused)
        assert "too many" in answer.reason


def many_pubends() -> dict[PubendId, tuple[HostTime, ...]]:
    """Return one pubend more than a broker names; every second one was there before."""
    host_times = (HostTime(ShbId("a", "a"), VirtualTime(1, 1)),)
    count = START_GUARANTEE_PUBENDS_MAX + 1
    return {PubendId(f"P{each}"): host_times if each % 2 else () for each in range(count)}


def test_more_pubends_than_a_broker_names_are_refused() -> None:
    world = BrokerHarness("p-b")
    client = world.client("b", "c")
    owed = StartGuarantees((), tuple(many_pubends().items()))
    answer = client.call(Subscribe(client.number(), "desk", "TRUE", True, start_guarantees=owed))
    assert isinstance(answer, Refused)
    assert "START_GUARANTEE_PUBENDS_MAX" in answer.reason
    owed = StartGuarantees((), owed.by_pubend[:-1])
    answer = client.call(Subscribe(client.number(), "desk", "TRUE", True, start_guarantees=owed))
    assert not isinstance(answer, Refused)


def test_of_too_many_pubends_those_with_moments_are_named_and_all_others_have_none() -> None:
    others = many_pubends()
    since = (HostTime(ShbId("b", "b"), VirtualTime(2, 2)),)
    owed = guarantees_message(since, others)
    assert owed.default == ()
    assert dict(owed.by_pubend) == {pubend: each for pubend, each in others.items() if each}
    assert invalid_reason(owed) is None
    all_owed = guarantees_message(since, dict.fromkeys(others, since))
    assert (all_owed.default, len(all_owed.by_pubend)) == ((), START_GUARANTEE_PUBENDS_MAX)
    del others[PubendId("P0")]
    assert guarantees_message(since, others) == StartGuarantees(since, tuple(others.items()))


def test_a_pubend_that_too_many_were_named_for_begins_with_what_comes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # one that was there before would else begin by the moment of all: the filter is covered by an older one
    monkeypatch.setattr(start_guarantee, "START_GUARANTEE_PUBENDS_MAX", 0)
    world = star()
    world.subscriber("a", "other", "TRUE")
    world.run(s=1)
    bob = world.publisher("p", "Q")
    publish(bob, "q1")
    world.cut("a", "p")
    program = opened(world, "a", "one")
    assert confirmed_guarantees(program) == StartGuarantees(())
    world.crash("a")
    program.go("b")
    world.run(s=3)
    publish(bob, "q2")
    assert program.take() == ["q2"]


def test_a_pubend_is_asked_about_many_former_homes_in_several_questions() -> None:
    world = star()
    program = opened(world, "a", "one")
    world.run(s=1)
    (moment,) = confirmed_guarantees(program).default
    world.crash("a")
    bob = world.publisher("p", "Q")
    publish(bob, "q1")
    clients = []
    for name in range(1 + FORMER_HOSTS_PER_READ_MAX // START_GUARANTEE_TIMES_MAX):
        hosts = [ShbId(f"x{name}.{each}", "x") for each in range(START_GUARANTEE_TIMES_MAX)]
        moments = [HostTime(host, moment.time) for host in hosts]
        if len(hosts) * (name + 1) > FORMER_HOSTS_PER_READ_MAX:
            moments[0] = moment  # only the last one has a home that anybody knows
        client = world.client("b", f"c{name}")
        home, owed = HostingReference(f"a/1/{name + 2}", 0, "a"), StartGuarantees(tuple(moments))
        call = Subscribe(
            client.number(),
            f"d{name}",
            "TRUE",
            True,
            StartPoint(),
            credit=9,
            hosting=home,
            start_guarantees=owed,
        )
        client.request(call)
        clients.append(client)
    world.run(s=5)
    asked = [each for each in world.sent_over(Read, "b", "p") if each.joining_member is not None]
    assert max(len(each.former_hosts) for each in asked) == FORMER_HOSTS_PER_READ_MAX
    came = [sum(each.count for each in client.of_kind(Delivery)) for client in clients]
    assert came == [0] * (len(clients) - 1) + [1]


def test_of_many_homes_the_first_and_the_last_are_remembered() -> None:
    time = VirtualTime(1, 1)
    moments = [
        HostTime(ShbId(f"b{each}", "b"), time) for each in range(START_GUARANTEE_TIMES_MAX + 3)
    ]
    found = [each.host.broker for each in earliest_times(*moments)]
    assert len(found) == START_GUARANTEE_TIMES_MAX
    assert (found[0], found[1], found[-1]) == ("b0", "b4", f"b{START_GUARANTEE_TIMES_MAX + 2}")
    later = HostTime(ShbId("b0", "b"), VirtualTime(2, 1))
    assert earliest_times(moments[0], later) == (moments[0],)
