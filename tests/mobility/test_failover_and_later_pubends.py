"""Start guarantees after a failover for pubends created after the subscription (R46, MV-13)."""

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
    """Return a world with three SHBs around the PHB."""
    return BrokerHarness("a-p-b", "p-c", retention_s=retention_s)


def confirmed_guarantees(program: Program) -> StartGuarantees:
    """Return the start guarantees that a program received last."""
    guarantees = program.inbox._resume._start_guarantees
    assert guarantees is not None
    return guarantees


def test_a_pubend_created_later_is_delivered_from_its_first_event_after_several_failovers() -> None:
    # b never learns of Q; only the guarantees from a show that q1 must be delivered
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


def test_a_pubend_created_later_is_delivered_from_its_first_event_if_the_target_had_joined() -> (
    None
):
    # the target retains its log only from its horizon on
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


def test_a_client_without_host_times_starts_at_the_latest() -> None:
    # a client of an older version, or of a hosting broker of one
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
def test_a_returning_client_has_the_start_guarantees_of_its_other_hosting_broker(
    crashes: bool,
) -> None:
    # p did not know the filter of a when q1 was published, but that of b; a may crash before its
    # write is durable
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


def test_a_pubend_announced_while_the_target_writes_is_delivered_from_its_first_event() -> None:
    world = star()
    program = opened(world, "a", "one")
    world.run(s=1)
    world.crash("a")
    announcements = world.hold(of(Announce, source="p", target="b"))
    bob = world.publisher("p", "Q")
    publish(bob, "q1")
    world.stop_disk("b")
    program.request_at("b")
    announcements.release()
    world.run(ms=10)
    world.resume_disk("b")
    world.run(s=5)
    assert program.take() == ["q1"]


@pytest.mark.parametrize("crashes", [False, True])
def test_a_replaced_subscription_keeps_its_start_guarantees(crashes: bool) -> None:
    # a learned of Q under an older confirmed filter; the crash leaves only the first record
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
def test_start_guarantees_survive_a_crash_of_the_target(first: bool) -> None:
    world = star()
    program = opened(world, "a", "one")
    world.run(s=1)
    world.crash("a")
    bob = world.publisher("p", "Q")
    publish(bob, "q1")
    cut = world.lose(of(ReadReply, source="p", target="b"))
    if first:  # only the first record of the target is on its disk
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
def test_start_guarantees_for_unknown_pubends_survive_a_crash_of_the_target(
    changes: bool,
) -> None:
    # with an operator's filter change: the last confirmed filter applies
    world = star()
    program = opened(world, "a", "one")
    world.run(s=1)
    announcements = world.hold(of(Announce, source="p", target="b"))
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
    announcements.end()
    world.run(s=5)
    successor = opened(world, "b", "two")
    world.run(s=5)
    assert successor.take() == ["q1"]


def test_a_start_guarantee_uses_the_last_confirmed_filter() -> None:
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


def test_a_filter_set_before_the_start_on_a_known_pubend_applies_from_the_start() -> None:
    # as without a failover: the former filter decides where the subscription starts
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


def test_in_total_order_a_pubend_created_later_starts_above_the_merged_ticks() -> None:
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


def test_a_pubend_older_than_the_subscription_starts_at_the_latest() -> None:
    # an older filter that covers it is known since before the pubend, so its virtual time proves
    # nothing
    world = star()
    world.subscriber("a", "older", "TRUE")
    world.run(s=1)
    bob = world.publisher("p", "Q")
    publish(bob, "old")
    world.cut("a", "p")
    world.run(s=3)  # a knows that it is cut off, so nothing starts behind its horizon
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
def test_a_pubend_older_than_the_subscription_gets_no_start_guarantee_over_several_failovers(
    restarts: bool,
) -> None:
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


def test_if_the_pubend_does_not_know_the_source_the_cursor_starts_as_without_verification() -> None:
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


def test_a_start_that_was_not_on_disk_with_the_answer_is_guaranteed_at_another_broker() -> None:
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


def test_the_source_retains_the_log_until_the_target_has_started() -> None:
    # the client did not learn of the start at a; P2, R56
    world = BrokerHarness("a-p-b", retention_s=0, member_grace_s=1)
    program = opened(world, "a", "one")
    world.run(s=1)
    program.is_deaf = True
    bob = world.publisher("p", "Q")
    publish(bob, "q1")
    program.lose()
    program.is_deaf = False
    requests = world.lose(of(Attach, Read, AckReport, source="b", target="p"))
    program.go("b")
    world.run(s=60)
    requests.end()
    world.run(s=10)
    assert program.take() == ["q1"]


def test_more_host_times_than_the_limit_are_refused() -> None:
    world = BrokerHarness("p-b")
    client = world.client("b", "c")
    host_times = tuple(
        HostTime(ShbId(f"a{number}", "a"), VirtualTime(1, 1))
        for number in range(START_GUARANTEE_TIMES_MAX + 1)
    )
    for guarantees in (StartGuarantees(host_times), StartGuarantees((), ((P, host_times),))):
        call = Subscribe(client.number(), "desk", "TRUE", True, start_guarantees=guarantees)
        answer = client.call(call)
        assert isinstance(answer, Refused)
        assert "too many" in answer.reason


def many_pubends() -> dict[PubendId, tuple[HostTime, ...]]:
    """Return one pubend more than the limit; every second one is older than the subscription."""
    host_times = (HostTime(ShbId("a", "a"), VirtualTime(1, 1)),)
    count = START_GUARANTEE_PUBENDS_MAX + 1
    return {PubendId(f"P{each}"): host_times if each % 2 else () for each in range(count)}


def test_start_guarantees_for_more_pubends_than_the_limit_are_refused() -> None:
    world = BrokerHarness("p-b")
    client = world.client("b", "c")
    guarantees = StartGuarantees((), tuple(many_pubends().items()))
    answer = client.call(
        Subscribe(client.number(), "desk", "TRUE", True, start_guarantees=guarantees)
    )
    assert isinstance(answer, Refused)
    assert "START_GUARANTEE_PUBENDS_MAX" in answer.reason
    guarantees = StartGuarantees((), guarantees.by_pubend[:-1])
    answer = client.call(
        Subscribe(client.number(), "desk", "TRUE", True, start_guarantees=guarantees)
    )
    assert not isinstance(answer, Refused)


def test_of_too_many_pubends_those_with_host_times_are_named_and_there_is_no_default() -> None:
    others = many_pubends()
    since = (HostTime(ShbId("b", "b"), VirtualTime(2, 2)),)
    guarantees = guarantees_message(since, others)
    assert guarantees.default == ()
    assert dict(guarantees.by_pubend) == {pubend: each for pubend, each in others.items() if each}
    assert invalid_reason(guarantees) is None
    all_guarantees = guarantees_message(since, dict.fromkeys(others, since))
    assert (all_guarantees.default, len(all_guarantees.by_pubend)) == (
        (),
        START_GUARANTEE_PUBENDS_MAX,
    )
    del others[PubendId("P0")]
    assert guarantees_message(since, others) == StartGuarantees(since, tuple(others.items()))


def test_a_pubend_beyond_the_limit_of_named_pubends_starts_at_the_latest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # otherwise a pubend older than the subscription would start by the default: a covering filter
    # is older
    monkeypatch.setattr(start_guarantee, "START_GUARANTEE_PUBENDS_MAX", 0)
    world = star()
    world.subscriber("a", "other", "TRUE")
    world.run(s=1)
    bob = world.publisher("p", "Q")
    publish(bob, "q1")
    world.cut("a", "p")
    world.run(s=3)  # a knows that it is cut off, so nothing starts behind its horizon
    program = opened(world, "a", "one")
    assert confirmed_guarantees(program) == StartGuarantees(())
    world.crash("a")
    program.go("b")
    world.run(s=3)
    publish(bob, "q2")
    assert program.take() == ["q2"]


def test_many_former_hosts_are_split_over_several_reads() -> None:
    world = star()
    program = opened(world, "a", "one")
    world.run(s=1)
    (host_time,) = confirmed_guarantees(program).default
    world.crash("a")
    bob = world.publisher("p", "Q")
    publish(bob, "q1")
    clients = []
    for name in range(1 + FORMER_HOSTS_PER_READ_MAX // START_GUARANTEE_TIMES_MAX):
        hosts = [ShbId(f"x{name}.{each}", "x") for each in range(START_GUARANTEE_TIMES_MAX)]
        host_times = [HostTime(host, host_time.time) for host in hosts]
        if len(hosts) * (name + 1) > FORMER_HOSTS_PER_READ_MAX:
            host_times[0] = host_time  # only the last one has a host known to the pubend
        client = world.client("b", f"c{name}")
        hosting, guarantees = (
            HostingReference(f"a/1/{name + 2}", 0, "a"),
            StartGuarantees(tuple(host_times)),
        )
        call = Subscribe(
            client.number(),
            f"d{name}",
            "TRUE",
            True,
            StartPoint(),
            credit=9,
            hosting=hosting,
            start_guarantees=guarantees,
        )
        client.request(call)
        clients.append(client)
    world.run(s=5)
    reads = [each for each in world.sent_over(Read, "b", "p") if each.joining_member is not None]
    assert max(len(each.former_hosts) for each in reads) == FORMER_HOSTS_PER_READ_MAX
    came = [sum(each.count for each in client.of_kind(Delivery)) for client in clients]
    assert came == [0] * (len(clients) - 1) + [1]


def test_of_many_hosts_the_first_and_the_last_are_kept() -> None:
    time = VirtualTime(1, 1)
    host_times = [
        HostTime(ShbId(f"b{each}", "b"), time) for each in range(START_GUARANTEE_TIMES_MAX + 3)
    ]
    found = [each.host.broker for each in earliest_times(*host_times)]
    assert len(found) == START_GUARANTEE_TIMES_MAX
    assert (found[0], found[1], found[-1]) == ("b0", "b4", f"b{START_GUARANTEE_TIMES_MAX + 2}")
    later = HostTime(ShbId("b0", "b"), VirtualTime(2, 1))
    assert earliest_times(host_times[0], later) == (host_times[0],)
