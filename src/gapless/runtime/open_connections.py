"""Open connections, and waiting until all are closed."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
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
