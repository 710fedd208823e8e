"""A client names what it understands, and its broker keeps that with the client session (D14)."""

from __future__ import annotations

import msgspec
import pytest

from gapless.core.errors import ProtocolError
from gapless.core.overlay_limits import CAPABILITIES_MAX, CAPABILITY_NAME_MAX
from gapless.wire import HEADER_BYTES, Connect, Connected, Role, decode_handshake, encode_handshake
from tests.runtime.nodes import run, until, world
from tests.runtime.raw_client import RawClient


def test_the_broker_keeps_the_capabilities_of_a_client_while_it_is_connected() -> None:
    async def scenario() -> None:
        async with world() as brokers:
            node = brokers["b1"]
            client = RawClient(node.url)
            await client.connect()
            client.send_handshake(Connect(Role.CLIENT, "desk", capabilities=("moves",)))
            connected = decode_handshake(await client.body())
            assert isinstance(connected, Connected)
            registry = node.broker.components.registry
            name = connected.client
            await until(lambda: registry.is_connected(name))
            assert registry.has_capability(name, "moves")
            assert not registry.has_capability(name, "flights")
            await client.close()
            await until(lambda: not registry.is_connected(name))
            assert not registry.has_capability(name, "moves")

    run(scenario())


def test_a_client_of_the_first_version_names_no_capabilities() -> None:
    older = msgspec.msgpack.encode(["Connect", 0, "desk", [3], "", ""])
    connect = decode_handshake(older)
    assert isinstance(connect, Connect)
    assert connect.capabilities == ()


@pytest.mark.parametrize(
    "capabilities", [("x",) * (CAPABILITIES_MAX + 1), ("x" * (CAPABILITY_NAME_MAX + 1),)]
)
def test_too_many_or_too_long_capabilities_are_a_protocol_error(
    capabilities: tuple[str, ...],
) -> None:
    frame = encode_handshake(Connect(Role.CLIENT, "desk", capabilities=capabilities))
    with pytest.raises(ProtocolError):
        decode_handshake(bytes(frame[HEADER_BYTES:]))
