"""Simulated writers: they stage in several attempts, crash, commit, repeat, and drop (S1 to S3).

A :class:`SimulatedStagedWriter` writes batches as Spark does. Every partition of a batch has one
attempt or several; some fail half way. When all chunks are answered, the writer does one of three
things. It commits one finished attempt of each partition. Or it crashes, before the commit or after
it, and makes the batch again under new names while the old requests may still arrive. Or it drops
the staged chunks.

Every event names its writer, batch, partition, attempt and chunk, so a :class:`WriterChecker` can
derive from the log alone what was committed.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import TYPE_CHECKING, Any, Final

from gapless.content.values import Value
from gapless.core.ids import PubendId
from gapless.messages.clients import OpenPubend, PubendOpened, Refused
from gapless.messages.records import StagedRecord
from gapless.messages.staging import (
    BatchCommitted,
    BatchDropped,
    ChunkStaged,
    CommitBatch,
    DropBatch,
    PartTuple,
    StageChunk,
)
from gapless.messages.streams import Events, Publication
from gapless_lab.sim.clients import SimulatedClient
from gapless_lab.sim.generators import draw_event

if TYPE_CHECKING:
    from gapless_lab.sim.oracle import Oracle
    from gapless_lab.sim.publishers import PubendPlan
    from gapless_lab.sim.workload import Workload
    from gapless_lab.sim.world import World

__all__ = ["CHUNKS_MAX", "SimulatedStagedWriter", "WriterChecker"]

PARTITIONS_MAX: Final = 3
ATTEMPT_CHUNKS_MAX: Final = 2
CHUNKS_MAX: Final = PARTITIONS_MAX * ATTEMPT_CHUNKS_MAX
"""The maximum number of chunks in a commit."""


class WriterChecker:
    """Checks the log of one writer: whole batches that it committed, once, in order."""

    def __init__(self, world: World, name: str) -> None:
        self._world = world
        self._name = name
        self.done: dict[int, tuple[int, int, int]] = {}
        """By batch that is completely in the log: its first tick, its last, its number of events.
        """
        self._commits: dict[int, list[list[bytes]]] = {}
        """By batch: the events that each of its commits would publish."""
        self._batch = -1
        self._seen: list[Publication] = []
        """The events of the batch that is being logged."""

    def commit_sent(self, batch: int, payloads: list[bytes]) -> None:
        """The writer sends a commit."""
        if payloads not in self._commits.setdefault(batch, []):
            self._commits[batch].append(payloads)

    def logged(self, publication: Publication) -> None:
        """Check an event of this writer in the log: it must be the next one of a commit."""
        batch = int(publication.payload.split(b"/")[1])
        if batch <= max(self.done, default=-1):
            self._violate("S1" if batch in self.done else "S3", publication)
        if batch != self._batch and self._seen:
            self._violate("S1", publication)
        self._batch = batch
        self._seen.append(publication)
        seen = [each.payload for each in self._seen]
        likely = [each for each in self._commits.get(batch, []) if each[: len(seen)] == seen]
        if not likely:
            self._violate("S2", publication)
        elif seen in likely:
            self.done[batch] = (self._seen[0].tick, publication.tick, len(seen))
            self._seen = []

    def half_logged(self) -> list[str]:
        """Return a line if a batch is in the log in part (S1)."""
        return [f"{self._name}: batch {self._batch} is logged in part"] if self._seen else []

    def _violate(self, rule: str, publication: Publication) -> None:
        what = publication.payload.decode()
        self._world.violate(rule, f"{self._name}: {what} is logged after batches {[*self.done]}")


class _Attempt:
    """One attempt of a partition."""

    __slots__ = ("answered", "chunks", "name", "partition", "sent")

    def __init__(self, partition: int, name: str, chunks: list[Events], sent: int) -> None:
        self.partition = partition
        self.name = name
        self.chunks = chunks
        self.sent = sent
        """The number of chunks that it sends before it fails; all if it does not."""
        self.answered: set[int] = set()

    @property
    def finished(self) -> bool:
        return self.sent == len(self.chunks)


class _Phase(Enum):
    IDLE = auto()
    STAGING = auto()
    COMMITTING = auto()
    DROPPING = auto()
    REPEATING = auto()


class SimulatedStagedWriter(SimulatedClient):
    """Writes batches to one pubend, at its PHB."""

    def __init__(self, world: World, oracle: Oracle, name: str, plan: PubendPlan) -> None:
        super().__init__(world, oracle, name, plan.host)
        self.plan = plan
        self.checker = WriterChecker(world, name)
        oracle.writers[name] = self.checker
        self.workload: Workload | None = None
        self.pubend: PubendId | None = None
        self._advertised = "TRUE"
        self._opening = 0
        self._is_open = False
        self._phase = _Phase.IDLE
        self._batch = 0
        self._made = 0
        """The number of attempts so far, so that each has its own name."""
        self._attempts: list[_Attempt] = []
        self._parts: tuple[PartTuple, ...] = ()
        self._chunks: dict[int, tuple[_Attempt, int]] = {}
        """By request: the chunk that it sent."""
        self._request = 0
        """The pending commit or drop."""
        self._dropped: set[int] = set()
        """Batches for which a drop was ever sent: a late drop may remove chunks staged again."""

    @property
    def is_idle(self) -> bool:
        """Whether the writer has nothing to do."""
        return self._phase is _Phase.IDLE

    @property
    def _is_hasty(self) -> bool:
        """Whether the writer may still crash, drop and repeat."""
        return self.workload is not None and not self.workload.over

    # --- a batch -----------------------------------------------------------------------------

    def write(self) -> None:
        """Start the next batch, if the last one is complete."""
        if self.is_idle and self._is_open:
            self._make()

    def _make(self) -> None:
        """Make the batch, perhaps again: other attempts, other events."""
        random = self.random
        self._phase = _Phase.STAGING
        self._attempts = []
        for partition in range(random.randint(1, PARTITIONS_MAX)):
            for _ in range(random.choice((0, 0, 1, 2))):
                self._attempt(partition, fails=random.random() < 0.5)
            self._attempt(partition, fails=False)
        random.shuffle(self._attempts)
        self._continue()

    def _attempt(self, partition: int, *, fails: bool) -> None:
        self._made += 1
        name = f"a{self._made}"
        count = self.random.randint(1, ATTEMPT_CHUNKS_MAX)
        where = f"{self.name}/{self._batch}/{partition}/{name}"
        chunks = [self._events(f"{where}/{number}") for number in range(count)]
        sent = self.random.randrange(count) if fails else count
        self._attempts.append(_Attempt(partition, name, chunks, sent))

    def _events(self, where: str) -> Events:
        advertised = self.oracle.filter(self._advertised)
        options = self.world.options
        events: list[tuple[dict[str, Value], bytes]] = []
        wanted = self.random.randint(1, options.batch_max)
        while len(events) < wanted:
            event = draw_event(self.random, options.domain)
            if advertised.matches(event):
                events.append((event, f"{where}/{len(events)}".encode()))
        return tuple(events)

    def _continue(self) -> None:
        """Send the requests that are not answered."""
        if not self._is_open or self.pubend is None:
            return
        self._request = 0
        if self._phase is _Phase.STAGING:
            self._stage()
        elif self._phase is _Phase.DROPPING:
            self._dropped.add(self._batch)
            self._request = self.next_request()
            self.send_request(DropBatch(self._request, self.pubend, self.name, self._batch))
        elif self._phase is not _Phase.IDLE:
            self._request = self.next_request()
            self.send_request(
                CommitBatch(self._request, self.pubend, self.name, self._batch, self._parts)
            )

    def _stage(self) -> None:
        assert self.pubend is not None
        self._chunks = {}
        for attempt in self._attempts:
            for number in range(attempt.sent):
                if number not in attempt.answered:
                    request = self.next_request()
                    self._chunks[request] = (attempt, number)
                    chunk = (self._batch, attempt.partition, attempt.name, number)
                    events = attempt.chunks[number]
                    self.send_request(StageChunk(request, self.pubend, self.name, *chunk, events))
        if not self._chunks:
            self._all_staged()

    def _all_staged(self) -> None:
        """Commit, crash or drop the batch."""
        draw = self.random.random() if self._is_hasty else 1.0
        if draw < 0.1:
            self._phase = _Phase.DROPPING
            self._continue()
        elif draw < 0.2:
            self._crash()
        else:
            self._commit()

    def _commit(self) -> None:
        finished: dict[int, list[_Attempt]] = {}
        for attempt in self._attempts:
            if attempt.finished:
                finished.setdefault(attempt.partition, []).append(attempt)
        chosen = [self.random.choice(finished[each]) for each in sorted(finished)]
        self._parts = tuple((each.partition, each.name, len(each.chunks)) for each in chosen)
        events = [event for each in chosen for chunk in each.chunks for event in chunk]
        self.checker.commit_sent(self._batch, [payload for _, payload in events])
        self._phase = _Phase.COMMITTING
        if self._is_hasty and self.workload is not None and self.random.random() < 0.3:
            self.workload.aim(self.host)
        self._continue()
        if self._is_hasty and self.random.random() < 0.2:
            self._crash()

    def _crash(self) -> None:
        """Reconnect without memory and make the batch again; earlier requests may still arrive."""
        self._attempts, self._phase = [], _Phase.STAGING
        options, random = self.world.options, self.random
        unseen = options.down_us(random) if random.random() < 0.5 else 0
        self.drop(disconnected_us=options.down_us(random), unseen_us=unseen)

    # --- what comes --------------------------------------------------------------------------

    def connected(self) -> None:
        """Open the pubend first."""
        self._is_open = False
        self._advertised = self.plan.advertisement
        self._opening = self.next_request()
        self.send_request(
            OpenPubend(self._opening, self.plan.name, self._advertised, self.plan.quality)
        )

    def take(self, notice: Any) -> None:
        """Handle the reply to a request."""
        if isinstance(notice, PubendOpened):
            self.pubend, self._is_open = notice.pubend, True
            if self._phase is _Phase.STAGING and not self._attempts:
                self._make()
            else:
                self._continue()
        elif isinstance(notice, ChunkStaged):
            self._staged(notice)
        elif isinstance(notice, BatchCommitted):
            self._committed(notice)
        elif isinstance(notice, BatchDropped):
            self._was_dropped(notice)
        elif isinstance(notice, Refused):
            self._refused(notice)

    def _staged(self, notice: ChunkStaged) -> None:
        found = self._chunks.pop(notice.request, None)
        if found is not None and self._phase is _Phase.STAGING:
            found[0].answered.add(found[1])
            if not self._chunks:
                self._all_staged()

    def _committed(self, notice: BatchCommitted) -> None:
        if notice.request != self._request:
            return
        done = self.checker.done.get(self._batch)
        reported = (notice.first, notice.last, notice.events)
        if done != reported or (self._phase is _Phase.REPEATING and not notice.repeated):
            name = f"{self.name}: batch {self._batch}"
            self.world.violate("undurable", f"{name} : the reply is {notice}, the log has {done}")
        if self._phase is _Phase.COMMITTING and self._is_hasty and self.random.random() < 0.3:
            self._phase = _Phase.REPEATING
            self._continue()
        else:
            self._finish()

    def _was_dropped(self, notice: BatchDropped) -> None:
        if notice.request == self._request:
            if self.random.random() < 0.5:
                self._make()
            else:
                self._finish()  # and never write this batch

    def _finish(self) -> None:
        self._phase = _Phase.IDLE
        self._batch += 1

    def _refused(self, notice: Refused) -> None:
        if notice.request == self._opening:
            self.follow(notice)
        elif notice.request in self._chunks or notice.request == self._request:
            limits = self.world.options.limits
            late = self._batch in self._dropped or "staged_ttl_s" in limits
            if "staged_bytes_max" in limits and notice.request in self._chunks:
                del self._chunks[notice.request]
                if self._phase is _Phase.STAGING:  # the first refused chunk
                    self._phase = _Phase.DROPPING
                    self._continue()
            elif self._has_cause():
                self._finish()
            elif self._phase is _Phase.COMMITTING and late:
                self._make()
            else:
                name = f"{self.name}: batch {self._batch}"
                self.world.violate("refused", f"{name} without cause: {notice.reason}")

    def _has_cause(self) -> bool:
        """Return whether a commit may be refused for good."""
        stream = None if self.pubend is None else self.oracle.streams.get(self.pubend)
        limited = "log_bytes_max" in self.world.options.limits
        return stream is not None and (limited or self.oracle.was_corrupt(stream))

    # --- the end -----------------------------------------------------------------------------

    def unfinished(self) -> list[str]:
        """Return what is not answered, partly logged, or still staged after its commit."""
        stream = self.oracle.stream_at(self.host, self.plan.name)
        if stream is not None and self.oracle.is_corrupt(stream):
            return []
        found = [] if self.is_idle else [f"{self.name}: batch {self._batch} is not committed"]
        return [*found, *self.checker.half_logged(), *self._leftovers()]

    def _leftovers(self) -> list[str]:
        last = max(self.checker.done, default=-1)
        return [
            f"{self.name}: {record.key} is still staged"
            for record in self.host.disk.records.values()
            if isinstance(record, StagedRecord)
            if record.writer == self.name and record.batch <= last
        ]
