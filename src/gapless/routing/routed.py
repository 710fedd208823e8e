"""The state of one pubend at a router.

The attachments of the pubend share an istream, stream epochs, and a source: the log if the pubend
is at this broker, a feed otherwise.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from gapless.core.context import Context
from gapless.core.ids import BrokerId, PubendId
from gapless.core.parameters import microseconds
from gapless.core.ticks import Tick
from gapless.feeds.feed import Feed
from gapless.messages.streams import BestEffortPosition, KnowledgeRange
from gapless.routing.attachment import Attachment
from gapless.routing.attachment_state import AttachmentState
from gapless.routing.pauses import StreamPauses
from gapless.routing.protocols import HostedLog, Paths
from gapless.routing.replay_buffer import ReplayAccount, ReplayBuffer
from gapless.stream.curiosity import OutstandingNacks
from gapless.stream.epochs import StreamEpochs
from gapless.stream.istream import IStream, MemoryAccount

__all__ = ["RoutedPubend", "SourceListener"]


class SourceListener(Protocol):
    """Is notified when the source of a pubend is found or lost."""

    def source_found(self, routed: RoutedPubend) -> None:
        """The router has a feeder for a pubend."""

    def source_lost(self, pubend: PubendId) -> None:
        """The router has lost the feeder of a pubend."""

    def ticks_missing(self, routed: RoutedPubend) -> None:
        """The feeder of a pubend has sent ticks that have not arrived."""

    def top_raised(self, routed: RoutedPubend) -> None:
        """A higher tick of a pubend is known to exist."""


class RoutedPubend:
    """One pubend at a router; it is the listener of its own feed."""

    __slots__ = (
        "_advanced",
        "_context",
        "_epochs_requested",
        "_is_idle",
        "_listener",
        "_paths",
        "_pauses",
        "attachments",
        "feed",
        "log",
        "outstanding_nacks",
        "pubend",
        "released",
        "replay",
        "scope",
        "stream",
        "stream_epochs",
    )

    def __init__(
        self,
        context: Context,
        pubend: PubendId,
        paths: Paths,
        account: MemoryAccount,
        replay_account: ReplayAccount,
        pauses: StreamPauses,
        listener: SourceListener,
        scope: int,
    ) -> None:
        self._context = context
        self._paths = paths
        self._pauses = pauses
        self._listener = listener
        self.pubend = pubend
        self.scope = scope
        """Ranges that arrive under an older scope may be silent for too few SHBs (RS-37)."""
        self.stream = IStream(pubend, account)
        self.replay = ReplayBuffer(replay_account)
        """Of a best-effort pubend; of others it is empty."""
        self.outstanding_nacks = OutstandingNacks(context.parameters)
        self.log: HostedLog | None = None
        self.feed: Feed | None = None
        self.attachments: dict[tuple[BrokerId, int], Attachment] = {}
        self.stream_epochs = StreamEpochs()
        self.released: Tick = 0
        self._is_idle = False
        """Whether there was no receiver at the last review."""
        self._epochs_requested: dict[int, int] = {}
        """When each unknown stream epoch was last requested."""
        self._advanced: tuple[Tick, int] = (0, 0)
        """The greatest tick in an AdvanceRequest to the feeder, and its time."""

    @property
    def feeder(self) -> BrokerId | None:
        """The broker that feeds this router now."""
        return None if self.feed is None else self.feed.feeder

    @property
    def has_source(self) -> bool:
        """Whether there is a source of new knowledge: the log or a feeder."""
        return self.log is not None or self.feeder is not None

    @property
    def relayed(self) -> bool:
        """Whether a hop between the pubend and this router is relayed."""
        return self.feed is not None and self.feed.relayed

    @property
    def is_eager(self) -> bool:
        """Whether a receiver in total order waits."""
        return any(each.eager for each in self.attachments.values())

    def add(self, attachment: Attachment) -> None:
        """Add an attachment."""
        self.attachments[attachment.peer, attachment.number] = attachment

    def remove(self, key: tuple[BrokerId, int]) -> Attachment:
        """Remove an attachment and return it."""
        return self.attachments.pop(key)

    def fed_attachments(self) -> list[Attachment]:
        """Return the attachments that are fed."""
        return [each for each in self.attachments.values() if each.state is AttachmentState.FED]

    def review_eager(self) -> None:
        """Set at the source whether silence must be sent soon."""
        if self.log is not None:
            self.log.set_eager(self.is_eager)
        elif self.feed is not None:
            self.feed.set_eager(self.is_eager)

    # --- the source --------------------------------------------------------------------------

    def host(self, log: HostedLog, released: Tick) -> None:
        """Make a log of this broker the source, and end the feed."""
        self.log = log
        self.raise_released(released)
        self.raise_top(log.top)
        self.close_feed()
        log.set_eager(self.is_eager)

    def seek_feed(self) -> None:
        """Open a feed unless there is a feed or a log."""
        if self.feed is None and self.log is None:
            self.feed = Feed(
                self._context,
                self.pubend,
                self._paths.attach_kind(self.pubend),
                self._context.identity.cell,
                self,
                self._paths,
                eager=self.is_eager,
                scope=self.scope,
            )

    def close_feed(self) -> None:
        """End the feed, if there is one."""
        if self.feed is not None:
            self.feed.close()
            self.feed = None
            self._pauses.forget(self.pubend)

    def follow_tree(self, *, forgets: bool) -> None:
        """Let the feed follow a step of the tree; a feed that loses its feeder by it pauses."""
        feed = self.feed
        if feed is None:
            return
        was_fed = feed.feeder is not None
        if forgets:
            feed.renew(self.scope)
        else:
            feed.follow_tree(self.scope)
        if was_fed and feed.feeder is None:
            self._pauses.begin(self.pubend)

    def was_idle(self) -> bool:
        """Return whether a feed has had no receiver at two consecutive reviews.

        One review is not enough: a receiver that is about to attach again would have to wait until
        the whole path is set up again.
        """
        was_idle = self._is_idle
        self._is_idle = not self.attachments and self.feed is not None
        return was_idle and self._is_idle

    @property
    def after(self) -> BestEffortPosition | None:
        """The position of best effort up to which everything was received."""
        return self.replay.top

    def feed_found(self, at: Tick, position: BestEffortPosition | None) -> None:
        """The feed has a feeder."""
        self._resumed(at, position)
        self._begin_replay(position)
        # also when nothing is cached: a router that forgot this would offer tick 0 (A24)
        self.raise_top(at)
        self._epochs_requested.clear()
        self.outstanding_nacks.clear()
        self._advanced = (0, 0)
        self._listener.source_found(self)

    def _resumed(self, at: Tick, position: BestEffortPosition | None) -> None:
        if position is not None or self._paths.is_best_effort(self.pubend):
            self._pauses.found_best_effort(self.pubend)
        else:
            self._pauses.found(self.pubend, at, self.stream.top)

    def _begin_replay(self, position: BestEffortPosition | None) -> None:
        """The feeder sends everything above a position; a higher one than was asked for is a gap."""
        asked = self.replay.top
        if position is not None and (asked is None or position > asked):
            self.replay.begin(position, is_floor=asked is not None)

    def begin_replay_anew(self) -> None:
        """Forget what was received above the least position of a receiver (RS-14)."""
        positions = [each.position for each in self.attachments.values()]
        known = [each for each in (*positions, self.replay.top) if each is not None]
        if known:
            self.replay.begin(min(known))

    def feed_sent_up_to(self, at: Tick) -> bool:
        """The feeder has sent everything up to a tick; return whether some of it did not arrive."""
        is_new = at > self.stream.top
        self.raise_top(at)
        if self.feed is not None and self._paths.is_best_effort(self.pubend):
            self.feed.note_progress()  # without silence, a reply is the only sign of progress
            return False
        if is_new:
            self._listener.ticks_missing(self)
        return is_new

    def feed_lost(self) -> None:
        """The feed has no feeder."""
        self.outstanding_nacks.clear()
        self._listener.source_lost(self.pubend)

    def end(self) -> None:
        """Forget the stream and its source: the pubend is a tombstone."""
        self.log = None
        self.close_feed()
        self.stream.forget_all()

    # --- progress ----------------------------------------------------------------------------

    def raise_top(self, tick: Tick) -> None:
        """Note that a tick exists, of which nothing else is known (R8)."""
        if tick > self.stream.top:
            self.stream.raise_top(tick)
            self._listener.top_raised(self)

    def note_received(
        self, knowledge: KnowledgeRange, new_ranges: list[KnowledgeRange], top: Tick
    ) -> None:
        """Note a received range, what was new of it, and the top before it."""
        self.outstanding_nacks.answered(knowledge.low, knowledge.high)
        self.measure_pause(new_ranges)
        if self.feed is not None and self.stream.top > top:
            self.feed.note_progress()
        elif self.feed is not None and new_ranges:
            self.feed.note_received()

    def measure_pause(self, new_ranges: Iterable[KnowledgeRange]) -> None:
        """Note ranges that were not known before, if a pause is measured."""
        if self._pauses.under_way:
            self._pauses.received(self.pubend, new_ranges)

    def raise_released(self, up_to: Tick) -> None:
        """Note that the log is released up to a tick."""
        self.released = max(self.released, up_to)

    def forget_everything(self, scope: int) -> None:
        """Forget the received ranges, and drop those that arrive under an older scope (RS-37)."""
        self.scope = scope
        self.stream.forget_all()
        self.begin_replay_anew()

    def keep_stream_epochs(self, most: int, newest: int) -> None:
        """Forget the lowest ranges and their stream epochs, so that at most ``most`` remain (R38).

        ``newest`` stream epochs are kept although no range uses them.
        """
        used = self.stream.stream_epochs()[-most:]
        oldest = next(each.low for each in self.stream if each.stream_epoch == used[0])
        self.stream.forget_up_to(oldest - 1)
        self.stream_epochs.forget(used, newest)

    def bound_stream_epochs(self) -> None:
        """Keep so many stream epochs at most, of those that are not in the log of this broker."""
        if self.log is not None:
            return
        parameters = self._context.parameters
        kept = parameters.stream_epochs_kept
        if len(self.stream_epochs) > 2 * (kept + len(self.stream)) + 1:
            self.stream_epochs.forget(self.stream.stream_epochs(), kept)
        most = max(kept, parameters.stream_epochs_max)
        if len(self.stream_epochs) > 2 * most + 1:
            self.keep_stream_epochs(most, kept)

    def epoch_request_due(self, number: int) -> bool:
        """Return whether to request an unknown stream epoch now, and if so note it as requested.

        Many ranges may need the same epoch.
        """
        now = self._context.now
        recent = now - microseconds(ms=self._context.parameters.nrt_min_ms)
        requested_at = self._epochs_requested.get(number)
        if requested_at is not None and requested_at > recent:
            return False
        self._epochs_requested = {
            number: at for number, at in self._epochs_requested.items() if at > recent
        }
        self._epochs_requested[number] = now
        return True

    def advance_due(self, tick: Tick) -> Tick | None:
        """Return the tick for an AdvanceRequest to the feeder, or None if one was just sent (R51).

        The greatest tick covers all receivers. As with nacks, a repetition is passed on if the last
        request is so old that it may be lost.
        """
        now, (greatest, at) = self._context.now, self._advanced
        lately = now - at < microseconds(ms=self._context.parameters.nrt_min_ms)
        if tick <= greatest and lately:
            return None
        greatest = max(tick, greatest)
        self._advanced = (greatest, now)
        return greatest
