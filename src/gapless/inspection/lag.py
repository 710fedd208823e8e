"""How far subscriptions are behind, in events and in time, for operators.

Theory of operation. The *settled tick* of a cursor is the tick up to which its client needs nothing
(:mod:`gapless.subscribers.settled`). Its lag is what the log has above that tick: the number of
publications, whether or not the filter matches them, and the age of the oldest. A client with
nothing to do is not behind, however few events its filter matches, because the settled tick follows
the horizon.

A live cursor that is settled up to a fresh horizon has no lag, and nobody is asked. For the others
the broker requests from the PHB how many publications its log has, and how many up to the settled
ticks. While the PHB cannot be reached the lag is unknown, and it is not guessed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple, Protocol, TypeAlias

from gapless.core.context import Context
from gapless.core.ids import PubendId
from gapless.core.limits import COUNTED_TICKS_MAX, LAG_MEASUREMENTS_MAX
from gapless.core.parameters import microseconds
from gapless.core.ticks import Tick
from gapless.messages.pubend_requests import EventCounts
from gapless.subscribers.cursor import Cursor
from gapless.subscribers.cursor_state import CursorPhase, Started
from gapless.subscribers.protocols import CancellableRequest

__all__ = ["EventCounter", "LagMeter", "Lags", "StreamLag"]


class StreamLag(NamedTuple):
    """How far a cursor is behind."""

    events: int
    """The publications of the log above the settled tick."""
    oldest: Tick
    """The tick of the oldest of them; 0 if there is none."""

    def seconds(self, clock: int) -> float:
        """The age of the oldest publication; 0 if there is none."""
        return max(0, clock - self.oldest) / 1_000_000 if self.oldest else 0.0


CAUGHT_UP: Final = StreamLag(0, 0)

Lags: TypeAlias = Mapping[Cursor, StreamLag]
"""The lags that are known. A cursor that is missing has not started, or its PHB did not answer."""


class EventCounter(Protocol):
    """Requests to PHBs."""

    def count_events(
        self, pubend: PubendId, ticks: tuple[Tick, ...], then: Callable[[EventCounts], None]
    ) -> CancellableRequest:
        """Request how many publications a pubend had logged, in total and up to some ticks."""


class LagMeter:
    """Determines the lags of cursors."""

    def __init__(self, context: Context, counter: EventCounter) -> None:
        self._context = context
        self._counter = counter
        self._running: set[_Measurement] = set()

    def measure(self, cursors: Iterable[Cursor], then: Callable[[Lags], None]) -> None:
        """Call back with the lags, at once or when the PHBs have answered, at most a while later."""
        found: dict[Cursor, StreamLag] = {}
        asked: dict[PubendId, dict[Tick, list[Cursor]]] = {}
        for cursor in cursors:
            if self._is_caught_up(cursor):
                found[cursor] = CAUGHT_UP
            elif isinstance(cursor.start, Started) or cursor.awaits_earliest:
                ticks = asked.setdefault(cursor.pubend, {})
                ticks.setdefault(cursor.settled.tick, []).append(cursor)
        if not asked or len(self._running) >= LAG_MEASUREMENTS_MAX:
            then(found)
            return
        measurement = _Measurement(self._context, self._counter, found, asked)
        self._running.add(measurement)

        def finished() -> None:
            self._running.discard(measurement)
            then(found)

        measurement.start(finished)

    def _is_caught_up(self, cursor: Cursor) -> bool:
        """Whether the client needs nothing up to the horizon, and the horizon follows the clock."""
        subend = cursor.subend
        if subend.sealed_at is not None and cursor.settled.tick >= subend.sealed_at:
            return True
        if cursor.phase is not CursorPhase.LIVE or subend.feeder is None:
            return False
        parameters = self._context.parameters
        oldest = self._context.clock - microseconds(ms=parameters.dct_ms) - parameters.idle_us
        return subend.horizon >= oldest and cursor.settled.tick >= subend.horizon


class _Measurement:
    """Requests to PHBs for one measurement."""

    def __init__(
        self,
        context: Context,
        counter: EventCounter,
        found: dict[Cursor, StreamLag],
        asked: dict[PubendId, dict[Tick, list[Cursor]]],
    ) -> None:
        self._context = context
        self._counter = counter
        self._found = found
        self._asked = asked
        self._pending: dict[PubendId, CancellableRequest] = {}

    def start(self, finished: Callable[[], None]) -> None:
        """Send the first request to each PHB; call back when all are answered or too late."""
        self._finished = finished
        timeout = microseconds(ms=self._context.parameters.attach_timeout_ms)
        self._timer = self._context.call_later(timeout, self._give_up)
        for pubend, ticks in self._asked.items():
            self._request(pubend, sorted(ticks))

    def _request(self, pubend: PubendId, ticks: list[Tick]) -> None:
        """Request the next ticks of a pubend; the rest follows the reply."""
        part, rest = tuple(ticks[:COUNTED_TICKS_MAX]), ticks[COUNTED_TICKS_MAX:]

        def counted(reply: EventCounts) -> None:
            del self._pending[pubend]
            self._take(pubend, reply)
            if rest:
                self._request(pubend, rest)
            elif not self._pending:
                self._timer.cancel()
                self._finished()

        self._pending[pubend] = self._counter.count_events(pubend, part, counted)

    def _take(self, pubend: PubendId, reply: EventCounts) -> None:
        asked = self._asked[pubend]
        for each in reply.counts:
            lag = StreamLag(max(0, reply.total - each.number), max(0, each.oldest))
            for cursor in asked.get(each.tick, ()):
                self._found[cursor] = lag if lag.events else CAUGHT_UP

    def _give_up(self) -> None:
        for request in self._pending.values():
            request.cancel()
        self._finished()
