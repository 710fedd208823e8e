"""Ports on this computer that nobody else is given while we need them.

A port that was free a moment ago may be taken by the next connection of any process: also between the
death of a broker and its restart. So ports are *held* by sockets that are bound and do not listen. A
broker can still listen there, since both sides allow the address to be used again; the system gives the
port to nobody who asks for any.
"""

from __future__ import annotations

import contextlib
import socket

__all__ = ["HeldPorts"]


class HeldPorts:
    """Free ports of the loopback, held until they are let go."""

    def __init__(self, count: int) -> None:
        self._sockets = contextlib.ExitStack()
        self.ports = [self._hold() for _ in range(count)]

    def _hold(self) -> int:
        held = self._sockets.enter_context(socket.socket())
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind(("127.0.0.1", 0))
        port: int = held.getsockname()[1]
        return port

    def let_go(self) -> None:
        """Hold them no more."""
        self._sockets.close()
