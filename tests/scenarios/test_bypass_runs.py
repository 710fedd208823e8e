"""Cells that are down are bypassed, up to δ in a row; beyond that streams wait and lose nothing (PT).

PT's brokers know the tree within Δ = δ + 1, and so reach past δ brokers that have failed in a row
(PT II, IV). Here these are cells, and both sides of the gap act: who is fed attaches beyond it (R7),
and who feeds asks the cells beyond it for their subscriptions (R20). P is a pubend at p.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from gapless.core.ids import BrokerId, CellId, PubendId
from gapless.feeds.candidates import FeedCandidates
from gapless.feeds.feed import Candidate
from gapless.messages.records import MemberRecord
from gapless.messages.streams import StreamData
from gapless.propagation.sources import TableSources
from gapless.pubend.members import Claim, Members
from gapless_lab.sim.planted_bugs import patched
from tests.scenarios.brokers import World

P = PubendId("P")

candidates_by_the_rule = FeedCandidates.candidates
sources_by_the_rule = TableSources._of


def only_the_next_cell(routing: FeedCandidates, pubend: PubendId) -> list[Candidate]:
    """Take out R7 (c) and (d): who is not of the next cell feeds nobody."""
    known = routing._announcements.get(pubend)
    next_cell = () if known is None else known.path[:1]
    neighbourhood = routing._tree.neighbourhood
    return [
        each
        for each in candidates_by_the_rule(routing, pubend)
        if known is None
        or known.direction is None
        or neighbourhood.cell_of(each.broker) in next_cell
    ]


def only_the_first_branch(
    sources: TableSources, cell: CellId, current: Collection[BrokerId]
) -> Iterator[BrokerId]:
    """Ask one broker in place of a cell that is down, whatever else lies beyond it."""
    yield from list(sources_by_the_rule(sources, cell, current))[:1]


def line(delta: int) -> tuple[str, list[CellId]]:
    """Return a line from p over a, δ cells that will die, and b to c."""
    dying = [f"n{number}" for number in range(1, delta + 1)]
    return "-".join(["p", "a", *dying, "b", "c"]), dying


class Gap:
    """p - a - (δ cells) - b - c: the cells in the middle die while events flow and one subscribes."""

    def __init__(self, delta: int, *, more: int = 0) -> None:
        text, self.dying = line(delta + more)
        self.world = World(text, delta=delta)
        self.ann = self.world.publisher("p")
        self.x = self.world.subscriber("c", "x", "kind = 1")
        self.world.run(s=2)
        self.said: list[str] = []

    def publish(self, count: int = 3, *, kind: int = 1) -> None:
        for _ in range(count):
            label = f"e{len(self.said)}"
            self.ann.publish(label, kind=kind)
            self.said.append(label)

    def die(self) -> None:
        for name in self.dying:
            self.world.crash(name)

    def come_back(self) -> None:
        for name in self.dying:
            self.world.start(name)

    def go_back(self) -> None:
        """Let time pass until feeds have returned to the nearest cells."""
        parameters = self.world.parameters
        patience = parameters.feed_switch_delay_ms + 3 * parameters.attach_refresh_ms
        self.world.run(ms=patience * (1 + len(self.dying)))


@pytest.mark.parametrize("delta", [1, 2, 3, 4])
def test_so_many_cells_in_a_row_that_are_dead_are_bypassed(delta: int) -> None:
    # PT II: "resilient to δ failures in a row"
    gap = Gap(delta)
    gap.publish()
    gap.die()
    gap.publish()
    gap.world.run(s=2)
    assert gap.world["b"].components.router.feeder(P) == "a"
    assert gap.x.events == gap.said
    gap.publish()
    gap.world.run(ms=100)
    assert gap.x.events == gap.said


@pytest.mark.parametrize("delta", [1, 2, 3, 4])
def test_subscriptions_cross_the_gap_and_start(delta: int) -> None:
    # PT V-B: "B continues the subscription propagation process by sending s to X (the first reachable
    # broker beyond the partition)"; 14.3 step 4
    gap = Gap(delta)
    gap.die()
    gap.world.run(s=1)
    y = gap.world.subscriber("c", "y", "kind = 2")
    assert gap.world.wait(lambda: bool(y.starts), s=2)
    gap.publish(kind=2)
    gap.world.run(s=1)
    assert y.events == gap.said
    assert gap.x.events == []


@pytest.mark.parametrize("delta", [1, 2, 3, 4])
def test_across_the_gap_only_what_is_wanted_travels(delta: int) -> None:
    # 14.3 step 3: the tables of the far side's own brokers are enough for an exact filter
    gap = Gap(delta)
    gap.die()
    gap.world.run(s=2)
    since = gap.world.now
    gap.publish(kind=2)
    gap.world.run(s=1)
    assert gap.world.sent_over(StreamData, "a", "b", since) == []
    gap.publish(kind=1)
    gap.world.run(s=1)
    assert len(gap.world.sent_over(StreamData, "a", "b", since)) == 3


@pytest.mark.parametrize("delta", [1, 2, 4])
def test_when_the_dead_return_the_streams_go_over_them_again_and_nothing_is_lost(
    delta: int,
) -> None:
    # 14.3 step 6
    gap = Gap(delta)
    gap.die()
    gap.publish()
    gap.world.run(s=2)
    gap.come_back()
    for _ in range(5):
        gap.publish(1)
        gap.world.run(s=1)
    gap.go_back()
    assert gap.world["b"].components.router.feeder(P) == gap.dying[-1]
    assert gap.world[gap.dying[0]].components.router.feeder(P) == "a"
    gap.publish()
    gap.world.run(s=1)
    assert gap.x.events == gap.said
    assert gap.x.gaps == []


@pytest.mark.parametrize("delta", [0, 1, 2, 3])
def test_one_more_and_streams_wait_for_the_way_to_come_back_and_lose_nothing(delta: int) -> None:
    # PT III: a barrier; "no active session bypasses the partition's pnodes"
    gap = Gap(delta, more=1)
    gap.publish()
    gap.world.run(s=1)
    gap.die()
    gap.publish()
    y = gap.world.subscriber("c", "y", "kind > 0")
    gap.world.run(s=5)
    assert gap.world["b"].components.router.feeder(P) is None
    assert gap.x.events == gap.said[:3]
    assert y.starts == {}, "nobody may start who was not heard"
    gap.world.start(gap.dying[0])  # one of them is enough
    gap.world.run(s=8)
    if delta:
        assert gap.x.events == gap.said
        assert y.starts.keys() == {P}
    for name in gap.dying[1:]:
        gap.world.start(name)
    gap.world.run(s=8)
    gap.publish()
    gap.world.run(s=1)
    assert gap.x.events == gap.said
    assert y.events == gap.said[-3:]


@pytest.mark.parametrize("delta", [1, 3])
def test_without_bypass_the_streams_stand_still(delta: int) -> None:
    with patched(FeedCandidates, "candidates", only_the_next_cell):
        gap = Gap(delta)
        gap.die()
        gap.publish()
        gap.world.run(s=5)
        assert gap.x.events == []


# --- two branches behind the gap (example 14.3) -------------------------------------------------------


class Branches:
    """p - a - n - {c, d}; n dies, then c and d each get a new subscription."""

    def __init__(self, *, forgetful: bool = False) -> None:
        with ExitStack() as stack:
            if forgetful:
                stack.enter_context(patched(TableSources, "_of", only_the_first_branch))
                stack.enter_context(patched(TableSources, "set_fed", lambda *_, **__: None))
            self.world = world = World("p-a-n-c", "n-d", delta=1)
            self.ann = world.publisher("p")
            self.old = [world.subscriber(name, f"old {name}", f"at = '{name}'") for name in "cdn"]
            world.run(s=2)
            world.crash("n")
            world.run(s=2)
            self.new = [world.subscriber(name, f"new {name}", f"by = '{name}'") for name in "cd"]
            world.run(s=3)
            self.started = [bool(each.starts) for each in self.new]
            self.since = world.now
            for name in "cd":
                self.ann.publish(f"at {name}", at=name)
                self.ann.publish(f"by {name}", by=name)
            world.run(s=2)


def test_both_branches_beyond_a_dead_cell_are_fed_and_heard() -> None:
    story = Branches()
    assert story.started == [True, True]
    assert [each.events for each in story.old[:2]] == [["at c"], ["at d"]]
    assert [each.events for each in story.new] == [["by c"], ["by d"]]


def test_each_branch_gets_only_what_it_wants() -> None:
    # 14.3 step 3: an entry in d's table and none in c's shows that it is not behind c
    story = Branches()
    for name in "cd":
        frames = story.world.sent_over(StreamData, "a", name, story.since)
        labels = [each.payload for frame in frames for each in frame.knowledge.publications]
        assert labels == [f"at {name}".encode(), f"by {name}".encode()]


def test_if_one_branch_is_forgotten_its_new_subscriptions_do_not_start() -> None:
    # R20 taken out: one source beyond, and receivers are none. They would start in the end, when the
    # pubend has heard from their host for so long without any table that it serves it unfiltered (R31)
    story = Branches(forgetful=True)
    assert sorted(story.started) == [False, True]


def test_the_dead_cells_own_subscriber_catches_up_when_it_returns() -> None:
    # PT VI: "brokers with local matching subscribers are not removed from Out_p. This is crucial to
    # prevent publication loss"; 14.3 step 6, before anybody is parked
    world = World("p-a-n-c", delta=1)
    ann = world.publisher("p")
    x = world.subscriber("c", "x", "TRUE")
    durable = world.subscriber("n", "durable", "TRUE", durable=True)
    world.run(s=2)
    ann.publish("e1")
    world.run(s=1)
    durable.acknowledge(P, ann.ticks["e1"])
    world.run(s=1)
    world.crash("n")
    ann.publish("e2")
    world.run(s=3)
    assert x.events == ["e1", "e2"]
    world.start("n")
    durable.come_back()
    world.run(s=10)
    ann.publish("e3")
    world.run(s=2)
    assert durable.events == ["e1", "e2", "e3"]
    assert x.events == ["e1", "e2", "e3"]


# --- the dead cell's own host (example 14.3, steps 5 and 6) ---------------------------------------------


class DeadHost:
    """p - a - n - {c, d}, a host in each of c, d, n; n is dead for longer than a host stays routed.

    By the time n returns, its old table at a is gone too, and z was published, which nobody wants.
    """

    def __init__(self) -> None:
        self.world = world = World(
            "p-a-n-c", "n-d", delta=1, inactive_after_s=7, stale_table_ttl_s=8
        )
        self.stream_epochs: list[tuple[int, dict[BrokerId, int]]] = []
        self.rows: list[MemberRecord] = []
        self.ann = world.publisher("p")
        for name in "cd":
            world.subscriber(name, f"old {name}", f"at = '{name}'")
        self.durable = world.subscriber("n", "durable", "at = 'n'", durable=True)
        world.run(s=2)
        self._note()
        world.crash("n")
        self.new = world.subscriber("c", "new c", "by = 'c'")
        world.run(s=3)
        self._note()
        self.ann.publish("n1", at="n")
        world.run(s=6)
        self._note()
        self.stay_down()
        world.start("n")
        self.durable.come_back()
        world.run(s=10)
        self._note()

    def stay_down(self) -> None:
        """Let the old table of n go, and something be published that n wants, that c does, that none does."""
        parameters = self.world.parameters
        self.world.run(s=parameters.stale_table_ttl_s + parameters.inactive_after_s)
        since = self.world.now
        self.ann.publish("n2", at="n")
        self.ann.publish("c1", by="c")
        self.ann.publish("z", at="z")
        self.world.run(s=1)
        frames = self.world.sent_over(StreamData, "p", "a", since)
        self.sent = [each.payload for frame in frames for each in frame.knowledge.publications]
        self.released = self.world.released("p", P)

    def _note(self) -> None:
        """Note the regime that p serves now, and what its disk says of the host at n."""
        stream_epoch = self.world.pubend("p", P).stream_epochs[-1]
        counters = {host.broker: entry.time.counter for host, entry in stream_epoch.entries}
        self.stream_epochs.append((stream_epoch.number, counters))
        row = self.world.member("p", P, "n")
        assert row is not None
        self.rows.append(row)


def never_park(members: Members, claim: Claim, now: int) -> Any:
    """Take out R54: whoever was a member counts as heard of just now."""
    members._heard_at.update(dict.fromkeys(members._rows, now))
    return review_by_the_rule(members, claim, now)


review_by_the_rule = Members.update_states


def test_a_dead_host_leaves_the_vector_and_is_listed_again_when_it_is_heard() -> None:
    # 14.3 steps 4 to 6: its regimes 5, 6, 7, 8 are 2, 3, 4, 5 here; in its new life n counts from 1
    story = DeadHost()
    assert story.stream_epochs == [
        (2, {"c": 2, "d": 2, "n": 2}),
        (3, {"c": 3, "d": 2, "n": 2}),
        (4, {"c": 3, "d": 2}),
        (5, {"c": 3, "d": 2, "n": 1}),
    ]
    assert [row.inactive for row in story.rows] == [False, False, True, False]
    incarnations = [row.time.incarnation for row in story.rows]
    assert incarnations[0] == incarnations[2] < incarnations[3], "what it is listed at never falls"


def test_the_floor_of_a_parked_host_holds_the_log_and_it_catches_up() -> None:
    # 14.3 steps 5 and 6: "its floor still holds the log"; "durable clients return by catch-up"
    story = DeadHost()
    assert story.rows[2].ack_floor == story.rows[0].ack_floor
    assert story.released <= story.rows[2].ack_floor < story.ann.ticks["n1"]
    assert story.durable.events == ["n1", "n2"], "from before it was parked, and from then on"
    assert story.durable.gaps == []
    assert story.new.events == ["c1"]


def test_nothing_travels_for_the_sake_of_a_parked_host() -> None:
    assert DeadHost().sent == [b"c1"]


def test_without_parking_a_dead_host_stays_listed_and_everything_travels_for_its_sake() -> None:
    # a's table claims it no more, so p may not filter: for nobody
    with patched(Members, "update_states", never_park):
        story = DeadHost()
    assert story.stream_epochs[2] == story.stream_epochs[1], "regime 7 never comes"
    assert story.stream_epochs[3][0] == story.stream_epochs[1][0] + 1
    assert not any(row.inactive for row in story.rows)
    assert story.sent == [b"n2", b"c1", b"z"]
