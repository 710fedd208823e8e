"""The phases of a cursor: one subscription on one pubend (R46 to R48).

Theory of operation
-------------------
======================  ============================================================================
PENDING                 The cursor has no start. It starts where a stream epoch serves its filter:
                        behind the horizon in the same step, or with a range that is handed over.
GUARANTEED              The cursor has no start. The SHB queries the PHB since when it knew the
                        subscription, and only the reply starts the cursor (R46).
CATCHING_UP             The cursor reads the log from its position on.
JOINING                 The cursor reads the last range up to a tick J. It holds the events that the
                        subend hands over above J.
LIVE                    The cursor takes the events that the subend hands over.
DISCONNECTED            There is no client. The log keeps what the client has not acknowledged.
======================  ============================================================================

A cursor that starts with the earliest event of a log is CATCHING_UP or DISCONNECTED before it has a
start, because only a read of the log shows where the log starts.

:data:`NEXT_PHASES` lists, for every phase and every input, the phases that may follow. The guards
of :class:`~gapless.subscribers.cursor.Cursor` and its parts choose one of them: whether there is a
client, whether the live stream serves the filter, how near the horizon is. An input that the table
does not have for a phase cannot occur in it. :meth:`Cursor.enter` asserts the table.

Independent of its phase a cursor is :class:`NotStarted` or :class:`Started`. Only a started cursor
has a position that its client may acknowledge, seek from, or change a filter at.
"""

from __future__ import annotations

from enum import Enum
from typing import Final, NamedTuple

from gapless.core.ticks import Tick

__all__ = [
    "FOREVER",
    "NEXT_PHASES",
    "NOT_STARTED",
    "CursorInput",
    "CursorPhase",
    "GapRange",
    "NotStarted",
    "Started",
]

FOREVER: Final = 2**62
"""Above every tick."""


class CursorPhase(Enum):
    """The phase of a cursor."""

    PENDING = "pending"
    GUARANTEED = "guaranteed"
    LIVE = "live"
    CATCHING_UP = "catching up"
    JOINING = "joining"
    DISCONNECTED = "disconnected"

    @property
    def has_no_start(self) -> bool:
        """Whether the cursor has no start and waits for its stream or for the PHB."""
        return self is CursorPhase.PENDING or self is CursorPhase.GUARANTEED

    @property
    def shown(self) -> str:
        """The word that operators see; they need not distinguish the two kinds of pending start."""
        return CursorPhase.PENDING.value if self is CursorPhase.GUARANTEED else self.value


class CursorInput(Enum):
    """Inputs that may change the phase of a cursor."""

    WAITED = "it waits for its start, with or without a start guarantee"
    SERVED = "the stream epoch of a range, or of the horizon, serves its filter"
    VERIFIED = "the PHB answered since when it knew the subscription"
    PLACED = "it starts at a position, or with the earliest event of the log"
    RESTORED = "it was restored from the record of its subscription"
    NEARED = "its position is near the horizon, and the live stream serves its filter there"
    READ = "the log was read up to J"
    OVERFLOWED = "the client is too slow, or too many events are held above J"
    RELEASED = "the log has released a range that the live stream passes over"
    SWITCHED = "the next filter applies from its position on"
    EXCLUDED = "the merge continues without it"
    CLIENT_LEFT = "its client has disconnected"
    RESUMED = "its client has returned, and the earliest event is not known yet"
    REPOSITIONED = "it continues after another tick"
    ENDED = "its pubend is sealed or a tombstone, and nothing comes any more"


_PENDING, _GUARANTEED = CursorPhase.PENDING, CursorPhase.GUARANTEED
_LIVE, _CATCHING_UP = CursorPhase.LIVE, CursorPhase.CATCHING_UP
_JOINING, _DISCONNECTED = CursorPhase.JOINING, CursorPhase.DISCONNECTED

NEXT_PHASES: Final[dict[tuple[CursorPhase, CursorInput], frozenset[CursorPhase]]] = {
    (phase, given): frozenset(following)
    for phase, given, following in (
        (_PENDING, CursorInput.WAITED, (_PENDING, _GUARANTEED)),
        (_PENDING, CursorInput.SERVED, (_LIVE, _CATCHING_UP, _DISCONNECTED)),
        (_PENDING, CursorInput.PLACED, (_CATCHING_UP, _DISCONNECTED)),
        (_PENDING, CursorInput.RESTORED, (_DISCONNECTED,)),
        (_GUARANTEED, CursorInput.WAITED, (_GUARANTEED,)),
        (_GUARANTEED, CursorInput.VERIFIED, (_LIVE, _DISCONNECTED)),
        (_GUARANTEED, CursorInput.PLACED, (_CATCHING_UP, _DISCONNECTED)),
        (_CATCHING_UP, CursorInput.NEARED, (_LIVE, _JOINING)),
        (_CATCHING_UP, CursorInput.CLIENT_LEFT, (_DISCONNECTED,)),
        (_CATCHING_UP, CursorInput.RESUMED, (_CATCHING_UP,)),
        (_CATCHING_UP, CursorInput.REPOSITIONED, (_CATCHING_UP,)),
        (_JOINING, CursorInput.READ, (_LIVE,)),
        (_JOINING, CursorInput.OVERFLOWED, (_CATCHING_UP,)),
        (_JOINING, CursorInput.RELEASED, (_CATCHING_UP,)),
        (_JOINING, CursorInput.SWITCHED, (_CATCHING_UP,)),
        (_JOINING, CursorInput.EXCLUDED, (_CATCHING_UP,)),
        (_JOINING, CursorInput.CLIENT_LEFT, (_DISCONNECTED,)),
        (_JOINING, CursorInput.REPOSITIONED, (_CATCHING_UP,)),
        (_LIVE, CursorInput.OVERFLOWED, (_CATCHING_UP,)),
        (_LIVE, CursorInput.SWITCHED, (_CATCHING_UP,)),
        (_LIVE, CursorInput.EXCLUDED, (_CATCHING_UP,)),
        (_LIVE, CursorInput.CLIENT_LEFT, (_DISCONNECTED,)),
        (_LIVE, CursorInput.REPOSITIONED, (_CATCHING_UP,)),
        (_PENDING, CursorInput.ENDED, (_LIVE, _DISCONNECTED)),
        (_GUARANTEED, CursorInput.ENDED, (_LIVE, _DISCONNECTED)),
        (_CATCHING_UP, CursorInput.ENDED, (_LIVE,)),
        (_JOINING, CursorInput.ENDED, (_LIVE,)),
        (_DISCONNECTED, CursorInput.PLACED, (_DISCONNECTED,)),
        (_DISCONNECTED, CursorInput.RESUMED, (_CATCHING_UP,)),
        (_DISCONNECTED, CursorInput.REPOSITIONED, (_CATCHING_UP,)),
    )
}
"""The phases that may follow a phase by an input. Any other transition is a bug."""


class GapRange(NamedTuple):
    """A range in a buffer that the log has released."""

    low: Tick
    high: Tick

    @property
    def tick(self) -> Tick:
        """The tick by which the gap is ordered among publications."""
        return self.low


class NotStarted:
    """The cursor has no start: its subscription receives nothing from the pubend yet."""

    __slots__ = ()
    origin: Final[Tick] = 0
    acked: Final[Tick] = 0
    acked_stored: Final[Tick] = 0


NOT_STARTED: Final = NotStarted()


class Started(NamedTuple):
    """The start of a cursor, and what its client has acknowledged since."""

    after: Tick
    """The subscription receives the events above this tick."""
    origin: Tick
    """The connection of the client continues above this tick."""
    acked: Tick
    acked_stored: Tick
    """The acknowledged tick in the record on disk."""
