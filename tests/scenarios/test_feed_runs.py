"""Runs that break naive feeds, with whole brokers: which broker may feed which.

The names (A2, A18) are those of the rules' own list. Two rules keep feeds acyclic: a broker attaches only
to brokers that are nearer to the pubend (R7), and a feeder feeds only receivers that are beyond it (R10).
In every scenario but the last of each part the receivers are naive: they try every broker that they reach.
The second rule alone must hold then; without it the scenario fails as the second test shows. P is a pubend
at p.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

from gapless.core.ids import BrokerId, PubendId
from gapless.feeds.candidates import FeedCandidates
from gapless.feeds.feed import Candidate, is_leaf_number
from gapless.messages.streams import (
    Attach,
    Attached,
    AttachKind,
    FeedUnavailable,
    FeedUnavailableReason,
    Nack,
    StreamData,
    StreamSilence,
)
from gapless.propagation import Receiver
from gapless_lab.sim.planted_bugs import patched
from tests.scenarios.brokers import World, of

P = PubendId("P")

candidates_by_the_rule = FeedCandidates.candidates
may_feed_by_the_rule = FeedCandidates.may_feed


def all_reachable_brokers_are_candidates(
    routing: FeedCandidates, pubend: PubendId
) -> list[Candidate]:
    nearer = candidates_by_the_rule(routing, pubend)
    others = [
        broker
        for broker in routing._peers.open_peers()
        if broker not in {each.broker for each in nearer}
    ]
    return nearer + [Candidate(broker, 1) for broker in others]


def every_receiver_is_fed(routing: FeedCandidates, pubend: PubendId, receiver: Receiver) -> bool:
    return receiver.kind is AttachKind.CELL or may_feed_by_the_rule(routing, pubend, receiver)


def naive(*, trying: bool, feeding: bool) -> ExitStack:
    """Remove R7, R10, or both, for a while."""
    stack = ExitStack()
    if trying:
        stack.enter_context(
            patched(FeedCandidates, "candidates", all_reachable_brokers_are_candidates)
        )
    if feeding:
        stack.enter_context(patched(FeedCandidates, "may_feed", every_receiver_is_fed))
    return stack


def of_routers(world: World, kind: type, source: BrokerId, target: BrokerId) -> list[Any]:
    """Return the feed messages of routers that were sent over a link; leaves have odd numbers."""
    return [
        each for each in world.sent_over(kind, source, target) if not is_leaf_number(each.number)
    ]


# --- A2: the far side's cache ---------------------------------------------------------------------


class FarSide:
    """p - a - n - {c, d}: c has an event for d only as silence; n has forgotten it, and loses a.

    The stream of c was filtered for c. d has missed the event and nacks it at n, when n is cut off from all
    brokers nearer to P but still reaches c.
    """

    def __init__(self, *, trying: bool = True, feeding: bool = False) -> None:
        with naive(trying=trying, feeding=feeding):
            self.world = world = World("p-a-n-c", "n-d", cache_bytes=4_000)
            ann = world.publisher("p")
            self.x = world.subscriber("c", "x", "kind = 'X'")
            self.y = world.subscriber("d", "y", "kind = 'Y'")
            world.run(s=2)
            missed = world.lose(of(StreamData, source="n", target="d"))
            nacks = world.lose(of(Nack, source="d"))
            ann.publish("e90", kind="Y", text="long" * 2_000)
            world.run(s=2)  # silence after it is sent, so that d sees a gap
            assert missed.messages
            missed.end()
            world.cut("a", "n")
            world.run(ms=100)
            nacks.end()
            world.run(s=4)
            self.during = list(self.y.events)
            world.heal("a", "n")
            world.run(s=10)
            self.ticks = ann.ticks

    def ranges(self, source: BrokerId, target: BrokerId) -> int:
        """Count the messages with knowledge of the stream that were sent over a link."""
        return sum(
            len(self.world.sent_over(kind, source, target)) for kind in (StreamData, StreamSilence)
        )


def test_a2_a_broker_that_is_not_nearer_refuses_and_sends_nothing_of_its_cache() -> None:
    scenario = FarSide()
    for far in ("c", "d"):
        reasons = {each.reason for each in of_routers(scenario.world, FeedUnavailable, far, "n")}
        assert reasons == {FeedUnavailableReason.NOT_NEARER}
        assert of_routers(scenario.world, Attached, far, "n") == []
        assert scenario.ranges(far, "n") == 0
    assert scenario.during == []
    assert scenario.y.events == ["e90"], "e90 comes from the log when the path is restored"


def test_a2_fed_from_the_far_side_an_event_becomes_silence() -> None:
    scenario = FarSide(feeding=True)
    assert of_routers(scenario.world, Attached, "c", "n")
    assert scenario.ranges("c", "n") > 0
    assert scenario.y.events == [], "e90 was lost for ever"
    assert scenario.world.horizon("d", P) > scenario.ticks["e90"]


def test_a2_by_the_rule_the_far_side_is_not_tried() -> None:
    # R7: candidates are the brokers on the path
    scenario = FarSide(trying=False)
    assert of_routers(scenario.world, Attach, "n", "c") == []
    assert of_routers(scenario.world, Attach, "n", "d") == []
    assert scenario.y.events == ["e90"]


# --- A18: a sideways loop -------------------------------------------------------------------------


class Sideways:
    """p - {b1, b2}: both brokers of a cell miss an event, and lose p one after the other."""

    def __init__(self, *, trying: bool = True, feeding: bool = False) -> None:
        with naive(trying=trying, feeding=feeding):
            self.world = world = World("p-b", cells={"b": ["b1", "b2"]})
            ann = world.publisher("p")
            self.x = world.subscriber("b1", "x", "TRUE")
            self.y = world.subscriber("b2", "y", "TRUE")
            world.run(s=2)
            missed = world.lose(of(StreamData, source="p"))
            nacks = world.lose(of(Nack, target="p"))
            ann.publish("e1")
            world.run(ms=300)
            assert missed.messages
            missed.end()
            world.cut("p", "b1")
            world.run(ms=300)
            world.cut("p", "b2")
            world.run(ms=300)
            nacks.end()
            self.feeders = [world[name].components.router.feeder(P) for name in ("b1", "b2")]
            cut_off = world.now
            world.run(s=8)
            self.nacks = [
                len(world.sent_over(Nack, source, target, cut_off))
                for source, target in (("b1", "b2"), ("b2", "b1"))
            ]
            world.heal("p", "b1")
            world.heal("p", "b2")
            world.run(s=10)


def test_a18_brokers_of_one_cell_do_not_feed_each_other() -> None:
    scenario = Sideways()
    for source, target in (("b1", "b2"), ("b2", "b1")):
        reasons = {
            each.reason for each in of_routers(scenario.world, FeedUnavailable, source, target)
        }
        assert reasons == {FeedUnavailableReason.NOT_NEARER}
        assert of_routers(scenario.world, Attached, source, target) == []
    assert scenario.feeders == [None, None]
    assert min(scenario.nacks) == 0, (
        "leaves may nack at routers, all in one direction; nothing loops"
    )
    assert (scenario.x.events, scenario.y.events) == (["e1"], ["e1"])


def test_a18_brokers_that_feed_each_other_send_nacks_in_a_loop() -> None:
    scenario = Sideways(feeding=True)
    assert scenario.feeders == ["b2", "b1"], "each has the other as feeder"
    assert min(scenario.nacks) > 5


def test_a18_by_the_rule_the_own_cell_is_not_tried() -> None:
    # R7: in another cell than the pubend's, routers attach to the next cell only
    scenario = Sideways(trying=False)
    assert of_routers(scenario.world, Attach, "b1", "b2") == []
    assert of_routers(scenario.world, Attach, "b2", "b1") == []
    assert (scenario.x.events, scenario.y.events) == (["e1"], ["e1"])
