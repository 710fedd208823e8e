"""Pubends that nobody waits for: their brokers were retired (R26).

A retired broker's pubend that a host has joined is **abandoned** as soon as nobody feeds it. Nothing of it is
forgotten: subscriptions keep their places on it, and go on there if it is ever fed again, or its broker says that it
is back. But nobody waits meanwhile:

- who needs it no more does not take leave of it (R43). Should it come back, its row of this host ends by R55;
- in total order the other streams go on without it (R51). When it is back, what it has below what was merged comes too
  late, and is told as a gap (:mod:`.drifting`).

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
from gapless.messages.records import JoinRecord, Store
from gapless.subscribers.cursor import Strand

if TYPE_CHECKING:
    from gapless.subscribers.host import SubscriberHost

__all__ = ["Abandonment"]


class Abandonment:
    """Which of the pubends that a host has joined are abandoned."""

    def __init__(self, host: SubscriberHost, joins: Iterable[JoinRecord]) -> None:
        self._host = host
        self._pubends = {each.pubend for each in joins if each.abandoned}
        self.is_retired: Callable[[PubendId], bool] = _nobody_is
        """Says whether the broker of a pubend was retired."""
        self.back_at: Callable[[PubendId], Tick] = _never
        """Says above which tick nobody has gone on without a pubend whose broker is back; 0 if it was not away."""
        self.found: Callable[[PubendId], None] = _nobody_cares
        """Hears of every pubend that is there again, or was there all the time."""

    def __contains__(self, pubend: PubendId) -> bool:
        return pubend in self._pubends

    def look_at(self, pubend: PubendId) -> None:
        """Abandon a pubend if its broker was retired and nobody feeds it."""
        join = self._host.joins.get(pubend)
        subend = self._host.subends.get(pubend)
        if join is None or not self.is_retired(pubend):
            return
        if subend is None or subend.feeder is None:
            if pubend not in self._pubends:
                self._pubends.add(pubend)
                self._write(JoinRecord(pubend, join, abandoned=True))
                self._review_strands(pubend)
            self._host.give_up_leaving(pubend)

    def end(self, pubend: PubendId) -> None:
        """A pubend is there again."""
        self.found(pubend)
        if pubend in self._pubends:
            self._host.context.mark("abandoned pubend is back")
            self._pubends.remove(pubend)
            self._write(JoinRecord(pubend, self._host.joins[pubend]))
            self._review_strands(pubend)

    def forget(self, pubend: PubendId) -> None:
        """A pubend is not joined any more."""
        self._pubends.discard(pubend)

    def review(self, strand: Strand, *, placed: bool = False, passed: bool = False) -> None:
        """Let a strand be waited for in total order, or not; its client may have ``placed`` it."""
        subscription = strand.subscription
        if strand.pubend in self._pubends:
            strand.drifting.begin()
        elif subscription.client is None or subscription.order is not Order.TOTAL:
            return
        elif strand.drifting.is_adrift:
            strand.drifting.end()
        elif placed:
            merged = subscription.merged
            strand.drifting.suspect(merged if passed else self.back_at(strand.pubend))

    def _review_strands(self, pubend: PubendId) -> None:
        subend = self._host.subends.get(pubend)
        for strand in [] if subend is None else [*subend.strands.values()]:
            self.review(strand)

    def _write(self, record: JoinRecord) -> None:
        self._host.context.write((Store(record),), _nothing)


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
