"""Ports of this computer that are reserved.

A free port may be taken by the next connection of any process, also between the death of a broker
and its restart. So ports are *held* by sockets that are bound and do not listen. A broker can still
listen there, because both sockets allow reuse of the address. The system assigns the port to no
process that requests any free port.
"""

from __future__ import annotations

import os
import socket
import weakref

__all__ = ["ReservedPorts"]


class ReservedPorts:
    """Free ports of the loopback interface, held until they are released or garbage-collected."""

    def __init__(self, count: int) -> None:
        files: list[int] = []
        self.release = weakref.finalize(self, _close, files)
        """Release the ports."""
        self.ports = [_reserve(files) for _ in range(count)]


def _reserve(files: list[int]) -> int:
    with socket.socket() as reserved:
        reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        reserved.bind(("127.0.0.1", 0))
        port: int = reserved.getsockname()[1]
        files.append(reserved.detach())
        return port


def _close(files: list[int]) -> None:
    for file in files:
        os.close(file)
