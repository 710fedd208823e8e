"""``gapless durable peek``: the next events of a durable subscription, without touching it.

The events are read from the logs of the pubends, from the acknowledged position on, by the filter that
applies at each tick. So nothing is acknowledged, and a connected client stays connected.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from heapq import heapify, heappop, heapreplace
from typing import TYPE_CHECKING

from gapless.cli.broker_calls import durable_subscription
from gapless.cli.output import print_note

if TYPE_CHECKING:
    from gapless.client import Event, Session
    from gapless.core.errors import GaplessError
    from gapless.core.ids import PubendId
    from gapless.core.ticks import Tick
    from gapless.messages.operating import SubscriptionReply

__all__ = ["Peek"]


class Peek:
    """The next events of one durable subscription, in the order of their ticks."""

    def __init__(self, session: Session, name: str) -> None:
        self._session = session
        self._name = name
        self.gaps = 0
        """How many ranges the logs no longer have."""
        self.error: GaplessError | None = None
        """Why a stream could not be read, if one could not."""

    async def events(self) -> AsyncGenerator[Event, None]:
        """Yield the events that are in the logs now."""
        reply = await durable_subscription(self._session, self._name)
        if not reply.entry.durable:
            from gapless.core.errors import UsageError

            raise UsageError(f"the subscription {self._name!r} is not durable")
        streams = []
        for cursor in reply.entry.cursors:
            if cursor.state == "pending":
                print_note(f"not started on {cursor.pubend}: {cursor.pending_reason}")
                continue
            stream = self._stream(reply, cursor.pubend, cursor.acked)
            first = await anext(stream, None)
            if first is not None:
                streams.append((first.tick, first.pubend, first, stream))
        heapify(streams)  # no two streams have one name
        while streams:
            _, _, event, stream = streams[0]
            yield event
            following = await anext(stream, None)
            if following is None:
                heappop(streams)
            else:
                heapreplace(streams, (following.tick, following.pubend, following, stream))

    async def _stream(
        self, reply: SubscriptionReply, pubend: PubendId, acked: Tick
    ) -> AsyncIterator[Event]:
        """Yield the events of one pubend; note why it cannot be read."""
        from gapless.core.errors import DeadlineError, RefusedError

        try:
            for filter_text, low, high in _ranges(reply, pubend, acked):
                async for event in self._range(pubend, filter_text, low, high):
                    yield event
        except (DeadlineError, RefusedError) as error:
            self.error = self.error or error
            print_note(f"warning: {pubend} cannot be read: {error}")

    async def _range(
        self, pubend: PubendId, filter_text: str, low: Tick, high: Tick | None
    ) -> AsyncIterator[Event]:
        from gapless.core.errors import GapError

        while True:
            try:
                async for event in self._session.read(str(pubend), low, high, filter_text):
                    yield event
                    low = event.tick + 1
            except GapError as gap:
                self.gaps += 1
                print_note(f"warning: {gap}")
                low = gap.high + 1
                if high is not None and low > high:
                    return
            else:
                return


def _ranges(
    reply: SubscriptionReply, pubend: PubendId, acked: Tick
) -> list[tuple[str, Tick, Tick | None]]:
    """Return the filters that apply above the acknowledged tick, each with its first and last tick."""
    ranges: list[tuple[str, Tick, Tick | None]] = []
    for each in reply.past_filters:
        end = dict(each.ends).get(pubend, 0)
        if end > acked:
            ranges.append((each.filter, acked + 1, end))
            acked = end
    return [*ranges, (reply.entry.filter, acked + 1, None)]
