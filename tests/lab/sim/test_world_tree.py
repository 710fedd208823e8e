"""The tree of a run: the newest durable records, and the trees that brokers see (SM-1)."""

from __future__ import annotations

from msgspec.structs import replace

from gapless.core.effects import Write
from gapless.core.ids import CellId
from gapless.messages.overlay import CellMember, CellRecord
from gapless.messages.records import NeighbourhoodRecord, PutRecord
from gapless.overlay.neighbourhood import Neighbourhood, Topology
from gapless.reshape.changes import appended, detached, shifted
from gapless_lab.sim.world_tree import WorldTree
from tests.lab.sim.recorder import do, make_world, pass_ms

LINE = Topology.of({name: [f"{name}1"] for name in "ijkm"}, [("i", "j"), ("j", "k"), ("k", "m")])
"""i - j - k - m."""


def shift(tree: WorldTree, *cells: CellId) -> tuple[CellRecord, ...]:
    moved, old, new = (tree.records[cell] for cell in cells)
    return shifted(moved, old, new)


def test_a_record_that_becomes_durable_on_any_disk_changes_the_tree() -> None:
    world = make_world(cells=3)  # n0 - n1 - n2
    records = shift(world.tree, "n0", "n1", "n2")
    host = world.hosts["n2a"]
    do(world, host, [Write(1, (PutRecord(NeighbourhoodRecord("n2", 2, records)),))])
    assert world.tree.graph.neighbours("n0") == ("n1",), "not durable yet"
    pass_ms(world, 10)
    assert world.tree.graph.path("n0", "n1") == ("n2", "n1")
    assert world.tree.is_tree


def test_an_older_record_changes_nothing() -> None:
    tree = WorldTree(LINE)
    records = shift(tree, "i", "j", "k")
    tree.learn(records)
    after = tree.revision
    tree.learn((*LINE.cells, *records))
    assert tree.revision == after
    assert tree.graph.neighbours("i") == ("k",)


def test_every_change_is_told_to_the_listeners() -> None:
    tree, told = WorldTree(LINE), []
    tree.listeners.append(lambda: told.append(tree.graph.neighbours("i")))
    tree.learn(shift(tree, "i", "j", "k"))
    tree.learn(LINE.cells)
    assert told == [("k",)]


def test_an_edge_that_only_one_record_lists_is_not_live() -> None:
    tree = WorldTree(LINE)
    moved, old, _ = shift(tree, "i", "j", "k")
    tree.learn((moved, old))
    assert tree.graph.neighbours("i") == ()
    assert not tree.is_tree


def test_an_appended_cell_belongs_to_the_tree_and_a_detached_one_does_not() -> None:
    tree = WorldTree(LINE)
    tree.learn(appended("n#j1.1", (CellMember("n1"),), tree.records["j"]))
    assert "n#j1.1" in tree
    assert tree.is_tree
    tree.learn(detached(tree.records["n#j1.1"], tree.records["j"]))
    assert tree.names == ("i", "j", "k", "m")
    assert tree.is_tree


def test_a_cycle_is_no_tree() -> None:
    tree = WorldTree(Topology.of({name: [f"{name}1"] for name in "abc"}, [("a", "b"), ("b", "c")]))
    a, c = tree.records["a"], tree.records["c"]
    edges = (*a.edges, *(replace(each, cell="c") for each in a.edges))
    tree.learn(
        (
            replace(a, edges=edges, member_version=2),
            replace(c, edges=(*c.edges, replace(c.edges[0], cell="a")), member_version=2),
        )
    )
    assert not tree.is_tree


def test_a_broker_with_older_records_sees_the_older_tree() -> None:
    tree = WorldTree(LINE)
    old: Neighbourhood = LINE.neighbourhood("k", radius=2)
    tree.learn(shift(tree, "i", "j", "k"))
    assert tree.graph.is_behind("i", "k", "m")
    assert not tree.graph.is_behind("i", "j", "m")
    assert tree.seen_by(old).is_behind("i", "j", "m")


def test_a_broker_with_the_newest_records_sees_the_newest_tree() -> None:
    tree = WorldTree(LINE)
    records = shift(tree, "i", "j", "k")
    tree.learn(records)
    present = Topology(tuple(tree.records.values())).neighbourhood("k", radius=2)
    assert tree.seen_by(present) is tree.graph


def test_at_the_border_of_what_a_broker_holds_its_record_decides() -> None:
    # m sees k and j; j's older record says that i is behind j, whatever the record of i says now
    tree = WorldTree(LINE)
    old = LINE.neighbourhood("m", radius=2)
    tree.learn(shift(tree, "i", "j", "k"))
    assert tree.seen_by(old).path("m", "i") == ("k", "j", "i")
