"""Events as a subscriber receives them."""

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
    """What consecutive events of one pubend have in common.

    It has the position of the subscription before them, from which the position after each of them
    is computed on request. Nothing is stored per event.
    """

    __slots__ = ("before", "is_logged", "name", "pubend")

    def __init__(
        self, pubend: PubendId, before: Mapping[PubendId, Tick], *, is_logged: bool
    ) -> None:
        self.pubend = pubend
        self.name = str(pubend)
        self.before = before
        self.is_logged = is_logged
        """Whether its ticks are positions; a best-effort pubend has none."""

    def after(self, tick: Tick) -> dict[PubendId, Tick]:
        """Return the position of the subscription after one of the events, by pubend."""
        return {**self.before, self.pubend: tick} if self.is_logged else {**self.before}


class Event(msgspec.Struct, eq=False, gc=False):
    """A published event, as a subscriber received it.

    ``attributes`` and ``payload`` are what was published, ``pubend`` and ``tick`` where,
    ``publisher`` and ``sequence`` by whom. ``position`` is the position of the subscription after
    the event, on all its pubends: a program that stores it and subscribes with ``start=position``
    loses nothing and receives nothing twice.
    """

    publication: Publication
    run: EventRun

    @property
    def attributes(self) -> dict[str, Value]:
        """The values that filters test."""
        return self.publication.attributes

    @property
    def payload(self) -> bytes:
        """The bytes that filters do not test."""
        return self.publication.payload

    @property
    def pubend(self) -> str:
        """The pubend of the event."""
        return self.run.name

    @property
    def tick(self) -> Tick:
        """The tick of the event in its stream."""
        return self.publication.tick

    @property
    def publisher(self) -> str:
        """The name of the publisher."""
        return self.publication.publisher

    @property
    def sequence(self) -> int:
        """The number of the event among those of its publisher."""
        return self.publication.sequence

    @property
    def position(self) -> Position:
        """The position of the subscription after the event."""
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
