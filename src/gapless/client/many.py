"""The events of one ``publish_many`` call: the batches that they are in, and what became of them.

Other calls share the batches. Events are numbered from 0 in the order in which the call was given
them. An error names the numbers of the events that it is about, and how many events of the call are
published all the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import TypeVar

from gapless.client.batches import PublishBatch
from gapless.client.link import shown_deadline
from gapless.client.outbox import Outbox
from gapless.client.position import Position
from gapless.core.errors import DeadlineError, GaplessError, OutcomeUnknownError, reworded

__all__ = ["ManyEvents"]

_Error = TypeVar("_Error", bound=GaplessError)


class ManyEvents:
    """The events of one call."""

    def __init__(self, first: int) -> None:
        self._first = first
        """The number of the first event: a caller may pass its events on in parts."""
        self._count = 0
        self._parts: dict[PublishBatch, list[range]] = {}
        """The indices in each batch that belong to this call alone."""

    def __iter__(self) -> Iterator[PublishBatch]:
        """Iterate over the batches."""
        return iter(self._parts)

    def add(self, batch: PublishBatch, added: range) -> None:
        """Note events that were added to a batch."""
        ranges = self._parts.setdefault(batch, [])
        if ranges and ranges[-1].stop == added.start:
            ranges[-1] = range(ranges[-1].start, added.stop)
        else:
            ranges.append(added)
        self._count += len(added)

    def take_out(self, outbox: Outbox) -> None:
        """Remove the events that were not sent."""
        for batch, ranges in self._parts.items():
            if batch.is_open:
                for each in chain.from_iterable(ranges):
                    outbox.take_out(batch, each)
        outbox.wake()

    @property
    def published(self) -> int:
        """How many events are published, counted from the first of the caller."""
        done = (ranges for batch, ranges in self._parts.items() if batch.ticks is not None)
        return self._first + sum(_length(ranges) for ranges in done)

    def position(self, pubend: str, *, is_logged: bool) -> Position:
        """Return the position of the last event; raise the first error of a batch."""
        position, number = Position(), self._first
        for batch, ranges in self._parts.items():
            count = _length(ranges)
            if batch.error is not None:
                raise self._batch_failed(batch.error, number, number + count - 1)
            position |= batch.position(ranges[-1][-1], pubend, is_logged=is_logged)
            number += count
        return position

    def refused(self, error: _Error) -> _Error:
        """Return the error for the event after those that were added, which was refused."""
        number = self._first + self._count
        text = f"event {number} is refused: {error}; {self._published_text()}"
        return _renamed(error, text, number, self.published)

    def late(self, seconds: float | None, condition: str) -> GaplessError:
        """Return the error for a call whose deadline has passed: what became of its events."""
        done = f"publish_many was not done within {shown_deadline(seconds)} s: {condition}"
        number, unknown = self._first, list[tuple[int, int]]()
        for batch, ranges in self._parts.items():
            count = _length(ranges)
            is_pending = batch.was_sent and not batch.is_done
            if is_pending or isinstance(batch.error, OutcomeUnknownError):
                unknown.append((number, number + count - 1))
            number += count
        if not unknown:
            text = f"{done}; {self._published_text()}, and no other event is or will be"
            return DeadlineError(text).about_events(self.published, self.published)
        first, last = unknown[0][0], unknown[-1][1]
        text = f"{_named(first, last)} sent and not answered, and may be published, now or later"
        return OutcomeUnknownError(
            f"{done}; {self._published_text()}; {text}; no later event of the call is published"
        ).about_events(first, self.published)

    def _batch_failed(self, error: GaplessError, first: int, last: int) -> GaplessError:
        which = _named(first, last)
        is_unknown = isinstance(error, OutcomeUnknownError)
        outcome = "may be published" if is_unknown else "not published"
        text = f"{which} {outcome}: {error}; {self._published_text()}"
        return _renamed(error, text, first, self.published)

    def _published_text(self) -> str:
        count = self.published
        return f"{count} {'event' if count == 1 else 'events'} published by this call"


def _named(first: int, last: int) -> str:
    return f"event {first}" if first == last else f"events {first} to {last}"


def _length(ranges: list[range]) -> int:
    return sum(map(len, ranges))


def _renamed(error: _Error, text: str, number: int | None, published: int) -> _Error:
    """Return an error of the same kind with another text."""
    return reworded(error, text).about_events(number, published)
