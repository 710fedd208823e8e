"""Staging: events that a broker stores until one commit publishes all of them.

For programs whose tasks may fail or run twice. Every attempt of a task has a :class:`StagedWriter`,
which sends its events in chunks and, when all are on the broker's disk, returns a
:class:`StagedPart`. The program that knows which attempts count collects one part of each partition
and commits them.

Nothing here is resumed. A chunk has a name of its own, so it may be sent again over every new
connection, and a commit is identified by its writer and batch. Uncommitted chunks expire at the
broker.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from itertools import islice
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self
from uuid import uuid4

import msgspec

from gapless.client.arguments import iterated
from gapless.client.batches import encoded, encoded_plain
from gapless.client.link import ReconnectingLink
from gapless.client.outbox import FRAME_OVERHEAD
from gapless.client.position import Position, pubend_id
from gapless.client.publisher import EventLike, pair
from gapless.content.filter import Filter
from gapless.core.errors import (
    ClosedError,
    UnavailableError,
    UsageError,
    WrongBrokerError,
)
from gapless.core.ids import PubendId
from gapless.core.limits import CHUNK_BYTES_MAX, CHUNK_EVENTS_MAX, IN_FLIGHT_CHUNKS_MAX
from gapless.messages.clients import OpenPubend
from gapless.messages.staging import (
    BatchCommitted,
    BatchDropped,
    ChunkStaged,
    CommitBatch,
    DropBatch,
    StageChunk,
)

if TYPE_CHECKING:
    from gapless.client.session import Session

__all__ = ["CommitResult", "StagedPart", "StagedWriter", "commit_staged", "drop_staged"]

PAUSE_S: Final = 0.1
"""The wait between two attempts while the PHB cannot be reached."""


class StagedPart(msgspec.Struct, frozen=True):
    """What one attempt of a partition has staged; a commit names it."""

    pubend: str
    writer: str
    batch: int
    partition: int
    attempt: str
    chunks: int
    events: int


class CommitResult(msgspec.Struct, frozen=True):
    """The result of a commit."""

    position: Position
    """The position of the last event; empty if a later batch was committed long ago."""
    events: int
    repeated: bool
    """Whether this batch was committed before, so that nothing was done now."""


class StagedWriter:
    """Stages one attempt of a partition. Made by :meth:`Session.staged_writer`; use it with ``async with``."""

    def __init__(
        self,
        session: Session,
        pubend: str,
        *,
        writer: str,
        batch: int,
        partition: int,
        advertisement: Filter,
        deadline_s: float | None,
    ) -> None:
        self.attempt = uuid4().hex
        """A unique name, also among attempts of the same task before a restart."""
        self._session = session
        self._pubend = pubend
        self._writer = writer
        self._batch = batch
        self._partition = partition
        self._advertisement = str(advertisement)
        self._deadline_s = deadline_s
        self._link: ReconnectingLink | None = None
        self._id = PubendId("")
        self._chunk_bytes = CHUNK_BYTES_MAX
        self._event_bytes_max = 0
        self._events: list[bytes] = []
        self._bytes = 0
        self._chunks = 0
        self._count = 0
        self._in_flight: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def open(self) -> None:
        """Create or find the pubend."""
        call = OpenPubend(0, self._pubend, self._advertisement)
        self._link, opened = await call_phb(self._session, call, self._deadline_s)
        self._id = opened.pubend
        handshake = await self._link.up()
        self._event_bytes_max = max(1, handshake.frame_bytes_max - FRAME_OVERHEAD)
        self._chunk_bytes = min(CHUNK_BYTES_MAX, self._event_bytes_max)

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Stop sending; an unfinished part is never committed."""
        left, self._in_flight = self._in_flight, set()
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)
        self._link = None

    async def add(self, events: Iterable[EventLike]) -> None:
        """Stage events in order; wait while too many are in flight. Raises earlier errors."""
        source = iterated("events", events, "events")
        while block := [*islice(source, CHUNK_EVENTS_MAX)]:
            plain = encoded_plain(block)
            for event in plain or (encoded(*pair(each)) for each in block):
                await self._add(event)

    async def finish(self) -> StagedPart:
        """Wait until everything is on the broker's disk; return the part for a commit."""
        if self._events:
            await self._send()
        while self._in_flight:
            await self._some_done()
        return StagedPart(
            str(self._id),
            self._writer,
            self._batch,
            self._partition,
            self.attempt,
            self._chunks,
            self._count,
        )

    async def _add(self, event: bytes) -> None:
        if len(event) > self._event_bytes_max:
            raise UsageError(
                f"an event of {len(event):,} bytes does not fit into a frame of this broker, "
                f"which takes {self._event_bytes_max:,}; send the payload in parts"
            )
        is_full = len(self._events) >= CHUNK_EVENTS_MAX
        if self._events and (is_full or self._bytes + len(event) > self._chunk_bytes):
            await self._send()
        self._events.append(event)
        self._bytes += len(event)

    async def _send(self) -> None:
        """Send a chunk as soon as fewer than the maximum are in flight."""
        while len(self._in_flight) >= IN_FLIGHT_CHUNKS_MAX:
            await self._some_done()
        events: Any = tuple(map(msgspec.Raw, self._events))
        chunk_id = (self._batch, self._partition, self.attempt, self._chunks)
        request = StageChunk(0, self._id, self._writer, *chunk_id, events)
        self._count += len(self._events)
        self._chunks += 1
        self._events, self._bytes = [], 0
        self._in_flight.add(asyncio.ensure_future(self._staged(request)))

    async def _staged(self, request: StageChunk) -> None:
        if self._link is None:
            raise ClosedError("open the staged writer first, as a block")
        # a repeated request does no harm, so a late answer is not an unknown outcome
        ReconnectingLink.expect(
            await self._link.call(request, self._deadline_s, changes=False), ChunkStaged
        )

    async def _some_done(self) -> None:
        done, _ = await asyncio.wait(self._in_flight, return_when=asyncio.FIRST_COMPLETED)
        self._in_flight -= done
        wrong = [error for task in done if (error := task.exception()) is not None]
        if wrong:
            raise wrong[0]  # the others are most likely the same


async def commit_staged(
    session: Session, parts: Iterable[StagedPart], deadline_s: float | None
) -> CommitResult:
    """Publish the parts as a whole and once, in the order of their partitions."""
    given = [*iterated("parts", parts, "staged parts")]
    if not all(isinstance(part, StagedPart) for part in given):
        raise UsageError("parts are the results of StagedWriter.finish()")
    chosen = sorted(given, key=lambda part: part.partition)
    names = {(part.pubend, part.writer, part.batch) for part in chosen}
    if len(names) != 1:
        raise UsageError("a commit has parts of one batch, of one writer, for one pubend")
    ((pubend, writer, batch),) = names
    named = tuple((part.partition, part.attempt, part.chunks) for part in chosen if part.chunks)
    if not named:
        return CommitResult(Position(), 0, repeated=False)
    call = CommitBatch(0, pubend_id(pubend), writer, batch, named)
    _, answer = await call_phb(session, call, deadline_s)
    committed: BatchCommitted = ReconnectingLink.expect(answer, BatchCommitted)
    position = Position({pubend: committed.last}) if committed.last else Position()
    return CommitResult(position, committed.events, committed.repeated)


async def drop_staged(
    session: Session, pubend: str, writer: str, batch: int, deadline_s: float | None
) -> None:
    """Drop the staged events of a batch."""
    call = DropBatch(0, pubend_id(pubend), writer, batch)
    _, answer = await call_phb(session, call, deadline_s)
    ReconnectingLink.expect(answer, BatchDropped)


async def call_phb(
    session: Session, request: Any, deadline_s: float | None
) -> tuple[ReconnectingLink, Any]:
    """Send a request to the PHB of a pubend, and wait while the PHB is unreachable.

    Only for requests that may be repeated.
    """
    late: UnavailableError | WrongBrokerError | None = None
    try:
        async with asyncio.timeout(deadline_s):
            while True:
                try:
                    return await session.call_at_phb(request, None)
                except (UnavailableError, WrongBrokerError) as error:
                    if isinstance(error, WrongBrokerError) and session.has_one_address:
                        raise  # there is no other address
                    late = error
                    await asyncio.sleep(PAUSE_S)
    except TimeoutError:
        if late is not None:
            raise late from None
        sent = not isinstance(request, OpenPubend)
        raise session.main.late(type(request).__name__, deadline_s, sent=sent) from None
