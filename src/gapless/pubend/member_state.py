"""The states of an SHB at a pubend, its inputs, and the table that joins them (R26, R53 to R55).

Theory of operation
-------------------
- ``UNKNOWN``: the pubend has no state of the SHB.
- ``HEARD``: the SHB has reported and is no member yet. No table claims it.
- ``LISTED``: a member. A row keeps the log for it, and it is in V^m.
- ``INACTIVE``: a member that is not in V^m: it was not heard from for ``inactive_after_s``, or it
  is expected and has not reported. Its row keeps its ack floor (A17).
- ``LEFT``: it has left. Its last membership is remembered, so that late reports of it are ignored.
- ``RETIRED``: its broker is retired. Its reports are ignored.

The table has several next states where the membership id decides: a report or a leave of an older
membership changes nothing for a newer one. An SHB that has left may report again under a newer
membership. Its last membership is still remembered then, so a member that expires may be ``LEFT``
or ``UNKNOWN`` after it. A row of an older membership may end after a report of a newer one: then
the SHB is ``HEARD``.

The state is not stored: it is derived from the rows, the contacts, the ended memberships and the
retired SHBs of :class:`.members.Members`, and is asserted after every input.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import Final

__all__ = ["NEXT_STATES", "MemberInput", "MemberPhase"]


class MemberPhase(Enum):
    """The state of an SHB at a pubend."""

    UNKNOWN = auto()
    HEARD = auto()
    LISTED = auto()
    INACTIVE = auto()
    LEFT = auto()
    RETIRED = auto()


class MemberInput(Enum):
    """An input that may change the state of an SHB."""

    REPORT = auto()
    """It requests the pubend, or reports the tick up to which it has acknowledged."""
    EXPECT = auto()
    """It requests its known times before it reports (R46)."""
    LIST = auto()
    """A stream epoch opens that lists it."""
    SILENCE = auto()
    """It was not heard from for ``inactive_after_s``."""
    EXPIRE = auto()
    """Its lease has ended, or a table contains that it is retired."""
    LEAVE = auto()
    """It ends a membership."""
    FORGET = auto()
    """No message of its last membership can still be in flight."""
    RETIRE = auto()
    READMIT = auto()
    """A retired SHB is heard from again, or was never retired."""


_State, _Input = MemberPhase, MemberInput
_ENDED: Final = (_State.LEFT, _State.UNKNOWN)

NEXT_STATES: Final[dict[tuple[MemberPhase, MemberInput], tuple[MemberPhase, ...]]] = {
    (_State.UNKNOWN, _Input.REPORT): (_State.HEARD,),
    (_State.UNKNOWN, _Input.EXPECT): (_State.INACTIVE,),
    (_State.UNKNOWN, _Input.LEAVE): (_State.LEFT,),
    (_State.UNKNOWN, _Input.RETIRE): (_State.RETIRED,),
    (_State.UNKNOWN, _Input.READMIT): (_State.UNKNOWN,),
    (_State.HEARD, _Input.REPORT): (_State.HEARD,),
    (_State.HEARD, _Input.EXPECT): (_State.INACTIVE, _State.HEARD),
    (_State.HEARD, _Input.LIST): (_State.LISTED,),
    (_State.HEARD, _Input.LEAVE): (_State.LEFT, _State.HEARD),
    (_State.HEARD, _Input.FORGET): (_State.HEARD,),
    (_State.HEARD, _Input.RETIRE): (_State.RETIRED,),
    (_State.HEARD, _Input.READMIT): (_State.HEARD,),
    (_State.LISTED, _Input.REPORT): (_State.LISTED,),
    (_State.LISTED, _Input.EXPECT): (_State.LISTED,),
    (_State.LISTED, _Input.LIST): (_State.LISTED,),
    (_State.LISTED, _Input.SILENCE): (_State.INACTIVE,),
    (_State.LISTED, _Input.EXPIRE): _ENDED,
    (_State.LISTED, _Input.LEAVE): (_State.LEFT, _State.LISTED, _State.HEARD),
    (_State.LISTED, _Input.FORGET): (_State.LISTED,),
    (_State.LISTED, _Input.RETIRE): (_State.RETIRED,),
    (_State.LISTED, _Input.READMIT): (_State.LISTED,),
    (_State.INACTIVE, _Input.REPORT): (_State.INACTIVE,),
    (_State.INACTIVE, _Input.EXPECT): (_State.INACTIVE,),
    (_State.INACTIVE, _Input.LIST): (_State.LISTED,),
    (_State.INACTIVE, _Input.EXPIRE): _ENDED,
    (_State.INACTIVE, _Input.LEAVE): (_State.LEFT, _State.INACTIVE, _State.HEARD),
    (_State.INACTIVE, _Input.FORGET): (_State.INACTIVE,),
    (_State.INACTIVE, _Input.RETIRE): (_State.RETIRED,),
    (_State.INACTIVE, _Input.READMIT): (_State.INACTIVE,),
    (_State.LEFT, _Input.REPORT): (_State.LEFT, _State.HEARD),
    (_State.LEFT, _Input.EXPECT): (_State.LEFT, _State.INACTIVE),
    (_State.LEFT, _Input.LEAVE): (_State.LEFT,),
    (_State.LEFT, _Input.FORGET): (_State.UNKNOWN,),
    (_State.LEFT, _Input.RETIRE): (_State.RETIRED,),
    (_State.LEFT, _Input.READMIT): (_State.LEFT,),
    (_State.RETIRED, _Input.REPORT): (_State.RETIRED,),
    (_State.RETIRED, _Input.EXPECT): (_State.RETIRED,),
    (_State.RETIRED, _Input.LEAVE): (_State.RETIRED,),
    (_State.RETIRED, _Input.FORGET): (_State.RETIRED,),
    (_State.RETIRED, _Input.RETIRE): (_State.RETIRED,),
    (_State.RETIRED, _Input.READMIT): _ENDED,
}
"""The states in which an SHB may be after an input."""
