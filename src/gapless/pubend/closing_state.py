"""The states of a pubend from its creation to its end, and the table that joins them (RS-32 to RS-34).

Theory of operation
-------------------
===========  ===================================================================================
OPEN         The pubend accepts publications.
SEALING      The write that seals it is pending. Nothing new is accepted, no tick is given.
SEALED       Its last tick L is on disk and announced. The log is kept for those that need it.
ENDING       It is drained. The write that erases it and stores its tombstone is pending.
TOMBSTONE    Nothing is left of it but the tombstone, which is announced.
===========  ===================================================================================

A best-effort pubend has no log that could be drained, so sealed is closed: it is ENDING at once. A
crash leads back to the state of the last durable write: from SEALING to OPEN, from ENDING to SEALED,
or of a best-effort pubend to OPEN. The client repeats its request.

SEALED is left only when nothing below L is needed any more: no ack floor of a member and no log hold
is below L, no known host may still join, and the retention is over. With the mode DISCARD_HISTORY the
retention does not count. With the mode NOW members and log holds count for ``close_wait_s`` only.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import Final

__all__ = ["NEXT_STATES", "PubendInput", "PubendPhase"]


class PubendPhase(Enum):
    """The state of a pubend."""

    OPEN = auto()
    SEALING = auto()
    SEALED = auto()
    ENDING = auto()
    TOMBSTONE = auto()


class PubendInput(Enum):
    """An input that may change the state of a pubend."""

    CLOSE = auto()
    """A client closes it, perhaps again, or in a greater mode."""
    STORED = auto()
    """The pending write is on disk."""
    DRAINED = auto()
    """Nothing waits for the log any more, or those that wait are given up."""
    CRASH = auto()
    """The broker has crashed and restarted; the pending write was lost."""


_State, _Input = PubendPhase, PubendInput

NEXT_STATES: Final[dict[tuple[PubendPhase, PubendInput], tuple[PubendPhase, ...]]] = {
    (_State.OPEN, _Input.CLOSE): (_State.SEALING, _State.ENDING),
    (_State.OPEN, _Input.CRASH): (_State.OPEN,),
    (_State.SEALING, _Input.CLOSE): (_State.SEALING,),
    (_State.SEALING, _Input.STORED): (_State.SEALED,),
    (_State.SEALING, _Input.CRASH): (_State.OPEN,),
    (_State.SEALED, _Input.CLOSE): (_State.SEALED,),
    (_State.SEALED, _Input.DRAINED): (_State.ENDING,),
    (_State.SEALED, _Input.CRASH): (_State.SEALED,),
    (_State.ENDING, _Input.CLOSE): (_State.ENDING,),
    (_State.ENDING, _Input.STORED): (_State.TOMBSTONE,),
    (_State.ENDING, _Input.CRASH): (_State.SEALED, _State.OPEN),
    (_State.TOMBSTONE, _Input.CLOSE): (_State.TOMBSTONE,),
    (_State.TOMBSTONE, _Input.CRASH): (_State.TOMBSTONE,),
}
"""The states in which a pubend may be after an input. Any other input is a bug."""
