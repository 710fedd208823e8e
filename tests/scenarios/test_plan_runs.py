"""Plans between whole brokers, while events are delivered (RS-19 to RS-21)."""

from __future__ import annotations

from gapless.core.ids import BrokerId, CellId
from gapless.messages.clients import Refused
from gapless.messages.plans import AbortPlan, ApplyPlan, GetPlan, PlanAborted, PlanReply
from tests.scenarios.brokers import Client, World
from tests.scenarios.test_operation_runs import neighbours, tree

Edges = tuple[tuple[CellId, CellId], ...]


def edges(*pairs: str) -> Edges:
    """Return edges between cells with names of one letter."""
    return tuple((each[0], each[1]) for each in pairs)


class Operator:
    """A client that orders a plan and asks for its state."""

    def __init__(self, world: World, broker: BrokerId) -> None:
        self.world = world
        self.client = Client(world, broker, "operator")
        self.client.connect()

    def order(self, present: Edges, wanted: Edges, **changes: object) -> object:
        cells = tuple(sorted({cell for edge in wanted for cell in edge}))
        number = self.client.number()
        call = ApplyPlan(number, "p", present, cells, wanted, **changes)  # type: ignore[arg-type]
        return self.client.call(call, s=5)

    def state(self) -> PlanReply:
        reply = self.client.call(GetPlan(self.client.number()), s=5)
        assert isinstance(reply, PlanReply)
        return reply

    def end(self, s: int = 60) -> PlanReply:
        """Wait for the end of the plan."""
        reply = self.state()
        for _ in range(s):
            if reply.state == "ended":
                return reply
            self.world.run(s=1)
            reply = self.state()
        raise AssertionError(f"the plan has not ended: {reply}")


LINE = edges("ab", "bc", "cd", "de")
STAR = edges("ac", "bc", "cd", "ce")


def test_a_plan_leads_to_the_wanted_tree_while_events_are_delivered() -> None:
    world = tree("a-b-c-d-e")
    ann = world.publisher("a")
    subscriber = world.subscriber("e", "x", "TRUE")
    world.run(s=2)
    ann.publish("before")
    operator = Operator(world, "b")
    assert isinstance(operator.order(LINE, STAR), PlanReply)
    ended = operator.end()
    assert ended.is_reached, ended
    assert ended.done == 2
    assert [each.kind for each in ended.steps] == ["shift", "shift"]
    assert all(each.time_us > 0 for each in ended.steps)
    ann.publish("after")
    world.run(s=3)
    assert neighbours(world, "c") == ("a", "b", "d", "e")
    assert subscriber.events == ["before", "after"]


def test_a_plan_for_another_tree_than_the_present_one_changes_nothing() -> None:
    world = tree("a-b-c-d-e")
    world.run(s=2)
    operator = Operator(world, "b")
    operator.order(edges("ab", "bc", "cd", "ce"), STAR)
    ended = operator.end()
    assert not ended.is_reached
    assert "plan again" in ended.reason
    assert set(ended.found) == set(LINE)


def test_a_plan_continues_after_a_restart_of_the_broker_that_executes_it() -> None:
    world = tree("a-b-c-d-e")
    world.run(s=2)
    operator = Operator(world, "a")
    operator.order(LINE, edges("ae", "be", "ce", "de"))
    assert world.wait(lambda: bool(world["a"].components.plans.finished), s=20)
    world.crash("a")
    world.restart("a")
    operator = Operator(world, "a")
    assert operator.end().is_reached
    world.run(s=2)
    assert neighbours(world, "e") == ("a", "b", "c", "d")


def test_an_aborted_plan_stops_after_the_operation_under_way() -> None:
    world = tree("a-b-c-d-e")
    world.run(s=2)
    operator = Operator(world, "a")
    operator.order(LINE, edges("ae", "be", "ce", "de"))
    assert world.wait(lambda: bool(world["a"].components.plans.finished), s=20)
    reply = operator.client.call(AbortPlan(operator.client.number()), s=5)
    assert isinstance(reply, PlanAborted)
    assert reply.was_under_way
    ended = operator.end()
    assert (ended.is_reached, ended.reason) == (False, "aborted by an operator")
    assert 0 < ended.done < 4


def test_a_second_plan_is_refused_while_one_is_under_way() -> None:
    world = tree("a-b-c-d-e")
    world.run(s=2)
    operator = Operator(world, "a")
    operator.order(LINE, STAR)
    refused = operator.order(LINE, edges("ae", "be", "ce", "de"))
    assert isinstance(refused, Refused)
    assert "executes another plan" in refused.reason
