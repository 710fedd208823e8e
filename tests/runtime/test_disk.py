"""Writes of one turn become durable together: in the loop if they are alone, else by a thread."""

from __future__ import annotations

import asyncio

from gapless.core.machine import Fetch, Write, Written
from gapless.runtime.disk import Disk
from tests.runtime.nodes import run


class Store:
    """Does what it is told, in the loop where it may, and otherwise when the test says so."""

    def __init__(self) -> None:
        self.pending_bytes = 0
        self.flushes: list[tuple[list[int], bool]] = []
        """Which tickets were flushed together, and whether it was allowed at once."""
        self._gathered: list[int] = []

    def gather(self, write: Write) -> None:
        self.pending_bytes += 100
        self._gathered.append(write.ticket)

    def flush(self, *, here: bool) -> list[Written]:
        gathered, self._gathered = self._gathered, []
        self.flushes.append((gathered, here))
        return [Written(ticket) for ticket in gathered] if here else []

    def fetch(self, fetch: Fetch) -> None:
        """Nothing is read."""

    def close(self) -> None:
        """Nothing is open."""


def write(disk: Disk, *tickets: int) -> None:
    for ticket in tickets:
        disk.write(Write(ticket, ()))


def test_what_is_written_in_one_turn_becomes_durable_together_and_at_once() -> None:
    async def scenario() -> None:
        store, done = Store(), list[Written]()
        disk = Disk(store, asyncio.get_running_loop(), done.extend, 1_000)
        write(disk, 1, 2)
        assert store.flushes == []
        await asyncio.sleep(0)
        assert store.flushes == [([1, 2], True)]
        assert done == [Written(1), Written(2)]

    run(scenario())


def test_while_something_is_under_way_nothing_overtakes_it() -> None:
    async def scenario() -> None:
        store, done = Store(), list[Written]()
        disk = Disk(store, asyncio.get_running_loop(), done.extend, 1_000)
        write(disk, 1)
        await asyncio.sleep(0)  # done, but nobody has looked at it: it is under way
        write(disk, 2)
        await asyncio.sleep(0)
        assert store.flushes == [([1], True), ([2], False)]
        assert [*disk.steps_of([Written(1), Written(2)])] == [[Written(1), Written(2)]]
        write(disk, 3)
        await asyncio.sleep(0)
        assert store.flushes[2:] == [([3], True)]
        assert done == [Written(1), Written(3)]

    run(scenario())
