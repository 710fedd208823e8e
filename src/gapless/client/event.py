"""Events as a subscriber gets them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from gapless.client.position import Position, pubend_id
from gapless.content.values import Value
from gapless.core.ids import PubendId
from gapless.core.ticks import Tick
from gapless.messages.streams import Publication

__all__ = ["Event", "EventRun"]


class EventRun:
    """What events have in common that came in a row from one pubend.

    It keeps where the subscription stood before, so that the position after any of them can be made
    when somebody asks for it. Nothing of it is per event.
    """

    __slots__ = ("before", "is_logged", "name", "pubend")

    def __init__(
        self, pubend: PubendId, before: Mapping[PubendId, Tick], *, is_logged: bool
    ) -> None:
        self.pubend = pubend
        self.name = str(pubend)
        self.before = before
        self.is_logged = is_logged
        """Whether its ticks are positions; best effort has none."""

    def after(self, tick: Tick) -> dict[PubendId, Tick]:
        """Return where the subscription stands after one of them."""
        return {**self.before, self.pubend: tick} if self.is_logged else {**self.before}


class Event(msgspec.Struct, eq=False, gc=False):
    """A published event, as it came to a subscriber.

    ``attributes`` and ``payload`` are what was published. ``pubend`` and ``tick`` say where it is,
    ``publisher`` and ``sequence`` who published it. ``position`` is where the subscription stands
    after it, on all its pubends: who stores it and subscribes with ``start=position`` loses nothing
    and gets nothing twice.
    """

    publication: Publication
    run: EventRun

    @property
    def attributes(self) -> dict[str, Value]:
        """What filters look at."""
        return self.publication.attributes

    @property
    def payload(self) -> bytes:
        """What filters do not look at."""
        return self.publication.payload

    @property
    def pubend(self) -> str:
        """The stream that it is in."""
        return self.run.name

    @property
    def tick(self) -> Tick:
        """Where in its stream it is."""
        return self.publication.tick

    @property
    def publisher(self) -> str:
        """Who published it."""
        return self.publication.publisher

    @property
    def sequence(self) -> int:
        """Its number among the events of its publisher."""
        return self.publication.sequence

    @property
    def position(self) -> Position:
        """Where the subscription stands after it."""
        return Position.of(self.run.after(self.publication.tick))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Event):
            return NotImplemented
        return self.run.pubend == other.run.pubend and self.publication == other.publication

    def __hash__(self) -> int:
        return hash((self.run.pubend, self.publication.tick))

    def __repr__(self) -> str:
        return f"Event({self.attributes!r}, {self.payload!r}, {self.pubend!r}, tick={self.tick})"

    def __reduce__(self) -> tuple[Any, ...]:
        one = self.publication
        parts = (one.tick, one.publisher, one.sequence, one.attributes, one.payload)
        before = dict(Position.of(self.run.before))
        return (_restored, (parts, self.pubend, before, self.run.is_logged))


def _restored(
    parts: tuple[Any, ...], pubend: str, before: dict[str, Tick], is_logged: bool
) -> Event:
    """Return a pickled event."""
    ticks = dict(Position(before).as_tuple())
    return Event(Publication(*parts), EventRun(pubend_id(pubend), ticks, is_logged=is_logged))
