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

__all__ = ["HeldPorts"]


class HeldPorts:
    """Free ports of the loopback, held until they are let go, or forgotten."""

    def __init__(self, count: int) -> None:
        files: list[int] = []
        self.let_go = weakref.finalize(self, _close, files)
        """Hold them no more."""
        self.ports = [_hold(files) for _ in range(count)]


def _hold(files: list[int]) -> int:
    with socket.socket() as held:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind(("127.0.0.1", 0))
        port: int = held.getsockname()[1]
        files.append(held.detach())
        return port


def _close(files: list[int]) -> None:
    for file in files:
        os.close(file)
