"""Ports on this computer that nobody else is given while we need them.

A port that was free a moment ago may be taken by the next connection of any process: also between the
death of a broker and its restart. So ports are *held* by sockets that are bound and do not listen. A
broker can still listen there, since both sides allow the address to be used again; the system gives the
port to nobody who asks for any.
"""

from __future__ import annotations

import os
import socket
import weakref

__all__ = ["ReservedPorts"]


class ReservedPorts:
    """Free ports of the loopback, held until they are let go, or forgotten."""

    def __init__(self, count: int) -> None:
        files: list[int] = []
        self.release = weakref.finalize(self, _close, files)
        """Hold them no more."""
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
