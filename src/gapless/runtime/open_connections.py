"""Open connections, and waiting until all are closed."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

__all__ = ["OpenConnections"]

T = TypeVar("T")


class OpenConnections(Generic[T]):
    """The open connections of one kind."""

    def __init__(self) -> None:
        self._open: set[T] = set()
        self._empty = asyncio.Event()
        self._empty.set()

    def __len__(self) -> int:
        """Return the number of open connections."""
        return len(self._open)

    def __iter__(self) -> Iterator[T]:
        """Iterate over a copy: connections may close meanwhile."""
        return iter(list(self._open))

    def add(self, connection: T) -> None:
        """A connection has opened."""
        self._open.add(connection)
        self._empty.clear()

    def discard(self, connection: T) -> None:
        """A connection has closed."""
        self._open.discard(connection)
        if not self._open:
            self._empty.set()

    async def all_closed(self) -> None:
        """Wait until no connection is open."""
        await self._empty.wait()

    async def closed_within(self, timeout_s: float, abort: Callable[[T], None]) -> None:
        """Let all connections send their pending data; abort those that need too long."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self.all_closed()
        for connection in self:
            abort(connection)
        await self.all_closed()
