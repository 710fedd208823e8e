"""What operators change while a broker is stopped: releases of logs, ends of subscriptions."""

from __future__ import annotations

import pytest

from gapless.core.effects import Write
from gapless.core.errors import UsageError
from gapless.core.ids import BrokerId
from gapless.core.parameters import Parameters
from gapless.core.ticks import Tick
from gapless.messages.clients import StartKind, StartPoint
from gapless.messages.records import StorageChange
from gapless.messages.stored import StoredState
from gapless.pubend.forced_release import forced_release
from gapless.subscribers.removal import removal
from tests.broker.harness import BrokerHarness, P
from tests.pubend.small_disk import Bench
from tests.scenarios.brokers import shb


def stored(world: BrokerHarness, name: BrokerId) -> StoredState:
    """Return what a stopped broker has on its disk."""
    return StoredState.of(world.nodes[name].disk.load())


def change(world: BrokerHarness, name: BrokerId, changes: tuple[StorageChange, ...]) -> None:
    """Change the disk of a stopped broker in one write."""
    disk = world.nodes[name].disk
    disk.unsynced.append(Write(0, changes))
    disk.sync()


def release(world: BrokerHarness, name: BrokerId, up_to: Tick) -> None:
    (pubend,) = stored(world, name).pubends
    change(world, name, forced_release(pubend, up_to))


# --- releases --------------------------------------------------------------------------------------


def test_subscribers_everywhere_get_a_gap_for_what_was_released_and_then_the_rest() -> None:
    world = BrokerHarness("p-a-n")
    ann = world.publisher("p")
    desks = [world.subscriber(name, f"desk-{name}", "TRUE", durable=True) for name in "pn"]
    world.run(s=2)
    for desk in desks:
        desk.leave()
    for label in ("e1", "e2", "e3", "e4"):
        ann.publish(label)
    world.run(s=1)
    world.crash("p")
    up_to = ann.ticks["e2"]
    release(world, "p", up_to)
    world.start("p")
    world.run(s=3)
    for desk in desks:
        desk.come_back()
    world.run(s=3)
    for desk in desks:
        (gap,) = desk.gaps
        assert gap.low <= ann.ticks["e1"]
        assert gap.high == up_to
        assert desk.events == ["e3", "e4"]
    assert world.released("p", P) == up_to


def test_a_connected_subscriber_whose_broker_is_behind_gets_a_gap_too() -> None:
    world = BrokerHarness("p-n")
    ann = world.publisher("p")
    x = world.subscriber("n", "x", "TRUE")
    world.run(s=1)
    world.cut("p", "n")
    ann.publish("e1")
    ann.publish("e2")
    world.run(ms=500)
    world.crash("p")
    release(world, "p", ann.ticks["e1"])
    world.start("p")
    world.heal("p", "n")
    world.run(s=5)
    assert [each.high for each in x.gaps] == [ann.ticks["e1"]]
    assert x.events == ["e2"]


def test_a_subscriber_that_has_everything_gets_no_gap() -> None:
    world = BrokerHarness("p-n", retention_s=3_600)
    ann = world.publisher("p")
    desk = world.subscriber("n", "desk", "TRUE", durable=True)
    world.run(s=1)
    ann.publish("e1")
    world.run(s=1)
    desk.acknowledge(P, ann.ticks["e1"])
    world.run(s=1)
    desk.leave()
    world.crash("p")
    release(world, "p", ann.ticks["e1"])
    world.start("p")
    world.run(s=2)
    desk.come_back()
    world.publisher("p", "bob").publish("e2")
    world.run(s=2)
    assert (desk.events, desk.gaps) == (["e1", "e2"], [])


def test_the_records_are_those_of_a_release_that_the_members_allowed() -> None:
    bench = Bench(Parameters(retention_s=0, stream_epochs_max=100))
    session = bench.open()
    bench.claim("s", 1)
    bench.report("s")
    ticks = []
    for number in range(1, 9):
        bench.claim("s", number)
        bench.run(ms=40)
        answer = bench.publish(session, number, number)
        bench.run(ms=5)
        ticks.append(answer[0][0])
    before = dict(bench.records)
    up_to = ticks[4]
    (pubend,) = StoredState.of(before.values()).pubends
    bench.report("s", up_to)
    bench.run(ms=600)
    (online,) = StoredState.of(bench.records.values()).pubends
    assert online.record.released == up_to
    disk = BrokerHarness("p").nodes["p"].disk
    disk.records = before
    disk.unsynced.append(Write(0, forced_release(pubend, up_to)))
    disk.sync()
    (offline,) = StoredState.of(disk.load()).pubends
    assert offline.record.released == online.record.released
    assert offline.record.last_released_event == online.record.last_released_event == up_to
    assert offline.record.log_size_marks[0] == online.record.log_size_marks[0]
    assert offline.members == online.members
    assert offline.stream_epochs == online.stream_epochs
    assert forced_release(offline, up_to) == ()


# --- the end of a subscription -------------------------------------------------------------------


def held(world: BrokerHarness, name: BrokerId) -> None:
    """Leave a disconnected durable subscription behind that holds the log of P."""
    ann = world.publisher("p")
    for label in ("e1", "e2"):
        ann.publish(label)
    world.subscriber(name, "other", "TRUE")
    world.run(s=1)
    start = StartPoint(StartKind.POSITION, ((P, ann.ticks["e1"] - 1),))
    desk = world.subscriber(name, "desk", "TRUE", durable=True, start=start)
    world.run(s=1)
    desk.leave()
    world.run(s=1)
    ann.publish("e3")
    world.run(s=1)
    assert [each.log_hold.shb for each in world.log_holds("p")] == [shb(name)]


@pytest.mark.parametrize("host", ["p", "n"])
def test_after_the_removal_of_a_subscription_no_phb_keeps_a_log_for_it(host: str) -> None:
    world = BrokerHarness("p-n", retention_s=0, log_hold_ttl_s=20, interest_grace_s=5)
    held(world, host)
    before = world.pubend("p", P).top
    world.crash(host)
    change(world, host, removal(stored(world, host), "desk"))
    assert len(world.log_holds("p")) == (host == "n")
    world.start(host)
    world.run(s=60)
    assert "desk" not in world[host].components.registry.subscriptions
    assert world.log_holds("p") == []
    assert world.member("p", P, host) is None
    assert world.released("p", P) > before


def test_other_subscriptions_of_the_broker_keep_what_they_need() -> None:
    world = BrokerHarness("p-n", retention_s=0, log_hold_ttl_s=20, interest_grace_s=5)
    held(world, "p")
    ann = world.publisher("p", "bob")
    kept = world.subscriber("p", "kept", "TRUE", durable=True)
    world.run(s=1)
    kept.leave()
    ann.publish("e4")
    world.run(s=1)
    world.crash("p")
    change(world, "p", removal(stored(world, "p"), "desk"))
    world.start("p")
    world.run(s=60)
    kept.come_back()
    world.run(s=2)
    assert (kept.events, kept.gaps) == (["e4"], [])


def test_a_name_that_does_not_exist_is_an_error_that_shows_the_others() -> None:
    world = BrokerHarness("p-n")
    held(world, "p")
    world.crash("p")
    with pytest.raises(UsageError, match="no durable subscription 'desc' here; there are: desk"):
        removal(stored(world, "p"), "desc")
