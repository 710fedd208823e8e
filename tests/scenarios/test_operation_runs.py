"""Operations on the tree between whole brokers, while events are delivered (HA III.A, RS-5 to RS-10, RS-15 to RS-18)."""

from __future__ import annotations

from gapless.core.ids import BrokerId, CellId
from gapless.messages.clients import Refused
from gapless.messages.overlay import CellMember
from gapless.messages.reshape import (
    OperationKind,
    OperationRequestId,
    OperationStatus,
    OpReply,
    OpRequest,
    OpSwitched,
    ReadmitBroker,
    RefusalReason,
    TakeOverCell,
    TakeoverReply,
)
from tests.scenarios.brokers import Client, World, of


def tree(*chains: str, cells: dict[CellId, list[BrokerId]] | None = None) -> World:
    """Start brokers that tell each other their records."""
    world = World(*chains, cells=cells)
    world.records_travel = True
    return world


def neighbours(world: World, name: BrokerId) -> tuple[CellId, ...]:
    return world[name].neighbourhood.neighbours


def operate(
    world: World, broker: BrokerId, kind: OperationKind, *cells: CellId, member: BrokerId = ""
) -> OpReply:
    """Request an operation as an operator; return the reply."""
    client = Client(world, broker, f"operator of {kind.name} {cells}")
    client.connect()
    number = client.number()
    request = OpRequest(
        number,
        OperationRequestId(f"{kind.name} {world.now}"),
        kind,
        cells,
        CellMember(member) if member else None,
    )
    reply = client.call(request, s=30)
    assert isinstance(reply, OpReply)
    client.leave()
    return reply


def take_over(world: World, broker: BrokerId, *replaced: BrokerId) -> TakeoverReply | Refused:
    """Let a broker take over its cell; return the reply."""
    client = Client(world, broker, "operator of a takeover")
    client.connect()
    reply = client.call(TakeOverCell(client.number(), replaced), s=30)
    assert isinstance(reply, TakeoverReply | Refused)
    client.leave()
    return reply


def test_events_are_delivered_once_through_a_shift_under_load() -> None:
    world = tree("p-j-i", "j-k")
    ann = world.publisher("p")
    subscribers = [world.subscriber(each, f"x{each}", "TRUE") for each in ("i", "j", "k")]
    world.run(s=2)
    ann.publish("before")
    reply = operate(world, "j", OperationKind.SHIFT, "i", "j", "k")
    assert reply.status is OperationStatus.DONE
    ann.publish("after")
    world.run(s=3)
    assert [neighbours(world, each) for each in ("i", "j", "k")] == [("k",), ("k", "p"), ("i", "j")]
    assert [each.events for each in subscribers] == [["before", "after"]] * 3


def test_the_coordinator_completes_a_committed_shift_after_its_restart() -> None:
    world = tree("p-j-i", "j-k")
    ann = world.publisher("p")
    subscriber = world.subscriber("i", "x", "TRUE")
    world.run(s=2)
    lost = world.lose(of(OpSwitched))
    client = Client(world, "j", "operator")
    client.connect()
    request_id = OperationRequestId("plan", 4)
    client.request(OpRequest(client.number(), request_id, OperationKind.SHIFT, ("i", "j", "k")))
    assert world.wait(lambda: bool(lost.messages), s=5)
    world.crash("j")
    lost.end()
    world.restart("j")
    world.run(s=15)
    assert [neighbours(world, each) for each in ("i", "j", "k")] == [("k",), ("k", "p"), ("i", "j")]
    ann.publish("after")
    world.run(s=3)
    assert subscriber.events == ["after"]
    assert [world[each].components.operations.lock.held for each in ("i", "j", "k")] == [None] * 3


def test_a_repeated_request_of_a_plan_is_not_carried_out_twice() -> None:
    world = tree("p-j-i", "j-k")
    world.run(s=2)
    client = Client(world, "j", "operator")
    client.connect()
    again = OperationRequestId("plan", 1)
    shift = OperationKind.SHIFT
    first = client.call(OpRequest(client.number(), again, shift, ("i", "j", "k")), s=10)
    second = client.call(OpRequest(client.number(), again, shift, ("i", "j", "k")), s=10)
    assert first.status is second.status is OperationStatus.DONE
    assert first.op == second.op


def test_a_cell_with_a_durable_subscription_is_not_detached() -> None:
    world = tree("p-j-i", "j-k")
    world.publisher("p")
    world.subscriber("i", "desk", "TRUE", durable=True)
    world.run(s=2)
    reply = operate(world, "j", OperationKind.DETACH, "i", "j")
    assert (reply.status, reply.reason) == (OperationStatus.REFUSED, RefusalReason.NOT_EMPTY)
    assert "the durable subscription desk" in reply.text
    assert neighbours(world, "i") == ("j",)


def test_an_empty_cell_leaves_its_pubends_and_is_detached() -> None:
    world = tree("p-j-i", "j-k")
    ann = world.publisher("p")
    subscriber = world.subscriber("i", "x", "TRUE")
    world.run(s=2)
    subscriber.leave()
    world.run(s=1)
    reply = operate(world, "j", OperationKind.DETACH, "i", "j")
    assert reply.status is OperationStatus.DONE, reply.text
    world.run(s=2)
    assert neighbours(world, "i") == ()
    assert neighbours(world, "j") == ("k", "p")
    ann.publish("after")


def test_a_member_takes_over_its_cell_and_shifts() -> None:
    world = tree("p-j-i", "j-k", cells={"j": ["j1", "j2"]})
    ann = world.publisher("p")
    subscriber = world.subscriber("i", "x", "TRUE")
    world.run(s=2)
    world.crash("j1")
    reply = take_over(world, "j2", "j1")
    assert isinstance(reply, TakeoverReply)
    assert reply.done, reply
    assert operate(world, "j2", OperationKind.SHIFT, "i", "j", "k").status is OperationStatus.DONE
    ann.publish("after")
    world.run(s=5)
    assert subscriber.events == ["after"]
    world.restart("j1")
    world.run(s=5)
    record = world["j1"].components.step.record("j")
    assert record is not None
    assert record.leader == "j2"
    assert neighbours(world, "j1") == ("k", "p")


def test_a_living_leader_is_not_taken_over_without_a_declaration() -> None:
    world = tree("p-j-i", cells={"j": ["j1", "j2"]})
    world.run(s=2)
    reply = take_over(world, "j2")
    assert isinstance(reply, Refused)
    assert "j1 leads j" in reply.reason


def test_a_replaced_broker_is_readmitted_by_the_leader() -> None:
    world = tree("p-j-i", "j-k", cells={"j": ["j1", "j2"]})
    world.run(s=2)
    world.crash("j1")
    take_over(world, "j2", "j1")
    world.restart("j1")
    world.run(s=3)
    client = Client(world, "j2", "operator")
    client.connect()
    reply = client.call(ReadmitBroker(client.number(), "j1"), s=20)
    assert reply.status is OperationStatus.DONE, reply
    world.run(s=2)
    for each in ("j1", "j2", "p", "i", "k"):
        record = world[each].components.step.record("j")
        assert record is not None
        assert {member.role.name for member in record.members} == {"ACTIVE"}


def test_leadership_is_handed_over() -> None:
    world = tree("p-j-i", cells={"j": ["j1", "j2"]})
    world.run(s=2)
    reply = operate(world, "j1", OperationKind.HAND_OVER, "j", member="j2")
    assert reply.status is OperationStatus.DONE, reply
    world.run(s=2)
    for each in ("j1", "j2", "p", "i"):
        record = world[each].components.step.record("j")
        assert record is not None
        assert record.leader == "j2"
    carried = operate(world, "j1", OperationKind.SHIFT, "i", "j", "p")
    assert carried.status is OperationStatus.DONE, carried
    assert carried.op.broker == "j2"


def test_any_broker_carries_a_request_to_the_leader_that_coordinates_it() -> None:
    world = tree("a-b-c-d-e")
    world.run(s=2)
    reply = operate(world, "a", OperationKind.SHIFT, "e", "d", "c")
    assert reply.status is OperationStatus.DONE, reply
    assert reply.op.broker == "d"
    assert reply.time_us > 0
    assert neighbours(world, "c") == ("b", "d", "e")


def test_an_operation_at_a_cell_that_does_not_exist_is_refused() -> None:
    world = tree("a-b-c")
    world.run(s=2)
    reply = operate(world, "a", OperationKind.SHIFT, "c", "x", "a")
    assert reply.status is OperationStatus.REFUSED
    assert reply.text == "no cell x was found in the tree"


def test_a_distant_cell_is_taken_over_by_one_of_its_members() -> None:
    world = tree("a-b-c-d-j", cells={"j": ["j1", "j2"]})
    world.run(s=2)
    world.crash("j1")
    client = Client(world, "a", "operator")
    client.connect()
    reply = client.call(TakeOverCell(client.number(), ("j1",), "j"), s=30)
    assert isinstance(reply, TakeoverReply)
    assert reply.done, reply
    record = world["j2"].components.step.record("j")
    assert record is not None
    assert record.leader == "j2"
