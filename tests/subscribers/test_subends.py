"""Memberships of an SHB: joining and leaving pubends, and state per subscription (R43)."""

from __future__ import annotations

from typing import Any

from gapless.core.ids import MembershipId
from gapless.core.limits import ROOTS_READ_MAX
from gapless.messages.clients import StartKind, StartPoint
from gapless.messages.pubend_requests import LeavePubend, RequestDone
from gapless.messages.records import JoinedPubendRecord
from gapless.messages.streams import AckReport, Attach, DefineMemberSet, StreamData
from tests.broker.harness import BrokerHarness, P, Q, Requester
from tests.scenarios.brokers import Publisher, of


def stage(**parameters: Any) -> tuple[BrokerHarness, Publisher]:
    """Return a world with a pubend P at p, next to the SHB n."""
    world = BrokerHarness("p-n", **parameters)
    return world, world.publisher("p")


def membership_of(world: BrokerHarness, broker: str = "n") -> MembershipId | None:
    """Return the membership on the disk of an SHB."""
    found = world.nodes[broker].disk.records.get(("joined pubend", "P"))
    assert found is None or isinstance(found, JoinedPubendRecord)
    return None if found is None else found.membership


# --- joining (R43) --------------------------------------------------------------------------------


def test_a_membership_is_on_disk_before_it_is_reported() -> None:
    # I13: a membership that was sent and lost could be sent again for another one
    world, _ = stage()
    world.stop_disk("n")
    world.subscriber("n", "x", "TRUE")
    world.run(s=1)
    assert world.sent_over(Attach, "n", "p") == []
    assert world.sent_over(AckReport, "n", "p") == []
    world.resume_disk("n")
    world.run(ms=50)
    assert world.sent_over(Attach, "n", "p")
    reports = world.sent_over(AckReport, "n", "p")
    assert reports, "it reports at once"
    members = [each for one in world.sent_over(DefineMemberSet, "n", "p") for each in one.members]
    assert {each.membership for each in members} == {membership_of(world)}


def test_one_stream_serves_all_subscriptions_of_an_shb() -> None:
    # GD 4.1
    world, ann = stage()
    subscribers = [world.subscriber("n", f"x{number}", "TRUE") for number in range(5)]
    world.run(s=1)
    since = world.now
    ann.publish("e1")
    world.run(ms=100)
    assert [x.events for x in subscribers] == [["e1"]] * 5
    assert len(world.sent_over(StreamData, "p", "n", since)) == 1


def test_only_pubends_whose_advertisement_may_match_are_joined() -> None:
    world = BrokerHarness("p-n")
    world.publisher("p", "P", advertisement="kind = 1")
    world.publisher("p", "Q", advertisement="kind = 2")
    x = world.subscriber("n", "x", "kind = 1 AND price > 5")
    world.run(s=1)
    assert world["n"].components.subends.guaranteed.keys() == {P}
    assert x.starts.keys() == {P}


def test_a_pubend_is_joined_when_its_advertisement_widens() -> None:
    world = BrokerHarness("p-n")
    world.publisher("p", "P", advertisement="kind = 1")
    x = world.subscriber("n", "x", "kind = 2")
    world.run(s=1)
    assert world["n"].components.subends.guaranteed == {}
    ann = world.publisher("p", "P", advertisement="kind IN (1, 2)")
    world.run(s=2)
    assert x.starts.keys() == {P}
    ann.publish("e1", kind=2)
    world.run(s=1)
    assert x.events == ["e1"]


def test_the_membership_of_a_durable_subscription_survives_a_restart() -> None:
    world, _ = stage()
    world.subscriber("n", "x", "TRUE", durable=True)
    world.run(s=1)
    before = membership_of(world)
    world.restart("n")
    world.run(s=1)
    assert membership_of(world) == before
    assert world.subend("n", P).membership == before


# --- leaving (R43) --------------------------------------------------------------------------------


def left(world: BrokerHarness) -> bool:
    return world.member("p", P, "n") is None


def test_an_unneeded_pubend_is_left_after_the_interest_grace() -> None:
    world, ann = stage(interest_grace_s=4)
    x = world.subscriber("n", "x", "TRUE")
    world.run(s=1)
    x.end()
    world.run(s=3)
    assert not left(world), "interest_grace_s is not over"
    assert P in world["n"].components.subends.guaranteed
    world.run(s=4)
    assert left(world)
    assert membership_of(world) is None
    assert world["n"].components.subends.guaranteed == {}
    since = world.now
    ann.publish("e1")
    world.run(s=1)
    assert world.sent_over(StreamData, "p", "n", since) == []
    assert world.released("p", P) >= ann.ticks["e1"] - 1


def test_a_pubend_that_is_needed_again_in_time_is_not_left() -> None:
    world, _ = stage(interest_grace_s=4)
    x = world.subscriber("n", "x", "TRUE")
    world.run(s=1)
    before = membership_of(world)
    x.end()
    world.run(s=3)
    world.subscriber("n", "y", "TRUE")
    world.run(s=10)
    assert membership_of(world) == before
    assert world.sent_over(LeavePubend, "n", "p") == []


def test_the_request_to_leave_is_repeated_until_it_is_done() -> None:
    world, _ = stage(interest_grace_s=1)
    x = world.subscriber("n", "x", "TRUE")
    world.run(s=1)
    x.end()
    lost = world.lose(of(RequestDone, source="p", target="n"))
    world.run(s=6)
    assert len(world.sent_over(LeavePubend, "n", "p")) >= 2
    assert membership_of(world) is not None, "the reply is missing"
    lost.end()
    world.run(s=6)
    assert membership_of(world) is None


def test_an_shb_that_needs_a_pubend_again_while_leaving_starts_another_membership() -> None:
    # a late LeavePubend of the first membership must not end the second (R53, example 14.7)
    world, ann = stage(interest_grace_s=1)
    x = world.subscriber("n", "x", "TRUE")
    world.run(s=1)
    first = membership_of(world)
    assert first is not None
    held = world.hold(of(LeavePubend, source="n", target="p"))
    x.end()
    world.run(s=3)
    assert held.messages
    y = world.subscriber("n", "y", "TRUE")
    world.run(s=1)
    second = membership_of(world)
    assert second is not None
    assert second > first
    held.release()
    world.run(s=3)
    assert membership_of(world) == second
    assert not left(world)
    ann.publish("e1")
    world.run(s=1)
    assert y.events == ["e1"]


def test_after_a_restart_pubends_are_left_that_no_durable_subscription_needs() -> None:
    # R43: subscriptions that were not durable are lost
    world, _ = stage(interest_grace_s=2)
    world.subscriber("n", "x", "TRUE")
    world.run(s=1)
    world.restart("n")
    world.run(s=1)
    assert membership_of(world) is not None
    world.run(s=4)
    assert membership_of(world) is None
    assert left(world)


def test_the_end_of_the_last_subscription_releases_the_log() -> None:
    # the converse of A11: ended subscriptions retain no log
    world, ann = stage(interest_grace_s=1)
    x = Requester(world, "n", "x")
    x.subscribe(durable=True)
    tick = ann.publish("e1")
    world.run(s=2)
    assert world.released("p", P) < tick
    x.unsubscribe()
    world.run(s=4)
    assert world.released("p", P) >= tick


# --- filters --------------------------------------------------------------------------------------


def test_the_covering_filter_of_an_shb_is_true_if_it_would_be_too_long() -> None:
    world, _ = stage()
    for number in range(3):
        world.subscriber("n", f"x{number}", f"a{number} = 1")
    wanted = world["n"].components.filters.covering_filter()
    assert wanted == "a0 = 1 OR a1 = 1 OR a2 = 1"
    for number in range(3, ROOTS_READ_MAX + 1):
        world.subscriber("n", f"x{number}", f"a{number} = 1")
    assert world["n"].components.filters.covering_filter() == "TRUE"


def test_an_shb_has_no_state_of_ended_subscriptions() -> None:
    world, ann = stage()
    for number in range(5):
        x = world.subscriber("n", f"x{number}", f"kind = {number}", durable=True)
        world.run(ms=200)
        x.set_filter(f"price = {number}")
        world.run(ms=500)
        x.end()
        world.run(ms=200)
    ann.publish("e1", kind=1)
    world.run(ms=100)
    assert world["n"].components.registry.subscriptions == {}
    assert world["n"].components.filters.segments == {}
    assert world.subend("n", P).cursors == {}
    assert world["n"].components.exchange.roots == frozenset()


def test_the_state_of_an_shb_does_not_grow_with_ended_subscriptions() -> None:
    # P7
    world, _ = stage()
    sizes = []
    for number in range(20):
        x = world.subscriber("n", f"x{number}", f"kind = {number}")
        world.run(ms=50)
        x.end()
        x.leave()
        registry = world["n"].components.registry
        parts = (
            registry,
            registry.step_end,
            registry.slow_consumers,
            world["n"].components.filters,
        )
        found = [vars(each).values() for each in (*parts, world["n"].components.subends)]
        kept = [each for values in found for each in values if isinstance(each, dict)]
        sizes.append(sum(map(len, kept)))
    assert sizes[-1] == sizes[1]


def test_each_log_hold_has_a_unique_name() -> None:
    # R49: a late release cannot end a newer log hold
    world, ann = stage(retention_s=3_600)
    ann.publish("e1")
    world.run(ms=100)
    names = set()
    for number in range(3):
        start = StartPoint(StartKind.POSITION, ((P, 5),))
        x = world.subscriber("n", "x", "TRUE", start=start, credit=0)
        world.run(ms=300)
        hold = world.cursor("n", "x").log_holds.current
        assert hold is not None
        names.add(hold.subscription)
        x.end()
        if number == 1:
            world.restart("n")
            world.run(s=1)
    assert len(names) == 3
    assert Q not in world["n"].components.subends.guaranteed
