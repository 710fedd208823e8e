"""What a router asks for when its receivers want what it does not know (R37, R39).

The log, where the pubend is at this broker, else the feeder; once for all receivers, and not again
before an answer could have come.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from gapless.core.machine import Context
from gapless.core.parameters import us
from gapless.core.ticks import Tick, TickRange
from gapless.messages.streams import Nack, Piece, RegimeWant, Unreadable
from gapless.routing.attachments import Log, Routed

__all__ = ["Inquiry"]

Found: TypeAlias = Callable[[Routed, Piece], None]


class Inquiry:
    """Asks logs and feeders."""

    def __init__(self, context: Context, found: Found) -> None:
        self._context = context
        self._found = found
        """Takes what a log had."""

    def ask(self, routed: Routed, unknown: list[TickRange]) -> None:
        """Ask for what nobody here knows: the log, or the feeder."""
        if not unknown:
            return
        ranges = routed.asked.ask(unknown, self._context.now)
        if routed.log is not None:
            for low, high in ranges:
                self._read(routed, routed.log, low, high)
        elif ranges and routed.feeder is not None:
            self._context.post(routed.feeder, Nack(routed.pubend, tuple(ranges)))

    def _read(self, routed: Routed, log: Log, low: Tick, high: Tick) -> None:
        """Read a range, and as far beyond it as one look at the log goes: more will be asked for."""

        def read(pieces: list[Piece], done: Tick) -> None:
            for piece in pieces:
                self._found(routed, piece)
            if pieces and done < high:
                self._read(routed, log, done + 1, high)
            elif done < high and log.damage is not None:
                message = Unreadable(routed.pubend, max(low, done + 1), high, log.damage)
                self.tell_unreadable(routed, message)

        log.pieces_between(low, log.top, read)

    def tell_unreadable(self, routed: Routed, message: Unreadable) -> None:
        """Tell whoever wants these ticks; they are wanted still, and asked for again (P8)."""
        wanting = dict.fromkeys(
            each.peer
            for each in routed.attachments.values()
            if each.curious.wants(message.low, message.high)
        )
        for peer in wanting:
            self._context.post(peer, message)

    def ask_regime(self, routed: Routed, message: RegimeWant) -> None:
        """Ask for a regime, unless that was done just now: many pieces may need the same."""
        recent = self._context.now - us(ms=self._context.parameters.nrt_min_ms)
        asked = routed.regimes_asked.get(message.number)
        if routed.feeder is not None and (asked is None or asked <= recent):
            routed.regimes_asked = {
                number: at for number, at in routed.regimes_asked.items() if at > recent
            }
            routed.regimes_asked[message.number] = self._context.now
            self._context.post(routed.feeder, message)
