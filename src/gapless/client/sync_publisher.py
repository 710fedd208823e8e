"""A publisher for programs without an event loop: its calls wait."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import Self

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
    """Stands for an event that was given to a publisher."""

    __slots__ = ("_loop_thread", "_receipt")

    def __init__(self, loop_thread: EventLoopThread, receipt: Receipt) -> None:
        self._loop_thread = loop_thread
        self._receipt = receipt

    @property
    def is_done(self) -> bool:
        """Whether the fate of the event is known."""
        return self._receipt.is_done

    def result(self) -> Position:
        """Wait for the position of the event, or raise why there is none."""

        async def wait() -> Position:
            return await self._receipt

        return self._loop_thread.run(wait())


class SyncPublisher:
    """A :class:`~gapless.client.Publisher` whose calls wait."""

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
        """Under which name it publishes."""
        return self._publisher.name

    @property
    def pubend(self) -> str:
        """To which pubend."""
        return self._publisher.pubend

    @property
    def unanswered(self) -> int:
        """How many events were given to the publisher and are not answered."""
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

        They are taken from the iterable here, in the calling thread, some at a time. The deadline is
        for each such part.
        """
        position = Position()
        source = iter(events)
        events_max = IN_FLIGHT_EVENTS_MAX
        while part := list(itertools.islice(source, events_max)):
            position |= self._loop_thread.run(
                self._publisher.publish_many(part, deadline_s=deadline_s)
            )
        return position

    def send(
        self,
        attributes: Mapping[str, Value],
        payload: bytes = b"",
        *,
        deadline_s: float | Unset | None = _UNSET,
    ) -> SyncReceipt:
        """Let an event be published, and wait only for room."""
        work = self._publisher.send(attributes, payload, deadline_s=deadline_s)
        return SyncReceipt(self._loop_thread, self._loop_thread.run(work))

    def flush(self, *, deadline_s: float | Unset | None = _UNSET) -> None:
        """Wait until everything is answered; raise the first error that a receipt hides."""
        self._loop_thread.run(self._publisher.flush(deadline_s=deadline_s))

    def close(self, *, deadline_s: float | Unset | None = _UNSET) -> None:
        """Publish what waits, then end."""
        self._loop_thread.run(self._publisher.close(deadline_s=deadline_s))
