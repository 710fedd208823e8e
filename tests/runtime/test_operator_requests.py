"""Requests that need an operator token where brokers require tokens."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gapless.core.ids import PubendId
from gapless.messages.clients import (
    FilterSet,
    RefusalCause,
    Refused,
    StartKind,
    StartPoint,
    Unsubscribe,
    Unsubscribed,
)
from gapless.messages.closing import ClosePubend, ClosePubendReply
from gapless.messages.operating import (
    BrokerReply,
    BrokerRetired,
    DurableSeekDone,
    GetBroker,
    GetTopology,
    RemoveDurable,
    RetireBroker,
    SeekDurable,
    SetDurableFilter,
    TopologyReply,
)
from gapless.messages.plans import AbortPlan, ApplyPlan, PlanAborted, PlanReply
from gapless.messages.reshape import (
    OperationKind,
    OperationRequestId,
    OpReply,
    OpRequest,
    ReadmitBroker,
    TakeOverCell,
    TakeoverReply,
)
from gapless.runtime.authentication import AccessOptions
from gapless.runtime.operator_requests import OPERATOR_REQUESTS
from tests.runtime.nodes import World, run
from tests.runtime.raw_client import RawClient
from tests.runtime.test_authentication import guarded
from tests.tokens import Principals

EARLIEST = StartPoint(StartKind.EARLIEST)

NO_PLAN = OperationRequestId("a plan")

CALLS: list[tuple[Callable[[int], Any], type]] = [
    (lambda number: SeekDurable(number, "desk", EARLIEST, force=True), DurableSeekDone),
    (lambda number: SetDurableFilter(number, "desk", "n > 3"), FilterSet),
    (lambda number: RemoveDurable(number, "desk", force=True), Unsubscribed),
    (lambda number: RetireBroker(number, "b2", "c2"), BrokerRetired),
    (lambda number: OpRequest(number, NO_PLAN, OperationKind.SHIFT, ("a", "b", "c")), OpReply),
    (lambda number: ReadmitBroker(number, "b7"), OpReply),
    (lambda number: ApplyPlan(number, "p", (), ("a",), ()), PlanReply),
    (AbortPlan, PlanAborted),
    (lambda number: TakeOverCell(number, ()), TakeoverReply),
    (lambda number: ClosePubend(number, PubendId("quotes")), ClosePubendReply),
]


@pytest.fixture
def principals(tmp_path: Path) -> Principals:
    made = Principals(tmp_path, "desk", "mallory")
    made.add("ops", operator=True)
    return made


async def replies_to(brokers: World, token: str, *calls: tuple[Any, type]) -> list[Any]:
    """Send requests over one connection, each after the reply to the former; return the replies."""
    async with RawClient(brokers["b1"].url, token=token) as client:
        return [await client.request(kind, request) for request, kind in calls]


def with_a_durable_subscription(
    principals: Principals | None, work: Callable[[World], Any]
) -> None:
    """Run a scenario at one broker that hosts the durable subscription desk."""

    async def scenario() -> None:
        options = None if principals is None else AccessOptions(tokens=str(principals.path))
        async with guarded("line:1", lambda _: options) as brokers:
            token = "" if principals is None else principals["desk"]
            async with RawClient(brokers["b1"].url, token=token) as client:
                await client.subscribe("desk", durable=True)
            await work(brokers)

    run(scenario())


def test_a_request_that_changes_the_state_of_others_is_refused_without_an_operator_token(
    principals: Principals,
) -> None:
    async def work(brokers: World) -> None:
        calls = [make(number) for number, (make, _) in enumerate(CALLS, 1)]
        assert {type(each) for each in calls} == {*OPERATOR_REQUESTS}
        for refused in await replies_to(
            brokers, principals["mallory"], *((each, Refused) for each in calls)
        ):
            assert refused.cause is RefusalCause.NOT_AUTHORISED
            assert "only operators may" in refused.reason
            assert "the token of mallory" in refused.reason
            assert "gapless token new PRINCIPAL --operator" in refused.reason
        (still,) = await replies_to(brokers, principals["mallory"], (GetBroker(1), BrokerReply))
        assert still.durable == 1, "the machine has seen none of them"

    with_a_durable_subscription(principals, work)


@pytest.mark.parametrize(("call", "reply"), CALLS[:3], ids=["seek", "filter", "remove"])
@pytest.mark.parametrize("required", [True, False], ids=["operator", "no tokens"])
def test_operators_and_clients_of_brokers_without_tokens_may_change_the_state_of_others(
    principals: Principals, call: Callable[[int], Any], reply: type, *, required: bool
) -> None:
    async def work(brokers: World) -> None:
        token = principals["ops"] if required else ""
        assert await replies_to(brokers, token, (call(1), reply))

    with_a_durable_subscription(principals if required else None, work)


def test_a_client_needs_no_operator_token_to_look_or_to_end_its_own_subscription(
    principals: Principals,
) -> None:
    async def work(brokers: World) -> None:
        looks, ends = GetTopology(1), Unsubscribe(2, "desk", durable=True)
        calls = (looks, TopologyReply), (ends, Unsubscribed)
        assert await replies_to(brokers, principals["desk"], *calls)

    with_a_durable_subscription(principals, work)
