"""Best-effort streams at a router: sent once, in order, and replayed to a new receiver (R33, RS-14).

Theory of operation
-------------------
Nothing is requested again, and nothing is stored on a disk. But a router keeps the newest
publications of each best-effort pubend that it feeds (:mod:`.replay_buffer`). A *position* is the
incarnation of the PHB and a tick. A receiver names in its Attach the position up to which it has
everything, and the reply contains the position above which it gets everything. So a receiver that
changes its feeder loses nothing that one of both had a short time ago.

1. If the buffer is complete above the receiver's position, the receiver gets what is above it.
2. Otherwise the router attaches anew at its own feeder, with the least position of its receivers.
   Its buffer begins anew, and all receivers wait meanwhile.
3. If a waiting receiver needs a lower position than the one that was asked for, the router asks
   again.
4. Only the PHB, which is fed by no broker, replies with a higher position than it was asked for.

Each receiver gets only what is above its own position, so that nothing arrives twice. What arrives
under the number of a former attachment is dropped: the present feeder sends it again, in order.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import compress

from gapless.core.context import Context
from gapless.core.ids import PubendId
from gapless.core.parameters import microseconds
from gapless.messages.streams import BestEffortPosition, KnowledgeRange, StreamData
from gapless.routing.attachment import Attachment
from gapless.routing.attachment_state import AttachmentState
from gapless.routing.attachments import Attachments
from gapless.routing.protocols import Filtering
from gapless.routing.replay_buffer import ReplayAccount, above
from gapless.routing.routed import RoutedPubend
from gapless.routing.sending import MatchMasks, by_events

__all__ = ["BestEffortStreams"]


class BestEffortStreams:
    """The best-effort streams of a router."""

    def __init__(
        self,
        context: Context,
        filtering: Filtering,
        attachments: Attachments,
        account: ReplayAccount,
        all_routed: Mapping[PubendId, RoutedPubend],
    ) -> None:
        self._context = context
        self._filtering = filtering
        self._attachments = attachments
        self._account = account
        self._all_routed = all_routed

    # --- publications ------------------------------------------------------------------------

    def publish(self, routed: RoutedPubend, knowledge: KnowledgeRange) -> None:
        """Send a new range of a pubend of this broker."""
        self._take(routed, knowledge)

    def receive(self, routed: RoutedPubend, number: int, knowledge: KnowledgeRange) -> None:
        """Send what is new in a received range; drop what another attachment than the feed's got."""
        feed = routed.feed
        if feed is None or feed.feeder is None or number != feed.number:
            self._context.mark("best effort of a former attachment")
        elif self._take(routed, knowledge):
            feed.note_progress()

    def _take(self, routed: RoutedPubend, knowledge: KnowledgeRange) -> bool:
        before = routed.replay.top
        new = routed.replay.take(knowledge, self._context.now, self._context.parameters)
        if new is None:
            return False
        routed.stream.raise_top(new.high)
        routed.measure_pause((new,))
        if self._account.bytes > self._context.parameters.replay_buffers_bytes:
            self.trim()
        masks = MatchMasks(self._filtering)
        for attachment in routed.attachments.values():
            if attachment.state is AttachmentState.FED:
                known = attachment.position
                part = new if known is before or known is None else above(new, known)
                if part is not None:
                    attachment.sent_position(routed.replay.top)
                    self._send(routed, attachment, part, masks)
        return True

    def _send(
        self,
        routed: RoutedPubend,
        attachment: Attachment,
        knowledge: KnowledgeRange,
        masks: MatchMasks,
    ) -> None:
        """Send the filtered part of a range. Nothing is sent in place of filtered events."""
        if attachment.is_filtered:
            tables = self._filtering.best_effort_tables(routed.pubend, attachment.receiver)
            if tables is not None:
                matches = [mask & tables for mask in masks.of(knowledge.publications)]
                if not any(matches):
                    return
                if not all(matches):
                    knowledge = KnowledgeRange(
                        knowledge.low,
                        knowledge.high,
                        knowledge.stream_epoch,
                        knowledge.control_version,
                        tuple(compress(knowledge.publications, matches)),
                    )
        for part in by_events(knowledge, self._context.parameters.frame_events_max):
            data = StreamData(routed.pubend, attachment.number, part, first=True)
            self._context.send(attachment.peer, data)

    # --- receivers ---------------------------------------------------------------------------

    def attach(self, routed: RoutedPubend, attachment: Attachment) -> None:
        """Feed a new receiver above its position, or let it wait for a source that can."""
        if not routed.has_source:
            if routed.replay.top is None and attachment.position is not None:
                routed.replay.begin(attachment.position)
            routed.seek_feed()
            self._attachments.await_source(routed, attachment)
        elif self._needs_older(routed, attachment):
            self._attachments.await_source(routed, attachment)
            self._ask_again(routed)
        else:
            self._start(routed, attachment)

    def source_found(self, routed: RoutedPubend) -> None:
        """A feeder sends everything above the top: feed the waiting receivers."""
        waiting = [
            each for each in routed.attachments.values() if each.state is AttachmentState.WAITING
        ]
        if any(self._needs_older(routed, each) for each in waiting):
            self._ask_again(routed)
            return
        for attachment in waiting:
            self._start(routed, attachment)

    def _needs_older(self, routed: RoutedPubend, attachment: Attachment) -> bool:
        """Return whether a receiver needs publications that a broker nearer to the PHB may have."""
        replay, position = routed.replay, attachment.position
        if routed.log is not None or position is None or replay.begins is None:
            return False
        needed = position if replay.floor is None else max(position, replay.floor)
        return needed < replay.begins and self._may_ask(routed)

    def _may_ask(self, routed: RoutedPubend) -> bool:
        """Return whether a stream may be requested anew: not if that was done often lately."""
        parameters = self._context.parameters
        oldest = self._context.now - microseconds(ms=parameters.replay_buffer_ms)
        return routed.replay.asked_since(oldest) < parameters.replay_requests_max

    def _ask_again(self, routed: RoutedPubend) -> None:
        """Attach anew at the feeder, with the least position of all receivers (2, 3)."""
        assert routed.feed is not None, "a router without a log has a feed"
        self._context.mark("best effort requested again")
        routed.replay.note_asked(self._context.now)
        for attachment in routed.attachments.values():
            attachment.wait()
        routed.begin_replay_anew()
        routed.feed.renew(routed.scope)

    def _start(self, routed: RoutedPubend, attachment: Attachment) -> None:
        """Feed a receiver above its position, or above the lowest that there is."""
        replay = routed.replay
        if routed.log is not None and replay.top is None:
            replay.begin(BestEffortPosition(self._context.identity.incarnation, 0))
        position = attachment.position
        if position is None:
            position = replay.top
        elif replay.begins is not None and position < replay.begins:
            position = replay.begins
            if routed.log is not None:
                self._context.mark("best-effort events may be lost")
        attachment.sent_position(position)
        self._attachments.start(routed, attachment, 0 if position is None else position.tick)
        if position is None or attachment.state is not AttachmentState.FED:
            return
        for knowledge in replay.after(position):
            self._send(routed, attachment, knowledge, MatchMasks(self._filtering))
        attachment.sent_position(position if replay.top is None else max(position, replay.top))

    # --- time --------------------------------------------------------------------------------

    def trim(self) -> None:
        """Drop what is too old. If all buffers together are too large, give each an equal share."""
        filled = [each for each in self._all_routed.values() if each.replay.bytes]
        parameters, most = self._context.parameters, self._context.parameters.replay_buffers_bytes
        share = parameters.replay_buffer_bytes
        if self._account.bytes > most:
            self._context.mark("replay buffers full")
            share = min(share, most // (2 * len(filled)))
        for routed in filled:
            routed.replay.trim(self._context.now, parameters, share)
