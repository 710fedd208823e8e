"""A replaced member hosts, and does not route, with whole brokers (RS-3)."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from gapless.core.ids import BrokerId
from gapless.messages.overlay import CellMember, CellRole
from gapless.overlay.neighbourhood import Topology
from tests.scenarios.brokers import World


def with_replaced(replaced: BrokerId) -> World:
    """Return p - {n1, n2} - c in which a member of the middle cell is replaced."""
    world = World("p-n-c", cells={"n": ["n1", "n2"]})
    members = tuple(
        CellMember(each, CellRole.REPLACED if each == replaced else CellRole.ACTIVE)
        for each in ("n1", "n2")
    )
    cells = (
        replace(each, members=members, member_version=2) if each.name == "n" else each
        for each in world.topology.cells
    )
    world.topology = Topology(tuple(cells))
    world.apply_tree(*world.nodes)
    world.run(s=1)
    return world


@pytest.mark.parametrize(("replaced", "active"), [("n1", "n2"), ("n2", "n1")])
def test_a_replaced_member_feeds_no_other_cell_and_is_no_source_of_tables(
    replaced: BrokerId, active: BrokerId
) -> None:
    world = with_replaced(replaced)
    anns = [world.publisher("p", f"P{number}") for number in range(4)]
    x = world.subscriber("c", "x", "TRUE")
    world.run(s=2)
    for ann in anns:
        ann.publish(f"from {ann.pubend.name}")
        assert world["c"].components.router.feeder(ann.pubend) == active
    world.run(s=1)
    assert len(x.events) == len(anns)
    for name in ("p", "c"):
        sources = world[name].components.exchange.table_store.edges["n"].sources()
        assert set(sources) == {active}


@pytest.mark.parametrize(("replaced", "active"), [("n1", "n2"), ("n2", "n1")])
def test_a_replaced_member_keeps_its_subscriptions_and_pubends(
    replaced: BrokerId, active: BrokerId
) -> None:
    world = with_replaced(replaced)
    near, far = world.publisher(replaced, "near"), world.publisher("p", "far")
    hosted = [world.subscriber(replaced, "hosted", "TRUE", durable=True)]
    others = [world.subscriber(name, f"at {name}", "TRUE") for name in ("p", "c", active)]
    world.run(s=2)
    near.publish("e1")
    far.publish("e2")
    world.run(s=2)
    for listener in (*hosted, *others):
        assert sorted(listener.events) == ["e1", "e2"], listener.name
    assert world.subend(replaced, far.pubend).feeder == active, "its own router does not feed it"
