"""Connections that are open, and waiting until none is."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Generic, TypeVar

__all__ = ["OpenConnections"]

T = TypeVar("T")


class OpenConnections(Generic[T]):
    """Those who are here."""

    def __init__(self) -> None:
        self._open: set[T] = set()
        self._empty = asyncio.Event()
        self._empty.set()

    def __len__(self) -> int:
        """Return how many are here."""
        return len(self._open)

    def __iter__(self) -> Iterator[T]:
        """Go through those who are here now; they may leave meanwhile."""
        return iter(list(self._open))

    def add(self, connection: T) -> None:
        """Somebody comes."""
        self._open.add(connection)
        self._empty.clear()

    def discard(self, connection: T) -> None:
        """Somebody leaves."""
        self._open.discard(connection)
        if not self._open:
            self._empty.set()

    async def all_closed(self) -> None:
        """Wait until nobody is here."""
        await self._empty.wait()
