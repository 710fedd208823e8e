"""Real brokers with proxies between them: a session uses relays while its link is cut."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import gapless
from gapless.core.parameters import Parameters
from gapless.messages.operating import GetBroker, GetTopology
from gapless.runtime import BrokerSettings, Node
from gapless.runtime.overlay_config import overlay_of
from gapless_lab.chaos.proxies import Proxies
from tests.client.running import async_test, soon

PARAMETERS = Parameters(delta=1, feed_switch_delay_ms=500)


@asynccontextmanager
async def line(words: str) -> AsyncIterator[tuple[Proxies, dict[str, Node]]]:
    """Run brokers that reach each other only through proxies."""
    proxies = Proxies()
    overlay = await proxies.start(overlay_of(words, delta=PARAMETERS.delta))
    async with AsyncExitStack() as stack:
        stack.push_async_callback(proxies.stop)
        nodes = {}
        for name, _ in overlay.brokers:
            settings = BrokerSettings(
                name=name, overlay=overlay, listen=overlay.addresses[name], parameters=PARAMETERS
            )
            found = {**overlay.addresses, **proxies.addresses_for(name)}
            nodes[name] = Node(settings, addresses=found)
            await nodes[name].start()
            stack.push_async_callback(nodes[name].stop)
        yield proxies, nodes


@async_test
async def test_a_session_uses_a_relay_while_its_link_is_cut_and_the_link_afterwards() -> None:
    async with line("line:3") as (proxies, nodes):
        sessions = nodes["b1"].broker.components.sessions
        await soon(lambda: sorted(sessions.direct_peers()) == ["b2", "b3"])
        async with (
            gapless.connect(nodes["b2"].url) as far,
            far.publisher("quotes") as publisher,
            gapless.connect(nodes["b1"].url) as near,
            near.subscribe("n >= 0", start="earliest") as events,
        ):
            await publisher.publish({"n": 1})
            assert (await events.get()).attributes["n"] == 1
            await proxies.cut([("b1", "b2")])  # one direction is enough
            await soon(lambda: sessions.route("b2") == ("b3",))
            await publisher.publish({"n": 2})
            assert (await events.get()).attributes["n"] == 2
            shown = await near.request(GetBroker(0), changes=False)
            assert {each.broker: each.via for each in shown.peers} == {"b2": ("b3",), "b3": ()}
            assert shown.sessions_relayed == shown.feeds_relayed == 1
            cells = (await near.request(GetTopology(0), changes=False)).cells
            assert {each.cell: each.relayed for each in cells if each.relayed} == {
                "c2": (("b2", ("b3",)),)
            }
            await proxies.heal([("b1", "b2")])
            await soon(lambda: sessions.is_direct("b2"))
            await publisher.publish({"n": 3})
            assert (await events.get()).attributes["n"] == 3


@async_test
async def test_the_other_broker_of_a_cell_feeds_instead_of_one_behind_a_cut() -> None:
    async with (
        line("line:2x2") as (proxies, nodes),
        gapless.connect(nodes["b1a"].url) as near,
        near.publisher("quotes") as publisher,
        gapless.connect(nodes["b2a"].url) as far,
        far.subscribe("n >= 0", start="earliest") as events,
    ):
        await publisher.publish({"n": 0})
        assert (await events.get()).attributes["n"] == 0
        for number, broker in enumerate(("b2a", "b2b"), start=1):
            links = [("b1a", broker), (broker, "b1a")]
            await proxies.cut(links)
            await publisher.publish({"n": number})
            assert (await events.get()).attributes["n"] == number
            await proxies.heal(links)
