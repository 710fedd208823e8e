"""The tick ceiling of a broker: one durable tick for the silence of all its pubends (R29).

An idle pubend declares silence up to the clock, and needs a tick ceiling above it on disk. A record
for each pubend would be a write for each pubend and interval. So one record serves all pubends of
the broker, and one write for those that declare silence together. A pubend whose ticks are ahead of the clock has a ceiling of its own
(:mod:`.stream_end`); otherwise it would take all pubends ahead with it after a restart (A20).
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from gapless.core.context import Context
from gapless.core.parameters import microseconds
from gapless.core.ticks import Tick
from gapless.messages.records import PubendRecord, PutRecord, TickCeilingRecord

__all__ = ["TickCeiling"]


class TickCeiling:
    """The tick up to which every pubend of this broker may declare silence."""

    def __init__(self, context: Context, stored: Tick = 0) -> None:
        self._context = context
        self._step_us = microseconds(ms=context.parameters.ceiling_step_ms)
        self._stored = self._tick = stored
        self._is_raising = False
        self._waiting: list[Callable[[], None]] = []

    @property
    def tick(self) -> Tick:
        """The tick ceiling on disk."""
        return self._tick

    def restored(self, record: PubendRecord) -> PubendRecord:
        """Return the record of a pubend of earlier incarnations, which may have used their ceiling."""
        return msgspec.structs.replace(record, ceiling=max(record.ceiling, self._stored))

    def raise_above(self, tick: Tick, then: Callable[[], None]) -> None:
        """Raise the ceiling above a tick; call back when it was raised, perhaps not so far."""
        self._waiting.append(then)
        if self._is_raising:
            return
        self._is_raising = True
        ceiling = max(tick, self._tick) + self._step_us

        def raised() -> None:
            self._is_raising = False
            self._tick = ceiling
            waiting, self._waiting = self._waiting, []
            for each in waiting:
                each()

        self._context.write((PutRecord(TickCeilingRecord(ceiling)),), raised)
