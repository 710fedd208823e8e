"""What is under way to the store of a node, and what it has done.

Writes of one turn of the event loop become durable together. A lone one, with nothing else under way,
is made durable here in the loop if that is quick; else by a thread, while the loop goes on.

Whether a write is alone in its turn is known only when the turn is over. But turns are like the ones
before them: if just one step has written in the last turn that had any, the first that writes in this
one does not wait for company. Who comes later in the turn does, and so do all in the next.

Writes are reported in the order of asking. So one that is made durable here must not overtake another
that is durable but of which the machine has not heard: that is under way until its step begins.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator

from gapless.core.machine import Fetch, MachineEvent, Write, Written
from gapless.runtime.stores import BrokerStore

__all__ = ["DiskQueue"]


class DiskQueue:
    """Counts what is written, and divides what became durable into steps."""

    def __init__(
        self,
        store: BrokerStore,
        loop: asyncio.AbstractEventLoop,
        on_done: Callable[[list[Written]], None],
        step_bytes_max: int,
    ) -> None:
        self._store = store
        self._loop = loop
        self._on_done = on_done
        self._step_bytes_max = step_bytes_max
        self._gathered = 0
        """How many writes wait to be flushed."""
        self._has_written = False
        """Whether the step that is carried out has written."""
        self._steps = 0
        """How many steps of this turn have written."""
        self._was_lone = False
        """Whether just one step has written in the last turn that had any."""
        self._turning = False
        """Whether the end of this turn is awaited."""
        self._sizes: dict[int, int] = {}
        """About how large the writes are that are under way."""
        self._drained: asyncio.Future[None] | None = None
        """Done when nothing is under way any more, if somebody waits for that."""
        self.commits = 0
        """How often writes became durable together."""
        self.writes = 0
        """How many writes became durable."""

    @property
    def pending_bytes(self) -> int:
        """How much waits to be durable."""
        return self._store.pending_bytes

    @property
    def pending_writes(self) -> int:
        """How many writes wait to be durable."""
        return len(self._sizes)

    def write(self, write: Write) -> None:
        """Make changes durable, with others of this turn."""
        self._sizes[write.write_id] = self._store.gather(write)
        self._gathered += 1
        self._has_written = True
        if not self._turning:
            self._turning = True
            self._loop.call_soon(self._turn)

    def step_ended(self) -> None:
        """A step is through: what it has written waits for the end of the turn only if others may come."""
        if not self._has_written:
            return
        self._has_written = False
        self._steps += 1
        if self._was_lone and self._steps == 1 and self._store.may_commit_inline:
            self.flush()

    def _turn(self) -> None:
        """The turn is over: let what has gathered be durable together."""
        self._turning = False
        self._was_lone, self._steps = self._steps <= 1, 0
        if self._gathered:
            self.flush()

    def flush(self) -> None:
        """Have made durable what was gathered, at once if nothing else is under way."""
        is_alone = self._gathered == len(self._sizes)
        self._gathered = 0
        done = self._store.flush(here=is_alone)
        if done:
            self._on_done(done)

    def fetch(self, fetch: Fetch) -> None:
        """Read a log."""
        self._store.fetch(fetch)

    def steps_of(self, events: Iterable[MachineEvent]) -> Iterator[list[MachineEvent]]:
        """Divide what was done into steps: what is durable together is told together.

        What one step has to say to a peer or a client travels in one piece, so it is bounded.
        """
        self.commits += 1
        step: list[MachineEvent] = []
        bytes_left = self._step_bytes_max
        for event in events:
            size = self._sizes.get(event.write_id, 0) if type(event) is Written else 0
            if step and (size > bytes_left or type(event) is not Written):
                yield self._reported(step)
                step, bytes_left = [], self._step_bytes_max
            step.append(event)
            bytes_left -= size
        if step:
            yield self._reported(step)
        if not self._sizes:
            self._wake_waiters()

    def _reported(self, step: list[MachineEvent]) -> list[MachineEvent]:
        """The machine hears of these writes now: they are not under way any more."""
        for event in step:
            if type(event) is Written:
                self.writes += 1
                self._sizes.pop(event.write_id, None)
        return step

    async def drained(self) -> None:
        """Wait until nothing is under way; what was done may have led to more."""
        while self._sizes:
            if self._drained is None:
                self._drained = self._loop.create_future()
            await asyncio.shield(self._drained)

    def give_up(self) -> None:
        """Nothing more will become durable: nobody waits for it."""
        self._sizes.clear()
        self._wake_waiters()

    def _wake_waiters(self) -> None:
        if self._drained is not None:
            self._drained.set_result(None)
            self._drained = None

    def close(self) -> None:
        """Write what waits, and end."""
        self._store.close()
