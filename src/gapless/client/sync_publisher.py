"""A publisher for programs without an event loop: its calls block."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import Self

from gapless.client.arguments import iterated
from gapless.client.batches import Receipt
from gapless.client.loop_thread import EventLoopThread
from gapless.client.options import Unset
from gapless.client.position import Position
from gapless.client.publisher import EventLike, Publisher
from gapless.content.values import Value
from gapless.core.limits import IN_FLIGHT_EVENTS_MAX

__all__ = ["SyncPublisher", "SyncReceipt"]

_UNSET = Unset()


class SyncReceipt:
    """The receipt of an event that was given to a publisher."""

    __slots__ = ("_loop_thread", "_receipt")

    def __init__(self, loop_thread: EventLoopThread, receipt: Receipt) -> None:
        self._loop_thread = loop_thread
        self._receipt = receipt

    @property
    def is_done(self) -> bool:
        """Whether the outcome of the event is known."""
        return self._receipt.is_done

    def result(self) -> Position:
        """Wait for the position of the event; raise if it was not published."""

        async def wait() -> Position:
            return await self._receipt

        return self._loop_thread.run(wait())


class SyncPublisher:
    """A :class:`~gapless.client.Publisher` whose calls block."""

    def __init__(self, loop_thread: EventLoopThread, publisher: Publisher) -> None:
        self._loop_thread = loop_thread
        self._publisher = publisher

    def __enter__(self) -> Self:
        self._loop_thread.run(self._publisher.__aenter__())
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._loop_thread.run(self._publisher.__aexit__(kind, error, trace))

    @property
    def name(self) -> str:
        """The name under which it publishes."""
        return self._publisher.name

    @property
    def pubend(self) -> str:
        """The pubend to which it publishes."""
        return self._publisher.pubend

    @property
    def unanswered(self) -> int:
        """How many events were given to the publisher and are not answered yet."""
        return self._publisher.unanswered

    def publish(
        self,
        attributes: Mapping[str, Value],
        payload: bytes = b"",
        *,
        deadline_s: float | Unset | None = _UNSET,
    ) -> Position:
        """Publish an event; return its position when it is on disk."""
        return self._loop_thread.run(
            self._publisher.publish(attributes, payload, deadline_s=deadline_s)
        )

    def publish_many(
        self, events: Iterable[EventLike], *, deadline_s: float | Unset | None = _UNSET
    ) -> Position:
        """Publish events in order; return the position of the last when all are on disk.

        The calling thread takes them from the iterable, some at a time. The deadline applies to
        each such part.
        """
        position, count = Position(), 0
        seconds = self._publisher.deadline_of(deadline_s)
        source = iterated("events", events, "events")
        while part := list(itertools.islice(source, IN_FLIGHT_EVENTS_MAX)):
            position |= self._loop_thread.run(
                self._publisher.publish_part(part, seconds, first=count)
            )
            count += len(part)
        return position

    def send(
        self,
        attributes: Mapping[str, Value],
        payload: bytes = b"",
        *,
        deadline_s: float | Unset | None = _UNSET,
    ) -> SyncReceipt:
        """Publish an event; wait only while too many are unanswered."""
        work = self._publisher.send(attributes, payload, deadline_s=deadline_s)
        return SyncReceipt(self._loop_thread, self._loop_thread.run(work))

    def flush(self, *, deadline_s: float | Unset | None = _UNSET) -> None:
        """Wait until everything is answered; raise the first error that no receipt has raised."""
        self._loop_thread.run(self._publisher.flush(deadline_s=deadline_s))

    def close(self, *, deadline_s: float | Unset | None = _UNSET) -> None:
        """Publish the remaining events, then end."""
        self._loop_thread.run(self._publisher.close(deadline_s=deadline_s))
