"""Retirements older than ``tombstone_ttl_s``: no merge waits, no live host is affected (R26)."""

from __future__ import annotations

import pytest

from gapless.messages.clients import Order, Stalled
from tests.broker.harness import BrokerHarness, P, Q
from tests.scenarios.brokers import shb
from tests.scenarios.fork import Fork, at


def restart(fork: Fork, *, s: int) -> None:
    """Stop all brokers but q for a while, and restart them."""
    for name in "pamn":
        fork.world.crash(name)
    fork.world.run(s=s)
    for name in "pamn":
        fork.world.start(name)
    fork.world.run(s=10)
    fork.ann.connect()
    fork.ann.open()
    fork.world.run(s=5)


def test_total_order_does_not_wait_again_when_the_retirement_is_old() -> None:
    fork = Fork(tombstone_ttl_s=30)
    fork.lose_q()
    fork.world.run(s=60)
    assert not fork.world["n"].components.retirements.is_recent(shb("q"))
    fork.world.restart("n")
    fork.world.run(s=3)
    fork.x.come_back()
    fork.world.run(s=10)
    fork.ann.publish("a2")
    fork.world.run(s=30)
    assert fork.x.events == ["a1", "b1", "a2"]


@pytest.mark.parametrize("restarts", [False, True])
def test_a_year_later_no_merge_waits_for_a_position_on_an_abandoned_pubend(
    restarts: bool,
) -> None:
    # m has never joined Q, and learned of it in an earlier incarnation
    fork = Fork(tombstone_ttl_s=30, retention_s=3_600)
    fork.lose_q()
    world = fork.world
    world.run(s=120)
    if restarts:
        restart(fork, s=365 * 86_400)
    assert not world["m"].components.retirements.is_recent(shb("q"))
    start = at(fork.ann.ticks["a1"], fork.bob.ticks["b1"])
    y = world.subscriber("m", "y", "TRUE", order=Order.TOTAL, start=start)
    z = world.subscriber("m", "z", "TRUE", order=Order.TOTAL, start=start, durable=True)
    world.run(s=10)
    fork.ann.publish("a2")
    world.run(s=10)
    assert (y.events, z.events) == (["a2"], ["a2"])
    assert [(each.pubend, each.excluded) for each in y.of_kind(Stalled)] == [(Q, True)]
    assert world["m"].components.locations.broker_of(Q) is None, "the name is free"


def test_a_position_is_kept_a_year_later_if_the_broker_returns() -> None:
    fork = Fork(tombstone_ttl_s=30, retention_s=10**9)
    fork.cut_q_off()
    world = fork.world
    b2 = fork.bob.publish("b2")
    world.crash("q")
    restart(fork, s=365 * 86_400)
    start = at(fork.ann.ticks["a1"], fork.bob.ticks["b1"])
    y = world.subscriber("m", "y", "TRUE", order=Order.TOTAL, start=start)
    world.run(s=5)
    a2 = fork.ann.publish("a2")
    world.run(s=5)
    world.start("q")
    world.heal("a", "q")
    world.run(s=20)
    assert not any(world[name].components.retirements.has("q") for name in "pamnq")
    assert world["m"].components.locations.broker_of(Q) == "q"
    fork.bob.connect()
    fork.bob.open()
    fork.bob.publish("b3")
    world.run(s=5)
    assert y.events == ["a2", "b3"]
    (gap,) = y.gaps
    assert gap.low <= b2 <= gap.high == a2


@pytest.mark.parametrize("restarts", [False, True])
def test_no_merge_waits_for_the_pubends_of_a_broker_that_returned_without_its_disk(
    restarts: bool,
) -> None:
    fork = Fork(retention_s=3_600)
    fork.lose_q()
    world = fork.world
    world.nodes["q"].disk.records.clear()
    world.nodes["q"].disk.logs.clear()
    world.start("q")
    world.run(s=10)
    assert world["n"].components.retirements.is_back(shb("q"))
    if restarts:
        restart(fork, s=60)
        world.restart("q")
        world.run(s=10)
        fork.x.come_back()
        world.run(s=5)
    start = at(fork.ann.ticks["a1"], fork.bob.ticks["b1"])
    y = world.subscriber("m", "y", "TRUE", order=Order.TOTAL, start=start)
    world.run(s=10)
    fork.ann.publish("a2")
    world.run(s=10)
    assert (fork.x.events, y.events) == (["a1", "b1", "a2"], ["a2"])


def test_an_old_retirement_of_a_live_host_releases_no_log() -> None:
    # n was retired where no other broker was; it never learned of that, and is long up again
    world = BrokerHarness("p-a-n", "a-b", retention_s=0, tombstone_ttl_s=30)
    ann = world.publisher("p")
    world.cut("a", "b")
    world.run(s=3)
    world["b"].components.retirements.retire(shb("n"))
    world.happen("b", None)
    world.run(s=1)
    world.crash("b")
    x = world.subscriber("n", "x", "TRUE", durable=True)
    world.run(s=60)
    world.cut("a", "n")
    world.run(s=3)
    ann.publish("e1")
    world.run(s=1)
    world.start("b")
    world.heal("a", "b")
    world.run(s=20)
    assert world["b"].components.retirements.has("n"), "b received it in time, and nothing else"
    assert not world["a"].components.retirements.has("n")
    assert world.member("p", P, "n") is not None
    world.heal("a", "n")
    world.run(s=20)
    assert (x.events, x.gaps) == (["e1"], [])
    assert world["b"].components.retirements.is_back(shb("n")), "b sent it to n, which is up"
