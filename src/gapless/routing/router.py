"""The router's streams: knowledge comes in by a feed and goes out by attachments (R10, R34 to R40).

Per pubend a router has an input stream (what it knows), a feed that it gets it from unless it is the
pubend's own broker, and attachments: the receivers it feeds, each with how far it was sent and what it
is curious about. A piece goes to a receiver filtered by the tables of its direction where these are
sufficient, and whole where they are not. First-time knowledge without any event for the receiver is
withheld and told by a timer, many pubends in one message; everything else is sent at once.

A router makes F only by filtering, and never claims a tick that it does not know: the receiver sees the
gap and asks. What it cannot answer it asks its feeder for, once for all receivers (:mod:`.nacks`). Who
is fed, and who is not, is in :mod:`.receivers`.

What a router was told silent is silent for those behind its cell. If more come to be behind it, it
raises its *scope*: it forgets all that it was told, asks its feeders anew, and drops what still comes
under an older scope (R13). What it has of its own log was never filtered, and stays.
"""

from __future__ import annotations

from collections.abc import Iterable

from gapless.core.ids import BrokerId, CellId, PubendId
from gapless.core.machine import Context
from gapless.core.parameters import microseconds
from gapless.core.ticks import Tick, TickRange
from gapless.feeds.feed import Feed, scope_of
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
from gapless.propagation.sufficiency import Receiver
from gapless.routing.attachments import (
    Attachment,
    HostedLog,
    RoutedPubend,
    RoutingPolicy,
)
from gapless.routing.epoch_sender import StreamEpochSender
from gapless.routing.nacks import UpstreamRequests
from gapless.routing.receivers import FedPeerCallback, Receivers, review_eager
from gapless.routing.sending import MatchMasks, StreamSender
from gapless.stream.cache import shrink
from gapless.stream.istream import MemoryAccount
from gapless.stream.ranges import cut

__all__ = ["Attachment", "HostedLog", "Router", "RoutingPolicy"]


class _FeedOwner:
    """Lets a router hear from the feed of one pubend."""

    def __init__(self, router: Router, pubend: PubendId) -> None:
        self._router = router
        self._pubend = pubend

    def feed_found(self, at: Tick) -> None:
        self._router.feed_found(self._pubend, at)

    def feed_sent_up_to(self, at: Tick) -> None:
        self._router.feed_sent_up_to(self._pubend, at)

    def feed_lost(self) -> None:
        self._router.feed_lost(self._pubend)


class Router:
    """The streams of one broker as a router."""

    def __init__(self, context: Context, routing: RoutingPolicy, set_fed: FedPeerCallback) -> None:
        self._context = context
        self._routing = routing
        self._account = MemoryAccount()
        self._routed: dict[PubendId, RoutedPubend] = {}
        self._epoch_sender = StreamEpochSender(context)
        self._sender = StreamSender(context, routing, self._epoch_sender)
        self._receivers = Receivers(context, routing, set_fed)
        self._upstream = UpstreamRequests(context, self._found)
        self._scope = 0
        context.call_later(microseconds(ms=context.parameters.silence_ms), self._send_silence)
        context.call_later(microseconds(ms=context.parameters.attach_refresh_ms), self._expire)

    # --- the pubends of this broker ----------------------------------------------------------

    def host(self, pubend: PubendId, log: HostedLog, released: Tick) -> None:
        """Serve a pubend from its own log; who has waited for a feed is fed now."""
        routed = self._get(pubend)
        routed.log = log
        routed.released = max(released, routed.released)
        routed.stream.raise_top(log.top)
        if routed.feed is not None:
            routed.feed.close()
            routed.feed = None
        log.set_eager(routed.is_eager)
        self._receivers.confirm_waiting(routed)

    def forward(
        self, pubend: PubendId, knowledge: KnowledgeRange, opened: StreamEpochRecord | None
    ) -> None:
        """Send out a new piece of a pubend of this broker."""
        routed = self._get(pubend)
        if self._routing.is_best_effort(pubend):
            self._relay(routed, knowledge)
            return
        if opened is not None:
            routed.stream_epochs.learn_record(opened)
        self._take(routed, knowledge, first=True, opens=opened is not None)

    def learn_stream_epochs(self, pubend: PubendId, records: Iterable[StreamEpochRecord]) -> None:
        """Take over the regimes that a hosted pubend had before a restart."""
        for record in records:
            self._get(pubend).stream_epochs.learn_record(record)

    def set_released(self, pubend: PubendId, up_to: Tick, stream_epochs: list[int]) -> None:
        """A log of this broker no longer has ticks up to this one; these regimes it still has."""
        routed = self._get(pubend)
        routed.stream_epochs.forget(stream_epochs, self._context.parameters.stream_epochs_kept)
        routed.released = max(routed.released, up_to)
        routed.stream.forget_up_to(up_to)

    # --- what others ask ---------------------------------------------------------------------

    def feeder(self, pubend: PubendId) -> BrokerId | None:
        """Return who feeds this router now."""
        routed = self._routed.get(pubend)
        return None if routed is None else routed.feeder

    @property
    def cached_bytes(self) -> int:
        """What all streams keep to answer from, about."""
        return self._account.bytes

    def is_paused(self, peer: BrokerId) -> bool:
        """Say whether a peer is sent nothing of the streams, because too much waits for it."""
        return peer in self._sender.slow

    def top(self, pubend: PubendId) -> Tick:
        """Return how far the stream has come, as far as this router knows."""
        routed = self._routed.get(pubend)
        return 0 if routed is None else routed.stream.top

    # --- receivers ---------------------------------------------------------------------------

    def attach(self, peer: BrokerId, message: Attach) -> None:
        """Feed a receiver, or say why not (R10)."""
        pubend, number = message.pubend, message.number
        receiver = Receiver(message.kind, message.receiver)
        routed = self._routed.get(pubend)
        held = None if routed is None else routed.attachments.get((peer, number))
        if held is not None and self._routing.has_shape(receiver, message.shape_versions):
            assert routed is not None
            self._receivers.refresh(routed, held, eager=message.eager)
            return
        reason = self._receivers.refusal(pubend, receiver, message.shape_versions)
        if reason is not None:
            if held is not None and routed is not None:
                self._receivers.drop(routed, (peer, number))
                review_eager(routed)
            self._context.send(peer, FeedUnavailable(pubend, number, reason))
            return
        routed = self._get(pubend)
        held = self._receivers.admit(routed, peer, message)
        if routed.has_source:
            self._receivers.confirm_feed(routed, held)
        else:
            self._seek_feed(routed)
            self._receivers.defer(routed, held)

    def detach(self, peer: BrokerId, message: Detach) -> None:
        """Stop feeding a receiver."""
        routed = self._routed.get(message.pubend)
        if routed is not None and (peer, message.number) in routed.attachments:
            self._receivers.drop(routed, (peer, message.number))
            review_eager(routed)

    def nack(self, peer: BrokerId, message: Nack) -> None:
        """Answer what is known, ask for the rest (R37)."""
        routed = self._routed.get(message.pubend)
        if routed is None or self._routing.is_best_effort(message.pubend):
            return
        receivers = [each for each in routed.attachments.values() if each.peer == peer]
        masks = MatchMasks(self._routing)
        unknown: list[TickRange] = []
        for low, high in message.ranges:
            if low <= routed.released:
                self._context.send(peer, Released(message.pubend, routed.released))
                low = routed.released + 1  # noqa: PLW2901 - the rest of the range
            if low > high:
                continue
            for attachment in receivers:
                attachment.curious.add(low, high, self._context.now)
                self._sender.answer(routed, attachment, low, high, masks)
            unknown += routed.stream.gaps(low, min(high, routed.stream.top))
        self._sender.flush()
        self._upstream.request_ticks(routed, unknown)

    def stream_epoch_requested(self, peer: BrokerId, message: StreamEpochRequest) -> None:
        """Tell a regime, or ask the feeder for it (R39)."""
        routed = self._routed.get(message.pubend)
        if routed is None or self._routing.is_best_effort(message.pubend):
            return
        if not self._epoch_sender.answer(peer, message, routed.stream_epochs):
            self._upstream.request_stream_epoch(routed, message)

    def advance(self, peer: BrokerId, message: AdvanceRequest) -> None:
        """Ask on for silence up to a tick that a receiver waits for; the greatest speaks for all.

        Who waits repeats it (R51). A repetition travels on if the last one was long enough ago to
        have been lost, as with nacks.
        """
        pubend, tick = message.pubend, message.tick
        routed = self._routed.get(pubend)
        if routed is None or self._routing.is_best_effort(pubend):
            return
        if tick <= routed.stream.top:
            for attachment in routed.attached_to(peer):
                if attachment.sent < tick and peer not in self._sender.slow:
                    top, masks = routed.stream.top, MatchMasks(self._routing)
                    self._sender.send_through(routed, attachment, top, masks)
            self._sender.flush()
        elif routed.log is not None:
            routed.log.advance(tick)
        elif routed.feeder is not None:
            greatest, at = routed.advanced
            lately = self._context.now - at < microseconds(ms=self._context.parameters.nrt_min_ms)
            if tick <= greatest and lately:
                return
            routed.advanced = (max(tick, greatest), self._context.now)
            self._context.send(routed.feeder, AdvanceRequest(pubend, max(tick, greatest)))

    def ack_expected(self, peer: BrokerId, message: AckExpected) -> None:
        """Learn that a stream has come as far as an acknowledgement is expected (R57).

        The last message before a crash of the pubend may have reached nobody; a router that has not
        heard of its tick would not pass on a nack for it.
        """
        routed = self._routed.get(message.pubend)
        if routed is not None and routed.feeder == peer:
            routed.stream.raise_top(message.tick)

    def pause_peer(self, peer: BrokerId) -> None:
        """Send a peer nothing of the streams: too much waits for it already (R40)."""
        self._context.mark("receiver was slow")
        self._sender.slow.add(peer)

    def resume_peer(self, peer: BrokerId) -> None:
        """Go on with what comes; a peer sees what it has missed as a gap, and asks (R40).

        What it asked for meanwhile is answered now. Otherwise a peer that is slow most of the time
        repeats its nacks, less and less often, and most of them come when it is slow.
        """
        if peer not in self._sender.slow:
            return
        self._sender.slow.discard(peer)
        for routed in self._routed.values():
            asked: list[TickRange] = []
            for attachment in routed.attachments.values():
                if attachment.peer == peer and not attachment.waiting:
                    attachment.sent = max(attachment.sent, routed.stream.top)
                    asked += attachment.curious.take(0, routed.stream.top)
            if asked:
                self.nack(peer, Nack(routed.pubend, tuple(asked)))

    # --- the own feed ------------------------------------------------------------------------

    def attached(self, peer: BrokerId, message: Attached) -> None:
        """A feeder has answered."""
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
        """Learn what a regime number means."""
        routed = self._routed.get(message.pubend)
        if routed is not None and routed.stream_epochs.learn(message):
            self._epoch_sender.pass_on(message.pubend, message.number, routed.stream_epochs)

    def released(self, message: Released) -> None:
        """Learn that a log has lost its past, and tell those who asked for it."""
        routed = self._routed.get(message.pubend)
        if routed is None or message.up_to <= routed.released:
            return
        routed.released = message.up_to
        for attachment in routed.attachments.values():
            if attachment.curious.take(0, message.up_to):
                self._context.send(attachment.peer, message)

    def unreadable(self, peer: BrokerId, message: Unreadable) -> None:
        """Learn that a log cannot be read somewhere, and tell those who asked for that (P8)."""
        routed = self._routed.get(message.pubend)
        if routed is not None and routed.log is None and routed.feeder == peer:
            self._upstream.send_unreadable(routed, message)

    def feed_found(self, pubend: PubendId, at: Tick) -> None:
        """There is a feeder: those who waited are fed too."""
        routed = self._routed[pubend]
        # also when nothing is cached: a router that forgot this would offer tick 0 (A24)
        routed.stream.raise_top(at)
        routed.stream_epochs_requested.clear()
        routed.outstanding_nacks.clear()
        routed.advanced = (0, 0)
        self._receivers.confirm_waiting(routed)

    def feed_sent_up_to(self, pubend: PubendId, at: Tick) -> None:
        """The feeder has sent everything up to a tick."""
        routed = self._routed[pubend]
        routed.stream.raise_top(at)
        if routed.feed is not None and self._routing.is_best_effort(pubend):
            routed.feed.note_progress()  # it tells no silence: that it answers is its sign of life

    def feed_lost(self, pubend: PubendId) -> None:
        """There is no feeder; if none is found soon, receivers must look elsewhere."""
        routed = self._routed[pubend]
        routed.outstanding_nacks.clear()
        self._context.call_later(
            microseconds(ms=self._context.parameters.attach_timeout_ms),
            lambda: self._notify_feed_lost(pubend),
        )

    def _notify_feed_lost(self, pubend: PubendId) -> None:
        routed = self._routed.get(pubend)
        if routed is not None and not routed.has_source:
            self._receivers.notify_feed_lost(routed)

    def _seek_feed(self, routed: RoutedPubend) -> None:
        if routed.feed is None and routed.log is None:
            pubend = routed.pubend
            routed.feed = Feed(
                self._context,
                pubend,
                self._routing.attach_kind(pubend),
                self._context.identity.cell,
                _FeedOwner(self, pubend),
                lambda: self._routing.candidates(pubend),
                eager=routed.is_eager,
                shape_versions=self._routing.shape_versions,
                scope=self._scope,
            )

    def _review_need(self, routed: RoutedPubend) -> None:
        """End the feed of a pubend that had no receiver at the last look either.

        Not at once: a receiver that asks anew would find the whole way torn down.
        """
        if routed.attachments or routed.feed is None:
            routed.is_idle = False
        elif not routed.is_idle:
            routed.is_idle = True
        else:
            routed.feed.close()
            routed.feed = None
            del self._routed[routed.pubend]

    # --- knowledge ---------------------------------------------------------------------------

    def receive(
        self, pubend: PubendId, number: int, knowledge: KnowledgeRange, first: bool
    ) -> None:
        """Take knowledge, with data or without."""
        routed = self._routed.get(pubend)
        if routed is None or routed.log is not None:
            return  # nobody here needs it any more, or it is our own
        if self._routing.is_best_effort(pubend):
            self._relay(routed, knowledge)
            return
        if scope_of(number) < self._scope:
            self._context.mark("knowledge of an older scope")
            return
        if not routed.stream_epochs.knows(knowledge.stream_epoch):
            self._upstream.request_stream_epoch(
                routed, StreamEpochRequest(pubend, knowledge.stream_epoch)
            )
        self._take(routed, knowledge, first=first, opens=False)

    def _take(
        self, routed: RoutedPubend, knowledge: KnowledgeRange, *, first: bool, opens: bool
    ) -> None:
        """Accumulate a piece and pass on what is new (R34)."""
        top = routed.stream.top
        new_ranges = routed.stream.accumulate(knowledge)
        routed.outstanding_nacks.answered(knowledge.low, knowledge.high)
        if routed.feed is not None and routed.stream.top > top:
            routed.feed.note_progress()
        opens = opens or routed.stream_epochs.opens_at(knowledge)
        self._sender.forward(routed, knowledge, new_ranges, first=first, opens=opens)
        cache_bytes = self._context.parameters.cache_bytes
        if self._account.bytes > cache_bytes:
            shrink(self._account, (each.stream for each in self._routed.values()), cache_bytes)
        kept = self._context.parameters.stream_epochs_kept
        if routed.log is None and len(routed.stream_epochs) > 2 * (kept + len(routed.stream)) + 1:
            routed.stream_epochs.forget(routed.stream.stream_epochs(), kept)

    def _found(self, routed: RoutedPubend, knowledge: KnowledgeRange) -> None:
        """Take what was read from a log of this broker because somebody asked for it."""
        self._take(routed, knowledge, first=False, opens=False)

    def _relay(self, routed: RoutedPubend, knowledge: KnowledgeRange) -> None:
        if self._sender.relay(routed, knowledge) and routed.feed is not None:
            routed.feed.note_progress()

    def cached(self, pubend: PubendId, low: Tick, high: Tick) -> list[KnowledgeRange]:
        """Return what is known from a tick on without a gap, about as much as a frame holds."""
        routed = self._routed.get(pubend)
        found: list[KnowledgeRange] = []
        room = self._context.parameters.frame_events_max
        for knowledge in () if routed is None else routed.stream.run(low):
            if knowledge.low > high or room <= 0:
                break
            found.append(cut(knowledge, knowledge.low, high))
            room -= len(knowledge.publications)
        return found

    # --- the tree around (R13) ---------------------------------------------------------------

    def reshape(self, *, wider: bool) -> None:
        """Go on in a tree that has changed; ``wider`` if more is behind this cell than before.

        Receivers that no longer lie beyond this broker, or that know another shape of the cells
        between, are told so; those that have heard of the change ask again.
        """
        if wider:
            self._scope += 1
            self._context.mark("scope raised")
        for routed in self._routed.values():
            if wider and routed.log is None:
                routed.stream.forget_all()
            self._update_path(routed, wider=wider)

    def turn(self, pubend: PubendId) -> None:
        """A pubend lies in another direction than was thought."""
        routed = self._routed.get(pubend)
        if routed is not None:
            self._update_path(routed, wider=False)

    def _update_path(self, routed: RoutedPubend, *, wider: bool) -> None:
        """End what is not on the way of a pubend any more, and ask anew for what is."""
        self._receivers.update_path(routed)
        if routed.feed is not None and (wider or not routed.feed.is_current):
            routed.feed.renew(self._scope)

    # --- sessions and time -------------------------------------------------------------------

    def session_opened(self, peer: BrokerId, cell: CellId) -> None:
        """Somebody can be asked who could not before."""
        del peer, cell
        for routed in self._routed.values():
            if routed.feed is not None:
                routed.feed.session_opened()

    def session_closed(self, peer: BrokerId) -> None:
        """What belonged to a session is gone with it (R2)."""
        self._epoch_sender.forget(peer)
        for routed in list(self._routed.values()):
            self._receivers.session_closed(routed, peer)
            if routed.feed is not None:
                routed.feed.session_closed(peer)

    def _send_silence(self) -> None:
        self._context.call_later(
            microseconds(ms=self._context.parameters.silence_ms), self._send_silence
        )
        self._sender.send_silence(
            routed
            for routed in self._routed.values()
            if not self._routing.is_best_effort(routed.pubend)
        )

    def _expire(self) -> None:
        """Let go who has not asked again, and what nobody asks for."""
        self._context.call_later(
            microseconds(ms=self._context.parameters.attach_refresh_ms), self._expire
        )
        for routed in list(self._routed.values()):
            self._receivers.expire(routed)
            self._review_need(routed)

    def _get(self, pubend: PubendId) -> RoutedPubend:
        routed = self._routed.get(pubend)
        if routed is None:
            routed = RoutedPubend(pubend, self._context.parameters, self._account)
            self._routed[pubend] = routed
        return routed
