"""Requests of a subend to its feeder: nacks for missing ticks, and unknown stream epochs (GD 3.2).

The subend sends nacks for ticks that are missing above the horizon, lowest first, after a delay and
repeatedly. It requests the unknown stream epoch of a range at once and repeatedly.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gapless.core.context import Context, Timer
from gapless.core.limits import STREAM_EPOCH_REQUESTS_MAX
from gapless.core.parameters import microseconds
from gapless.core.ticks import Tick
from gapless.messages.streams import Nack, StreamEpochRequest
from gapless.stream.curiosity import Curiosity
from gapless.stream.epochs import StreamEpochs

if TYPE_CHECKING:
    from gapless.subscribers.subend import Subend

__all__ = ["SubendNacks"]


class SubendNacks:
    """The nacks and the stream epoch requests of one subend."""

    def __init__(self, context: Context, subend: Subend, stream_epochs: StreamEpochs) -> None:
        self._context = context
        self._subend = subend
        self._stream_epochs = stream_epochs
        self.curiosity = Curiosity(context.parameters)
        self._due: Timer | None = None
        self._requested_epoch: tuple[int, int] | None = None
        """A stream epoch that was requested, and when to repeat the request."""
        self._epoch_requests = 0
        """How often that stream epoch was requested of the feeder."""

    def feed_found(self) -> None:
        """Send the pending nacks to a new feeder at once."""
        self.curiosity.restart(self._context.now)
        self._requested_epoch = None
        self.send_due()

    def look_for_gaps(self) -> None:
        """Note the unknown ticks between the horizon and the top of the stream."""
        subend = self._subend
        if subend.has_base:
            doubts = subend.stream.gaps(subend.horizon + 1, subend.stream.top)
            self.curiosity.observe(doubts, self._context.now)

    def note_top(self, tick: Tick) -> None:
        """The stream has ticks up to this one; request those that do not arrive."""
        self._subend.stream.raise_top(tick)
        self.look_for_gaps()
        self.plan()

    def expedite(self, tick: Tick) -> None:
        """Request missing ticks up to this one at once."""
        self._subend.stream.raise_top(tick)
        self.look_for_gaps()
        self.curiosity.expedite(tick, self._context.now)
        self.send_due()

    def send_due(self) -> None:
        """Send the requests that are due, and set the timer for the others."""
        feeder = self._subend.feeder
        if feeder is None:
            return
        ranges = self.curiosity.due(self._context.now)
        if ranges:
            self._context.send(feeder, Nack(self._subend.pubend, tuple(ranges)))
        requested = self._requested_epoch
        if requested is not None and requested[1] <= self._context.now:
            self.request_stream_epoch(requested[0])
            if self.is_epoch_lost(requested[0]):
                self._subend.advance()
        self.plan()

    def is_epoch_lost(self, number: int) -> bool:
        """Return whether a stream epoch was requested often, and no broker knows it."""
        return (
            self._requested_epoch is not None
            and self._requested_epoch[0] == number
            and self._epoch_requests > STREAM_EPOCH_REQUESTS_MAX
        )

    def request_stream_epoch(self, number: int) -> None:
        """Request a stream epoch, unless the last request for it is too recent to repeat."""
        requested = self._requested_epoch
        if requested is not None and requested[0] == number and requested[1] > self._context.now:
            return
        if self.is_epoch_lost(number):
            return
        again = self._context.now + 2 * microseconds(ms=self._context.parameters.nrt_min_ms)
        if requested is None or requested[0] != number:
            self._epoch_requests = 0
        self._requested_epoch = (number, again)
        feeder = self._subend.feeder
        if feeder is not None:
            self._epoch_requests += 1
            self._context.send(feeder, StreamEpochRequest(self._subend.pubend, number))
        self.plan()

    def plan(self) -> None:
        """Set the timer for the next request. Without a feeder there is no timer."""
        if self._subend.feeder is None:
            return
        due = self.curiosity.next_due()
        if self._requested_epoch is not None:
            if self._stream_epochs.knows(self._requested_epoch[0]):
                self._requested_epoch = None
            elif not self.is_epoch_lost(self._requested_epoch[0]) and (
                due is None or self._requested_epoch[1] < due
            ):
                due = self._requested_epoch[1]
        if self._due is not None:
            if self._due.action is not None and self._due.at == due:
                return
            self._due.cancel()
            self._due = None
        if due is not None:
            self._due = self._context.call_later(max(1, due - self._context.now), self.send_due)

    def close(self) -> None:
        """Cancel the timer."""
        if self._due is not None:
            self._due.cancel()
