"""Requests of a router for ticks and stream epochs that it does not know (R37, R39).

They go to the log if the pubend is at this broker, and to the feeder otherwise: once for all
receivers, and again only after the time in which a reply could arrive.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from gapless.core.context import Context
from gapless.core.ticks import Tick, TickRange
from gapless.messages.streams import KnowledgeRange, Nack, StreamEpochRequest, Unreadable
from gapless.routing.protocols import HostedLog
from gapless.routing.routed import RoutedPubend

__all__ = ["UpstreamRequests"]

RangesRead: TypeAlias = Callable[[RoutedPubend, KnowledgeRange], None]


class UpstreamRequests:
    """Sends requests to feeders, and reads logs."""

    def __init__(self, context: Context, found: RangesRead) -> None:
        self._context = context
        self._found = found
        """Called with each range that was read from a log."""

    def request_ticks(self, routed: RoutedPubend, unknown: list[TickRange]) -> None:
        """Request unknown ticks from the log or the feeder."""
        if not unknown:
            return
        ranges = routed.outstanding_nacks.take_due(unknown, self._context.now)
        if routed.log is not None:
            for low, high in ranges:
                self._read(routed, routed.log, low, high)
        elif ranges and routed.feeder is not None:
            self._context.send(routed.feeder, Nack(routed.pubend, tuple(ranges)))

    def _read(self, routed: RoutedPubend, log: HostedLog, low: Tick, high: Tick) -> None:
        """Read a range, and beyond it to the end of one read: more nacks will follow."""

        def read(ranges: list[KnowledgeRange], done: Tick) -> None:
            for knowledge in ranges:
                self._found(routed, knowledge)
            if ranges and done < high:
                self._read(routed, log, done + 1, high)
            elif done < high and log.corruption is not None:
                message = Unreadable(routed.pubend, max(low, done + 1), high, log.corruption)
                self.send_unreadable(routed, message)

        log.ranges_between(low, log.top, read)

    def send_unreadable(self, routed: RoutedPubend, message: Unreadable) -> None:
        """Send the fault to the peers curious about these ticks; they will nack again (P8)."""
        wanting = dict.fromkeys(
            each.peer
            for each in routed.attachments.values()
            if each.curious.has_any(message.low, message.high)
        )
        for peer in wanting:
            self._context.send(peer, message)

    def request_stream_epoch(self, routed: RoutedPubend, message: StreamEpochRequest) -> None:
        """Request a stream epoch from the feeder, unless a request was just sent."""
        if routed.feeder is not None and routed.epoch_request_due(message.number):
            self._context.send(routed.feeder, message)
