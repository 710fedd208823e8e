"""Links of control sessions, and links after a step of the tree, over TCP (RS-35)."""

from __future__ import annotations

import pytest

from gapless.core.ids import BrokerId, CellId
from gapless.core.parameters import Parameters
from gapless.messages.overlay import CellMember, CellRecord
from gapless.reshape.changes import shifted
from gapless.runtime import Node
from tests.runtime.nodes import LOOPS, run, until, world

PARAMETERS = Parameters(delta=0, redial_ms=1, redial_max_ms=20, control_session_idle_ms=1_000)


def require(node: Node, *others: Node) -> None:
    """Let a broker require control sessions with others, at their addresses."""
    members = [CellMember(each.name, addresses=(str(each.address),)) for each in others]
    node.broker.components.control_sessions.require("test", members)
    node.driver.handle(None)


def has_control_session(node: Node, other: Node) -> bool:
    return other.name in node.broker.components.control_sessions.open_brokers()


def has_peer_session(node: Node, other: Node) -> bool:
    return node.broker.components.sessions.is_open(other.name)


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize(("dialling", "dialled"), [("b1", "b3"), ("b3", "b1")])
def test_a_broker_dials_one_outside_its_neighbourhood_until_nothing_needs_the_session(
    loop: str, dialling: BrokerId, dialled: BrokerId
) -> None:
    async def scenario() -> None:
        async with world("line:3", parameters=PARAMETERS) as brokers:
            node, other = brokers[dialling], brokers[dialled]
            await until(lambda: node.links.open_peers == ["b2"])
            require(node, other)
            await until(lambda: has_control_session(node, other))
            await until(lambda: has_control_session(other, node))
            require(node)
            await until(lambda: node.links.open_peers == ["b2"])
            await until(lambda: other.links.open_peers == ["b2"])
            assert not has_control_session(other, node)

    run(scenario(), loop)


def test_two_brokers_that_dial_each_other_have_one_link_in_the_end() -> None:
    async def scenario() -> None:
        async with world("line:3", parameters=PARAMETERS) as brokers:
            one, other = brokers["b1"], brokers["b3"]
            require(one, other)
            require(other, one)
            await until(lambda: has_control_session(one, other) and has_control_session(other, one))
            attempts = one.links.dial_attempts + other.links.dial_attempts
            assert attempts < 20

    run(scenario())


def test_a_control_session_is_restored_when_the_other_broker_restarts() -> None:
    async def scenario() -> None:
        async with world("line:3", parameters=PARAMETERS) as brokers:
            node = brokers["b1"]
            require(node, brokers["b3"])
            await until(lambda: has_control_session(node, brokers["b3"]))
            await brokers["b3"].kill()
            await until(lambda: not has_control_session(node, brokers["b3"]))
            await brokers.start("b3")
            require(node, brokers["b3"])
            await until(lambda: has_control_session(node, brokers["b3"]))

    run(scenario())


def shift(brokers: list[Node], moved: CellId, old: CellId, new: CellId) -> list[CellRecord]:
    """Return the records of a shift, from those that the brokers hold, with addresses."""
    held = {cell.name: cell for node in brokers for cell in node.broker.neighbourhood.cells}
    return list(shifted(held[moved], held[old], held[new]))


@pytest.mark.parametrize("order", [("b1", "b3"), ("b3", "b1")])
def test_after_a_step_new_neighbours_are_linked_and_former_ones_are_not(
    order: tuple[BrokerId, BrokerId],
) -> None:
    async def scenario() -> None:
        async with world("line:3", parameters=PARAMETERS) as brokers:
            nodes = [brokers[name] for name in ("b1", "b2", "b3")]
            b1, b2, b3 = nodes
            await until(lambda: has_peer_session(b1, b2) and has_peer_session(b2, b3))
            records = shift(nodes, "c3", "c2", "c1")
            for name in (*order, "b2"):
                brokers[name].broker.apply_records(records)
                brokers[name].driver.handle(None)
                await until(lambda: has_stepped(brokers[name]))  # noqa: B023
            await until(lambda: has_peer_session(b1, b3) and has_peer_session(b3, b1))
            await until(lambda: b2.links.open_peers == ["b1"])
            assert b3.links.open_peers == ["b1"]

    def has_stepped(node: Node) -> bool:
        return node.broker.neighbourhood.version > 1

    run(scenario())
