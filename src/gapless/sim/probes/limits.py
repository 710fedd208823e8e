"""Limits: no collection grows beyond its parameter."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from gapless.broker import Broker
from gapless.core.ids import BrokerId
from gapless.core.machine import Event, LinkDown, LinkFree, LinkFull, LinkUp
from gapless.core.ticks import TICKS_PER_MS
from gapless.delivery.istream import PUBLICATION_BYTES
from gapless.delivery.pubend import Pubend
from gapless.messages.records import Change, PublisherRecord, Store
from gapless.messages.requests import ReadReply
from gapless.messages.streams import Frame, Nack, Piece
from gapless.sim.oracle import Stream
from gapless.sim.probes.insight import Insight
from gapless.sim.probes.watch import Handler, Invariant
from gapless.sim.staging import CHUNKS_MAX

if TYPE_CHECKING:
    from gapless.sim.world import Host, Process, World

__all__ = ["Limits"]

SCAN_STEPS = 16
"""After so many steps of the world the next broker's collections are looked at."""

EVENT_BYTES_MIN = 8
"""What an event of an answer to a read takes at least."""

EVENT_BYTES_MAX = 256
"""What an event of a workload takes in a log at most, with its share of a row."""


class Limits(Invariant):
    """I14: the caches of the router and of the subends are within ``cache_bytes`` after every step.
    Now and then, each broker in its turn: attachments, curious ranges, the buffers of strands (what
    may be prefetched, what is held while joining, and one answer to a read), what is joined while
    it is held, unfinished segments, reads under way, the bytes of logs and of what is staged. Tables
    are counted with I5.

    Of what is said: a nack has so many ranges of such a length, a frame or an answer to a read has
    so many events, and a peer for which too much waits to be sent, or for the first relay on the way
    to it, is sent nothing of the streams (R40). On disk, a publisher's window is not longer than it may be.
    """

    def __init__(self, insight: Insight) -> None:
        super().__init__(insight)
        parameters = insight.parameters
        self._cache = parameters.cache_bytes
        chunk = parameters.read_chunk_bytes // EVENT_BYTES_MIN + 2
        run = max(insight.options.batch_max, parameters.frame_events_max) + chunk
        self._buffer = parameters.prefetch_max + parameters.join_hold + chunk + 1
        self._buffer += parameters.backlog_bytes // EVENT_BYTES_MIN + run
        self._backlog = parameters.backlog_bytes + run * (EVENT_BYTES_MAX + PUBLICATION_BYTES)
        self._steps = 0
        batch = insight.options.batch_max * (CHUNKS_MAX if insight.options.stagers else 1)
        self._log = parameters.log_bytes_max + batch * EVENT_BYTES_MAX
        self._window = parameters.publisher_window
        self._frame = parameters.frame_events_max
        self._chunk = parameters.read_chunk_bytes + EVENT_BYTES_MAX
        self._span = parameters.nack_span_ms * TICKS_PER_MS
        self._full: set[tuple[BrokerId, BrokerId]] = set()
        """Who was told that too much waits for whom."""
        self._unasked: str | None = None
        """What was sent to such a peer in this step, which may be the one that frees it."""

    def said(self) -> Mapping[type, Handler]:
        """Look at what has a size."""
        return {Nack: self._nack, Frame: self._framed, ReadReply: self._replied}

    def _nack(self, process: Process, peer: str, message: Nack) -> None:
        del peer
        most = self.insight.parameters.nack_ranges_max
        if len(message.ranges) > most:
            self._over(process, "ranges of a nack", len(message.ranges), most)
        longest = max(high - low + 1 for low, high in message.ranges)
        if longest > self._span:
            self._over(process, "ticks of a nack", longest, self._span)

    def _framed(self, process: Process, peer: str, message: Frame) -> None:
        del peer
        self._count_events(process, "events of a frame", (message.piece,))

    def _replied(self, process: Process, peer: str, message: ReadReply) -> None:
        del peer
        self._count_events(process, "events of an answer to a read", message.pieces)
        size, most = sum(map(len, message.rows)), self._chunk
        if size > most:
            self._over(process, "bytes of an answer to a read", size, most)

    def _count_events(self, process: Process, what: str, pieces: tuple[Piece, ...]) -> None:
        count = sum(len(piece.publications) for piece in pieces)
        if count > self._frame:
            self._over(process, what, count, self._frame)

    def piece(
        self, process: Process, peer: BrokerId, leaf: bool, stream: Stream, piece: Piece
    ) -> None:
        """Check that nothing is sent to whom too much waits for."""
        del leaf
        machine = process.machine
        assert isinstance(machine, Broker)
        first_hop = (*machine.sessions.route(peer), peer)[0]
        if (process.host.broker, first_hop) in self._full:
            self._unasked = f"{stream.pubend} [{piece.low}, {piece.high}] to {peer}, which is slow"

    def started(self, world: World, process: Process) -> None:
        """A new life has no links yet."""
        del world
        self._full = {each for each in self._full if each[0] != process.host.broker}

    def durable(self, host: Host, change: Change) -> None:
        """Check the windows of publishers."""
        if type(change) is Store and type(change.record) is PublisherRecord:
            count = len(change.record.window)
            if count > self._window:
                what = f"the window of {change.record.publisher}"
                self.world.violate("I14", f"{host.broker}: {what}: {count}, at most {self._window}")

    def moved(self, process: Process, machine: Broker, event: Event) -> None:
        """Check the caches, and now and then the rest."""
        if isinstance(event, LinkFull):
            self._full.add((process.host.broker, event.peer))
        elif isinstance(event, LinkFree | LinkUp | LinkDown):
            self._full.discard((process.host.broker, event.peer))
            self._unasked = None
        if self._unasked is not None:
            self.world.violate("I14", f"{process.host.broker} sends {self._unasked}")
            self._unasked = None
        used = machine.router._account.bytes
        if used > self._cache:
            self._over(process, "the router's cache", used, self._cache)
        used = machine.host._account.bytes
        if used > self._cache:
            self._over(process, "the subends' cache", used, self._cache)
        self._steps += 1
        if self._steps >= SCAN_STEPS:
            self._steps = 0
            self._scan(process, machine)

    def _over(self, process: Process, what: str, count: int, limit: int) -> None:
        self.world.violate("I14", f"{process.host.broker}: {what}: {count}, at most {limit}")

    def _scan(self, process: Process, machine: Broker) -> None:
        parameters, router = self.insight.parameters, machine.router
        count = 0
        for routed in router._routed.values():
            count += len(routed.attachments)
            for attachment in routed.attachments.values():
                if len(attachment.curious) > parameters.curious_ranges_max:
                    limit = parameters.curious_ranges_max
                    self._over(process, "curious ranges", len(attachment.curious), limit)
        if count > parameters.attachments_max or count != router._receivers._count:
            self._over(process, "attachments", count, router._receivers._count)
        self._scan_logs(process, machine)
        self._scan_staged(process, machine)
        booked = machine.host.backlog.bytes
        if booked > self._backlog:
            self._over(process, "the bytes of the backlog", booked, self._backlog)
        strands = [
            each for one in machine.host.subscriptions.values() for each in one.strands.values()
        ]
        if booked != (sum_booked := sum(strand.buffer.booked_bytes for strand in strands)):
            self._over(process, "the bytes that are booked on the backlog", booked, sum_booked)
        for subscription in machine.host.subscriptions.values():
            most = parameters.segments_max + 1
            if len(subscription.segments) + len(subscription.changes) > most:
                self._over(process, "segments", len(subscription.segments), most)
            for strand in subscription.strands.values():
                if len(strand.buffer) > self._buffer:
                    self._over(process, "a strand's buffer", len(strand.buffer), self._buffer)
                if len(strand.catch_up.held) > parameters.join_hold:
                    limit = parameters.join_hold
                    self._over(
                        process, "events held while joining", len(strand.catch_up.held), limit
                    )
            if len(subscription.best_effort) > parameters.prefetch_max:
                count = len(subscription.best_effort)
                self._over(process, "best effort events", count, parameters.prefetch_max)

    def _scan_staged(self, process: Process, machine: Broker) -> None:
        staging, most = machine.stagers.staging, self.insight.parameters.staged_bytes_max
        if staging.bytes > most:
            self._over(process, "the bytes that are staged", staging.bytes, most)
        held = sum(batch.bytes for batch in staging._batches.values())
        if staging.bytes != held:
            self._over(process, "the bytes that are counted as staged", staging.bytes, held)

    def _scan_logs(self, process: Process, machine: Broker) -> None:
        reads = self.insight.parameters.reads_per_shb_max
        for pubend, count in machine.requests._reading.items():
            if count > reads:
                self._over(process, f"reads of {pubend}", count, reads)
        for hosted in machine.pubends.hosted.values():
            if isinstance(hosted, Pubend) and hosted._size.bytes > self._log:
                self._over(process, "the bytes of a log", hosted._size.bytes, self._log)
