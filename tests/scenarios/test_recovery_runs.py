"""Recovery: only missing state is sent, and nothing waits for it (PT VIII; VT 4, sufficiency).

PT VIII-A, partial recovery: a broker that was unreachable gets the subscriptions that it lacks, no
others. PT VIII-B, full recovery: a broker that crashed has lost all its state. In VT's words such a
broker may "participate in message routing without having to wait to get the most recent subscription
state". P is a pubend at p.
"""

from __future__ import annotations

from typing import Any

import pytest

from gapless.core.ids import BrokerId, PubendId
from gapless.messages.propagation import TableDelta, TableFull, TableRequest
from gapless.messages.streams import Nack, StreamData
from gapless.propagation import sufficiency
from gapless_lab.sim.planted_bugs import patched
from tests.scenarios.brokers import World, of

P = PubendId("P")


def table_messages(world: World, source: BrokerId, target: BrokerId, since: int) -> list[Any]:
    """Return the table messages that a broker sent to another."""
    found = [
        (at, message)
        for at, one, other, message in world.sent
        if at >= since and (one, other) == (source, target)
        if isinstance(message, TableFull | TableDelta)
    ]
    return [message for _, message in found]


# --- partial recovery (PT VIII-A) -----------------------------------------------------------------


class Cut:
    """p - n - c, with a hundred subscriptions at c; the link between n and c is cut and restored.

    Without relays and with δ = 0 there is no other route between them.
    """

    def __init__(self, **parameters: int) -> None:
        self.world = world = World("p-n-c", cells=None, **parameters)
        self.ann = world.publisher("p")
        for number in range(100):
            world.subscriber("c", f"x{number}", f"kind = {number}")
        world.run(s=2)
        world.cut("n", "c")
        world.run(s=1)

    def heal(self) -> int:
        """Restore the link; return the time."""
        since = self.world.now
        self.world.heal("n", "c")
        self.world.run(s=3)
        return since


def test_after_a_short_cut_no_table_is_sent_if_nothing_has_changed() -> None:
    # PT VIII-A (ii): "R replies by sending a summary of the subscriptions it has already accepted";
    # here the summary is one number, the version of the table
    cut = Cut()
    since = cut.heal()
    (want,) = cut.world.sent_over(TableRequest, "n", "c", since)
    assert want.have is not None
    for source, target in (("c", "n"), ("n", "c"), ("n", "p"), ("p", "n")):
        assert table_messages(cut.world, source, target, since) == []


def test_after_a_short_cut_only_the_changes_are_sent() -> None:
    # PT VIII-A (iii): "transfer those subscriptions that it has accepted but are missing at R"
    cut = Cut()
    new = [cut.world.subscriber("c", f"new{number}", f"kind = {-number}") for number in (1, 2)]
    cut.world.run(s=1)
    since = cut.heal()
    for source, target in (("c", "n"), ("n", "p")):
        changes = table_messages(cut.world, source, target, since)
        assert all(isinstance(each, TableDelta) for each in changes)
        assert sum(len(each.added) for each in changes) == 2
    assert all(each.starts for each in new)


def test_a_requester_that_is_too_far_behind_gets_the_whole_table() -> None:
    # R19: delta_log_max
    cut = Cut(delta_log_max=2)
    for number in range(1, 6):
        cut.world.subscriber("c", f"new{number}", f"kind = {-number}")
        cut.world.run(ms=100)
    since = cut.heal()
    (full,) = [
        each for each in table_messages(cut.world, "c", "n", since) if isinstance(each, TableFull)
    ]
    assert len(full.conjunctions) == 105


def test_only_the_missed_ticks_of_a_stream_are_sent_again() -> None:
    world = World("p-n-c")
    ann = world.publisher("p")
    x = world.subscriber("c", "x", "TRUE")
    world.run(s=1)
    for number in range(10):
        ann.publish(f"e{number}")
    world.run(s=1)
    world.cut("n", "c")
    missed = [f"e{number}" for number in range(10, 13)]
    for label in missed:
        ann.publish(label)
    world.run(s=1)
    since = world.now
    world.heal("n", "c")
    world.run(s=3)
    assert x.events == [*ann.ticks]
    frames = world.sent_over(StreamData, "n", "c", since)
    labels = [each.payload.decode() for frame in frames for each in frame.knowledge.publications]
    assert labels == missed
    assert world.sent_over(Nack, "n", "p", since) == [], "the nearest cache has the ticks"


def test_only_changes_are_requested_from_a_former_source_that_returns() -> None:
    # R21: a stale table whose source returns in the same incarnation is current again
    world = World("p-n-c", cells={"n": ["n1", "n2"]}, relay_hops_max=0)
    world.publisher("p")
    for number in range(100):
        world.subscriber("c", f"x{number}", f"kind = {number}")
    world.run(s=2)
    (source,) = [name for name in ("n1", "n2") if name in _sources(world)]
    (other,) = {"n1", "n2"} - {source}
    world.cut("p", source)
    world.run(s=1)
    assert other in _sources(world)
    world.heal("p", source)
    world.run(s=1)
    since = world.now
    world.cut("p", other)
    world.run(s=2)
    assert source in _sources(world)
    assert not [
        each for each in table_messages(world, source, "p", since) if isinstance(each, TableFull)
    ]


def _sources(world: World) -> tuple[BrokerId, ...]:
    return world["p"].components.exchange.table_store.edges["n"].sources()


# --- full recovery (PT VIII-B) --------------------------------------------------------------------


class Restart:
    """p - n - {c, d}: n restarts without tables, and receives those of c and d late.

    With ``two`` brokers in n the other one crashes as well, so that all events pass the restarted one.
    """

    def __init__(self, *, two: bool = False) -> None:
        cells = {"n": ["n1", "n2"] if two else ["n1"]}
        self.world = world = World("p-n-c", "n-d", cells=cells)
        self.ann = world.publisher("p")
        self.x = world.subscriber("c", "x", "kind = 1")
        self.y = world.subscriber("d", "y", "kind = 2")
        world.run(s=2)
        self.updates = world.hold(of(TableFull, TableDelta, target="n1"))
        world.restart("n1")
        if two:
            world.crash("n2")
        world.run(s=2)
        self.since = world.now
        self.publish()
        self.events = (list(self.x.events), list(self.y.events))

    def publish(self) -> None:
        count = len(self.ann.ticks)
        for kind in (1, 2, 3):
            self.ann.publish(f"{kind} of {count}", kind=kind)
        self.world.run(s=1)

    def sent_to(self, cell: BrokerId, since: int) -> list[str]:
        """Return the labels of the events that the restarted broker sent to a cell."""
        frames = self.world.sent_over(StreamData, "n1", cell, since)
        return [each.payload.decode() for frame in frames for each in frame.knowledge.publications]


@pytest.mark.parametrize("two", [False, True])
def test_a_restarted_router_forwards_before_its_tables_are_complete(two: bool) -> None:
    # VT 1: "a broker that has just recovered from a crash failure [can] participate in message
    # routing without having to wait"
    scenario = Restart(two=two)
    assert scenario.events == (["1 of 0"], ["2 of 0"])
    assert "2 of 0" in scenario.sent_to("c", scenario.since), (
        "it has no tables, and sends everything"
    )


@pytest.mark.parametrize("two", [False, True])
def test_when_its_tables_are_complete_a_restarted_router_filters(two: bool) -> None:
    scenario = Restart(two=two)
    scenario.updates.release()
    scenario.world.run(s=2)
    since = scenario.world.now
    scenario.publish()
    assert scenario.sent_to("c", since) == ["1 of 3"]
    assert scenario.sent_to("d", since) == ["2 of 3"]
    assert (scenario.x.events, scenario.y.events) == (["1 of 0", "1 of 3"], ["2 of 0", "2 of 3"])


def test_a_restarted_router_that_treats_its_tables_as_complete_loses_events() -> None:
    # A1: R24 removed
    with patched(sufficiency, "sufficient", lambda *_, **__: True):
        scenario = Restart()
    assert scenario.events == ([], [])


def test_a_new_subscription_starts_over_a_router_that_is_still_recovering() -> None:
    scenario = Restart()
    z = scenario.world.subscriber("c", "z", "kind = 3")
    scenario.world.run(s=1)
    assert z.starts == {}, "the PHB does not know it"
    scenario.updates.release()
    assert scenario.world.wait(lambda: bool(z.starts), s=3)
    scenario.publish()
    assert z.events == ["3 of 3"]
