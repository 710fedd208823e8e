"""Runs that break a naive change of the tree, with whole brokers (R13).

In all of them cell i leaves its neighbour j for k, a neighbour of j: SHIFT(i, j, k). Brokers learn of
it one by one; how they agree on it is not part of these runs. A23 is a name of the rules' own list.
Each scenario is played by the rules, and again with its rule removed, and then fails as the second
test shows.
"""

from __future__ import annotations

from random import Random

import pytest

from gapless.core.ids import BrokerId, CellId, PubendId
from gapless.feeds.candidates import FeedCandidates
from gapless.messages.overlay import Quality
from gapless.messages.propagation import TableDelta, TableFull
from gapless.messages.streams import (
    FeedUnavailable,
    FeedUnavailableReason,
    Nack,
    StreamData,
    StreamSilence,
)
from gapless.overlay.path_epochs import SAME_VIEW
from gapless.overlay.tree import TreeChange
from gapless.propagation.edge import Edge
from gapless.propagation.sources import TableSources
from gapless.routing import router as router_module
from gapless_lab.sim.planted_bugs import patched
from tests.scenarios.brokers import Publisher, Subscriber, World, of

P = PubendId("P")


def forget_nothing(*_: object) -> bool:
    """Continue without raising a scope."""
    return False


# --- A23: silence for fewer hosts -----------------------------------------------------------------


def missed_by_the_cell_that_moves() -> Subscriber:
    """From p - j - {i, k}: i has missed an event that k has as silence, and nacks it at k."""
    world = World("p-j-i", "j-k")
    ann = world.publisher("p")
    x = world.subscriber("i", "x", "kind = 'X'")
    world.subscriber("k", "y", "kind = 'Y'")
    world.run(s=2)
    missed = world.lose(of(StreamData, source="j", target="i"))
    nacks = world.lose(of(Nack, source="i", target="j"))
    tick = ann.publish("e70", kind="X")
    world.run(s=1)
    assert missed.messages
    assert world.horizon("k", P) > tick > world.horizon("i", P)
    world.shift("i", "j", "k")
    world.apply_tree("k", "j", "i", "p")
    missed.end()
    nacks.end()
    world.run(s=10)
    assert world["i"].components.router.feeder(P) == "k"
    return x


def test_a23_a_cell_that_gains_a_neighbour_forgets_silence_for_fewer_hosts() -> None:
    assert missed_by_the_cell_that_moves().events == ["e70"]


def test_a23_ticks_filtered_for_one_side_are_sent_as_silence_to_the_other() -> None:
    with patched(TreeChange, "forgets", forget_nothing):
        x = missed_by_the_cell_that_moves()
    assert x.events == [], "the event was lost for ever"
    assert x.gaps == []


def missed_on_the_side_that_is_left() -> Subscriber:
    """From i - j - {p, k}, the pubend at i: p has missed an event, k has it as silence."""
    world = World("i-j-p", "j-k", cache_bytes=4_000)
    ann = world.publisher("i")
    x = world.subscriber("p", "x", "kind = 'X'")
    world.subscriber("k", "y", "kind = 'Y'")
    world.run(s=2)
    missed = world.lose(of(StreamData, source="j", target="p"))
    nacks = world.lose(of(Nack, source="p", target="j"))
    ann.publish("e70", kind="X", text="long" * 2_000)
    world.run(s=1)
    assert missed.messages
    world.shift("i", "j", "k")
    world.apply_tree("i", "k", "j", "p")
    missed.end()
    nacks.end()
    world.run(s=10)
    assert world["j"].components.router.feeder(P) == "k"
    return x


def test_a23_the_cell_also_forgets_ticks_that_now_come_from_the_new_neighbour() -> None:
    assert missed_on_the_side_that_is_left().events == ["e70"]


def test_a23_ticks_from_the_former_direction_are_sent_back_as_silence() -> None:
    with patched(TreeChange, "forgets", forget_nothing):
        x = missed_on_the_side_that_is_left()
    assert x.events == []


def silence_in_transit() -> Subscriber:
    """From p - j - {i, k}: a range that j sent to k before the change arrives after it."""
    world = World("p-j-i", "j-k")
    ann = world.publisher("p")
    x = world.subscriber("i", "x", "kind = 'X'")
    world.subscriber("k", "y", "kind = 'Y'")
    world.run(s=2)
    world.lose(of(StreamData, source="j", target="i"))
    nacks = world.lose(of(Nack, source="i", target="j"))
    late = world.hold(of(StreamData, StreamSilence, source="j", target="k"))
    ann.publish("e70", kind="X")
    world.run(ms=300)
    assert late.messages
    world.shift("i", "j", "k")
    world.apply_tree("k", "j", "i", "p")
    world.run(ms=1)
    late.release()
    nacks.end()
    world.run(s=10)
    return x


def test_a23_knowledge_ranges_of_an_older_scope_are_dropped() -> None:
    assert silence_in_transit().events == ["e70"]


def test_a23_silence_of_an_older_scope_hides_an_event() -> None:
    with patched(router_module, "scope_of", lambda _: 2**31):
        x = silence_in_transit()
    assert x.events == []


# --- locations of hosts ---------------------------------------------------------------------------


def restarted_and_moved() -> Subscriber:
    """From k - j - i - x, the pubend at k: i has restarted and sends k its table without x.

    j's table, as k has it, still names x. It does not show that x is behind j.
    """
    world = World("k-j-i-x")
    ann = world.publisher("k")
    x = world.subscriber("x", "x", "kind = 'X'")
    world.subscriber("i", "y", "kind = 'Y'", durable=True)
    world.run(s=2)
    world.cut("i", "x")
    world.restart("i")
    world.run(ms=500)
    world.hold(of(TableDelta, TableFull, source="j", target="k"))
    world.shift("i", "j", "k")
    world.apply_tree("k", "j", "i", "x")
    assert world.wait(lambda: world["i"].components.router.feeder(P) == "k")
    world.run(ms=500)
    assert _is_settled(world, "k", "i")
    ann.publish("e1", kind="X")
    world.run(ms=500)
    world.heal("i", "x")
    world.run(s=5)
    return x


def _is_settled(world: World, broker: BrokerId, cell: CellId) -> bool:
    edge = world[broker].components.exchange.table_store.edges.get(cell)
    return edge is not None and edge.settled


def test_tables_of_an_older_shape_do_not_locate_hosts() -> None:
    assert restarted_and_moved().events == ["e1"]


def test_tables_of_an_older_shape_locate_a_moved_host_at_its_former_edge() -> None:
    def believe(edge: Edge, shape_version: int) -> None:
        """Let every table locate hosts."""

    with patched(Edge, "distrust_before", believe):
        x = restarted_and_moved()
    assert x.events == []


# --- brokers with the old tree --------------------------------------------------------------------


def one_broker_has_the_old_tree() -> tuple[World, Subscriber]:
    """From k - {j1, j2} - i, the pubend at k: k and j1 switch, j2 and i only a while later."""
    world = World("k-j-i", cells={"j": ["j1", "j2"]})
    ann = world.publisher("k")
    x = world.subscriber("i", "x", "kind = 'X'")
    world.run(s=2)
    assert world["i"].components.router.feeder(ann.pubend) == "j2"
    assert "j1" in world["k"].components.exchange.table_store.edges["j"].sources()
    world.shift("i", "j", "k")
    world.apply_tree("k", "j1")
    world.run(s=1)
    ann.publish("e1", kind="X")
    world.run(s=1)
    world.apply_tree("j2", "i")
    world.run(s=10)
    return world, x


def test_brokers_with_different_shape_versions_do_not_feed_each_other() -> None:
    world, x = one_broker_has_the_old_tree()
    reasons = {each.reason for each in world.sent_over(FeedUnavailable, "k", "j2")}
    assert FeedUnavailableReason.SHAPE_MISMATCH in reasons
    assert x.events == ["e1"]


def test_a_broker_with_the_old_shape_forwards_ticks_filtered_for_the_new_one() -> None:
    with (
        patched(FeedCandidates, "difference", lambda *_: SAME_VIEW),
        patched(
            TableSources, "set_fed", lambda *_, **__: None
        ),  # otherwise j2 itself sends its filters
    ):
        _, x = one_broker_has_the_old_tree()
    assert x.events == [], "k filters more for j, and j2 still feeds i"


# --- a crash --------------------------------------------------------------------------------------


def test_a_broker_starts_with_the_tree_on_its_disk() -> None:
    world = World("p-j-i", "j-k")
    ann = world.publisher("p")
    x = world.subscriber("i", "x", "TRUE", durable=True)
    world.run(s=2)
    x.leave()
    world.shift("i", "j", "k")
    world.apply_tree("i", "j", "k", "p")
    world.run(ms=1)
    world.restart("i")
    world.run(s=1)
    assert world["i"].neighbourhood.neighbours == ("k",)
    ann.publish("e1")
    x.come_back()
    world.run(s=3)
    assert x.events == ["e1"]


def test_a_crash_before_the_write_leaves_the_tree_unchanged() -> None:
    world = World("p-j-i", "j-k")
    world.nodes["i"].disk.stopped = True
    world.shift("i", "j", "k")
    world.apply_tree("i")
    world.run(s=1)
    assert world["i"].neighbourhood.neighbours == ("j",), (
        "nothing changes before the record is durable"
    )
    world.restart("i")
    world.run(s=1)
    assert world["i"].neighbourhood.neighbours == ("j",)


# --- under traffic --------------------------------------------------------------------------------


class Traffic:
    """i - j - {k, m}, with a cell behind each: all publish and all subscribe while i moves."""

    CHAINS = ("ii-i-j-k-kk", "j-m")

    def __init__(self, seed: int, delta: int) -> None:
        self.chance = Random(seed)
        pairs = {"j": ["j", "jj"], "k": ["k", "k2"]} if seed % 2 else {}
        self.world = world = World(*self.CHAINS, cells=pairs, delta=delta)
        self.anns = [
            Publisher(world, name, f"P{name}", "TRUE", Quality.GUARANTEED)
            for name in ("ii", "kk", "m")
        ]
        world.run(ms=200)
        self.listeners = [
            world.subscriber(name, f"{name} {kind}", f"kind = '{kind}'", durable=True)
            for name in sorted(world.nodes)
            for kind in self.chance.sample("XYZ", 2)
        ]
        world.run(s=3)
        assert all(len(each.starts) == len(self.anns) for each in self.listeners)
        self.expected: dict[str, list[str]] = {kind: [] for kind in "XYZ"}
        self.crashed: set[BrokerId] = set()
        self._count = 0

    def publish(self, rounds: int) -> None:
        """Let all publishers publish, and time pass."""
        for _ in range(rounds):
            for ann in self.anns:
                kind = self.chance.choice("XYZ")
                self._count += 1
                label = f"{ann.pubend.name} {self._count}"
                ann.send_event(label, kind=kind)
                self.expected[kind].append(label)
            self.world.run(ms=self.chance.choice([5, 20, 100]))

    def shift(self, moved: str, old: str, new: str) -> None:
        """Change the tree; brokers apply it in any order, with events between."""
        self.world.shift(moved, old, new)
        names = sorted(self.world.nodes)
        for name in self.chance.sample(names, len(names)):
            self.world.apply_tree(name)
            self.publish(self.chance.choice([0, 1, 3]))

    def crash(self, name: BrokerId) -> None:
        """Restart a broker with its clients. It applies the tree again if it had not stored it."""
        world = self.world
        self.crashed.add(name)
        world.restart(name)
        self.publish(1)
        neighbourhood = world.topology.neighbourhood(
            world.nodes[name].cell, world.parameters.neighbourhood_radius
        )
        if world[name].neighbourhood.cells != neighbourhood.cells:
            world.apply_tree(name)
        for listener in self.listeners:
            if listener.broker == name:
                listener.come_back()

    def faults(self) -> list[str]:
        """Return the faults in the events that the clients received."""
        found = []
        for listener in self.listeners:
            expected = self.expected[listener.wanted[-2]]
            for ann in self.anns:
                name = ann.pubend.name
                mine = [each for each in listener.events if each.split()[0] == name]
                if listener.broker in self.crashed:
                    mine = [
                        *dict.fromkeys(mine)
                    ]  # a client that acknowledges nothing gets it again
                if mine != [each for each in expected if each.split()[0] == name]:
                    found.append(f"{listener.name} of {name}: {mine}")
        return found


@pytest.mark.parametrize("delta", [0, 1])
@pytest.mark.parametrize("seed", range(6))
def test_every_event_is_delivered_once_and_in_order_while_a_cell_moves(
    seed: int, delta: int
) -> None:
    traffic = Traffic(seed, delta=delta)
    traffic.publish(5)
    traffic.shift("i", "j", "k")
    traffic.publish(5)
    traffic.shift("i", "k", "kk")
    traffic.publish(5)
    traffic.shift("m", "j", "k")
    traffic.publish(5)
    traffic.world.run(s=20)
    assert traffic.faults() == []
    assert all(not each.gaps for each in traffic.listeners)


@pytest.mark.parametrize("seed", range(6))
def test_every_event_is_delivered_once_and_in_order_when_routers_crash_during_the_move(
    seed: int,
) -> None:
    traffic = Traffic(seed, delta=seed // 2 % 2)
    traffic.world.lose(lambda *_: traffic.chance.random() < 0.05)
    for move in (("i", "j", "k"), ("i", "k", "kk"), ("m", "j", "k")):
        traffic.shift(*move)
        traffic.crash(traffic.chance.choice("ijk"))
        traffic.publish(5)
    traffic.world.faults.clear()
    traffic.world.run(s=20)
    assert traffic.faults() == []
    assert all(not each.gaps for each in traffic.listeners)


# --- tables of brokers that moved -----------------------------------------------------------------


def test_a_table_of_a_broker_that_moved_does_not_stay_in_its_former_edge() -> None:
    # from a - n - b, n is down: b is a source for the edge to n, and then becomes a's neighbour
    world = World("a-n-b", delta=1)
    world.subscriber("b", "x", "kind = 'X'")
    world.crash("n")
    world.run(s=10)
    edge = world["a"].components.exchange.table_store.edges["n"]
    assert ("b", "b") in edge.senders()
    world.shift("b", "n", "a")
    world.apply_tree("a")
    world.run(ms=10)
    assert ("b", "b") not in edge.senders()
    assert edge.merged_stale is not None, "what it claims still counts (R21)"
