"""Runs that break naive feeds, with whole brokers: who may feed whom.

The names (A2, A18) are those of the rules' own list. Two rules keep a feed straight: a broker asks
only brokers that are nearer to the pubend (R7), and who is asked feeds only those that lie beyond it
(R10). In every story but the last of each part the brokers that ask are naive: they ask everybody
they reach. The second rule alone must hold then; without it the story goes wrong as the second test
says. P is a pubend at p.
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


def candidates_are_all_who_are_reached(
    routing: FeedCandidates, pubend: PubendId
) -> list[Candidate]:
    nearer = candidates_by_the_rule(routing, pubend)
    others = [
        broker
        for broker in routing._peers.open_peers()
        if broker not in {each.broker for each in nearer}
    ]
    return nearer + [Candidate(broker, 1) for broker in others]


def whoever_asks_is_fed(routing: FeedCandidates, pubend: PubendId, receiver: Receiver) -> bool:
    return receiver.kind is AttachKind.CELL or may_feed_by_the_rule(routing, pubend, receiver)


def naive(*, asking: bool, feeding: bool) -> ExitStack:
    """Take out R7, R10, or both, for a while."""
    stack = ExitStack()
    if asking:
        stack.enter_context(
            patched(FeedCandidates, "candidates", candidates_are_all_who_are_reached)
        )
    if feeding:
        stack.enter_context(patched(FeedCandidates, "may_feed", whoever_asks_is_fed))
    return stack


def of_routers(world: World, kind: type, source: BrokerId, target: BrokerId) -> list[Any]:
    """Return the messages of feeds of routers that went over a link; leaves have odd numbers."""
    return [
        each for each in world.sent_over(kind, source, target) if not is_leaf_number(each.number)
    ]


# --- A2: the far side's cache ---------------------------------------------------------------------


class FarSide:
    """p - a - n - {c, d}: c knows an event for d only as silence; n has forgotten it, and loses a.

    c was sent the stream filtered for itself. d has missed the event and asks n for it, when n is cut
    off from all that is nearer to P but still reaches c.
    """

    def __init__(self, *, asking: bool = True, feeding: bool = False) -> None:
        with naive(asking=asking, feeding=feeding):
            self.world = world = World("p-a-n-c", "n-d", cache_bytes=4_000)
            ann = world.publisher("p")
            self.x = world.subscriber("c", "x", "kind = 'X'")
            self.y = world.subscriber("d", "y", "kind = 'Y'")
            world.run(s=2)
            missed = world.lose(of(StreamData, source="n", target="d"))
            asked = world.lose(of(Nack, source="d"))
            ann.publish("e90", kind="Y", text="long" * 2_000)
            world.run(s=2)  # silence after it is told, so that d sees a gap
            assert missed.messages
            missed.end()
            world.cut("a", "n")
            world.run(ms=100)
            asked.end()
            world.run(s=4)
            self.during = list(self.y.events)
            world.heal("a", "n")
            world.run(s=10)
            self.ticks = ann.ticks

    def ranges(self, source: BrokerId, target: BrokerId) -> int:
        """Count the messages with knowledge of the stream that went over a link."""
        return sum(
            len(self.world.sent_over(kind, source, target)) for kind in (StreamData, StreamSilence)
        )


def test_a2_a_broker_that_is_not_nearer_refuses_and_hands_out_nothing_of_its_cache() -> None:
    story = FarSide()
    for far in ("c", "d"):
        reasons = {each.reason for each in of_routers(story.world, FeedUnavailable, far, "n")}
        assert reasons == {FeedUnavailableReason.NOT_NEARER}
        assert of_routers(story.world, Attached, far, "n") == []
        assert story.ranges(far, "n") == 0
    assert story.during == []
    assert story.y.events == ["e90"], "it comes from the log when the way is back"


def test_a2_fed_from_the_far_side_an_event_is_taken_for_silence() -> None:
    story = FarSide(feeding=True)
    assert of_routers(story.world, Attached, "c", "n")
    assert story.ranges("c", "n") > 0
    assert story.y.events == [], "it was lost for ever"
    assert story.world.horizon("d", P) > story.ticks["e90"]


def test_a2_by_the_rule_the_far_side_is_not_even_asked() -> None:
    # R7: candidates are the brokers on the way
    story = FarSide(asking=False)
    assert of_routers(story.world, Attach, "n", "c") == []
    assert of_routers(story.world, Attach, "n", "d") == []
    assert story.y.events == ["e90"]


# --- A18: a sideways loop -------------------------------------------------------------------------


class Sideways:
    """p - {b1, b2}: both brokers of a cell miss an event, and lose p one after the other."""

    def __init__(self, *, asking: bool = True, feeding: bool = False) -> None:
        with naive(asking=asking, feeding=feeding):
            self.world = world = World("p-b", cells={"b": ["b1", "b2"]})
            ann = world.publisher("p")
            self.x = world.subscriber("b1", "x", "TRUE")
            self.y = world.subscriber("b2", "y", "TRUE")
            world.run(s=2)
            missed = world.lose(of(StreamData, source="p"))
            asked = world.lose(of(Nack, target="p"))
            ann.publish("e1")
            world.run(ms=300)
            assert missed.messages
            missed.end()
            world.cut("p", "b1")
            world.run(ms=300)
            world.cut("p", "b2")
            world.run(ms=300)
            asked.end()
            self.feeders = [world[name].components.router.feeder(P) for name in ("b1", "b2")]
            cut_off = world.now
            world.run(s=4)
            self.nacks = [
                len(world.sent_over(Nack, source, target, cut_off))
                for source, target in (("b1", "b2"), ("b2", "b1"))
            ]
            world.heal("p", "b1")
            world.heal("p", "b2")
            world.run(s=10)


def test_a18_brokers_of_one_cell_do_not_feed_each_other() -> None:
    story = Sideways()
    for source, target in (("b1", "b2"), ("b2", "b1")):
        reasons = {each.reason for each in of_routers(story.world, FeedUnavailable, source, target)}
        assert reasons == {FeedUnavailableReason.NOT_NEARER}
        assert of_routers(story.world, Attached, source, target) == []
    assert story.feeders == [None, None]
    assert min(story.nacks) == 0, (
        "leaves may ask routers, all in one direction; nothing comes round"
    )
    assert (story.x.events, story.y.events) == (["e1"], ["e1"])


def test_a18_brokers_that_feed_each_other_let_nacks_go_round() -> None:
    story = Sideways(feeding=True)
    assert story.feeders == ["b2", "b1"], "each believes that it is fed"
    assert min(story.nacks) > 5


def test_a18_by_the_rule_the_own_cell_is_not_even_asked() -> None:
    # R7: in another cell than the pubend's, routers ask the next cell only
    story = Sideways(asking=False)
    assert of_routers(story.world, Attach, "b1", "b2") == []
    assert of_routers(story.world, Attach, "b2", "b1") == []
    assert (story.x.events, story.y.events) == (["e1"], ["e1"])
