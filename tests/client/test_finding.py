"""A program that starts again finds its durable subscription wherever it is hosted (MV-15)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import gapless
from gapless.client.finding import HostSearch
from gapless.core.address import Address
from gapless.core.errors import DeadlineError, UsageError
from gapless.core.parameters import Parameters
from gapless.messages.clients import RefusalCause, Refused
from gapless.messages.operating import RemoveDurable
from gapless.mobility import Lookups
from gapless.testing import Overlay
from tests.client.running import async_test, soon

QUICK = gapless.Backoff(first_s=0.002, longest_s=0.02)
QUICK_SESSIONS = Parameters(session_timeout_ms=1_100)
SHORT = Parameters(session_timeout_ms=1_100, find_timeout_ms=200)


def hosts(overlay: Overlay, name: str = "desk") -> list[str]:
    """Return the running brokers that host a subscription."""
    found = []
    for broker in overlay.brokers:
        try:
            registry = overlay.node(broker).broker.components.registry
        except gapless.errors.ClosedError:
            continue
        if name in registry.subscriptions:
            found.append(broker)
    return found


@async_test
async def test_a_program_with_other_addresses_continues_its_subscription_where_it_is() -> None:
    async with Overlay("line:3", on_disk=False) as overlay:
        async with gapless.connect(overlay.url("b3")) as there:
            async with there.subscribe("", durable="desk") as events:
                assert events.is_new
            async with there.publisher("quotes") as publisher:
                await publisher.publish({"n": 1})
        async with (
            gapless.connect(overlay.url("b1")) as here,
            here.subscribe(durable="desk") as events,
        ):
            assert not events.is_new
            assert here.broker == "b1"
            assert (await events.get()).attributes["n"] == 1
            await events.set_filter("n > 1")
        assert hosts(overlay) == ["b3"]


@async_test
async def test_a_program_that_failed_over_and_ended_continues_when_its_first_broker_is_back() -> (
    None
):
    # the first story: the same list of addresses, and b3 comes first again
    async with (
        Overlay("line:3", parameters=QUICK_SESSIONS) as overlay,
        gapless.connect(overlay.url("b2")) as there,
        there.publisher("quotes") as publisher,
    ):
        servers = overlay.url("b3", "b1")
        async with (
            gapless.connect(servers, backoff=QUICK, failover_after_s=0.05) as session,
            session.subscribe("", durable="desk") as events,
        ):
            await publisher.publish({"n": 1})
            assert (await events.get()).attributes["n"] == 1
            await overlay.kill("b3")
            await publisher.publish({"n": 2})
            assert (await events.get()).attributes["n"] == 2
        assert hosts(overlay) == ["b1"]
        await publisher.publish({"n": 3})
        await overlay.restart("b3")
        async with (
            gapless.connect(servers, backoff=QUICK) as session,
            session.subscribe(durable="desk") as events,
        ):
            assert not events.is_new
            assert (await events.get()).attributes["n"] == 3
            await publisher.publish({"n": 4})
            assert (await events.get()).attributes["n"] == 4
        await soon(lambda: hosts(overlay) == ["b1"])


@async_test
async def test_a_program_whose_hosting_broker_is_down_waits_and_its_error_names_it() -> None:
    # the second story
    async with Overlay("line:3", parameters=SHORT) as overlay:
        servers = overlay.url("b3", "b1")
        async with (
            gapless.connect(servers) as session,
            session.subscribe("", durable="desk"),
            session.publisher("quotes") as publisher,
        ):
            await publisher.publish({"n": 1})
        await overlay.kill("b3")
        async with gapless.connect(servers, backoff=QUICK) as session:
            assert session.broker == "b1"
            with pytest.raises(DeadlineError, match=r"did not answer: b3"):
                async with session.subscribe(durable="desk", deadline_s=1.5):
                    pytest.fail("a second subscription was created")
            assert hosts(overlay) == []
            opening = session.subscribe(durable="desk")
            await overlay.restart("b3")
            async with opening as events:
                assert not events.is_new
                assert (await events.get()).attributes["n"] == 1
        assert hosts(overlay) == ["b3"]


@async_test
async def test_create_creates_a_subscription_while_a_broker_is_down() -> None:
    async with Overlay("line:2", on_disk=False, parameters=SHORT) as overlay:
        await overlay.kill("b2")
        async with (
            gapless.connect(overlay.url("b1")) as session,
            session.subscribe("", durable="desk", create=True) as events,
        ):
            assert events.is_new
            with pytest.raises(UsageError, match="durable"):
                session.subscribe(create=True)


@async_test
async def test_the_error_names_a_hosting_broker_that_cannot_be_reached_and_its_address() -> None:
    async with Overlay("line:2", on_disk=False, parameters=SHORT) as overlay:
        async with (
            gapless.connect(overlay.url("b2")) as there,
            there.subscribe("", durable="desk"),
        ):
            pass
        node = overlay.node("b2")
        port = node.address.port
        node.broker.components.finder._addresses = {"b2": Address("127.0.0.9", port)}
        async with gapless.connect(overlay.url("b1"), backoff=QUICK) as session:
            with pytest.raises(DeadlineError, match=rf"broker b2 at 127\.0\.0\.9:{port}, which"):
                async with session.subscribe(durable="desk", deadline_s=1.0):
                    pytest.fail("the broker cannot be reached")


@async_test
async def test_an_address_that_is_none_does_not_keep_a_program_from_the_others() -> None:
    async with Overlay("line:2", on_disk=False, parameters=SHORT) as overlay:
        async with gapless.connect(overlay.url("b2")) as there, there.subscribe("", durable="desk"):
            pass
        finder = overlay.node("b2").broker.components.finder
        finder._addresses = {"b2": Address("no/host", 7400)}
        async with gapless.connect(overlay.url("b1", "b2"), backoff=QUICK) as session:
            async with session.subscribe(durable="desk") as events:
                assert not events.is_new


@async_test
async def test_unsubscribe_ends_the_subscription_at_another_broker() -> None:
    async with Overlay("line:3", on_disk=False, parameters=SHORT) as overlay:
        async with (
            gapless.connect(overlay.url("b3")) as there,
            there.subscribe("", durable="desk"),
        ):
            pass
        async with gapless.connect(overlay.url("b1")) as session:
            await session.unsubscribe("desk")
            assert hosts(overlay) == []
            await session.unsubscribe("desk")  # repeated: it does not exist any more
            await overlay.kill("b3")
            with pytest.raises(DeadlineError, match="b3"):
                await session.unsubscribe("desk", deadline_s=1.5)


@async_test
async def test_a_request_by_name_follows_the_subscription_when_its_broker_fails(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # the hosting broker dies after it was found; the connection fails over to another broker
    async with Overlay("line:3", parameters=SHORT) as overlay:
        servers = overlay.url("b3", "b1")
        async with gapless.connect(servers) as session, session.subscribe("", durable="desk"):
            pass
        locate, found, killed = HostSearch._located, [], asyncio.Event()

        async def located(search: HostSearch) -> Any:
            found.append(await locate(search))
            if len(found) == 1:
                await overlay.kill("b3")
                await soon(lambda: session.broker == "b1")
                killed.set()
            return found[-1]

        monkeypatch.setattr(HostSearch, "_located", located)
        async with gapless.connect(servers, backoff=QUICK) as session:
            assert session.broker == "b3"
            ending = asyncio.create_task(session.unsubscribe("desk"))
            await killed.wait()
            await overlay.restart("b3")
            await ending
            assert hosts(overlay) == []
            assert len(found) > 1


async def twice(overlay: Overlay) -> None:
    """Create two subscriptions of one name, at b1 and b3."""
    async with gapless.connect(overlay.url("b3")) as there, there.subscribe("", durable="desk"):
        pass
    await overlay.kill("b3")
    async with (
        gapless.connect(overlay.url("b1")) as here,
        here.subscribe("", durable="desk", create=True),
    ):
        pass
    await overlay.restart("b3")
    assert hosts(overlay) == ["b1", "b3"]


@async_test
async def test_unsubscribe_ends_all_subscriptions_of_a_name() -> None:
    async with Overlay("line:3", parameters=SHORT) as overlay:
        await twice(overlay)
        async with gapless.connect(overlay.url("b1")) as session:
            await soon(lambda: "b2" in overlay.node("b3").links.open_peers)
            await session.unsubscribe("desk")
            assert hosts(overlay) == []


@async_test
async def test_a_request_for_one_broker_reaches_no_other() -> None:
    async with Overlay("line:3", parameters=SHORT) as overlay:
        await twice(overlay)
        servers = overlay.url("b1", "b3")
        async with gapless.connect(servers, backoff=QUICK, failover_after_s=0.05) as session:
            removal = RemoveDurable(0, "desk", here=True)
            await session.request_at_broker("b3", (), removal)
            assert hosts(overlay) == ["b1"]
            await overlay.kill("b3")
            with pytest.raises(DeadlineError, match="b3"):
                await session.request_at_broker("b3", (), removal, deadline_s=1.0)
            assert hosts(overlay) == ["b1"]


@async_test
async def test_brokers_that_redirect_to_each_other_are_asked_seldom_until_the_deadline(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with Overlay("line:2", on_disk=False) as overlay:
        asked: list[str] = []

        def resolve(lookups: Lookups, client: str, request: int, *_: Any, **__: Any) -> None:
            asked.append(lookups._me)
            other = "b2" if lookups._me == "b1" else "b1"
            where = (overlay.url(other).removeprefix("gapless://"),)
            cause = RefusalCause.WRONG_BROKER
            refused = Refused(request, f"it is at {other}", cause, other, addresses=where)
            lookups._context.notify(client, refused)

        monkeypatch.setattr(Lookups, "resolve", resolve)
        async with gapless.connect(overlay.url("b1")) as session:
            with pytest.raises(DeadlineError, match="desk"):
                async with session.subscribe("", durable="desk", deadline_s=2.0):
                    pytest.fail("no broker accepts it")
        assert {"b1", "b2"} == {*asked}
        assert len(asked) < 50, "there are pauses between rounds"


@async_test
async def test_a_short_deadline_names_the_broker_that_does_not_answer(
    caplog: pytest.LogCaptureFixture,
) -> None:
    # find_timeout_ms is three seconds
    async with Overlay("line:2", on_disk=False, parameters=QUICK_SESSIONS) as overlay:
        await overlay.kill("b2")
        async with gapless.connect(overlay.url("b1")) as session:
            with pytest.raises(DeadlineError, match=r"did not answer: b2"):
                async with session.subscribe("", durable="desk", deadline_s=2.0):
                    pytest.fail("b2 may host it")
            assert caplog.messages[-1].endswith("create the subscription anyway; waiting")
            with pytest.raises(DeadlineError, match=r"did not answer: b2"):
                await session.unsubscribe("desk", deadline_s=2.0)
            async with session.subscribe("", durable="desk", create=True, deadline_s=2.5) as made:
                assert made.is_new


@pytest.mark.parametrize("others", [("b1", "b2"), ("b1",)], ids=["two addresses", "one address"])
@async_test
async def test_a_redirected_subscription_fails_over_like_any_other(others: tuple[str, ...]) -> None:
    async with (
        Overlay("line:3", on_disk=False, parameters=SHORT) as overlay,
        gapless.connect(overlay.url("b1")) as near,
        near.publisher("quotes") as publisher,
    ):
        async with (
            gapless.connect(overlay.url("b3")) as there,
            there.subscribe("", durable="desk"),
        ):
            pass
        servers = overlay.url(*others)
        async with (
            gapless.connect(servers, backoff=QUICK, failover_after_s=0.05) as session,
            session.subscribe(durable="desk") as events,
        ):
            await publisher.publish({"n": 1})
            assert (await events.get()).attributes["n"] == 1
            await overlay.kill("b3")
            await publisher.publish({"n": 2})
            assert (await events.get()).attributes["n"] == 2
            assert hosts(overlay) in (["b1"], ["b2"])
