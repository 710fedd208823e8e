"""The phases of a cursor: one subscription on one pubend (R46 to R48).

Theory of operation
-------------------
======================  ============================================================================
PENDING                 The cursor has no start. It starts where a stream epoch serves its filter.
GUARANTEED              The cursor has no start. The pubend is asked since when it knew the
                        subscription, and only its answer starts the cursor (R46).
CATCHING_UP             The cursor reads the log from its position on.
JOINING                 The cursor reads the last range up to a tick J. It holds back what the subend
                        hands over above J.
LIVE                    The cursor takes what the subend hands over.
DISCONNECTED            There is no client. What the client has not acknowledged stays in the log.
======================  ============================================================================

A cursor that starts with the earliest event of a log is CATCHING_UP or DISCONNECTED before it has a
start, because only the log can say where that is.

:data:`NEXT_PHASES` names for every phase and every input the phases that may follow. Which of them
follows is decided by the guards of :class:`~gapless.subscribers.cursor.Cursor` and its parts: whether
there is a client, whether the live stream serves the filter, how near the horizon is. An input that
is not in the table for a phase cannot happen in it. :meth:`Cursor.enter` asserts the table.

Apart from its phase a cursor is :class:`NotStarted` or :class:`Started`. Only one that is started has a
position that its client may acknowledge, seek from, or change a filter at.
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
        """Whether the cursor waits to be started by its stream or its pubend."""
        return self is CursorPhase.PENDING or self is CursorPhase.GUARANTEED

    @property
    def shown(self) -> str:
        """The word that operators see; how a pending start comes about does not concern them."""
        return CursorPhase.PENDING.value if self is CursorPhase.GUARANTEED else self.value


class CursorInput(Enum):
    """What may change the phase of a cursor."""

    WAITED = "it waits for its start, with or without a start guarantee"
    SERVED = "a range is handed over whose stream epoch serves its filter"
    VERIFIED = "the pubend answered since when it knew the subscription"
    PLACED = "it starts at a position, or with the earliest event of the log"
    RESTORED = "it was read from its subscription's record"
    NEARED = "its position is near the horizon, and the live stream serves its filter there"
    READ = "the log is read up to J"
    OVERFLOWED = "the client is too slow, or too much is held back above J"
    RELEASED = "the log has released a range that the live stream passes over"
    SWITCHED = "the next filter applies from its position on"
    EXCLUDED = "the merge continues without it"
    CLIENT_LEFT = "its client is gone"
    RESUMED = "its client is back, and the log has not said where it starts"
    SOUGHT = "it continues after a tick"


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
        (_CATCHING_UP, CursorInput.SOUGHT, (_CATCHING_UP,)),
        (_JOINING, CursorInput.READ, (_LIVE,)),
        (_JOINING, CursorInput.OVERFLOWED, (_CATCHING_UP,)),
        (_JOINING, CursorInput.RELEASED, (_CATCHING_UP,)),
        (_JOINING, CursorInput.SWITCHED, (_CATCHING_UP,)),
        (_JOINING, CursorInput.EXCLUDED, (_CATCHING_UP,)),
        (_JOINING, CursorInput.CLIENT_LEFT, (_DISCONNECTED,)),
        (_JOINING, CursorInput.SOUGHT, (_CATCHING_UP,)),
        (_LIVE, CursorInput.OVERFLOWED, (_CATCHING_UP,)),
        (_LIVE, CursorInput.SWITCHED, (_CATCHING_UP,)),
        (_LIVE, CursorInput.EXCLUDED, (_CATCHING_UP,)),
        (_LIVE, CursorInput.CLIENT_LEFT, (_DISCONNECTED,)),
        (_LIVE, CursorInput.SOUGHT, (_CATCHING_UP,)),
        (_DISCONNECTED, CursorInput.PLACED, (_DISCONNECTED,)),
        (_DISCONNECTED, CursorInput.RESUMED, (_CATCHING_UP,)),
        (_DISCONNECTED, CursorInput.SOUGHT, (_CATCHING_UP,)),
    )
}
"""The phases that may follow a phase by an input. What is missing here cannot happen."""


class GapRange(NamedTuple):
    """A range in a buffer that the log has released."""

    low: Tick
    high: Tick

    @property
    def tick(self) -> Tick:
        """Its place among publications."""
        return self.low


class NotStarted:
    """The cursor has no start: its subscription gets nothing of the pubend yet."""

    __slots__ = ()
    origin: Final[Tick] = 0
    acked: Final[Tick] = 0
    acked_stored: Final[Tick] = 0


NOT_STARTED: Final = NotStarted()


class Started(NamedTuple):
    """Where a cursor started, and what its client has acknowledged since."""

    after: Tick
    """The subscription gets what lies above this tick."""
    origin: Tick
    """The connection of the client continues above this tick."""
    acked: Tick
    acked_stored: Tick
    """What is acknowledged in the record on disk."""
