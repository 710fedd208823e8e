"""The subend of a best-effort stream: it delivers what arrives and sends no nacks (R33).

The stream epoch of a range is the incarnation of the PHB. Within one incarnation ticks grow, so an
event that is not above the last tick is a duplicate or late. A new incarnation restarts the ticks.

The feed requests everything above the position up to which this SHB has everything (RS-14). What a
former feeder sends is dropped, because the present one sends it again, in order.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

from gapless.core.context import Context
from gapless.core.ids import BrokerId, PubendId
from gapless.core.ticks import Tick
from gapless.feeds.feed import Feed
from gapless.feeds.paths import FeedPaths
from gapless.messages.streams import (
    Attached,
    AttachKind,
    BestEffortPosition,
    FeedUnavailable,
    KnowledgeRange,
    Publication,
)
from gapless.packed.encode import encoded_bytes

__all__ = ["BestEffortListener", "BestEffortSubend"]


_FIRST: Final = BestEffortPosition(0, 0)


class BestEffortListener(Protocol):
    """Callbacks of a best-effort subend."""

    def count_matched(self, publications: tuple[Publication, ...], then: Callable[[], None]) -> int:
        """Return how many of the first publications may be delivered in this step.

        If these are not all, ``then`` is called in a later step.
        """

    def deliver_best_effort(self, pubend: PubendId, publications: tuple[Publication, ...]) -> None:
        """Pass best-effort publications to the matching connected subscriptions."""


class BestEffortSubend:
    """One best-effort stream at an SHB."""

    def __init__(
        self,
        context: Context,
        pubend: PubendId,
        listener: BestEffortListener,
        paths: FeedPaths,
    ) -> None:
        self.pubend = pubend
        self._listener = listener
        self._position: BestEffortPosition | None = None
        self._context = context
        self._waiting: tuple[Publication, ...] = ()
        """Publications that were not matched yet."""
        self._bytes = 0
        """The bytes that were added to them while others waited."""
        name = str(context.identity.shb)
        self._feed = Feed(context, pubend, AttachKind.LEAF, name, self, paths)

    def close(self) -> None:
        """Close the subend for good."""
        self._waiting = ()
        self._feed.close()

    def retry_feed(self) -> None:
        """A peer session has opened: try the feed candidates again."""
        self._feed.session_opened()

    def session_closed(self, peer: BrokerId) -> None:
        """A broker cannot be reached any more."""
        self._feed.session_closed(peer)

    def take_attached(self, peer: BrokerId, message: Attached) -> None:
        """A router feeds this SHB."""
        self._feed.attached(peer, message)

    def take_feed_unavailable(self, peer: BrokerId, message: FeedUnavailable) -> None:
        """A router cannot feed this SHB."""
        self._feed.feed_unavailable(peer, message)

    def receive(self, number: int, knowledge: KnowledgeRange) -> None:
        """Deliver the publications of the feeder above the position."""
        if self._feed.feeder is None or number != self._feed.number:
            return
        last = self._position or _FIRST
        if knowledge.stream_epoch < last.incarnation:
            return  # from an earlier incarnation of the PHB
        self._feed.note_progress()
        if knowledge.stream_epoch > last.incarnation:
            last = BestEffortPosition(knowledge.stream_epoch, 0)
        new = tuple(each for each in knowledge.publications if each.tick > last.tick)
        self._position = BestEffortPosition(last.incarnation, max(last.tick, knowledge.high))
        if new:
            self._queue(new)
            self._deliver()

    def _queue(self, new: tuple[Publication, ...]) -> None:
        """Add publications behind those that wait; drop them if too many bytes wait."""
        if self._waiting:
            self._bytes += encoded_bytes(new)
            if self._bytes > self._context.parameters.cache_bytes:
                self._context.mark("best effort dropped")
                self._bytes -= encoded_bytes(new)
                return
        self._waiting += new

    def _deliver(self) -> None:
        """Deliver what may be matched in this step; the rest waits for later steps."""
        waiting = self._waiting
        count = self._listener.count_matched(waiting, self._deliver) if waiting else 0
        self._waiting = waiting[count:]
        if not self._waiting:
            self._bytes = 0
        if count:
            self._listener.deliver_best_effort(self.pubend, waiting[:count])

    @property
    def after(self) -> BestEffortPosition | None:
        """The position up to which this SHB has everything; None before the first feeder."""
        return self._position

    def feed_found(self, at: Tick, position: BestEffortPosition | None) -> None:
        """A feeder was found, which sends everything above a position."""
        del at
        if position is not None:
            self._position = max(position, self._position or _FIRST)

    def feed_sent_up_to(self, at: Tick) -> bool:
        """The feeder has sent everything up to a tick; events that are not here are lost."""
        del at
        self._feed.note_progress()
        return False

    def feed_lost(self) -> None:
        """There is no feeder."""
