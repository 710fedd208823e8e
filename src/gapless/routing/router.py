"""The router: receives knowledge from a feed and sends it to attachments (R10, R34 to R40).

For each pubend a router has an istream, attachments, and a source (:mod:`.routed`). The source is
the log if the pubend is at this broker, and a feed otherwise. The router filters a knowledge range
for a receiver if the tables of its direction are sufficient, and sends it whole otherwise. New
knowledge without an event for the receiver is withheld. A timer sends it, many pubends in one
message; it looks only at pubends that have moved since. Everything else is sent at once.

A router makes F only by filtering, and sends nothing for a tick that it does not know: the receiver
sees a gap and sends a nack. The router requests unknown ticks once for all receivers
(:mod:`.nacks`). :mod:`.attachments` decides which receivers are fed.

Silence that a router receives is true for the SHBs behind its cell. If after a step of the tree
more SHBs are behind the cell for a pubend, the router raises the *scope* of the pubend: it forgets
what it received, attaches again, and drops what arrives under an older scope (RS-37). Knowledge
from its own log was never filtered, and remains.

A receiver is fed only while both ends know the same epochs of the edges between (:mod:`.deferred`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from gapless.core.context import Context
from gapless.core.ids import BrokerId, CellId, PubendId
from gapless.core.parameters import microseconds
from gapless.core.ticks import Tick
from gapless.feeds.feed import scope_of
from gapless.messages.records import StreamEpochRecord
from gapless.messages.streams import (
    AckExpected,
    AdvanceRequest,
    Attach,
    Attached,
    Detach,
    FeedUnavailable,
    KnowledgeRange,
    Nack,
    Released,
    StreamEpoch,
    StreamEpochRequest,
    Unreadable,
)
from gapless.overlay.path_epochs import SAME_VIEW
from gapless.overlay.tree import TreeChange
from gapless.propagation.sufficiency import Receiver
from gapless.routing.attachments import Attachments
from gapless.routing.best_effort import BestEffortStreams
from gapless.routing.congestion import Congestion
from gapless.routing.deferred import DeferredAttaches
from gapless.routing.epoch_sender import StreamEpochSender
from gapless.routing.nacks import UpstreamRequests
from gapless.routing.pauses import StreamPauses
from gapless.routing.protocols import Filtering, HostedLog, Paths, RecordPeers
from gapless.routing.receiver_requests import ReceiverRequests
from gapless.routing.replay_buffer import ReplayAccount
from gapless.routing.routed import RoutedPubend
from gapless.routing.sending import MatchMasks, StreamSender
from gapless.stream.cache import shrink
from gapless.stream.istream import MemoryAccount
from gapless.stream.ranges import KnowledgeConflictError, cut

__all__ = ["Router"]


class Router:
    """The streams of one broker as a router."""

    def __init__(
        self, context: Context, filtering: Filtering, paths: Paths, records: RecordPeers
    ) -> None:
        self._context = context
        self._filtering = filtering
        self._paths = paths
        self._account = MemoryAccount()
        self.pauses = StreamPauses(context)
        self._routed: dict[PubendId, RoutedPubend] = {}
        self._withheld: dict[PubendId, RoutedPubend] = {}
        """The pubends of which a receiver may not have been sent everything up to the top."""
        self._epoch_sender = StreamEpochSender(context)
        self._sender = StreamSender(context, filtering, self._epoch_sender)
        self._deferred = DeferredAttaches(context, records)
        self._attachments = Attachments(context, filtering, paths, self._deferred)
        self._upstream = UpstreamRequests(context, self._found)
        self._replay_account = ReplayAccount()
        self._best_effort = BestEffortStreams(
            context, filtering, self._attachments, self._replay_account, self._routed
        )
        self._requests = ReceiverRequests(
            context, filtering, self._sender, self._epoch_sender, self._upstream
        )
        self._congestion = Congestion(context, self._attachments, self._requests, self._routed)
        self._scope = 0
        """The newest scope of any pubend. A pubend without cached ranges may have any scope."""

    def start(self) -> None:
        """Start to send silence and to expire attachments, at intervals."""
        parameters = self._context.parameters
        self._context.call_later(microseconds(ms=parameters.silence_ms), self._send_silence)
        self._context.call_later(microseconds(ms=parameters.attach_refresh_ms), self._expire)

    # --- the pubends of this broker ----------------------------------------------------------

    def host(self, pubend: PubendId, log: HostedLog, released: Tick) -> None:
        """Serve a pubend from its own log, and feed the receivers that wait for a source."""
        routed = self._get(pubend)
        routed.host(log, released)
        self.source_found(routed)

    def forward(
        self, pubend: PubendId, knowledge: KnowledgeRange, opened: StreamEpochRecord | None
    ) -> None:
        """Send a new knowledge range of a pubend of this broker to the receivers."""
        routed = self._get(pubend)
        if self._paths.is_best_effort(pubend):
            self._best_effort.publish(routed, knowledge)
            return
        if opened is not None:
            routed.stream_epochs.learn_record(opened)
        self.take(routed, knowledge, first=True, opens=opened is not None)

    def learn_stream_epochs(self, pubend: PubendId, records: Iterable[StreamEpochRecord]) -> None:
        """Add the stored stream epochs of a pubend of this broker."""
        for record in records:
            self._get(pubend).stream_epochs.learn_record(record)

    def set_released(self, pubend: PubendId, up_to: Tick, stream_epochs: list[int]) -> None:
        """Note that a log of this broker is released up to a tick; these stream epochs remain."""
        routed = self._get(pubend)
        routed.stream_epochs.forget(stream_epochs, self._context.parameters.stream_epochs_kept)
        routed.raise_released(up_to)
        routed.stream.forget_up_to(up_to)

    def forget_stream_epochs(self, pubend: PubendId, up_to: Tick, stream_epochs: list[int]) -> None:
        """Forget the cached ranges up to a tick with their stream epochs; these epochs remain.

        Nacks for the ranges are answered from the log, in stream epoch 0 (R31).
        """
        routed = self._get(pubend)
        routed.stream.forget_up_to(up_to)
        routed.stream_epochs.forget(stream_epochs, self._context.parameters.stream_epochs_kept)

    def end(self, pubend: PubendId) -> None:
        """Forget a pubend that is a tombstone, with its receivers and its feed (RS-34)."""
        routed = self._routed.pop(pubend, None)
        if routed is None:
            return
        self._withheld.pop(pubend, None)
        for key in [*routed.attachments]:
            self._attachments.drop(routed, key)
        routed.end()

    # --- queries -----------------------------------------------------------------------------

    @property
    def routed(self) -> Mapping[PubendId, RoutedPubend]:
        """The pubends that have a source or receivers here."""
        return self._routed

    @property
    def sender(self) -> StreamSender:
        """The part that sends knowledge ranges to attachments."""
        return self._sender

    @property
    def attachment_count(self) -> int:
        """The number of attachments of all pubends."""
        return self._attachments.count

    @property
    def sent_stream_epochs(self) -> Mapping[BrokerId, Mapping[PubendId, Collection[int]]]:
        """The newest stream epochs that each peer was sent in its session, by pubend."""
        return self._epoch_sender.sent

    def feeder(self, pubend: PubendId) -> BrokerId | None:
        """Return the broker that feeds this router, or None if no broker does."""
        routed = self._routed.get(pubend)
        return None if routed is None else routed.feeder

    @property
    def cached_bytes(self) -> int:
        """The approximate size of the caches of all streams."""
        return self._account.bytes

    def is_paused(self, peer: BrokerId) -> bool:
        """Return whether a peer is sent nothing of the streams, because its route is congested."""
        return self._attachments.is_congested(peer)

    def top(self, pubend: PubendId) -> Tick:
        """Return the highest tick of a stream that this router knows to exist."""
        routed = self._routed.get(pubend)
        return 0 if routed is None else routed.stream.top

    # --- receivers ---------------------------------------------------------------------------

    def attach(self, peer: BrokerId, message: Attach) -> None:
        """Feed a receiver, or send it the reason why not (R10)."""
        pubend, number = message.pubend, message.number
        receiver = Receiver(message.kind, message.receiver)
        routed = self._routed.get(pubend)
        held = None if routed is None else routed.attachments.get((peer, number))
        difference = self._paths.difference(receiver, message.path_epochs)
        if held is not None and routed is not None:
            if difference == SAME_VIEW:
                self._attachments.refresh(routed, held, eager=message.eager)
                return
            self._attachments.drop(routed, (peer, number))
            routed.review_eager()
        reason = self._attachments.refusal(pubend, receiver)
        if reason is not None and difference == SAME_VIEW:
            self._context.send(peer, FeedUnavailable(pubend, number, reason))
        elif difference != SAME_VIEW:
            self._deferred.differs(peer, message, difference)
        else:
            self._deferred.forget(peer, message)
            self._admit(self._get(pubend), peer, message)

    def _admit(self, routed: RoutedPubend, peer: BrokerId, message: Attach) -> None:
        """Attach a receiver, and feed it as soon as there is a source."""
        attachment = self._attachments.admit(routed, peer, message)
        if self._paths.is_best_effort(routed.pubend):
            self._best_effort.attach(routed, attachment)
        elif routed.has_source:
            self._attachments.start(routed, attachment, routed.stream.top)
        else:
            routed.seek_feed()
            self._attachments.await_source(routed, attachment)

    def detach(self, peer: BrokerId, message: Detach) -> None:
        """Stop feeding a receiver."""
        self._deferred.forget(peer, message)
        routed = self._routed.get(message.pubend)
        if routed is not None and (peer, message.number) in routed.attachments:
            self._attachments.drop(routed, (peer, message.number))
            routed.review_eager()

    def nack(self, peer: BrokerId, message: Nack) -> None:
        """Send the known ticks of a nack, and request the others (R37)."""
        routed = self._guaranteed(message.pubend)
        if routed is not None:
            self._requests.nack(routed, peer, message)

    def stream_epoch_requested(self, peer: BrokerId, message: StreamEpochRequest) -> None:
        """Send a stream epoch, or request it from the feeder (R39)."""
        routed = self._guaranteed(message.pubend)
        if routed is not None:
            self._requests.stream_epoch(routed, peer, message)

    def advance(self, peer: BrokerId, message: AdvanceRequest) -> None:
        """Pass on a request for silence up to a tick; the waiting receiver repeats it (R51)."""
        routed = self._guaranteed(message.pubend)
        if routed is not None:
            self._requests.advance(routed, peer, message)

    def _guaranteed(self, pubend: PubendId) -> RoutedPubend | None:
        """Return a pubend that has a log; a best-effort pubend has none to request ticks of."""
        return None if self._paths.is_best_effort(pubend) else self._routed.get(pubend)

    def ack_expected(self, peer: BrokerId, message: AckExpected) -> None:
        """Raise the top of a stream to the tick whose acknowledgement is expected (R57).

        The last message before a crash of the PHB may have reached no broker. A router whose top is
        lower would not pass on a nack for it.
        """
        routed = self._routed.get(message.pubend)
        if routed is not None and routed.feeder == peer:
            routed.raise_top(message.tick)

    def pause_peer(self, peer: BrokerId) -> None:
        """Send a peer nothing of the streams: its route is congested (R40)."""
        self._congestion.pause(peer)

    def resume_peer(self, peer: BrokerId) -> None:
        """Send a peer new knowledge again; it sees a gap and sends a nack (R40)."""
        self._congestion.resume(peer)

    # --- the own feed ------------------------------------------------------------------------

    def attached(self, peer: BrokerId, message: Attached) -> None:
        """A feeder has accepted an attach request."""
        routed = self._routed.get(message.pubend)
        if routed is not None and routed.feed is not None:
            routed.feed.attached(peer, message)
        else:
            self._context.send(peer, Detach(message.pubend, message.number))

    def feed_unavailable(self, peer: BrokerId, message: FeedUnavailable) -> None:
        """A feeder cannot feed."""
        routed = self._routed.get(message.pubend)
        if routed is not None and routed.feed is not None:
            routed.feed.feed_unavailable(peer, message)

    def stream_epoch_received(self, message: StreamEpoch) -> None:
        """Store the vector of a stream epoch, and send it to the peers that requested it."""
        routed = self._routed.get(message.pubend)
        if routed is not None and routed.stream_epochs.learn(message):
            self._epoch_sender.pass_on(message.pubend, message.number, routed.stream_epochs)

    def released(self, message: Released) -> None:
        """Note the release of a log up to a tick; pass it on to receivers that nacked below it."""
        routed = self._routed.get(message.pubend)
        if routed is None or message.up_to <= routed.released:
            return
        routed.raise_released(message.up_to)
        for attachment in routed.attachments.values():
            if attachment.curious.take(0, message.up_to):
                self._context.send(attachment.peer, message)

    def unreadable(self, peer: BrokerId, message: Unreadable) -> None:
        """Pass on that a log cannot be read, to the receivers that nacked those ticks (P8)."""
        routed = self._routed.get(message.pubend)
        if routed is not None and routed.log is None and routed.feeder == peer:
            self._upstream.send_unreadable(routed, message)

    def source_found(self, routed: RoutedPubend) -> None:
        """The router has a source of a pubend: feed the waiting receivers."""
        if self._paths.is_best_effort(routed.pubend):
            self._best_effort.source_found(routed)
            return
        self.ticks_missing(routed)
        self._attachments.start_waiting(routed)

    def ticks_missing(self, routed: RoutedPubend) -> None:
        """The feeder has sent ticks that have not arrived: let all receivers nack them (RS-11).

        They are sent what is known, and the tick up to which ticks exist.
        """
        top, masks = routed.stream.top, MatchMasks(self._filtering)
        behind = [each for each in routed.fed_attachments() if each.sent < top]
        for attachment in behind:
            self._sender.send_through(routed, attachment, top, masks)
        self._sender.flush()
        for attachment in behind:
            self._attachments.confirm(routed, attachment)

    def source_lost(self, pubend: PubendId) -> None:
        """The router has no feeder for a pubend: notify the receivers if none is found in time."""
        self._context.call_later(
            microseconds(ms=self._context.parameters.attach_timeout_ms),
            lambda: self._still_without_source(pubend),
        )

    def top_raised(self, routed: RoutedPubend) -> None:
        """A higher tick of a pubend is known to exist: the timer sends what is known below it."""
        self._withheld[routed.pubend] = routed

    def _still_without_source(self, pubend: PubendId) -> None:
        routed = self._routed.get(pubend)
        if routed is not None and not routed.has_source:
            self._attachments.wait_all(routed)

    # --- knowledge ---------------------------------------------------------------------------

    def receive(
        self, pubend: PubendId, number: int, knowledge: KnowledgeRange, first: bool
    ) -> None:
        """Process a received knowledge range, with publications or without.

        A range that contradicts what is known counts as lost, as an invalid one does.
        """
        routed = self._routed.get(pubend)
        if routed is None or routed.log is not None:
            return  # no receiver needs it any more, or the log is here
        if self._paths.is_best_effort(pubend):
            self._best_effort.receive(routed, number, knowledge)
            return
        if scope_of(number) < routed.scope:
            self._context.mark("knowledge of an older scope")
            return
        if not routed.stream_epochs.knows(knowledge.stream_epoch):
            self._upstream.request_stream_epoch(
                routed, StreamEpochRequest(pubend, knowledge.stream_epoch)
            )
        try:
            self.take(routed, knowledge, first=first, opens=False)
        except KnowledgeConflictError:  # raised before anything has changed
            self._context.mark("contradictory knowledge range")

    def take(
        self, routed: RoutedPubend, knowledge: KnowledgeRange, *, first: bool, opens: bool
    ) -> None:
        """Add a knowledge range to the istream and send what is new (R34)."""
        self._withheld[routed.pubend] = routed
        top = routed.stream.top
        new_ranges = routed.stream.accumulate(knowledge)
        routed.note_received(knowledge, new_ranges, top)
        opens = opens or routed.stream_epochs.opens_at(knowledge)
        self._sender.forward(routed, knowledge, new_ranges, first=first, opens=opens)
        cache_bytes = self._context.parameters.cache_bytes
        if self._account.bytes > cache_bytes:
            shrink(self._account, (each.stream for each in self._routed.values()), cache_bytes)
        routed.bound_stream_epochs()

    def _found(self, routed: RoutedPubend, knowledge: KnowledgeRange) -> None:
        """Send a range that was read from a log of this broker to answer nacks."""
        if self._routed.get(routed.pubend) is not routed:
            return  # the pubend has ended
        self.take(routed, knowledge, first=False, opens=False)

    def cached(self, pubend: PubendId, low: Tick, high: Tick) -> list[KnowledgeRange]:
        """Return the known ranges from a tick up to the first gap, at most about one frame."""
        routed = self._routed.get(pubend)
        found: list[KnowledgeRange] = []
        remaining = self._context.parameters.frame_events_max
        for knowledge in () if routed is None else routed.stream.run(low):
            if knowledge.low > high or remaining <= 0:
                break
            found.append(cut(knowledge, knowledge.low, high))
            remaining -= len(knowledge.publications)
        return found

    # --- changes of the tree (R13, RS-11, RS-37) ---------------------------------------------

    def reshape(self, change: TreeChange) -> None:
        """Apply a step of the tree.

        Receivers that are no longer beyond this broker, or that know an older tree, are notified.
        Those that have applied the change attach again.
        """
        self._scope += 1
        for routed in self._routed.values():
            forgets = routed.log is None and change.forgets(self._paths.path(routed.pubend))
            if forgets:
                self._context.mark("scope raised")
                routed.forget_everything(self._scope)
            self._update_path(routed, forgets=forgets)

    def reshaped(self) -> None:
        """All components have taken the new tree: answer the deferred attach requests."""
        for peer, attach in self._deferred.take():
            self.attach(peer, attach)

    def turn(self, pubend: PubendId) -> None:
        """Apply a changed path to a pubend."""
        routed = self._routed.get(pubend)
        if routed is not None:
            self._update_path(routed, forgets=False)

    def _update_path(self, routed: RoutedPubend, *, forgets: bool) -> None:
        """End the attachments that are no longer on the path, and renew the feed if necessary."""
        self._attachments.update_path(routed)
        routed.follow_tree(forgets=forgets)

    # --- sessions and time -------------------------------------------------------------------

    def session_opened(self, peer: BrokerId, cell: CellId) -> None:
        """A peer session has opened: try the feed candidates again."""
        del peer, cell
        for routed in self._routed.values():
            if routed.feed is not None:
                routed.feed.session_opened()

    def session_closed(self, peer: BrokerId) -> None:
        """Drop everything that belonged to a session (R2)."""
        self._deferred.session_closed(peer)
        self._epoch_sender.forget(peer)
        for routed in list(self._routed.values()):
            self._attachments.session_closed(routed, peer)
            if routed.feed is not None:
                routed.feed.session_closed(peer)

    def _send_silence(self) -> None:
        pause_us = microseconds(ms=self._context.parameters.silence_ms)
        self._context.call_later(pause_us, self._send_silence)
        withheld, self._withheld = self._withheld, {}
        self._sender.send_silence(
            routed for routed in withheld.values() if not self._paths.is_best_effort(routed.pubend)
        )

    def _expire(self) -> None:
        """End attachments that were not refreshed, and feeds without a receiver."""
        parameters = self._context.parameters
        self._context.call_later(microseconds(ms=parameters.attach_refresh_ms), self._expire)
        oldest = self._context.now - parameters.attach_expiry_us
        for routed in list(self._routed.values()):
            self._attachments.expire(routed, oldest)
            if routed.was_idle():
                routed.close_feed()
                routed.replay.clear()
                del self._routed[routed.pubend]
        self._best_effort.trim()

    def _get(self, pubend: PubendId) -> RoutedPubend:
        routed = self._routed.get(pubend)
        if routed is None:
            shared = (self._account, self._replay_account, self.pauses)
            routed = RoutedPubend(self._context, pubend, self._paths, *shared, self, self._scope)
            self._routed[pubend] = routed
        return routed
