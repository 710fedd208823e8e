"""Writes of one turn become durable together: in the loop if they are alone, else by a thread."""

from __future__ import annotations

import asyncio

from gapless.core.machine import Fetch, Write, Written
from gapless.runtime.disk_queue import DiskQueue
from tests.runtime.nodes import run


class FakeStore:
    """Does what it is told, in the loop where it may, and otherwise when the test says so."""

    def __init__(self) -> None:
        self.pending_bytes = 0
        self.may_commit_inline = True
        self.may_be_here = True
        self.flushes: list[tuple[list[int], bool]] = []
        """Which writes were flushed together, and whether it was allowed at once."""
        self._gathered: list[int] = []

    def gather(self, write: Write) -> int:
        self.pending_bytes += 100
        self._gathered.append(write.write_id)
        return 100

    def flush(self, *, here: bool) -> list[Written]:
        gathered, self._gathered = self._gathered, []
        self.flushes.append((gathered, here))
        return [Written(write_id) for write_id in gathered] if here and self.may_be_here else []

    def fetch(self, fetch: Fetch) -> None:
        """Nothing is read."""

    def close(self) -> None:
        """Nothing is open."""


def write(disk: DiskQueue, *write_ids: int) -> None:
    for write_id in write_ids:
        disk.write(Write(write_id, ()))


def noticed(store: FakeStore) -> DiskQueue:
    """Return a disk with somebody who takes note at once of what is durable."""

    def note(done: list[Written]) -> None:
        assert [*disk.steps_of(done)]

    disk = DiskQueue(store, asyncio.get_running_loop(), note, 1_000)
    return disk


def step(disk: DiskQueue, *write_ids: int) -> None:
    """Let one step write, and whoever is told of it take note."""
    write(disk, *write_ids)
    disk.step_ended()


def test_what_is_written_in_one_turn_becomes_durable_together_and_at_once() -> None:
    async def scenario() -> None:
        store, done = FakeStore(), list[Written]()
        disk = DiskQueue(store, asyncio.get_running_loop(), done.extend, 1_000)
        write(disk, 1, 2)
        assert store.flushes == []
        await asyncio.sleep(0)
        assert store.flushes == [([1, 2], True)]
        assert done == [Written(1), Written(2)]

    run(scenario())


def test_while_something_is_under_way_nothing_overtakes_it() -> None:
    async def scenario() -> None:
        store, done = FakeStore(), list[Written]()
        disk = DiskQueue(store, asyncio.get_running_loop(), done.extend, 1_000)
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


def test_a_step_that_is_alone_in_its_turn_as_the_last_one_was_does_not_wait_for_the_turn() -> None:
    async def scenario() -> None:
        store = FakeStore()
        disk = noticed(store)
        step(disk, 1)
        assert store.flushes == []  # nothing is known of turns
        await asyncio.sleep(0)
        step(disk, 2, 3)
        assert store.flushes == [([1], True), ([2, 3], True)]
        await asyncio.sleep(0)
        assert len(store.flushes) == 2

    run(scenario())


def test_where_several_steps_write_in_a_turn_they_are_durable_together_in_the_next() -> None:
    async def scenario() -> None:
        store = FakeStore()
        disk = noticed(store)
        step(disk, 1)
        await asyncio.sleep(0)
        for write_id in (2, 3, 4):
            step(disk, write_id)
        assert store.flushes[1:] == [([2], True)]  # the first could not know of the others
        await asyncio.sleep(0)
        assert store.flushes[2:] == [([3, 4], True)]
        for write_id in (5, 6):
            step(disk, write_id)
        assert len(store.flushes) == 3
        await asyncio.sleep(0)
        assert store.flushes[3:] == [([5, 6], True)]

    run(scenario())


def test_a_step_that_writes_nothing_is_no_company() -> None:
    async def scenario() -> None:
        store = FakeStore()
        disk = noticed(store)
        step(disk, 1)
        step(disk)
        await asyncio.sleep(0)
        step(disk)
        step(disk, 2)
        assert store.flushes == [([1], True), ([2], True)]

    run(scenario())


def test_what_would_take_long_waits_for_the_turn_and_its_company() -> None:
    async def scenario() -> None:
        store = FakeStore()
        disk = noticed(store)
        step(disk, 1)
        await asyncio.sleep(0)
        store.may_commit_inline = False
        step(disk, 2)
        assert len(store.flushes) == 1
        await asyncio.sleep(0)
        assert store.flushes[1:] == [([2], True)]

    run(scenario())


def test_what_is_durable_at_once_does_not_overtake_what_the_machine_has_not_heard_of() -> None:
    async def scenario() -> None:
        store, heard = FakeStore(), list[int]()

        def hear(events: list[Written]) -> None:
            for told in disk.steps_of(events):
                for event in told:
                    assert isinstance(event, Written)
                    heard.append(event.write_id)
                    if event.write_id == 2:
                        step(disk, 4)  # while 3 is durable and not heard of

        disk = DiskQueue(store, asyncio.get_running_loop(), hear, 150)
        step(disk, 1)
        await asyncio.sleep(0)
        store.may_be_here = False
        step(disk, 2, 3)
        await asyncio.sleep(0)
        store.may_be_here = True
        hear([Written(2), Written(3)])
        assert heard == [1, 2, 3]
        assert store.flushes[-1] == ([4], False)

    run(scenario())


def test_who_waits_until_nothing_is_under_way_waits_for_what_follows_too() -> None:
    async def scenario() -> None:
        store, heard = FakeStore(), list[int]()

        def hear(events: list[Written]) -> None:
            for told in [*disk.steps_of(events)]:  # as when they wait behind a step
                for event in told:
                    assert isinstance(event, Written)
                    heard.append(event.write_id)
                    if event.write_id < 8:
                        step(disk, event.write_id + 1)

        disk = DiskQueue(store, asyncio.get_running_loop(), hear, 1_000)
        step(disk, 1)
        await asyncio.gather(disk.drained(), disk.drained())
        assert heard == [*range(1, 9)]

    run(scenario())


def test_nobody_waits_for_a_disk_that_has_given_up() -> None:
    async def scenario() -> None:
        store = FakeStore()
        store.may_be_here = False
        disk = noticed(store)
        step(disk, 1)
        waiting = asyncio.ensure_future(disk.drained())
        await asyncio.sleep(0)
        assert not waiting.done()
        disk.give_up()
        await waiting
        await disk.drained()

    run(scenario())
