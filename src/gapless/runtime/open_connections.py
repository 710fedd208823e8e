"""Connections that are open, and waiting until none is."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Generic, TypeVar

__all__ = ["Crowd"]

T = TypeVar("T")


class Crowd(Generic[T]):
    """Those who are here."""

    def __init__(self) -> None:
        self._members: set[T] = set()
        self._empty = asyncio.Event()
        self._empty.set()

    def __len__(self) -> int:
        """Return how many are here."""
        return len(self._members)

    def __iter__(self) -> Iterator[T]:
        """Go through those who are here now; they may leave meanwhile."""
        return iter(list(self._members))

    def add(self, member: T) -> None:
        """Somebody comes."""
        self._members.add(member)
        self._empty.clear()

    def discard(self, member: T) -> None:
        """Somebody leaves."""
        self._members.discard(member)
        if not self._members:
            self._empty.set()

    async def all_gone(self) -> None:
        """Wait until nobody is here."""
        await self._empty.wait()
