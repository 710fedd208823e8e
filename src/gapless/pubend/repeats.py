"""Look-ups in the log of sequences that are older than the window of their publisher (R27).

Theory of operation. A publisher's record stores the ticks of its last batches. A client with many
unanswered batches when its connection is lost may repeat older ones. Their ticks are in the log
unless it was released. So the PHB reads the log before it answers such a batch, from its low end up
to the lowest tick in the record. Meanwhile it publishes nothing of that publisher: a later batch
would skip the sequences of an earlier one (R28, A21). The publisher's batches wait here, in order.

One look-up serves all waiting batches: it keeps the ticks of the missing sequences and of those
above them, because a client repeats its batches in order. A sequence that is not found was skipped
or is released, and is refused. If a row cannot be read, every sequence looked up is refused,
because it may be in that row.

A publisher that was forgotten and opened again (:mod:`.publishers`) may have used a sequence twice.
Only its last use counts. Sequences that do not grow along the log show where an earlier use ends.
So a look-up reads to the end, even if everything was found before.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final, Protocol

import msgspec

from gapless.core.context import Context
from gapless.core.events import Fetched
from gapless.core.limits import LOOKUP_PENDING_BATCHES_MAX, LOOKUP_SEQUENCES_MAX
from gapless.core.ticks import Tick
from gapless.messages.records import LogRow, PubendRecord
from gapless.messages.streams import Events
from gapless.pubend.publishers import Publishers, PublishRefusedError

__all__ = ["NOTHING_FOUND", "LookupResult", "LookupTarget", "PendingBatch", "SequenceLookups"]


class PendingBatch(msgspec.Struct, frozen=True):
    """A batch to publish, and the callbacks of its reply."""

    publisher: str
    session: int
    first: int
    events: Events
    then: Callable[[tuple[Tick, ...]], None]
    refused: Callable[[str], None]


class LookupResult(msgspec.Struct):
    """The result of a look-up for one publisher."""

    wanted: range
    ticks: dict[int, Tick]
    """By sequence. A wanted sequence without a tick is not in the log."""
    corruption: str | None = None
    """The row that could not be read. A sequence without a tick may be in the log then."""
    seen: int = 0
    """The last sequence of the publisher that was read."""

    def covers(self, sequences: range) -> bool:
        """Return whether all these sequences were looked up."""
        wanted = self.wanted
        return wanted.start <= sequences.start and sequences.stop <= wanted.stop

    def take(self, publisher: str, rows: Iterable[LogRow], high: Tick) -> None:
        """Note the publisher's publications in rows, up to a tick.

        The last row may continue above the tick, with sequences of the record's window. These would
        be counted twice, and look like a second use.
        """
        for row in rows:
            for each in row.publications:
                if each.publisher == publisher and each.tick <= high:
                    self.note_sequence(each.sequence)
                    if each.sequence in self.wanted:
                        self.ticks[each.sequence] = each.tick

    def note_corruption(self, corruption: str) -> None:
        """Note that a row could not be read."""
        self.corruption = corruption

    def note_sequence(self, sequence: int) -> None:
        """Note the next sequence along the log; if it does not grow, a later use starts here."""
        if sequence <= self.seen:
            self.ticks.clear()
        self.seen = sequence


NOTHING_FOUND: Final = LookupResult(range(0), {})
"""The result before any look-up."""


class LookupTarget(Protocol):
    """The pubend whose log is read, and which publishes the batches."""

    @property
    def record(self) -> PubendRecord:
        """The record on disk."""

    def admit(self, batch: PendingBatch, found: LookupResult) -> range:
        """Publish a batch, or raise, or return the sequences that must be looked up first."""

    def note_corruption(self, corruption: str, low: Tick) -> None:
        """Note that the first row at or above a tick cannot be read."""


class _Queue(msgspec.Struct):
    """The batches of one publisher from the first that needs a look-up on, oldest first."""

    waiting: deque[PendingBatch]
    found: LookupResult

    def add(self, batch: PendingBatch) -> None:
        """Let a batch wait behind the others."""
        self.waiting.append(batch)

    def drop_first(self) -> None:
        """Remove the batch that has waited longest."""
        self.waiting.popleft()

    def take_found(self, found: LookupResult) -> None:
        """Set the result of the last look-up."""
        self.found = found


class SequenceLookups:
    """Admits the batches of one pubend, at once or after a look-up, in order for each publisher."""

    def __init__(self, context: Context, publishers: Publishers, target: LookupTarget) -> None:
        self._context = context
        self._publishers = publishers
        self._target = target
        self._queues: dict[str, _Queue] = {}

    def take(self, batch: PendingBatch) -> None:
        """Admit a batch or queue it; raise if it is refused at once."""
        queue = self._queues.get(batch.publisher)
        if queue is None:
            missing = self._target.admit(batch, NOTHING_FOUND)
            if missing:
                queue = self._queues[batch.publisher] = _Queue(deque([batch]), NOTHING_FOUND)
                self._look_up(queue, missing)
            return
        self._publishers.get(batch.publisher, batch.session)
        if len(queue.waiting) >= LOOKUP_PENDING_BATCHES_MAX:
            self._context.mark("too many batches wait for a look-up")
            raise PublishRefusedError(
                f"{LOOKUP_PENDING_BATCHES_MAX:,} batches of publisher {batch.publisher!r} wait for a "
                "look-up in the log; send this batch again when they are answered"
            )
        queue.add(batch)

    def fence(self, publisher: str) -> None:
        """Refuse the waiting batches of older sessions of a publisher (R28)."""
        queue = self._queues.pop(publisher, None)
        if queue is not None:
            self._context.mark("session fenced during a look-up")
            for batch in queue.waiting:
                self._refuse_unheld(batch)

    def _refuse_unheld(self, batch: PendingBatch) -> None:
        try:
            self._publishers.get(batch.publisher, batch.session)
        except PublishRefusedError as error:
            batch.refused(str(error))
        else:
            raise AssertionError(f"session {batch.session} of {batch.publisher!r} is not fenced")

    # --- reading -----------------------------------------------------------------------------

    def _look_up(self, queue: _Queue, missing: range) -> None:
        """Start to read the log for sequences of the first waiting batch."""
        self._context.mark("look-up in the log")
        batch = queue.waiting[0]
        held = self._publishers.get(batch.publisher, batch.session)
        lowest, tick, _ = held.window[0]
        assert missing.stop <= lowest, f"{missing} is remembered from {lowest} on"
        stop = min(lowest, max(missing.stop, missing.start + LOOKUP_SEQUENCES_MAX))
        found = LookupResult(range(missing.start, stop), {})

        def ended() -> None:
            found.note_sequence(lowest)
            queue.take_found(found)
            self._admit_waiting(batch.publisher, queue)

        # the sequences may still wait for the disk, and a read returns only what is on disk
        start = partial(self._read, batch.publisher, queue, found, 0, tick - 1, ended)
        self._context.write((), start)

    def _read(
        self,
        publisher: str,
        queue: _Queue,
        found: LookupResult,
        low: Tick,
        high: Tick,
        ended: Callable[[], None],
    ) -> None:
        """Read a chunk of the log from ``low``, and then the next."""
        if self._queues.get(publisher) is not queue:
            return  # fenced
        low = max(low, self._target.record.released + 1)
        if low > high:
            ended()
            return

        def fetched(event: Fetched) -> None:
            found.take(publisher, event.rows, high)
            if event.corruption is not None:
                found.note_corruption(event.corruption)
                self._target.note_corruption(
                    event.corruption, event.rows[-1].last + 1 if event.rows else low
                )
            if event.complete or event.corruption is not None:
                self._read(publisher, queue, found, high + 1, high, ended)
            else:
                assert event.rows, "an incomplete fetch without rows would be repeated for ever"
                self._read(publisher, queue, found, event.rows[-1].last + 1, high, ended)

        bytes_max = self._context.parameters.read_chunk_bytes
        self._context.fetch(self._target.record.pubend, low, high, bytes_max, fetched)

    def _admit_waiting(self, publisher: str, queue: _Queue) -> None:
        """Admit the waiting batches until one needs another look-up."""
        while queue.waiting:
            batch = queue.waiting[0]
            try:
                missing = self._target.admit(batch, queue.found)
            except PublishRefusedError as error:
                batch.refused(str(error))
            else:
                if missing:
                    self._look_up(queue, missing)
                    return
            queue.drop_first()
        del self._queues[publisher]
