"""Ports that are reserved for brokers on this computer."""

from __future__ import annotations

import asyncio
import gc
import socket
from pathlib import Path

import pytest

from gapless.runtime.ports import ReservedPorts


def listen(port: int) -> socket.socket:
    """Listen on a port as a broker does."""
    made = socket.socket()
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        made.bind(("127.0.0.1", port))
        made.listen()
    except OSError:
        made.close()
        raise
    return made


def test_a_broker_can_listen_on_its_reserved_port() -> None:
    held = ReservedPorts(3)
    listeners = [listen(port) for port in held.ports]
    assert len({each.getsockname() for each in listeners}) == 3
    for each in listeners:
        each.close()
    held.release()


def test_a_reserved_port_is_not_assigned_to_another_socket() -> None:
    # without a reservation the next bind may get the port
    held = ReservedPorts(1)
    others = []
    for _ in range(200):
        others.append(socket.socket())
        others[-1].setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        others[-1].bind(("127.0.0.1", 0))
    assert held.ports[0] not in {each.getsockname()[1] for each in others}
    for each in others:
        each.close()
    held.release()


def test_a_second_listener_is_still_refused() -> None:
    held = ReservedPorts(1)
    first = listen(held.ports[0])
    with pytest.raises(OSError, match="in use"):
        listen(held.ports[0])
    first.close()
    held.release()


async def _refused(port: int) -> bool:
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
    except ConnectionRefusedError:
        return True
    writer.close()
    return False


def test_a_reserved_port_without_a_listener_refuses_clients() -> None:
    held = ReservedPorts(1)
    assert asyncio.run(_refused(held.ports[0]))
    held.release()


def test_unreferenced_reservations_are_released() -> None:
    held = ReservedPorts(1)
    port = held.ports[0]
    gc.collect()  # files of earlier tests
    files = len([*Path("/proc/self/fd").iterdir()])
    del held
    gc.collect()
    assert len([*Path("/proc/self/fd").iterdir()]) == files - 1
    listen(port).close()
