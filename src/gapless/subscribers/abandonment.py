"""Pubends that nobody waits for: their brokers were retired (R26).

A retired broker's pubend that a host has joined is **abandoned** as soon as nobody feeds it. Nothing of it is
forgotten: subscriptions keep their places on it, and go on there if it is ever fed again, or its broker says that it
is back. But nobody waits meanwhile:

- who needs it no more does not take leave of it (R43). Should it come back, its row of this host ends by R55;
- in total order the other streams go on without it (R51). When it is back, what it has below what was merged comes too
  late, and is told as a gap (:mod:`.exclusion`).

A client may come to another host than the one that went on without a pubend, or begin anew from a position that it
has kept, when the pubend is back. Its place there is from before then, and below what it has merged: the same rule
holds for it.

That a pubend is abandoned is on disk with the join: a retirement may be forgotten when there are too many.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from gapless.core.ids import PubendId
from gapless.core.ticks import Tick
from gapless.messages.clients import Order
from gapless.messages.records import JoinedPubendRecord, PutRecord
from gapless.subscribers.cursor import Cursor

if TYPE_CHECKING:
    from gapless.subscribers.host import SubscriberHost

__all__ = ["AbandonedPubends"]


class AbandonedPubends:
    """Which of the pubends that a host has joined are abandoned."""

    def __init__(self, host: SubscriberHost, joined_pubends: Iterable[JoinedPubendRecord]) -> None:
        self._host = host
        self._pubends = {each.pubend for each in joined_pubends if each.abandoned}
        self.is_retired: Callable[[PubendId], bool] = _nobody_is
        """Says whether the broker of a pubend was retired."""
        self.returned_at: Callable[[PubendId], Tick] = _never
        """Says above which tick nobody has gone on without a pubend whose broker is back; 0 if it was not away."""
        self.found: Callable[[PubendId], None] = _nobody_cares
        """Hears of every pubend that is there again, or was there all the time."""

    def __contains__(self, pubend: PubendId) -> bool:
        return pubend in self._pubends

    def look_at(self, pubend: PubendId) -> None:
        """Abandon a pubend if its broker was retired and nobody feeds it."""
        membership = self._host.memberships.get(pubend)
        subend = self._host.subends.get(pubend)
        if membership is None or not self.is_retired(pubend):
            return
        if subend is None or subend.feeder is None:
            if pubend not in self._pubends:
                self._pubends.add(pubend)
                self._write(JoinedPubendRecord(pubend, membership, abandoned=True))
                self._review_cursors(pubend)
            self._host.give_up_leaving(pubend)

    def end(self, pubend: PubendId) -> None:
        """A pubend is there again."""
        self.found(pubend)
        if pubend in self._pubends:
            self._host.context.mark("abandoned pubend returned")
            self._pubends.remove(pubend)
            self._write(JoinedPubendRecord(pubend, self._host.memberships[pubend]))
            self._review_cursors(pubend)

    def forget(self, pubend: PubendId) -> None:
        """A pubend is not joined any more."""
        self._pubends.discard(pubend)

    def review(self, cursor: Cursor, *, positioned: bool = False, excluded: bool = False) -> None:
        """Let a strand be waited for in total order, or not; its client may have ``placed`` it."""
        subscription = cursor.subscription
        if cursor.pubend in self._pubends:
            cursor.merge_exclusion.start()
        elif subscription.client is None or subscription.order is not Order.TOTAL:
            return
        elif cursor.merge_exclusion.is_excluded:
            cursor.merge_exclusion.end()
        elif positioned:
            merged = subscription.merged
            cursor.merge_exclusion.suspect(merged if excluded else self.returned_at(cursor.pubend))

    def _review_cursors(self, pubend: PubendId) -> None:
        subend = self._host.subends.get(pubend)
        for cursor in [] if subend is None else [*subend.cursors.values()]:
            self.review(cursor)

    def _write(self, record: JoinedPubendRecord) -> None:
        self._host.context.write((PutRecord(record),), _nothing)


def _nobody_is(pubend: PubendId) -> bool:
    """Nobody knows of retirements."""
    del pubend
    return False


def _nobody_cares(pubend: PubendId) -> None:
    """Nobody remembers what was lost."""
    del pubend


def _never(pubend: PubendId) -> Tick:
    """Nobody was away."""
    del pubend
    return 0


def _nothing() -> None:
    """Nothing depends on this write."""
