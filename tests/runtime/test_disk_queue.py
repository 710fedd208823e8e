"""Writes of one turn of the event loop become durable together, inline or by the writer thread."""

from __future__ import annotations

import asyncio

from gapless.core.effects import Fetch, Write
from gapless.core.events import Written
from gapless.runtime.disk_queue import DiskQueue
from tests.runtime.nodes import run


class FakeStore:
    """Commits inline if allowed, and otherwise when the test says so."""

    def __init__(self) -> None:
        self.pending_bytes = 0
        self.may_commit_inline = True
        self.may_be_here = True
        self.flushes: list[tuple[list[int], bool]] = []
        """Which writes were flushed together, and whether the commit could be inline."""
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
        """Read nothing."""

    def close(self) -> None:
        """Close nothing."""


def write(disk: DiskQueue, *write_ids: int) -> None:
    for write_id in write_ids:
        disk.write(Write(write_id, ()))


def noticed(store: FakeStore) -> DiskQueue:
    """Return a disk queue whose machine handles completed writes at once."""

    def note(done: list[Written]) -> None:
        assert [*disk.steps_of(done)]

    disk = DiskQueue(store, asyncio.get_running_loop(), note, 1_000)
    return disk


def step(disk: DiskQueue, *write_ids: int) -> None:
    """Let one step write, and handle what became durable."""
    write(disk, *write_ids)
    disk.step_ended()


def test_writes_of_one_turn_become_durable_together_inline() -> None:
    async def scenario() -> None:
        store, done = FakeStore(), list[Written]()
        disk = DiskQueue(store, asyncio.get_running_loop(), done.extend, 1_000)
        write(disk, 1, 2)
        assert store.flushes == []
        await asyncio.sleep(0)
        assert store.flushes == [([1, 2], True)]
        assert done == [Written(1), Written(2)]

    run(scenario())


def test_no_write_overtakes_a_pending_one() -> None:
    async def scenario() -> None:
        store, done = FakeStore(), list[Written]()
        disk = DiskQueue(store, asyncio.get_running_loop(), done.extend, 1_000)
        write(disk, 1)
        await asyncio.sleep(0)  # durable, but not handled: it is still pending
        write(disk, 2)
        await asyncio.sleep(0)
        assert store.flushes == [([1], True), ([2], False)]
        assert [*disk.steps_of([Written(1), Written(2)])] == [[Written(1), Written(2)]]
        write(disk, 3)
        await asyncio.sleep(0)
        assert store.flushes[2:] == [([3], True)]
        assert done == [Written(1), Written(3)]

    run(scenario())


def test_a_single_step_after_a_turn_with_a_single_step_commits_at_once() -> None:
    async def scenario() -> None:
        store = FakeStore()
        disk = noticed(store)
        step(disk, 1)
        assert store.flushes == []  # there was no turn before
        await asyncio.sleep(0)
        step(disk, 2, 3)
        assert store.flushes == [([1], True), ([2, 3], True)]
        await asyncio.sleep(0)
        assert len(store.flushes) == 2

    run(scenario())


def test_several_writing_steps_of_a_turn_commit_together_in_the_next_turn() -> None:
    async def scenario() -> None:
        store = FakeStore()
        disk = noticed(store)
        step(disk, 1)
        await asyncio.sleep(0)
        for write_id in (2, 3, 4):
            step(disk, write_id)
        assert store.flushes[1:] == [([2], True)]  # the first write could not know of the others
        await asyncio.sleep(0)
        assert store.flushes[2:] == [([3, 4], True)]
        for write_id in (5, 6):
            step(disk, write_id)
        assert len(store.flushes) == 3
        await asyncio.sleep(0)
        assert store.flushes[3:] == [([5, 6], True)]

    run(scenario())


def test_a_step_without_writes_does_not_count_as_a_step_of_the_turn() -> None:
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


def test_a_slow_commit_waits_for_the_end_of_the_turn() -> None:
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


def test_an_inline_commit_does_not_overtake_writes_the_machine_has_not_handled() -> None:
    async def scenario() -> None:
        store, order = FakeStore(), list[int]()

        def take_up(events: list[Written]) -> None:
            for batch in disk.steps_of(events):
                for event in batch:
                    assert isinstance(event, Written)
                    order.append(event.write_id)
                    if event.write_id == 2:
                        step(disk, 4)  # while 3 is durable and not handled

        disk = DiskQueue(store, asyncio.get_running_loop(), take_up, 150)
        step(disk, 1)
        await asyncio.sleep(0)
        store.may_be_here = False
        step(disk, 2, 3)
        await asyncio.sleep(0)
        store.may_be_here = True
        take_up([Written(2), Written(3)])
        assert order == [1, 2, 3]
        assert store.flushes[-1] == ([4], False)

    run(scenario())


def test_drained_waits_also_for_the_writes_that_completions_cause() -> None:
    async def scenario() -> None:
        store, order = FakeStore(), list[int]()

        def take_up(events: list[Written]) -> None:
            for batch in [*disk.steps_of(events)]:  # as when they wait for a step
                for event in batch:
                    assert isinstance(event, Written)
                    order.append(event.write_id)
                    if event.write_id < 8:
                        step(disk, event.write_id + 1)

        disk = DiskQueue(store, asyncio.get_running_loop(), take_up, 1_000)
        step(disk, 1)
        await asyncio.gather(disk.drained(), disk.drained())
        assert order == [*range(1, 9)]

    run(scenario())


def test_drained_returns_when_the_disk_has_given_up() -> None:
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
