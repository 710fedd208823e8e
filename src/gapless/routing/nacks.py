"""What a router asks for when its receivers want what it does not know (R37, R39).

The log, where the pubend is at this broker, else the feeder; once for all receivers, and not again
before an answer could have come.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from gapless.core.machine import Context
from gapless.core.ticks import Tick, TickRange
from gapless.messages.streams import KnowledgeRange, Nack, StreamEpochRequest, Unreadable
from gapless.routing.protocols import HostedLog
from gapless.routing.routed import RoutedPubend

__all__ = ["UpstreamRequests"]

RangesRead: TypeAlias = Callable[[RoutedPubend, KnowledgeRange], None]


class UpstreamRequests:
    """Asks logs and feeders."""

    def __init__(self, context: Context, found: RangesRead) -> None:
        self._context = context
        self._found = found
        """Takes what a log had."""

    def request_ticks(self, routed: RoutedPubend, unknown: list[TickRange]) -> None:
        """Ask for what nobody here knows: the log, or the feeder."""
        if not unknown:
            return
        ranges = routed.outstanding_nacks.ask(unknown, self._context.now)
        if routed.log is not None:
            for low, high in ranges:
                self._read(routed, routed.log, low, high)
        elif ranges and routed.feeder is not None:
            self._context.send(routed.feeder, Nack(routed.pubend, tuple(ranges)))

    def _read(self, routed: RoutedPubend, log: HostedLog, low: Tick, high: Tick) -> None:
        """Read a range, and as far beyond it as one look at the log goes: more will be asked for."""

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
        """Tell whoever wants these ticks; they are wanted still, and asked for again (P8)."""
        wanting = dict.fromkeys(
            each.peer
            for each in routed.attachments.values()
            if each.curious.wants(message.low, message.high)
        )
        for peer in wanting:
            self._context.send(peer, message)

    def request_stream_epoch(self, routed: RoutedPubend, message: StreamEpochRequest) -> None:
        """Ask the feeder for a stream epoch, unless it was asked just now."""
        if routed.feeder is not None and routed.epoch_request_due(message.number):
            self._context.send(routed.feeder, message)
