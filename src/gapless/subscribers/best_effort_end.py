"""The end of a best-effort stream: what comes is handed over, what does not is not missed (R33).

The regime of a piece is the life of the pubend's broker. Within one life ticks grow, so what is not
above the last one has been here or comes too late; a new life begins anew.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from gapless.core.ids import BrokerId, PubendId
from gapless.core.machine import Context
from gapless.core.ticks import Tick
from gapless.feeds.feed import Candidate, Feed
from gapless.messages.streams import (
    Attached,
    AttachKind,
    FeedUnavailable,
    KnowledgeRange,
    Publication,
)

__all__ = ["BestEffortSubend", "BestEffortSubendOwner"]


class BestEffortSubendOwner(Protocol):
    """The host of which it is a part."""

    def deliver_best_effort(self, pubend: PubendId, publications: tuple[Publication, ...]) -> None:
        """Give publications without guarantee to whoever has room for them."""


class BestEffortSubend:
    """One best-effort stream at a subscriber host."""

    def __init__(
        self,
        context: Context,
        pubend: PubendId,
        owner: BestEffortSubendOwner,
        candidates: Callable[[], list[Candidate]],
    ) -> None:
        self.pubend = pubend
        self._owner = owner
        self._incarnation = 0
        self._last: Tick = 0
        name = str(context.identity.shb)
        self._feed = Feed(context, pubend, AttachKind.LEAF, name, self, candidates)

    def close(self) -> None:
        """End for good."""
        self._feed.close()

    def retry_feed(self) -> None:
        """Somebody can be asked for a feed who could not before."""
        self._feed.session_opened()

    def session_closed(self, peer: BrokerId) -> None:
        """A broker cannot be reached any more."""
        self._feed.session_closed(peer)

    def take_attached(self, peer: BrokerId, message: Attached) -> None:
        """A router feeds this host."""
        self._feed.attached(peer, message)

    def take_feed_unavailable(self, peer: BrokerId, message: FeedUnavailable) -> None:
        """A router cannot feed this host."""
        self._feed.feed_unavailable(peer, message)

    def receive(self, knowledge: KnowledgeRange) -> None:
        """Hand over what is new."""
        if knowledge.stream_epoch < self._incarnation:
            return  # of an earlier life of the pubend's broker
        if knowledge.stream_epoch > self._incarnation:
            self._incarnation, self._last = knowledge.stream_epoch, 0
        self._feed.note_progress()
        new = tuple(each for each in knowledge.publications if each.tick > self._last)
        self._last = max(self._last, knowledge.high)
        if new:
            self._owner.deliver_best_effort(self.pubend, new)

    def feed_found(self, at: Tick) -> None:
        """A feeder was found; what it has sent before is not asked for."""

    def feed_sent_up_to(self, at: Tick) -> None:
        """Everything up to a tick was sent; what is not here is lost."""
        del at
        self._feed.note_progress()

    def feed_lost(self) -> None:
        """There is no feeder."""
