"""A retired broker returns without its disk: no merge waits for its former pubends (R26)."""

from __future__ import annotations

import pytest

from gapless.core.ids import PubendId
from gapless.messages.clients import OpenPubend, Order, PubendOpened
from gapless.messages.records import (
    JoinedPubendRecord,
    PubendLocationRecord,
    PutRecord,
    RetirementRecord,
)
from tests.broker.harness import Q, Requester
from tests.scenarios.brokers import Subscriber, shb
from tests.scenarios.fork import Fork, at

R = PubendId("R")


def wipe_q(fork: Fork) -> None:
    """Empty the disk of q."""
    disk = fork.world.nodes["q"].disk
    disk.records.clear()
    disk.logs.clear()


def lost() -> Fork:
    """Retire q, and let it return without its disk."""
    fork = Fork(retention_s=3_600)
    fork.lose_q()
    wipe_q(fork)
    fork.world.start("q")
    fork.world.run(s=10)
    assert fork.world["m"].components.retirements.is_back(shb("q"))
    return fork


def retire_by_mistake(fork: Fork) -> None:
    """Cut q off, retire it, and let it return."""
    fork.cut_q_off()
    fork.world.heal("a", "q")
    fork.world.run(s=20)
    assert fork.world["n"].components.retirements.is_back(shb("q"))


def subscription_at_m(fork: Fork) -> Subscriber:
    """Let a client present a position on Q at m."""
    start = at(fork.ann.ticks["a1"], fork.bob.ticks["b1"])
    y = fork.world.subscriber("m", "y", "TRUE", order=Order.TOTAL, start=start)
    fork.world.run(s=10)
    return y


def test_no_merge_waits_for_lost_pubends_after_another_mistaken_retirement() -> None:
    fork = lost()
    world = fork.world
    world.publisher("q", "R")
    world.run(s=5)
    retire_by_mistake(fork)
    y = subscription_at_m(fork)
    fork.ann.publish("a2")
    world.run(s=60)
    assert (fork.x.events, y.events) == (["a1", "b1", "a2"], ["a2"])


def test_a_merge_waits_for_a_later_pubend_after_another_mistaken_retirement() -> None:
    fork = lost()
    world = fork.world
    cyd = world.publisher("q", "R")
    world.run(s=5)
    retire_by_mistake(fork)
    assert world["m"].components.locations.broker_of(R) == "q"
    world.cut("a", "q")
    world.run(s=3)
    cyd.publish("c1")
    world.run(s=1)
    fork.ann.publish("a2")
    world.run(s=20)
    assert fork.x.events == ["a1", "b1"], "the broker of R is only unreachable"
    world.heal("a", "q")
    world.run(s=20)
    assert (fork.x.events, fork.x.gaps) == (["a1", "b1", "c1", "a2"], [])


def test_no_merge_waits_for_a_lost_pubend_if_another_was_created_before_the_return() -> None:
    fork = Fork(retention_s=3_600)
    fork.lose_q()
    world = fork.world
    wipe_q(fork)
    world.cut("a", "q")
    world.start("q")
    world.run(s=10)
    cyd = world.publisher("q", "R")
    world.run(s=5)
    world.heal("a", "q")
    world.run(s=20)
    made = cyd.pubend
    assert [world[name].components.locations.is_lost(Q) for name in "pamn"] == [True] * 4
    assert [world[name].components.locations.broker_of(made) for name in "pamn"] == ["q"] * 4
    fork.ann.publish("a2")
    cyd.publish("c1")
    world.run(s=60)
    assert sorted(fork.x.events) == ["a1", "a2", "b1", "c1"]


@pytest.mark.parametrize("restarted", ["", "mn"])
def test_no_merge_waits_at_restarted_brokers_that_learn_of_a_lost_pubend_from_others(
    restarted: str,
) -> None:
    fork = lost()
    world = fork.world
    for name in restarted:
        world.restart(name)
    world.run(s=10)
    if restarted:
        assert world["m"].components.announcements.get(Q) is not None, "a announces it"
        fork.x.come_back()
        world.run(s=5)
    y = subscription_at_m(fork)
    fork.ann.publish("a2")
    world.run(s=60)
    assert (fork.x.events, y.events) == (["a1", "b1", "a2"], ["a2"])


def test_a_repeated_announcement_of_an_abandoned_pubend_does_not_end_that_state() -> None:
    # m restarts before q returns; a still announces Q to it
    fork = Fork(retention_s=3_600)
    fork.lose_q()
    world = fork.world
    world.restart("m")
    world.run(s=10)
    assert world["m"].components.announcements.get(Q) is not None
    wipe_q(fork)
    world.start("q")
    world.run(s=10)
    y = subscription_at_m(fork)
    fork.ann.publish("a2")
    world.run(s=30)
    assert y.events == ["a2"]


def test_the_name_of_a_lost_pubend_is_not_redirected_to_its_broker() -> None:
    fork = lost()
    fork.world.restart("m")
    fork.world.run(s=10)
    answer = Requester(fork.world, "m", "client").call(OpenPubend(1, "Q", "TRUE"), s=10)
    assert isinstance(answer, PubendOpened)
    assert answer.pubend.name == "Q"
    assert answer.pubend != Q, "the name gets a number while a broker remembers Q"


def test_a_lost_pubend_is_found_again_where_it_is_fed() -> None:
    # the disk of q was only not mounted
    fork = Fork(retention_s=3_600)
    fork.lose_q()
    world = fork.world
    disk = world.nodes["q"].disk
    records, logs = dict(disk.records), dict(disk.logs)
    wipe_q(fork)
    world.start("q")
    world.run(s=10)
    world.crash("q")
    world.run(s=3)
    assert [world[name].components.locations.is_lost(Q) for name in "mn"] == [True, True]
    disk.records, disk.logs = records, logs
    world.start("q")
    world.run(s=10)
    fork.bob.connect()
    fork.bob.open()
    fork.bob.publish("b2")
    world.run(s=10)
    assert fork.x.events == ["a1", "b1", "b2"]
    assert [world[name].components.locations.is_lost(Q) for name in "mn"] == [True, False]
    retire_by_mistake(fork)
    assert not world["m"].components.locations.is_lost(Q), "q has announced it"
    assert world["m"].components.locations.broker_of(Q) == "q"
    world.cut("a", "q")
    world.run(s=3)
    fork.ann.publish("a2")
    world.run(s=20)
    assert fork.x.events == ["a1", "b1", "b2"], "its broker is only unreachable"


def sync_up_to_back(fork: Fork) -> None:
    """Let n receive that q has returned, with only that write on disk."""
    disk = fork.world.nodes["n"].disk

    def location() -> int:
        writes = [write.changes for write in disk.unsynced]
        backs = [
            number
            for number, changes in enumerate(writes)
            if any(
                isinstance(each, PutRecord)
                and isinstance(each.record, RetirementRecord)
                and each.record.returned_at
                for each in changes
            )
        ]
        return backs[0] if backs else -1

    fork.world.wait(lambda: location() >= 0)
    disk.unsynced = disk.unsynced[: location() + 1]
    disk.sync()


def test_a_merge_waits_for_a_pubend_if_the_shb_crashed_just_after_the_phb_returned() -> None:
    fork = Fork(retention_s=3_600)
    world = fork.world
    fork.cut_q_off()
    world.stop_disk("n")
    world.heal("a", "q")
    sync_up_to_back(fork)
    world.crash("n")
    records = world.nodes["n"].disk.records
    join = records["joined pubend", "Q"]
    assert isinstance(join, JoinedPubendRecord)
    assert join.abandoned, "the end of that state was not on disk"
    world.cut("a", "q")
    world.run(s=3)
    world.start("n")
    world.run(s=5)
    assert not world["n"].components.subends.memberships.is_abandoned(Q)
    fork.x.come_back()
    world.run(s=5)
    fork.bob.publish("b2")
    world.run(s=1)
    fork.ann.publish("a2")
    world.run(s=20)
    assert fork.x.events == ["a1", "b1"]
    world.heal("a", "q")
    world.run(s=20)
    assert (fork.x.events, fork.x.gaps) == (["a1", "b1", "b2", "a2"], [])


def test_a_pubend_is_known_as_lost_if_the_shb_crashed_just_after_the_phb_returned_without_it() -> (
    None
):
    fork = Fork(retention_s=3_600)
    world = fork.world
    fork.lose_q()
    wipe_q(fork)
    world.stop_disk("n")
    world.start("q")
    sync_up_to_back(fork)
    world.crash("n")
    world.start("n")
    world.run(s=10)
    location = world.nodes["n"].disk.records["pubend location", "Q"]
    assert isinstance(location, PubendLocationRecord)
    assert (location.host_retired, location.lost) == (True, True)
    fork.x.come_back()
    world.run(s=5)
    fork.ann.publish("a2")
    world.run(s=30)
    assert fork.x.events == ["a1", "b1", "a2"]
