"""The states of a subend, and its listener (R42, R43).

A subend is :class:`Joining` until its membership is on disk, then :class:`Open` with a feed, and at
last :class:`Left`. Its stream has :class:`NoBase` until a feeder or the PHB has sent its first
tick; then it has a :class:`~gapless.stream.horizon.DoubtHorizon`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from gapless.core.ids import PubendId
from gapless.core.ticks import Tick
from gapless.feeds.feed import Feed
from gapless.messages.streams import KnowledgeRange, Publication

if TYPE_CHECKING:
    from gapless.subscribers.subend import Subend

__all__ = ["Joining", "Left", "NoBase", "Open", "SubendListener"]


class SubendListener(Protocol):
    """Callbacks of a subend."""

    def matched(self, knowledge: KnowledgeRange, then: Callable[[], None]) -> KnowledgeRange | None:
        """Return the first part of a range that may be delivered in this step, or None.

        If it is not the whole range, ``then`` is called in a later step.
        """

    def deliver(self, pubend: PubendId, publications: tuple[Publication, ...]) -> None:
        """Pass publications, in tick order, to the live cursors."""

    def feed_found(self, subend: Subend) -> None:
        """A feeder was found."""

    def feed_lost(self, subend: Subend) -> None:
        """The feeder was lost."""

    def advanced(self, subend: Subend) -> None:
        """The horizon has moved."""

    def end_reached(self, subend: Subend) -> None:
        """The horizon is at the last tick of a sealed pubend."""

    def stalled(self, subend: Subend) -> None:
        """The stream is stalled because its log is corrupt there, or continues."""

    def served_at(self, pubend: PubendId, version: int) -> None:
        """The stream is in a stream epoch with an announcement version."""

    def covering_filter(self) -> str:
        """Return the text of a filter that covers all filters of this SHB."""


class Joining:
    """The membership of this SHB is not on disk yet."""

    __slots__ = ()


class Open(NamedTuple):
    """The subend is fed, or looks for a feeder."""

    feed: Feed


class Left:
    """This SHB has left the pubend."""

    __slots__ = ()


class NoBase:
    """The first tick of the stream is not known yet."""

    __slots__ = ()
    tick: Final[Tick] = 0
