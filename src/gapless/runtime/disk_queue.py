"""The writes that a node has passed to its store, and their completions.

Writes of one turn of the event loop become durable together. A single write with no other pending
is committed in the loop if that is quick; otherwise a thread commits it while the loop continues.

Whether a write is the only one of its turn is known only at the end of the turn. A prediction is
used: if only one step wrote in the last turn with writes, the first write of this turn is committed
at once. Later writes of the turn wait for its end, and so do all in the next turn.

Completions are reported in the order of the writes. So a write that is committed in the loop must
not overtake one that is durable but not yet reported: a write is pending until the step that
reports it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator

from gapless.core.effects import Fetch, Write
from gapless.core.events import MachineEvent, Written
from gapless.runtime.stores import BrokerStore

__all__ = ["DiskQueue"]


class DiskQueue:
    """Counts pending writes and divides completed ones into steps."""

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
        """Whether the current step has written."""
        self._steps = 0
        """How many steps of this turn have written."""
        self._was_lone = False
        """Whether exactly one step wrote in the last turn with writes."""
        self._turning = False
        """Whether the end of this turn is scheduled."""
        self._sizes: dict[int, int] = {}
        """The approximate sizes of the pending writes, by write id."""
        self._drained: asyncio.Future[None] | None = None
        """Done when no write is pending; None if no call waits for it."""
        self.commits = 0
        """How many commits there were."""
        self.writes = 0
        """How many writes became durable."""

    @property
    def pending_bytes(self) -> int:
        """How many bytes wait to be durable."""
        return self._store.pending_bytes

    @property
    def pending_writes(self) -> int:
        """How many writes wait to be durable."""
        return len(self._sizes)

    def write(self, write: Write) -> None:
        """Make changes durable, together with others of this turn."""
        self._sizes[write.write_id] = self._store.gather(write)
        self._gathered += 1
        self._has_written = True
        if not self._turning:
            self._turning = True
            self._loop.call_soon(self._turn)

    def step_ended(self) -> None:
        """A step has ended: commit its write now if it is probably the only one of the turn."""
        if not self._has_written:
            return
        self._has_written = False
        self._steps += 1
        if self._was_lone and self._steps == 1 and self._store.may_commit_inline:
            self.flush()

    def _turn(self) -> None:
        """The turn is over: commit the collected writes together."""
        self._turning = False
        self._was_lone, self._steps = self._steps <= 1, 0
        if self._gathered:
            self.flush()

    def flush(self) -> None:
        """Commit the collected writes, in the loop if no other write is pending."""
        is_alone = self._gathered == len(self._sizes)
        self._gathered = 0
        done = self._store.flush(here=is_alone)
        if done:
            self._on_done(done)

    def fetch(self, fetch: Fetch) -> None:
        """Read a log."""
        self._store.fetch(fetch)

    def steps_of(self, events: Iterable[MachineEvent]) -> Iterator[list[MachineEvent]]:
        """Divide completions into steps: writes of one commit are reported in one step.

        A step is bounded, because the messages that it sends to a peer or a client go out together.
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
        """Remove these writes from the pending ones: the machine gets them now."""
        for event in step:
            if type(event) is Written:
                self.writes += 1
                self._sizes.pop(event.write_id, None)
        return step

    async def drained(self) -> None:
        """Wait until no write is pending, including writes that completions cause."""
        while self._sizes:
            if self._drained is None:
                self._drained = self._loop.create_future()
            await asyncio.shield(self._drained)

    def give_up(self) -> None:
        """Nothing more will become durable: wake all waiting calls."""
        self._sizes.clear()
        self._wake_waiters()

    def _wake_waiters(self) -> None:
        if self._drained is not None:
            self._drained.set_result(None)
            self._drained = None

    def close(self) -> None:
        """Write what is pending and close the store."""
        self._store.close()
