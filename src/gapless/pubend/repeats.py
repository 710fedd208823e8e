"""Look-ups in the log: which sequences were published too long ago to be remembered (R27).

Theory of operation. A publisher's record remembers the ticks of its last batches. A client with much
under way when its connection dies may repeat older ones; their ticks are in the log, if it was not
released. So before such a batch is answered, the log is read, from its low end up to the lowest tick
that is remembered. It takes a while, and in that while nothing of that publisher is published: a later
batch would pass over what an earlier one still brings (R28, A21). Its batches wait here, in order.

One reading serves all that wait: it keeps the ticks of the wanted sequences and of those above them,
for a client repeats its batches in order. What is looked for and not found was passed over, or is
released. It is refused, as is everything if a row cannot be read: not found is then no proof.

A publisher that was forgotten and came back (:mod:`.publishers`) may have used a sequence twice. Only
its last stay counts; an earlier one shows by sequences that do not grow along the log. This is why a
reading goes to its end, also when everything was found before.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final, Protocol

import msgspec

from gapless.core.limits import LOOKUP_PENDING_BATCHES_MAX, LOOKUP_SEQUENCES_MAX
from gapless.core.machine import Context, Fetched
from gapless.core.ticks import Tick
from gapless.messages.records import LogRow, PubendRecord
from gapless.messages.streams import Events
from gapless.pubend.publishers import Publishers, PublishRefusedError

__all__ = ["NOTHING_FOUND", "LookupResult", "LookupTarget", "PendingBatch", "SequenceLookups"]


class PendingBatch(msgspec.Struct, frozen=True):
    """A batch that a client asks to publish, and how to answer it."""

    publisher: str
    session: int
    first: int
    events: Events
    then: Callable[[tuple[Tick, ...]], None]
    refused: Callable[[str], None]


class LookupResult(msgspec.Struct):
    """What a reading of the log has found of one publisher."""

    wanted: range
    ticks: dict[int, Tick]
    """By sequence. One that was wanted and is not here is not in the log."""
    corruption: str | None = None
    """Which row could not be read; then what is not here may be in the log all the same."""
    seen: int = 0
    """The last sequence of the publisher that was met."""

    def covers(self, sequences: range) -> bool:
        """Say whether all these were looked for."""
        wanted = self.wanted
        return wanted.start <= sequences.start and sequences.stop <= wanted.stop

    def take(self, publisher: str, rows: Iterable[LogRow], high: Tick) -> None:
        """Note what rows hold of the publisher up to a tick.

        The last row may go on above it, with what is remembered: met here, that would be met twice,
        and count as another stay.
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
        """Note a sequence along the log; one that is not above the last is of another stay."""
        if sequence <= self.seen:
            self.ticks.clear()
        self.seen = sequence


NOTHING_FOUND: Final = LookupResult(range(0), {})
"""Before anything was looked for."""


class LookupTarget(Protocol):
    """The pubend whose log is read, and which publishes what is admitted."""

    @property
    def record(self) -> PubendRecord:
        """The pubend as it is on disk."""

    def admit(self, batch: PendingBatch, found: LookupResult) -> range:
        """Publish a batch, or raise, or return the sequences that are to be looked up first."""

    def note_corruption(self, corruption: str, low: Tick) -> None:
        """The first row from a tick on cannot be read."""


class _Queue(msgspec.Struct):
    """The batches of one publisher from the one that needs a look-up on, oldest first."""

    waiting: deque[PendingBatch]
    found: LookupResult

    def take_found(self, found: LookupResult) -> None:
        """Go on with what a reading of the log has found."""
        self.found = found


class SequenceLookups:
    """Admits the batches of one pubend, at once or after a look-up, those of a publisher in order."""

    def __init__(self, context: Context, publishers: Publishers, target: LookupTarget) -> None:
        self._context = context
        self._publishers = publishers
        self._target = target
        self._queues: dict[str, _Queue] = {}

    def take(self, batch: PendingBatch) -> None:
        """Admit a batch, or let it wait; raise if it is refused at once."""
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
                f"{LOOKUP_PENDING_BATCHES_MAX:,} batches of publisher {batch.publisher!r} wait until what it "
                "repeats is found in the log; send this one again when they are answered"
            )
        queue.waiting.append(batch)

    def fence(self, publisher: str) -> None:
        """Refuse what waits for an older session of a publisher (R28)."""
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
        """Begin to read the log for sequences of the first batch that waits."""
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

        # what is looked for may still wait for the disk, and a reading sees only what is there
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
            return  # fenced off
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
                assert event.rows, "an incomplete answer without rows would come back for ever"
                self._read(publisher, queue, found, event.rows[-1].last + 1, high, ended)

        bytes_max = self._context.parameters.read_chunk_bytes
        self._context.fetch(self._target.record.pubend, low, high, bytes_max, fetched)

    def _admit_waiting(self, publisher: str, queue: _Queue) -> None:
        """Admit what waits, until all is admitted or the log has to be read again."""
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
            queue.waiting.popleft()
        del self._queues[publisher]
