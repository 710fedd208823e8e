"""Failover after restarts: memberships and guarantees of an earlier incarnation (R46, MV-13)."""

from __future__ import annotations

import pytest

from gapless.messages.overlay import Announce
from gapless.messages.pubend_requests import ReadReply
from gapless.messages.streams import Attached
from tests.broker.harness import BrokerHarness, P
from tests.mobility.library import opened, publish, uninformed
from tests.scenarios.brokers import of
from tests.scenarios.fork import retire


@pytest.mark.parametrize("retired", [False, True])
@pytest.mark.parametrize("restarted", [False, True])
def test_a_former_hosting_broker_releases_a_moved_subscription_whatever_else_it_has_joined(
    retired: bool, restarted: bool
) -> None:
    world = BrokerHarness("a-p-b", "p-q", retention_s=0)
    ann = world.publisher("p", "P", "kind = 'p'")
    world.publisher("q", "Q", "kind = 'q'")
    world.subscriber("a", "other", "kind = 'q'", durable=True)
    program = opened(world, "a", "one", "kind = 'p'")
    world.run(s=3)
    publish(ann, "a1", kind="p")
    assert program.take() == ["a1"]
    program.acknowledge()
    # only the other subscription matches Q
    world.crash("q")
    world.run(s=3)
    if retired:
        retire(world, "q", at="p")
        world.run(s=3)
    if restarted:
        program.lose()
        for name in "apb":
            world.crash(name)
        for name in "apb":
            world.start(name)
        world.run(s=10)
        ann.connect()
        ann.open()
        program.go("a")
        world.run(s=10)
    program.lose()
    world.crash("a")
    world.run(s=3)
    program.go("b")
    world.run(s=10)
    world.start("a")
    world.run(s=30)
    publish(ann, "a2", kind="p")
    assert program.take() == ["a2"]
    program.acknowledge()
    world.run(s=600)
    assert "desk" not in world["a"].components.registry.subscriptions
    assert world.released("p", P) >= ann.ticks["a2"]


@pytest.mark.parametrize("crashes", [False, True])
def test_a_replaced_subscription_keeps_guarantees_for_pubends_of_an_earlier_incarnation(
    crashes: bool,
) -> None:
    world = uninformed("a-p-b", retention_s=3600)
    program = opened(world, "a", "one", "number > 0")
    world.run(s=1)
    world.lose(of(Announce, source="p", target="b"))
    lost = world.lose(of(Attached, ReadReply, source="p", target="a"))
    bob = world.publisher("p", "Q")
    assert world.wait(lambda: bool(world["a"].components.subends.memberships))
    world.run(ms=5)
    bob.publish("q1", number=2)
    program.lose()
    announcements = world.lose(of(Announce, source="p", target="a"))
    if crashes:
        # the membership was on disk and the subscription's record was not, as in seed 5797
        world.restart("a")
        world.run(s=5)
        assert not world.subscription("a", "desk").guarantees.by_pubend
    program.go("b")
    program.set_filter("number > 1")
    world.run(s=1)
    program.lose()
    program.go("a")
    world.run(s=3)
    lost.end()
    announcements.end()
    world.cut("a", "p")
    world.run(s=3)
    world.heal("a", "p")
    world.run(s=10)
    assert program.take() == ["q1"]
