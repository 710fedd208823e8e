"""The socket of ``gapless up`` in its data directory: brokers are started and stopped on request (RS-36).

``overlay.sock`` is a Unix socket that only its owner can use. A request is one line of JSON, and so
is the reply: an object with the results, or with ``error``.

- ``{"do": "list"}``: the brokers
- ``{"do": "start", "broker": "b4", "cell": "d"}``: starts a broker that waits to be appended; the reply
  has its address
- ``{"do": "stop", "broker": "b4"}``: stops a broker for good
- ``{"do": "tree", "cells": {"c1": ["b1"], …}, "edges": [["c1", "c2"], …]}``: writes the present tree to
  the files; the reply names edited ones, which are kept
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, Literal, Protocol

import msgspec

from gapless.core.errors import GaplessError, StorageError, UsageError
from gapless.core.ids import BrokerId, CellId
from gapless.core.reshape_limits import OVERLAY_REQUEST_BYTES_MAX

__all__ = ["SOCKET", "OverlaySocket", "SupervisedOverlay", "request_supervisor"]

SOCKET: Final = "overlay.sock"
"""The name of the socket in the data directory."""

REPLY_S: Final = 90.0
"""How long a request may take: a broker may need a minute to be ready."""

_PATH_MAX: Final = 100
"""The greatest length of the path of a Unix socket; longer ones are reached from their directory."""


class OverlayRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A request to the supervisor of an overlay."""

    do: Literal["list", "start", "stop", "tree"]
    broker: BrokerId = ""
    cell: CellId = ""
    cells: dict[CellId, list[BrokerId]] = {}
    edges: list[tuple[CellId, CellId]] = []


class SupervisedOverlay(Protocol):
    """The brokers that a supervisor runs."""

    def listed(self) -> list[dict[str, Any]]:
        """Return the brokers."""

    async def start_newcomer(self, name: BrokerId, cell: CellId) -> str:
        """Start a broker that waits to be appended; return its address."""

    async def stop_broker(self, name: BrokerId) -> None:
        """Stop a broker for good."""

    def write_tree(
        self, cells: dict[CellId, list[BrokerId]], edges: list[tuple[CellId, CellId]]
    ) -> list[Path]:
        """Write the present tree to the files; return the edited ones, which are kept."""


class OverlaySocket:
    """Serves the requests to a supervisor, one after the other."""

    def __init__(self, data: Path, overlay: SupervisedOverlay) -> None:
        self._path = data / SOCKET
        self._overlay = overlay
        self._server: asyncio.Server | None = None
        self._turn = asyncio.Lock()

    async def start(self) -> None:
        """Listen; the directory is locked, so an older socket belongs to nobody."""
        self._path.unlink(missing_ok=True)
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            before = os.umask(0o177)
            try:
                _bind(listening, self._path)
            finally:
                os.umask(before)
            self._server = await asyncio.start_unix_server(
                self._serve, sock=listening, limit=OVERLAY_REQUEST_BYTES_MAX
            )
        except OSError as error:
            listening.close()
            raise StorageError(f"{self._path} cannot be made: {error.strerror or error}") from None

    async def stop(self) -> None:
        """Listen no more."""
        if self._server is not None:
            self._server.close()
            self._server = None
            self._path.unlink(missing_ok=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            try:
                line = await reader.readline()
                request = msgspec.json.decode(line, type=OverlayRequest)
                async with self._turn:
                    reply = await self._answer(request)
            except (GaplessError, msgspec.DecodeError, ValueError) as error:
                reply = {"error": str(error)}
            writer.write(msgspec.json.encode(reply) + b"\n")
            await writer.drain()
            writer.close()

    async def _answer(self, request: OverlayRequest) -> dict[str, Any]:
        match request.do:
            case "start":
                address = await self._overlay.start_newcomer(request.broker, request.cell)
                return {"address": address}
            case "stop":
                await self._overlay.stop_broker(request.broker)
                return {}
            case "tree":
                kept = self._overlay.write_tree(request.cells, request.edges)
                return {"kept": [str(each) for each in kept]}
            case "list":
                return {"brokers": self._overlay.listed()}


def request_supervisor(data: Path, document: dict[str, Any]) -> dict[str, Any]:
    """Send a request to the supervisor of a data directory; return its reply.

    Raises UsageError if no supervisor runs there, or if it refuses.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(REPLY_S)
        try:
            _connect(connection, data / SOCKET)
            connection.sendall(msgspec.json.encode(document) + b"\n")
            with connection.makefile("rb") as replies:
                line = replies.readline()
        except TimeoutError:
            raise UsageError(f"gapless up in {data} does not answer") from None
        except OSError as error:
            raise UsageError(
                f"no gapless up runs in {data}: {error.strerror or error}; name the directory of "
                "its --data"
            ) from None
    if not line:
        raise UsageError(f"gapless up in {data} has ended")
    reply: dict[str, Any] = msgspec.json.decode(line)
    if "error" in reply:
        raise UsageError(str(reply["error"]))
    return reply


def _bind(listening: socket.socket, path: Path) -> None:
    with _reachable(path) as short:
        listening.bind(short)


def _connect(connection: socket.socket, path: Path) -> None:
    with _reachable(path) as short:
        connection.connect(short)


@contextlib.contextmanager
def _reachable(path: Path) -> Iterator[str]:
    """Provide a path that is short enough for a Unix socket."""
    if len(str(path)) <= _PATH_MAX:
        yield str(path)
        return
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{directory}/{path.name}"
    finally:
        os.close(directory)
