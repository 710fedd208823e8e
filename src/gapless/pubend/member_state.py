"""The states of an SHB at a pubend, its inputs, and the table that joins them (R26, R53 to R55).

Theory of operation
-------------------
- ``UNKNOWN``: the pubend keeps nothing of the SHB.
- ``HEARD``: the SHB has reported and is no member yet. No table claims it.
- ``LISTED``: a member. A row keeps the log for it, and it is in V^m.
- ``INACTIVE``: a member that is not in V^m: it was not heard from for ``inactive_after_s``, or it is
  expected and has not reported. Its row keeps its ack floor (A17).
- ``LEFT``: it has left. Its last membership is remembered, so that late reports of it do not count.
- ``RETIRED``: its broker is retired. Reports do not count.

The table says what may follow an input, because a membership number decides whether the input counts: a
report or a leave of an older membership changes nothing for a newer one. An SHB that has left may be
heard again under a newer membership. Its last membership stays remembered then, so a member that ends
by its lease may be ``LEFT`` or ``UNKNOWN`` after it. A row of an older membership may end while a newer
one is heard: then the SHB is ``HEARD``.

The state is not stored beside the records: it follows from the rows, the contacts, the ended memberships
and the retired SHBs of :class:`.members.Members`, and is asserted after every input.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import Final

__all__ = ["NEXT_STATES", "MemberInput", "MemberState"]


class MemberState(Enum):
    """What a pubend keeps for an SHB."""

    UNKNOWN = auto()
    HEARD = auto()
    LISTED = auto()
    INACTIVE = auto()
    LEFT = auto()
    RETIRED = auto()


class MemberInput(Enum):
    """What can happen to an SHB at a pubend."""

    REPORT = auto()
    """It reports that it wants the pubend, or how far it has acknowledged."""
    EXPECT = auto()
    """It asks since when it was known, before it reports (R46)."""
    LIST = auto()
    """A stream epoch opens that lists it."""
    SILENCE = auto()
    """It was not heard from for ``inactive_after_s``."""
    EXPIRE = auto()
    """Its lease has ended, or a table says that it is retired."""
    LEAVE = auto()
    """It ends a membership."""
    FORGET = auto()
    """Nothing of its last membership can still be under way."""
    RETIRE = auto()
    READMIT = auto()
    """A retired SHB is heard again, or was never retired."""


_State, _Input = MemberState, MemberInput
_ENDED: Final = (_State.LEFT, _State.UNKNOWN)

NEXT_STATES: Final[dict[tuple[MemberState, MemberInput], tuple[MemberState, ...]]] = {
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
