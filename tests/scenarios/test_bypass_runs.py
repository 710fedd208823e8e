"""Cells that are down are bypassed, up to δ in a row; beyond that streams wait without loss (PT).

PT's brokers know the tree within Δ = δ + 1, and so reach past δ brokers that have failed in a row
(PT II, IV). Here these are cells, and both sides of the gap act: a receiver attaches beyond it (R7),
and a feeder requests the tables of the cells beyond it (R20). P is a pubend at p.
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
    """Remove R7 (c) and (d): only brokers of the next cell may feed."""
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
    """Use one broker as source in place of a cell that is down, whatever else is beyond it."""
    yield from list(sources_by_the_rule(sources, cell, current))[:1]


def line(delta: int) -> tuple[str, list[CellId]]:
    """Return a line from p over a, δ cells that will crash, and b to c."""
    dying = [f"n{number}" for number in range(1, delta + 1)]
    return "-".join(["p", "a", *dying, "b", "c"]), dying


class Gap:
    """p - a - (δ cells) - b - c: the cells in the middle crash while events are published."""

    def __init__(self, delta: int, *, more: int = 0) -> None:
        text, self.dying = line(delta + more)
        self.world = World(text, delta=delta)
        self.ann = self.world.publisher("p")
        self.x = self.world.subscriber("c", "x", "kind = 1")
        self.world.run(s=2)
        self.published: list[str] = []

    def publish(self, count: int = 3, *, kind: int = 1) -> None:
        for _ in range(count):
            label = f"e{len(self.published)}"
            self.ann.publish(label, kind=kind)
            self.published.append(label)

    def die(self) -> None:
        for name in self.dying:
            self.world.crash(name)

    def come_back(self) -> None:
        for name in self.dying:
            self.world.start(name)

    def go_back(self) -> None:
        """Let time pass until feeds have returned to the nearest cells."""
        parameters = self.world.parameters
        wait_ms = parameters.feed_switch_delay_ms + 3 * parameters.attach_refresh_ms
        self.world.run(ms=wait_ms * (1 + len(self.dying)))


@pytest.mark.parametrize("delta", [1, 2, 3, 4])
def test_delta_cells_in_a_row_that_are_down_are_bypassed(delta: int) -> None:
    # PT II: "resilient to δ failures in a row"
    gap = Gap(delta)
    gap.publish()
    gap.die()
    gap.publish()
    gap.world.run(s=2)
    assert gap.world["b"].components.router.feeder(P) == "a"
    assert gap.x.events == gap.published
    gap.publish()
    gap.world.run(ms=100)
    assert gap.x.events == gap.published


@pytest.mark.parametrize("delta", [1, 2, 3, 4])
def test_subscriptions_cross_the_bypassed_cells_and_start(delta: int) -> None:
    # PT V-B: "B continues the subscription propagation process by sending s to X (the first
    # reachable broker beyond the partition)"; 14.3 step 4
    gap = Gap(delta)
    gap.die()
    gap.world.run(s=1)
    y = gap.world.subscriber("c", "y", "kind = 2")
    assert gap.world.wait(lambda: bool(y.starts), s=2)
    gap.publish(kind=2)
    gap.world.run(s=1)
    assert y.events == gap.published
    assert gap.x.events == []


@pytest.mark.parametrize("delta", [1, 2, 3, 4])
def test_only_matching_events_are_sent_past_the_bypassed_cells(delta: int) -> None:
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
def test_when_the_cells_restart_the_streams_use_them_again_and_lose_nothing(
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
    assert gap.x.events == gap.published
    assert gap.x.gaps == []


@pytest.mark.parametrize("delta", [0, 1, 2, 3])
def test_beyond_delta_cells_streams_wait_for_the_path_and_lose_nothing(delta: int) -> None:
    # PT III: a barrier; "no active session bypasses the partition's pnodes"
    gap = Gap(delta, more=1)
    gap.publish()
    gap.world.run(s=1)
    gap.die()
    gap.publish()
    y = gap.world.subscriber("c", "y", "kind > 0")
    gap.world.run(s=5)
    assert gap.world["b"].components.router.feeder(P) is None
    assert gap.x.events == gap.published[:3]
    assert y.starts == {}, "a subscription without a table at p must not start"
    gap.world.start(gap.dying[0])  # one of them is enough
    gap.world.run(s=8)
    if delta:
        assert gap.x.events == gap.published
        assert y.starts.keys() == {P}
    for name in gap.dying[1:]:
        gap.world.start(name)
    gap.world.run(s=8)
    gap.publish()
    gap.world.run(s=1)
    assert gap.x.events == gap.published
    assert y.events == gap.published[-3:]


@pytest.mark.parametrize("delta", [1, 3])
def test_without_bypass_the_streams_stop(delta: int) -> None:
    with patched(FeedCandidates, "candidates", only_the_next_cell):
        gap = Gap(delta)
        gap.die()
        gap.publish()
        gap.world.run(s=5)
        assert gap.x.events == []


# --- two branches behind the gap (example 14.3) ---------------------------------------------------


class Branches:
    """p - a - n - {c, d}; n crashes, then c and d each get a new subscription."""

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


def test_both_branches_beyond_a_cell_that_is_down_are_fed_and_start() -> None:
    scenario = Branches()
    assert scenario.started == [True, True]
    assert [each.events for each in scenario.old[:2]] == [["at c"], ["at d"]]
    assert [each.events for each in scenario.new] == [["by c"], ["by d"]]


def test_each_branch_gets_only_its_matching_events() -> None:
    # 14.3 step 3: an entry in d's table and none in c's shows that it is not behind c
    scenario = Branches()
    for name in "cd":
        frames = scenario.world.sent_over(StreamData, "a", name, scenario.since)
        labels = [each.payload for frame in frames for each in frame.knowledge.publications]
        assert labels == [f"at {name}".encode(), f"by {name}".encode()]


def test_if_one_branch_is_forgotten_its_new_subscriptions_do_not_start() -> None:
    # R20 removed: one source beyond, and receivers are none. They would start later, when the PHB
    # has received the reports of their SHB for so long without any table that it serves it
    # unfiltered (R31)
    scenario = Branches(forgetful=True)
    assert sorted(scenario.started) == [False, True]


def test_the_subscriber_of_the_crashed_cell_catches_up_when_it_restarts() -> None:
    # PT VI: "brokers with local matching subscribers are not removed from Out_p. This is crucial to
    # prevent publication loss"; 14.3 step 6, before any member is inactive
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


# --- the SHB of the dead cell (example 14.3, steps 5 and 6) ---------------------------------------


class DeadHost:
    """p - a - n - {c, d}, an SHB in each of c, d, n; n is down until its SHB is an inactive member.

    By the time n returns, its stale table at a is dropped too, and z was published, which matches no filter.
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
        """Let the stale table of n expire, and publish events for n, for c, and for no filter."""
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
        """Record the stream epoch that p serves now, and the row of the SHB of n on its disk."""
        stream_epoch = self.world.pubend("p", P).stream_epochs[-1]
        counters = {host.broker: entry.time.counter for host, entry in stream_epoch.entries}
        self.stream_epochs.append((stream_epoch.number, counters))
        row = self.world.member("p", P, "n")
        assert row is not None
        self.rows.append(row)


def never_inactive(members: Members, claim: Claim, now: int) -> Any:
    """Remove R54: every member counts as heard just now."""
    members._heard_at.update(dict.fromkeys(members._rows, now))
    return review_by_the_rule(members, claim, now)


review_by_the_rule = Members.update_states


def test_a_dead_host_leaves_the_vector_and_is_in_it_again_when_it_reports() -> None:
    # 14.3 steps 4 to 6: its stream epochs 5, 6, 7, 8 are 3, 4, 5, 6 here; after its restart n
    # counts from 1
    scenario = DeadHost()
    assert scenario.stream_epochs == [
        (3, {"c": 2, "d": 2, "n": 2}),
        (4, {"c": 3, "d": 2, "n": 2}),
        (5, {"c": 3, "d": 2}),
        (6, {"c": 3, "d": 2, "n": 1}),
    ]
    assert [row.inactive for row in scenario.rows] == [False, False, True, False]
    incarnations = [row.time.incarnation for row in scenario.rows]
    assert incarnations[0] == incarnations[2] < incarnations[3], (
        "the time in the vector never falls"
    )


def test_the_ack_floor_of_an_inactive_host_retains_the_log_and_it_catches_up() -> None:
    # 14.3 steps 5 and 6: "its floor still holds the log"; "durable clients return by catch-up"
    scenario = DeadHost()
    assert scenario.rows[2].ack_floor == scenario.rows[0].ack_floor
    assert scenario.released <= scenario.rows[2].ack_floor < scenario.ann.ticks["n1"]
    assert scenario.durable.events == ["n1", "n2"], "from before it was inactive, and from then on"
    assert scenario.durable.gaps == []
    assert scenario.new.events == ["c1"]


def test_no_events_are_sent_for_an_inactive_host() -> None:
    assert DeadHost().sent == [b"c1"]


def test_without_inactive_members_a_dead_host_stays_in_the_vector_and_everything_is_sent() -> None:
    # a's table does not claim it any more, so p may not filter, for no receiver
    with patched(Members, "update_states", never_inactive):
        scenario = DeadHost()
    assert scenario.stream_epochs[2] == scenario.stream_epochs[1], "stream epoch 7 never opens"
    assert scenario.stream_epochs[3][0] == scenario.stream_epochs[1][0] + 1
    assert not any(row.inactive for row in scenario.rows)
    assert scenario.sent == [b"n2", b"c1", b"z"]
