"""Ports of this computer that are reserved.

A free port may be taken by the next connection of any process, also between the death of a broker
and its restart. So ports are *held* by sockets that are bound and do not listen. A broker can still
listen there, because both sockets allow reuse of the address. The system assigns the port to no
process that requests any free port.
"""

from __future__ import annotations

import errno
import os
import socket
import weakref
from collections.abc import Iterable

from gapless.core.address import Address
from gapless.core.errors import UsageError

__all__ = ["ReservedPorts", "bind_problem", "refuse_used_ports"]


def bind_problem(error: OSError | UnicodeError) -> str:
    """Return why an address cannot be used; the event loop would repeat the address."""
    if isinstance(error, UnicodeError):  # a host name that IDNA does not allow
        return str(error)
    if isinstance(error, socket.gaierror) or not error.errno:
        return error.strerror or str(error)
    return os.strerror(error.errno)


def refuse_used_ports(addresses: Iterable[Address]) -> None:
    """Refuse addresses at which no broker can listen, before any process is started."""
    for address in addresses:
        family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
        with socket.socket(family) as tried:
            tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                tried.bind(address)
            except OSError as error:
                if error.errno not in {errno.EADDRINUSE, errno.EACCES}:
                    continue  # the broker finds out more about it
                raise UsageError(
                    f"cannot listen on {address}: {os.strerror(error.errno)}; choose another first "
                    "port with --port, or --port 0 for free ports"
                ) from None


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
