"""Links between brokers: which side dials, redials, and when a link ends."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from pathlib import Path

import pytest

from gapless.core.backoff import Backoff, BackoffWaits
from gapless.core.effects import LinkTarget, SetPeers
from gapless.core.events import LinkDown, LinkUp
from gapless.core.parameters import Parameters
from gapless.runtime.links import BrokerLinks
from gapless.wire import Connect, Connected, Role, decode_handshake
from tests.runtime.nodes import LOOPS, run, until, world
from tests.runtime.raw_client import RawClient


@pytest.mark.parametrize("loop", LOOPS)
def test_all_brokers_of_a_neighbourhood_are_linked_once(loop: str) -> None:
    async def scenario() -> None:
        async with world("line:3") as brokers:
            nodes = brokers.nodes.values()
            await until(lambda: all(len(node.links.open_peers) == 2 for node in nodes))
            dialled = {name: node.links.dial_attempts > 0 for name, node in brokers.nodes.items()}
            assert dialled == {"b1": True, "b2": True, "b3": False}

    run(scenario(), loop)


def test_brokers_of_redundant_cells_have_links_with_their_whole_neighbourhood() -> None:
    async def scenario() -> None:
        async with world("line:4x2") as brokers:  # with δ = 1, ends know three cells, others four
            nodes = [*brokers.nodes.values()]
            wanted = [5, 5, 7, 7, 7, 7, 5, 5]
            await until(lambda: [len(each.links.open_peers) for each in nodes] == wanted)
            for node in nodes:
                assert set(node.links.open_peers) == node.links.peers
                later = {peer for peer in node.links.peers if peer > node.name}
                assert bool(node.links.dial_attempts) == bool(later)
            assert all(node.acceptor.refused == 0 for node in nodes), "no dial was refused"

    run(scenario())


def test_a_broker_dials_until_its_peer_accepts_and_redials_after_a_loss(tmp_path: Path) -> None:
    parameters = Parameters(redial_ms=1, redial_max_ms=20)

    async def scenario() -> None:
        async with world("line:2", tmp_path, parameters) as brokers:
            await until(lambda: brokers["b1"].links.open_peers == ["b2"])
            for _ in range(3):
                await brokers["b2"].kill()
                await until(lambda: not brokers["b1"].links.open_peers)
                dials = brokers["b1"].links.dial_attempts
                await until(lambda: brokers["b1"].links.dial_attempts > dials + 2)  # noqa: B023
                await brokers.start("b2")
                await until(lambda: brokers["b1"].links.open_peers == ["b2"])

    run(scenario())


def test_a_second_connection_of_a_peer_replaces_the_first() -> None:
    async def scenario() -> None:
        async with world("line:2") as brokers:
            node = brokers["b2"]
            await until(lambda: node.links.open_peers == ["b1"])
            await brokers["b1"].stop()
            await until(lambda: not node.links.open_peers)
            happened: list[object] = []
            node.links.handle = happened.append
            introduction = Connect(Role.BROKER, "b1", overlay="gapless")
            made = []
            for _ in range(2):
                peer = RawClient(node.url)
                await peer.connect()
                peer.send_handshake(introduction)
                assert isinstance(decode_handshake(await peer.body()), Connected)
                made.append(peer)
            assert happened == [LinkUp("b1"), LinkDown("b1"), LinkUp("b1")]
            assert node.links.open_peers == ["b1"]
            for peer in made:
                await peer.close()
            await until(lambda: not node.links.open_peers)
            assert happened[3:] == [LinkDown("b1")]

    run(scenario())


def test_an_idle_link_is_closed() -> None:
    parameters = Parameters(session_timeout_ms=50, heartbeat_ms=10, link_idle_timeout_ms=60)

    async def scenario() -> None:
        async with world("line:2", parameters=parameters) as brokers:
            node = brokers["b2"]
            await until(lambda: node.links.open_peers == ["b1"])
            await brokers["b1"].stop()
            silent = RawClient(node.url)
            await silent.connect()
            silent.send_handshake(Connect(Role.BROKER, "b1", overlay="gapless"))
            await until(lambda: node.links.open_peers == ["b1"])
            await until(lambda: not node.links.open_peers)
            await silent.close()

    run(scenario())


def test_a_peer_that_leaves_the_neighbourhood_loses_its_link() -> None:
    async def scenario() -> None:
        async with world("line:3") as brokers:
            node = brokers["b1"]
            await until(lambda: node.links.open_peers == ["b2", "b3"])
            node.set_peers(SetPeers((LinkTarget("b2"),)))
            assert node.links.open_peers == ["b2"]
            dials = node.links.dial_attempts
            node.set_peers(SetPeers((LinkTarget("b2"), LinkTarget("b3"))))
            await until(lambda: node.links.open_peers == ["b2", "b3"])
            assert node.links.dial_attempts > dials

    run(scenario())


def test_back_off_waits_grow_up_to_a_limit_and_are_at_least_half_of_it() -> None:
    for draw in (lambda: 0.0, lambda: 0.999):
        waits = [*islice(Backoff(first_s=0.05, longest_s=5.0).waits(draw), 12)]
        assert waits == sorted(waits)
        assert 2.5 <= waits[-1] <= 5.0


def test_a_link_that_ends_at_once_is_dialled_with_growing_waits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # a peer that accepts and disconnects at once would be dialled twenty times a second for ever
    waits: list[float] = []

    class Noting(BackoffWaits):
        def __next__(self) -> float:
            waits.append(self._bound_s)
            super().__next__()
            return 0.0

    def noting(backoff: Backoff, draw: Callable[[], float]) -> BackoffWaits:
        return Noting(backoff, draw)

    async def up_and_down(links: BrokerLinks, peer: str) -> str:
        links._down[peer].set()
        return ""

    monkeypatch.setattr(Backoff, "waits", noting)
    monkeypatch.setattr(BrokerLinks, "_dial", up_and_down)

    async def scenario() -> None:
        async with world("line:2", parameters=Parameters(redial_ms=1, redial_max_ms=60_000)):
            await until(lambda: len(waits) >= 5)

    run(scenario())
    assert waits[:5] == [0.001, 0.002, 0.004, 0.008, 0.016]
