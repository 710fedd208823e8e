"""Partial partitions: islands fed over relays, barriers, brokers that reach only one side.

PT III: brokers that are cut off from one side but alive are an *island*; where nothing gets through
there is a *barrier*. A2 and A18 are runs of the rules' own list, here with relays as they really are
(test_feed_runs.py shows what a feeder that is not nearer would do). P is a pubend at p.
"""

from __future__ import annotations

from typing import Any

import pytest

from gapless.core.events import LinkDrained, LinkFull
from gapless.core.ids import BrokerId, PubendId
from gapless.feeds.feed import is_leaf_number
from gapless.messages.overlay import Packet, Relayed
from gapless.messages.streams import Attach, Attached, Nack, StreamData, StreamSilence
from gapless.propagation.sources import TableSources
from gapless_lab.sim.planted_bugs import patched
from tests.scenarios.brokers import World, of

P = PubendId("P")


def inside(world: World, kind: type, source: BrokerId, target: BrokerId) -> list[Any]:
    """Return the messages of a kind that one broker sent to another over relays."""
    return [
        message
        for _, _, _, relayed in world.sent
        if isinstance(relayed, Relayed)
        and relayed.index == 1
        and (relayed.route[0], relayed.route[-1]) == (source, target)
        and isinstance(relayed.inner, Packet)
        for message in relayed.inner.messages
        if isinstance(message, kind)
    ]


def ranges(world: World, source: BrokerId, target: BrokerId) -> int:
    """Count the messages with knowledge of a stream that were sent over a link."""
    return sum(len(world.sent_over(kind, source, target)) for kind in (StreamData, StreamSilence))


# --- A2: the island -------------------------------------------------------------------------------


class Island:
    """p - a - n - {c, d}, δ = 1: a and n lose the link between them; n still reaches c and d.

    c and d bypass n: a feeds them, each filtered for itself. n's own subscriber and receivers at n need
    everything.
    """

    def __init__(self, *, relay_hops_max: int = 3) -> None:
        self.world = world = World("p-a-n-c", "n-d", delta=1, relay_hops_max=relay_hops_max)
        self.ann = world.publisher("p")
        self.x = world.subscriber("c", "x", "kind = 'X'")
        self.y = world.subscriber("d", "y", "kind = 'Y'")
        self.z = world.subscriber("n", "z", "kind = 'Z'")
        world.run(s=2)
        world.cut("a", "n")
        world.cut("p", "n")
        world.run(s=4)
        self.since = world.now

    def publish(self, *kinds: str) -> None:
        for kind in kinds:
            self.ann.publish(f"{kind}{len(self.ann.ticks)}", kind=kind)
        self.world.run(s=1)


def test_a2_an_island_is_fed_over_relays_by_a_broker_that_is_nearer() -> None:
    # PT III, DESIGN 6: "brokers inside that are alive keep being fed over relayed sessions"
    island = Island()
    world = island.world
    assert world["n"].components.router.feeder(P) == "a"
    assert world["n"].components.sessions.route("a") in {("c",), ("d",)}
    island.publish("X", "Y", "Z")
    assert (island.x.events, island.y.events, island.z.events) == (["X0"], ["Y1"], ["Z2"])


def test_a2_a_relay_forwards_events_that_are_not_for_it_and_keeps_none() -> None:
    # R3: c has the event for n as silence, and relays it all the same
    island = Island()
    world = island.world
    island.publish("Z")
    (relay,) = world["n"].components.sessions.route("a")
    assert island.z.events == ["Z0"]
    assert ranges(world, relay, "n") == 0, "nothing from its own cache"
    assert inside(world, StreamData, "a", "n"), "a sent it"
    assert world.sent_over(StreamData, "a", relay, island.since) == [], (
        "a sent the relay nothing of it"
    )


def test_a2_a_router_fed_over_relays_sends_the_relayed_flag_to_its_receivers() -> None:
    # R7: classes (a) to (c) need a feed without `relayed`
    island = Island()
    world = island.world
    world.run(s=20)
    assert world["c"].components.router.feeder(P) == world["d"].components.router.feeder(P) == "a"
    island.publish("X", "Y", "Z")
    assert (island.x.events, island.y.events, island.z.events) == (["X0"], ["Y1"], ["Z2"])


def test_a2_a_subscription_made_on_the_island_starts() -> None:
    # PT V-B: live brokers on the island receive subscriptions, and may subscribe
    island = Island()
    new = island.world.subscriber("n", "new", "kind = 'N'")
    assert island.world.wait(lambda: bool(new.starts), s=3)
    island.publish("N")
    assert new.events == ["N0"]


def test_a2_an_event_that_the_island_missed_comes_from_the_log() -> None:
    # the far side has it as silence; a nack there would lose it
    island = Island()
    world = island.world
    relays = ("c", "d")
    lost = [world.lose(of(Relayed, source=relay, target="n")) for relay in relays]
    island.ann.publish("missed", kind="Z")
    world.run(ms=30)
    for each in lost:
        each.end()
    world.run(s=3)
    assert island.z.events == ["missed"]
    assert not any(ranges(world, relay, "n") for relay in relays)


@pytest.mark.parametrize("links", [(("a", "c"), ("a", "d")), (("c", "n"), ("d", "n"))])
def test_an_island_is_fed_over_links_that_are_congested_most_of_the_time(
    links: tuple[tuple[str, str], ...],
) -> None:
    # R40 over relays: a congested route is not broken; a new session would be congested again
    island = Island()
    world = island.world
    for number in range(10):
        for source, target in links:
            world.happen(source, LinkFull(target))
        island.ann.publish(f"Z{number}", kind="Z")
        world.run(ms=400)
        for source, target in links:
            world.happen(source, LinkDrained(target))
        world.run(ms=100)
    world.run(s=2)
    assert island.z.events == [f"Z{number}" for number in range(10)]
    ended = {"relay broke", "gap in a session", "session died"}
    assert not ended & {*world["a"].coverage_marks, *world["n"].coverage_marks}, (
        "the session was never replaced"
    )


def test_a_subscriber_behind_a_barrier_waits_and_catches_up_when_it_heals() -> None:
    # R11; PT III: nothing reaches n, which is notified and loses nothing
    island = Island(relay_hops_max=0)
    world = island.world
    assert world["n"].components.router.feeder(P) is None
    island.publish("X", "Y", "Z")
    world.run(s=5)
    assert (island.x.events, island.y.events) == (["X0"], ["Y1"]), "they bypass it"
    assert island.z.events == []
    assert island.z.gaps == []
    world.heal("a", "n")
    world.run(s=10)
    assert island.z.events == ["Z2"]
    assert world["n"].components.router.feeder(P) == "a"


@pytest.mark.parametrize("relay_hops_max", [0, 3])
def test_a_restored_link_is_used_and_nothing_is_lost_or_repeated(
    relay_hops_max: int,
) -> None:
    island = Island(relay_hops_max=relay_hops_max)
    world = island.world
    world.heal("a", "n")
    world.heal("p", "n")
    for _ in range(40):
        island.publish("X", "Y", "Z")
    assert world["n"].components.sessions.is_direct("a")
    assert world["c"].components.router.feeder(P) == "n", "c uses n again"
    labels = [*island.ann.ticks]
    assert island.x.events == labels[0::3]
    assert island.y.events == labels[1::3]
    assert island.z.events == labels[2::3]


# --- A18: two brokers of one cell -----------------------------------------------------------------


class Sideways:
    """p - {b1, b2}: one broker of a cell loses p, or both do; b1's other link is to its peer."""

    def __init__(self, *cuts: BrokerId) -> None:
        self.world = world = World("p-b", cells={"b": ["b1", "b2"]})
        self.ann = world.publisher("p")
        self.x = world.subscriber("b1", "x", "TRUE")
        self.y = world.subscriber("b2", "y", "TRUE")
        world.run(s=2)
        for name in cuts:
            world.cut("p", name)
        world.run(s=4)
        self.since = world.now

    def sent_to_the_peer(self, kind: type) -> int:
        """Count the messages that routers of the cell sent each other, over links or relays."""
        pairs = (("b1", "b2"), ("b2", "b1"))
        found = [each for pair in pairs for each in self.world.sent_over(kind, *pair)]
        return len([each for each in found if not is_leaf_number(each.number)])


@pytest.mark.parametrize("cut", ["b1", "b2"])
def test_a18_a_broker_that_lost_the_upper_cell_is_fed_through_its_peer_not_by_it(cut: str) -> None:
    # GD 3.1: "route messages towards s1 sideways via its cell neighbor"; R7 (b)
    scenario = Sideways(cut)
    (other,) = {"b1", "b2"} - {cut}
    assert scenario.world[cut].components.sessions.route("p") == (other,)
    assert scenario.sent_to_the_peer(Attach) == 0
    scenario.ann.publish("e1")
    scenario.world.run(s=1)
    assert (scenario.x.events, scenario.y.events) == (["e1"], ["e1"])


def test_a18_two_brokers_that_lost_the_upper_cell_do_not_feed_each_other() -> None:
    # there is no route: they wait, nothing loops, and all ticks come when one link is restored
    scenario = Sideways("b1", "b2")
    world = scenario.world
    scenario.ann.publish("e1")
    world.run(s=4)
    assert [world[name].components.router.feeder(P) for name in ("b1", "b2")] == [None, None]
    assert scenario.sent_to_the_peer(Attach) == scenario.sent_to_the_peer(Attached) == 0
    pairs = (("b1", "b2"), ("b2", "b1"))
    assert min(len(world.sent_over(Nack, *pair, scenario.since)) for pair in pairs) == 0
    assert scenario.x.events == scenario.y.events == []
    world.heal("p", "b1")
    world.run(s=8)
    assert world["b2"].components.sessions.route("p") == ("b1",)
    scenario.ann.publish("e2")
    world.run(s=1)
    assert (scenario.x.events, scenario.y.events) == (["e1", "e2"], ["e1", "e2"])


# --- brokers that reach different sides -----------------------------------------------------------


@pytest.mark.parametrize("direction", ["up", "down"])
def test_a_link_that_works_in_one_direction_only_is_bypassed_by_relays(direction: str) -> None:
    # A28 with another route: the link p - n carries one direction, no end notices
    world = World("p-n-c", delta=1)
    ann = world.publisher("p")
    x = world.subscriber("c", "x", "TRUE")
    z = world.subscriber("n", "z", "TRUE")
    world.run(s=2)
    world.mute(*(("n", "p") if direction == "down" else ("p", "n")))
    for number in range(8):
        ann.publish(f"e{number}")
        world.run(s=1)
    assert x.events == z.events == [f"e{number}" for number in range(8)]
    assert world["n"].components.sessions.route("p") == ("c",)


def test_two_brokers_of_a_cell_that_reach_different_sides_form_a_route_together() -> None:
    # p - {n1, n2} - c: n1 has lost c, n2 has lost p; each stream finds a route over both
    world = World("p-n-c", cells={"n": ["n1", "n2"]})
    publishers = [world.publisher("p", f"P{number}") for number in range(6)]
    x = world.subscriber("c", "x", "TRUE")
    world.run(s=2)
    world.cut("n1", "c")
    world.cut("n2", "p")
    world.run(s=4)
    assert {world["c"].components.sessions.route(name) for name in ("n1", "n2")} == {("n2",), ()}
    feeders = {world["n2"].components.router.feeder(each.pubend) for each in publishers}
    assert feeders == {"p"}, "over n1, which is a relay and no feeder"
    for each in publishers:
        each.publish(each.pubend.name)
    world.run(s=1)
    assert sorted(x.events) == [each.pubend.name for each in publishers]
    y = world.subscriber("c", "y", "kind = 1")
    assert world.wait(lambda: len(y.starts) == 6, s=3), "its table update takes the same route back"


def test_with_three_brokers_a_route_over_two_relays_is_found() -> None:
    # n1 is cut from p and c; c reaches n3 only, p reaches n2 only
    world = World("p-n-c", cells={"n": ["n1", "n2", "n3"]})
    ann = world.publisher("p")
    x = world.subscriber("c", "x", "TRUE")
    z = world.subscriber("n1", "z", "TRUE")
    world.run(s=2)
    for pair in (("p", "n1"), ("p", "n3"), ("c", "n1"), ("c", "n2")):
        world.cut(*pair)
    world.run(s=6)
    ann.publish("e1")
    world.run(s=2)
    assert (x.events, z.events) == (["e1"], ["e1"])
    assert len(world["c"].components.sessions.route("n2")) >= 1


class LostBelow:
    """p - a - n - c, δ = 1, no relays: c has lost n, which is up otherwise, and is fed by a.

    So n cannot send a the filters of c, and a has no reason to use a source beyond n.
    """

    def __init__(self) -> None:
        self.world = world = World("p-a-n-c", delta=1, relay_hops_max=0)
        self.ann = world.publisher("p")
        self.x = world.subscriber("c", "x", "kind = 1")
        world.run(s=2)
        world.cut("n", "c")
        world.run(s=3)
        assert world["c"].components.router.feeder(P) == "a"
        self.new = world.subscriber("c", "new", "kind = 2")
        world.run(s=5)
        self.started = bool(self.new.starts)
        since = world.now
        for kind in (1, 2, 3):
            self.ann.publish(f"e{kind}", kind=kind)
        world.run(s=1)
        frames = world.sent_over(StreamData, "a", "c", since)
        self.came = [each.payload for frame in frames for each in frame.knowledge.publications]


def test_a_receiver_that_bypasses_a_live_cell_is_a_source_of_tables() -> None:
    # R20: "every receiver attached with kind cell is a source for its direction"
    scenario = LostBelow()
    assert scenario.started
    assert scenario.came == [b"e1", b"e2"], "the stream is filtered for c"
    assert (scenario.x.events, scenario.new.events) == (["e1"], ["e2"])


def test_if_receivers_were_no_sources_a_new_subscription_could_not_start() -> None:
    with patched(TableSources, "set_fed", lambda *_, **__: None):
        scenario = LostBelow()
    assert not scenario.started
    assert (scenario.x.events, scenario.new.events) == (["e1"], []), (
        "the started subscription continues"
    )


def test_acknowledgements_are_sent_over_relays() -> None:
    # otherwise the log of an island would never be released, or released too early
    world = World("p-b", cells={"b": ["b1", "b2"]}, retention_s=0)
    ann = world.publisher("p")
    x = world.subscriber("b1", "x", "TRUE", durable=True)
    world.run(s=2)
    world.cut("p", "b1")
    world.run(s=4)
    ann.publish("e1")
    world.run(s=2)
    assert x.events == ["e1"]
    world.run(s=5)
    assert world.released("p", P) < ann.ticks["e1"]
    x.acknowledge(P, ann.ticks["e1"])
    world.run(s=8)
    assert world.released("p", P) >= ann.ticks["e1"]
