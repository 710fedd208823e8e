"""Announcements: every broker learns each pubend once, with its path (R4, R5)."""

from __future__ import annotations

from gapless.core.ids import PubendId
from gapless.core.parameters import Parameters
from gapless.messages.overlay import Announce, PubendProperties
from gapless.overlay.neighbourhood import Topology
from tests.overlay.small_world import SmallWorld, line

STOCKS = PubendId("stocks")


def properties(cell: str) -> PubendProperties:
    return PubendProperties(broker=cell, cell=cell, advertisement="TRUE")


def announced(world: SmallWorld, cell: str, version: int = 1, *, tombstone: bool = False) -> None:
    node = world.nodes[cell]
    node.announcements.host(STOCKS, version, properties(cell), tombstone=tombstone)
    world.run(ms=100)


def path(world: SmallWorld, broker: str) -> tuple[str, ...] | None:
    known = world.nodes[broker].announcements.get(STOCKS)
    return None if known is None else known.path


def test_every_broker_learns_the_next_cells_of_the_path() -> None:
    world = SmallWorld(line("a", "b", "c", "d", "e"), Parameters(delta=1))
    world.run(ms=50)
    announced(world, "a")
    assert path(world, "a") == ()
    assert path(world, "b") == ("a",)
    assert path(world, "c") == ("b", "a")
    assert path(world, "d") == ("c", "b", "a")
    assert path(world, "e") == ("d", "c", "b")


def test_a_broker_that_starts_later_learns_the_existing_pubends() -> None:
    world = SmallWorld(line("a", "b", "c"))
    world.run(ms=50)
    announced(world, "a")
    world.start("c", "c", incarnation=2)
    world.run(ms=100)
    assert path(world, "c") == ("b", "a")


def test_an_announcement_crosses_a_cell_that_is_down() -> None:
    # R4 and its amendment: announce on every session of the neighbourhood
    world = SmallWorld(line("a", "b", "c"), Parameters(delta=1))
    world.run(ms=50)
    del world.nodes["b"]
    announced(world, "a")
    assert path(world, "c") == ("b", "a")


def test_a_restarted_broker_does_not_learn_a_pubend_backwards() -> None:
    world = SmallWorld(line("a", "b", "c", "d"), Parameters(delta=1))
    world.run(ms=50)
    announced(world, "a")
    world.cut("a", "b")
    world.start("b", "b", incarnation=2)  # receives the announcement first from c, beyond it
    world.run(ms=400)
    assert path(world, "b") in (None, ("a",))
    world.heal("a", "b")
    world.run(ms=2_500)
    assert path(world, "b") == ("a",)


def test_a_greater_version_replaces_and_a_smaller_one_is_ignored() -> None:
    world = SmallWorld(line("a", "b"))
    world.run(ms=50)
    announced(world, "a", version=2)
    known = world.nodes["b"].announcements.get(STOCKS)
    assert known is not None
    assert known.version == 2
    late = Announce(STOCKS, 1, properties("a"), ("a",))
    assert not world.nodes["b"].announcements.received("a", late)


def test_a_tombstone_removes_the_pubend_at_all_brokers() -> None:
    world = SmallWorld(line("a", "b", "c"))
    world.run(ms=50)
    announced(world, "a")
    announced(world, "a", version=2, tombstone=True)
    for node in world.nodes.values():
        assert node.announcements.get(STOCKS) is None
        assert node.announcements.pubends() == []


def test_brokers_of_one_cell_have_the_same_path() -> None:
    topology = Topology.of({"a": ["a1"], "b": ["b1", "b2"]}, [("a", "b")])
    world = SmallWorld(topology)
    world.run(ms=50)
    world.cut("a1", "b2")
    world.cut("b2", "a1")
    world.nodes["a1"].announcements.host(
        STOCKS, 1, PubendProperties(broker="a1", cell="a", advertisement="TRUE")
    )
    world.run(ms=100)
    assert path(world, "b1") == ("a",)
    assert path(world, "b2") == ("a",)


def test_a_path_that_leads_through_the_own_cell_is_ignored() -> None:
    world = SmallWorld(line("a", "b", "c"))
    world.run(ms=50)
    b = world.nodes["b"]
    circle = Announce(STOCKS, 1, properties("a"), ("c", "b", "a"))
    assert not b.announcements.received("c", circle)
    assert b.context.coverage_marks["announcement looped"] == 1
