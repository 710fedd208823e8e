"""A broker applies another neighbourhood: durable, in one step, and in all components (R13)."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from gapless.core.effects import SetPeers
from gapless.core.ids import BrokerId, PubendId, ShbId
from gapless.messages.overlay import CellEdge, CellMember, ShapeVersion
from gapless.messages.records import NeighbourhoodRecord, PutRecord, TickCeilingRecord
from gapless.overlay.neighbourhood import Neighbourhood, Topology
from tests.scenarios.brokers import Node, World

P = PubendId("P")


def tree(*edges: str) -> Topology:
    pairs = [(edge[0], edge[1]) for edge in edges]
    return Topology.of({cell: [cell] for pair in pairs for cell in pair}, pairs)


def near(cell: str, *edges: str, version: int = 1) -> Neighbourhood:
    return tree(*edges).neighbourhood(cell, 1, version)


BEFORE = ("ij", "jk", "ix", "km")
AFTER = ("ik", "jk", "ix", "km")


def record(neighbourhood: Neighbourhood) -> NeighbourhoodRecord:
    return NeighbourhoodRecord(neighbourhood.own, neighbourhood.version, neighbourhood.cells)


def test_nothing_happens_before_the_record_is_durable() -> None:
    world = World("p-j-i", "j-k")
    done: list[str] = []
    world.nodes["k"].disk.stopped = True
    world.shift("i", "j", "k")
    around = world.topology.neighbourhood("k", 1, version=2)
    world["k"].apply_records(world.topology.cells, then=lambda: done.append("k"))
    world.happen("k", None)
    world.run(s=1)
    assert not done
    assert "i" not in world["k"].components.exchange.table_store.edges
    world.nodes["k"].disk.stopped = False
    world.run(s=2)  # something else is written and synced
    world["k"].context.write((), lambda: None)
    world.happen("k", None)
    world.run(s=1)
    assert done == ["k"]
    stored = world.nodes["k"].disk.records["neighbourhood",]
    assert isinstance(stored, NeighbourhoodRecord)
    assert set(stored.cells) == set(around.cells)
    assert "i" in world["k"].components.exchange.table_store.edges


def test_records_and_other_changes_are_one_write() -> None:
    world = World("p-j-i", "j-k")
    world.shift("i", "j", "k")
    before = len(world.nodes["k"].disk.unsynced)
    world["k"].components.step.apply(
        world.topology.cells, changes=(PutRecord(TickCeilingRecord(7)),)
    )
    world.happen("k", None)
    (write,) = world.nodes["k"].disk.unsynced[before:]
    assert [type(each.record) for each in write.changes] == [NeighbourhoodRecord, TickCeilingRecord]


def test_other_changes_are_written_although_no_record_is_newer() -> None:
    world = World("p-n")
    done: list[str] = []
    change = PutRecord(TickCeilingRecord(7))
    version = world["n"].neighbourhood.version
    world["n"].components.step.apply(
        world.topology.cells, changes=(change,), then=lambda: done.append("n")
    )
    world.happen("n", None)
    assert not done
    world.run(ms=10)
    assert done == ["n"]
    assert change.record in world.nodes["n"].disk.load()
    assert world["n"].neighbourhood.version == version


def test_consecutive_steps_are_applied_in_order() -> None:
    world = World("p-j-i", "j-k")
    steps = [("i", "j", "k"), ("i", "k", "j"), ("i", "j", "p")]
    broker, seen = world["i"], []
    for step in steps:
        world.shift(*step)
        cells = world.topology.cells
        broker.apply_records(cells, then=lambda: seen.append(broker.neighbourhood.neighbours))
    world.happen("i", None)
    world.run(ms=10)
    assert seen == [("k",), ("j",), ("p",)]


def test_the_driver_receives_the_peers_of_the_new_neighbourhood(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    peers_set: list[tuple[BrokerId, tuple[BrokerId, ...]]] = []
    set_peers = World._set_peers

    def noted(world: World, node: Node, wanted: SetPeers) -> None:
        peers_set.append((node.name, tuple(each.broker for each in wanted.peers)))
        set_peers(world, node, wanted)

    monkeypatch.setattr(World, "_set_peers", noted)
    world = World("p-j-i", "j-k")
    assert peers_set == [], "the driver knows the configured peers"
    world.shift("i", "j", "k")
    world.apply_tree("k")
    world.run(ms=10)
    assert peers_set == [("k", ("i", "j"))]
    world.restart("k")
    world.run(ms=10)
    assert peers_set[1:] == peers_set[:1], "again in the next incarnation"


def members(world: World, cell: str, *brokers: str) -> None:
    """Give a cell other brokers, and let all learn of it."""
    world.topology = Topology(
        tuple(
            replace(
                each,
                members=tuple(map(CellMember, brokers)),
                member_version=each.member_version + 1,
            )
            if each.name == cell
            else each
            for each in world.topology.cells
        )
    )


def test_the_leaf_of_a_broker_is_removed_and_restored_with_its_membership_in_the_cell() -> None:
    world = World("p-n", cells={"n": ["n1", "n2"]})
    leaf = str(ShbId("n2", "n"))
    members(world, "n", "n1")
    world.apply_tree("p", "n1")
    world.run(s=1)
    assert leaf not in world["n1"].components.exchange.table_store.edges
    assert world["p"].components.sessions.open_peers() == ["n1"]
    assert not world["n1"].components.sessions.is_open("n2")
    members(world, "n", "n1", "n2")
    world.apply_tree("p", "n1", "n2")
    world.run(s=2)
    assert world["n1"].components.exchange.table_store.edges[leaf].settled
    assert world["p"].components.sessions.open_peers() == ["n1", "n2"]


def test_events_are_delivered_when_their_feeder_leaves_its_cell() -> None:
    world = World("p-n-c", cells={"n": ["n1", "n2"]})
    ann = world.publisher("p")
    x = world.subscriber("c", "x", "TRUE")
    world.run(s=2)
    feeder = world["c"].components.router.feeder(P)
    (remaining,) = {"n1", "n2"} - {feeder}
    members(world, "n", remaining)
    world.apply_tree("p", "c", remaining)
    ann.publish("e1")
    world.run(s=3)
    assert world["c"].components.router.feeder(P) == remaining
    assert x.events == ["e1"]


def test_a_detached_cell_is_forgotten_with_its_tables() -> None:
    world = World("p-n-c")
    ann = world.publisher("p")
    world.subscriber("c", "x", "TRUE")
    world.run(s=2)
    assert ShbId("c", "c") in world["p"].components.exchange.table_store.edges["n"].hosts
    cells = [each for each in world.topology.cells if each.name != "c"]
    cells = [
        replace(each, edges=(CellEdge("p"),), shape_version=ShapeVersion(count=2))
        if each.name == "n"
        else each
        for each in cells
    ]
    world.topology = Topology(tuple(cells))
    world.apply_tree("n", "p")
    world.run(s=1)
    assert set(world["n"].components.exchange.table_store.edges) == {"p", "n@n"}
    assert ShbId("c", "c") not in world["p"].components.exchange.table_store.edges["n"].hosts
    assert ann.publish("e1") > 0
