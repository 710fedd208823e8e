"""Limits: no collection grows beyond its parameter."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import msgspec

from gapless.broker import Broker
from gapless.core.events import LinkDown, LinkDrained, LinkFull, LinkUp, MachineEvent
from gapless.core.ids import BrokerId, PubendId, ShbId
from gapless.core.ticks import TICKS_PER_MS, Tick
from gapless.messages.propagation import TableFull
from gapless.messages.pubend_requests import ReadReply
from gapless.messages.records import PublisherRecord, PutRecord, StorageChange
from gapless.messages.streams import (
    AckReport,
    DefineMemberSet,
    KnowledgeRange,
    Member,
    Nack,
    StreamData,
    StreamEpoch,
)
from gapless.packed.encode import PUBLICATION_BYTES, content_bytes
from gapless.pubend.pubend import Pubend
from gapless.routing.attachment import Attachment
from gapless.routing.routed import RoutedPubend
from gapless.routing.router import Router
from gapless.routing.sending import MatchMasks
from gapless.subscribers.subend import Subend
from gapless_lab.sim.invariants.global_state import GlobalState
from gapless_lab.sim.invariants.monitor import Invariant, MessageHandler
from gapless_lab.sim.oracle import PublishedStream
from gapless_lab.sim.staging import CHUNKS_MAX

if TYPE_CHECKING:
    from gapless_lab.sim.world import SimulatedHost, SimulatedProcess, World

__all__ = ["LimitInvariant"]

SCAN_STEPS = 16
"""After this many steps of the world the collections of the next broker are checked."""

EVENT_BYTES_MIN = 8
"""The least size of an event in a read reply."""

ANSWER_FRAMES = 4
"""The reply to a nacked range is at most about this many full frames at once."""

EVENT_BYTES_MAX = 256
"""The greatest size of a workload's event in a log, with its share of a row."""


class LimitInvariant(Invariant):
    """I14, after every step: the caches of the router and of the subends are within
    ``cache_bytes``.

    At intervals, for one broker after another: attachments, curious ranges, the buffers of cursors
    (prefetch, events held while joining, and one read reply), unfinished segments, reads in
    progress, the bytes of logs and of staged batches, the kept deltas and the conjunctions of a
    table, the member sets named in a session, the stream epochs sent to a peer. The stream epochs
    that a stream knows are checked after it took a knowledge range, was passed or learned of an
    epoch, because it removes old ones then. Tables are counted with I5.

    Of messages: the number and the length of the ranges of a nack, and for an SHB their sum; the
    events of a frame and of a read reply; the bytes of a part of a table and of the reply to a
    nack; the groups in which members are reported. A broker sends no stream data to a peer if too
    much waits for that peer or for the first relay on the route to it (R40). On disk: the window of
    a publisher.
    """

    def __init__(self, global_state: GlobalState) -> None:
        super().__init__(global_state)
        parameters = global_state.parameters
        self._cache = parameters.cache_bytes
        chunk = parameters.read_chunk_bytes // EVENT_BYTES_MIN + 2
        run = max(global_state.options.batch_max, parameters.frame_events_max) + chunk
        self._buffer = parameters.prefetch_max + parameters.join_buffer_events_max + chunk + 1
        self._buffer += parameters.backlog_bytes // EVENT_BYTES_MIN + run
        self._backlog = parameters.backlog_bytes + run * (EVENT_BYTES_MAX + PUBLICATION_BYTES)
        self._steps = 0
        batch = global_state.options.batch_max * (
            CHUNKS_MAX if global_state.options.staged_writers else 1
        )
        self._log = parameters.log_bytes_max + batch * EVENT_BYTES_MAX
        self._window = parameters.publisher_window
        self._frame = parameters.frame_events_max
        self._chunk = parameters.read_chunk_bytes + EVENT_BYTES_MAX
        self._span = parameters.nack_span_ms * TICKS_PER_MS
        self._window_ticks = parameters.nack_window * self._span
        self._members: dict[tuple[BrokerId, str, int], tuple[Member, ...]] = {}
        """The named member sets, by sender, receiver and number."""
        self._groups: dict[tuple[BrokerId, str, PubendId], tuple[int, list[set[ShbId]]]] = {}
        """The last step with reports of a pubend, and the groups of SHBs in it."""
        self._full: set[tuple[BrokerId, BrokerId]] = set()
        """Pairs of a broker and a peer for which too much waits."""
        self._unasked: str | None = None
        """What was sent to such a peer in this step; this step may still drain the peer."""

    def message_handlers(self) -> Mapping[type, MessageHandler]:
        """Handle messages that have a limit."""
        return {
            Nack: self._nack,
            StreamData: self._framed,
            ReadReply: self._replied,
            TableFull: self._full_table,
            DefineMemberSet: self._defined,
            AckReport: self._reported,
        }

    def _nack(self, process: SimulatedProcess, peer: str, message: Nack) -> None:
        most = self.global_state.parameters.nack_ranges_max
        if len(message.ranges) > most:
            self._over(process, "ranges of a nack", len(message.ranges), most)
        lengths = [high - low + 1 for low, high in message.ranges]
        if max(lengths) > self._span:
            self._over(process, "ticks of a nack", max(lengths), self._span)
        machine = process.machine
        assert isinstance(machine, Broker)
        subend = machine.components.subends.guaranteed.get(message.pubend)
        # a router nacks for all its receivers and has no such window
        is_hosts = subend is not None and subend.feeder == peer
        is_hosts = is_hosts and machine.components.router.feeder(message.pubend) != peer
        if is_hosts and sum(lengths) > self._window_ticks:
            self._over(process, "ticks that an SHB nacks", sum(lengths), self._window_ticks)

    def _full_table(self, process: SimulatedProcess, peer: str, part: TableFull) -> None:
        del peer
        most = self.global_state.parameters.frame_bytes_max
        content = (part.conjunctions, part.entries, part.known, part.late)
        count = sum(map(len, content[:3])) + sum(len(shbs) for _, shbs in part.late)
        size = len(msgspec.msgpack.encode(content))
        if count > 1 and size > most:
            self._over(process, "bytes of a part of a table", size, most)

    def _defined(self, process: SimulatedProcess, peer: str, message: DefineMemberSet) -> None:
        self._members[process.host.broker, peer, message.number] = message.members

    def _reported(self, process: SimulatedProcess, peer: str, message: AckReport) -> None:
        """Collect the groups of a step; check those of the previous step when the next one reports."""
        if message.set_number < 0:
            return  # an SHB reports for itself
        me, most = process.host.broker, self.global_state.parameters.ack_groups
        members = self._members.get((me, peer, message.set_number), ())
        for pubend, _ in message.acknowledged:
            step, groups = self._groups.get((me, peer, pubend), (0, []))
            if step != self.world.steps:
                if not _is_in_goes(groups, most):
                    self._over(process, f"groups of hosts for {pubend}", len(groups), most)
                groups = []
            groups.append({member.shb for member in members})
            self._groups[me, peer, pubend] = (self.world.steps, groups)

    def _framed(self, process: SimulatedProcess, peer: str, message: StreamData) -> None:
        del peer
        self._count_events(process, "events of a frame", (message.knowledge,))

    def _replied(self, process: SimulatedProcess, peer: str, message: ReadReply) -> None:
        del peer
        self._count_events(process, "events of a read reply", message.ranges)
        size, most = sum(map(len, message.rows)), self._chunk
        if size > most:
            self._over(process, "bytes of a read reply", size, most)

    def _count_events(
        self, process: SimulatedProcess, what: str, ranges: tuple[KnowledgeRange, ...]
    ) -> None:
        count = sum(len(knowledge.publications) for knowledge in ranges)
        if count > self._frame:
            self._over(process, what, count, self._frame)

    def knowledge_sent(
        self,
        process: SimulatedProcess,
        peer: BrokerId,
        number: int,
        stream: PublishedStream,
        knowledge: KnowledgeRange,
    ) -> None:
        """Check that no stream data is sent to a peer for which too much waits."""
        del number
        machine = process.machine
        assert isinstance(machine, Broker)
        first_hop = (*machine.components.sessions.route(peer), peer)[0]
        if (process.host.broker, first_hop) in self._full:
            self._unasked = (
                f"{stream.pubend} [{knowledge.low}, {knowledge.high}] to {peer}, which is congested"
            )

    def started(self, world: World, process: SimulatedProcess) -> None:
        """A restarted broker has no links yet."""
        del world
        self._full = {each for each in self._full if each[0] != process.host.broker}

    def durable(self, host: SimulatedHost, change: StorageChange) -> None:
        """Check the windows of publishers."""
        if type(change) is PutRecord and type(change.record) is PublisherRecord:
            count = len(change.record.window)
            if count > self._window:
                what = f"the window of {change.record.publisher}"
                self.world.violate("I14", f"{host.broker}: {what}: {count}, at most {self._window}")

    def moved(self, process: SimulatedProcess, machine: Broker, event: MachineEvent) -> None:
        """Check the caches after every step, and the rest at intervals."""
        if "take" not in vars(machine.components.router):
            self._look_at_router(process, machine.components.router)
        if isinstance(event, LinkFull):
            self._full.add((process.host.broker, event.peer))
        elif isinstance(event, LinkDrained | LinkUp | LinkDown):
            self._full.discard((process.host.broker, event.peer))
            self._unasked = None
        if self._unasked is not None:
            self.world.violate("I14", f"{process.host.broker} sends {self._unasked}")
            self._unasked = None
        used = machine.components.router.cached_bytes
        if used > self._cache:
            self._over(process, "the router's cache", used, self._cache)
        used = machine.components.subends.account.bytes
        if used > self._cache:
            self._over(process, "the subends' cache", used, self._cache)
        self._steps += 1
        if self._steps >= SCAN_STEPS:
            self._steps = 0
            self._scan(process, machine)

    def _over(self, process: SimulatedProcess, what: str, count: int, limit: int) -> None:
        self.world.violate("I14", f"{process.host.broker}: {what}: {count}, at most {limit}")

    def _scan(self, process: SimulatedProcess, machine: Broker) -> None:
        parameters, router = self.global_state.parameters, machine.components.router
        count = 0
        for routed in router.routed.values():
            count += len(routed.attachments)
            if routed.replay.bytes > parameters.replay_buffer_bytes:
                most = parameters.replay_buffer_bytes
                self._over(process, "bytes in a replay buffer", routed.replay.bytes, most)
            for attachment in routed.attachments.values():
                if len(attachment.curious) > parameters.curious_ranges_max:
                    limit = parameters.curious_ranges_max
                    self._over(process, "curious ranges", len(attachment.curious), limit)
        if count > parameters.attachments_max or count != router.attachment_count:
            self._over(process, "attachments", count, router.attachment_count)
        self._scan_logs(process, machine)
        self._scan_staged(process, machine)
        for subend in machine.components.subends.guaranteed.values():
            if "ranges_passed" not in vars(subend):
                self._look_at_subend(process, subend)
        self._scan_tables(process, machine)
        self._scan_sent(process, machine)
        booked = machine.components.registry.backlog.bytes
        if booked > self._backlog:
            self._over(process, "the bytes of the backlog", booked, self._backlog)
        cursors = [
            each
            for one in machine.components.registry.subscriptions.values()
            for each in one.cursors.values()
        ]
        if booked != (sum_booked := sum(cursor.buffer.booked_bytes for cursor in cursors)):
            self._over(process, "the bytes booked on the backlog", booked, sum_booked)
        for subscription in machine.components.registry.subscriptions.values():
            most = parameters.segments_max + 1
            if len(subscription.segments) + len(subscription.changes.queue) > most:
                self._over(process, "segments", len(subscription.segments), most)
            for cursor in subscription.cursors.values():
                if len(cursor.buffer) > self._buffer:
                    self._over(process, "a cursor's buffer", len(cursor.buffer), self._buffer)
                if len(cursor.catch_up.held) > parameters.join_buffer_events_max:
                    limit = parameters.join_buffer_events_max
                    self._over(
                        process, "events held while joining", len(cursor.catch_up.held), limit
                    )
            count = subscription.delivery.best_effort_waiting
            if count > parameters.prefetch_max:
                self._over(process, "best effort events", count, parameters.prefetch_max)

    def _scan_tables(self, process: SimulatedProcess, machine: Broker) -> None:
        parameters, holdings = self.global_state.parameters, machine.components.exchange.table_store
        senders = [
            machine.components.exchange.leaf.sender,
            *(out.sender for out in holdings.out.values()),
        ]
        for sender in senders:
            if len(sender.deltas) > parameters.delta_log_max:
                self._over(process, "deltas", len(sender.deltas), parameters.delta_log_max)
        tables = [sender.table for sender in senders]
        tables += [
            edge.merged_stale for edge in holdings.edges.values() if edge.merged_stale is not None
        ]
        for table in tables:
            count, most = len(table.conjunctions), parameters.table_conjunctions_max
            if count > most:
                self._over(process, f"conjunctions of {table!r}", count, most)

    def _scan_sent(self, process: SimulatedProcess, machine: Broker) -> None:
        parameters = self.global_state.parameters
        most = parameters.sets_per_session_max
        for peer, named in machine.components.reports.sent_sets.items():
            if len(named) > most:
                self._over(process, f"sets named to {peer}", len(named), most)
        # if messages are lost, ForgetMemberSet may be lost too; an SHB's own sets have numbers
        # below 0
        for peer, sets in (
            machine.components.reports.received_sets.items() if parameters.ordered_sessions else ()
        ):
            count = sum(number > 0 for number in sets)
            if count > most:
                self._over(process, f"sets of {peer}", count, most)
        for peer, sent in machine.components.router.sent_stream_epochs.items():
            for pubend, numbers in sent.items():
                if len(numbers) > parameters.stream_epochs_kept:
                    what = f"stream epochs of {pubend} that {peer} was sent"
                    self._over(process, what, len(numbers), parameters.stream_epochs_kept)

    # --- what is checked when something happens ----------------------------------------------

    def _look_at_router(self, process: SimulatedProcess, router: Router) -> None:
        """Observe what a router takes, and its replies to nacks."""
        take, sender = router.take, router.sender
        answer, kept = sender.answer, self.global_state.parameters.stream_epochs_kept
        bytes_max = ANSWER_FRAMES * self.global_state.parameters.frame_bytes_max

        def takes(
            routed: RoutedPubend, knowledge: KnowledgeRange, *, first: bool, opens: bool
        ) -> None:
            take(routed, knowledge, first=first, opens=opens)
            most = 2 * (kept + len(routed.stream)) + 1
            if routed.log is None and len(routed.stream_epochs) > most:
                self._over(
                    process, f"stream epochs of {routed.pubend}", len(routed.stream_epochs), most
                )

        def answers(
            routed: RoutedPubend, attachment: Attachment, low: Tick, high: Tick, masks: MatchMasks
        ) -> None:
            if not attachment.curious.has_any(low, high):
                answer(routed, attachment, low, high, masks)
                return
            requested = [
                knowledge
                for knowledge in routed.stream.known(low, high)
                if attachment.curious.has_any(knowledge.low, knowledge.high)
            ]
            answer(routed, attachment, low, high, masks)
            sent = [
                each for each in requested if not attachment.curious.has_any(each.low, each.high)
            ]
            size = sum(content_bytes(each) for each in sent[:-1])
            if size > bytes_max:
                self._over(process, "bytes of a reply before its last range", size, bytes_max)

        vars(router)["take"] = takes
        vars(sender)["answer"] = answers

    def _look_at_subend(self, process: SimulatedProcess, subend: Subend) -> None:
        passed, stream_epoch, kept = (
            subend.ranges_passed,
            subend.stream_epoch,
            self.global_state.parameters.stream_epochs_kept,
        )

        def look(new: int = 0) -> None:
            most = 2 * kept + 1 + len(subend.stream) + new
            if len(subend.stream_epochs) > most:
                what = f"stream epochs of {subend.pubend} at an SHB"
                self._over(process, what, len(subend.stream_epochs), most)

        def passes() -> None:
            passed()
            look()

        def learns(message: StreamEpoch) -> None:
            stream_epoch(message)
            look(new=1)

        vars(subend)["ranges_passed"] = passes
        vars(subend)["stream_epoch"] = learns

    # --- staged batches and logs -------------------------------------------------------------

    def _scan_staged(self, process: SimulatedProcess, machine: Broker) -> None:
        staging, most = machine.components.staging, self.global_state.parameters.staged_bytes_max
        if staging.bytes > most:
            self._over(process, "staged bytes", staging.bytes, most)
        held = sum(staging.batch_sizes)
        if staging.bytes != held:
            self._over(process, "the count of staged bytes", staging.bytes, held)

    def _scan_logs(self, process: SimulatedProcess, machine: Broker) -> None:
        reads = self.global_state.parameters.reads_per_shb_max
        for pubend, count in machine.components.requests.active_reads.items():
            if count > reads:
                self._over(process, f"reads of {pubend}", count, reads)
        for hosted in machine.components.hosted.values():
            if isinstance(hosted, Pubend) and hosted.log_bytes > self._log:
                self._over(process, "the bytes of a log", hosted.log_bytes, self._log)


def _is_in_goes(groups: list[set[ShbId]], most: int) -> bool:
    """Return whether groups were reported once, or several times for all SHBs each.

    A step may report twice: at once for a new member, and at the regular time.
    """
    if len(groups) <= most:
        return True
    first: set[ShbId] = set()
    for index, group in enumerate(groups[: most + 1]):
        rest: set[ShbId] = set().union(*groups[index:])
        if first & rest and _is_in_goes(groups[index:], most):
            return True
        first |= group
    return False
