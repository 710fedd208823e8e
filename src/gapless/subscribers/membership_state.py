"""The states of this SHB's membership of a pubend (R43, R26).

Theory of operation
-------------------
An SHB becomes a member of a pubend when a subscription first needs it. The membership has an id, which is
on disk before the subend is fed.

==========  ==============================================================================================
JOINING     The record of the membership is being written.
JOINED      The record is on disk, and a subscription needs the pubend, or nobody has looked since.
UNNEEDED    No subscription needs the pubend. If that lasts for ``interest_grace_s``, the SHB leaves.
LEAVING     The PHB is asked to end the membership. The subend is closed.
ENDED       The membership is over. The SHB may have a newer one.
==========  ==============================================================================================

A pubend that is needed again while the SHB is LEAVING gets a membership with a new id, and the old one
goes on to end. A membership of an earlier incarnation that no durable subscription needs is replaced in
the same way when it is needed: its end may be under way.

Apart from that a membership is *abandoned* or not: abandoned as soon as the PHB is retired and nobody
feeds the pubend, and not any more when it is fed again or its PHB has returned. Nothing is forgotten of an
abandoned pubend. Only nobody waits for it: an SHB that leaves does not ask its PHB, and a merge continues
without it. That a pubend is abandoned is in the record of the membership, because a retirement may be
forgotten when there are too many.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

__all__ = [
    "NEXT_ABANDONED",
    "NEXT_STATES",
    "AbandonedInput",
    "MembershipInput",
    "MembershipState",
]


class MembershipState(Enum):
    """The state of one membership."""

    JOINING = "joining"
    JOINED = "joined"
    UNNEEDED = "unneeded"
    LEAVING = "leaving"
    ENDED = "ended"


class MembershipInput(Enum):
    """What happens to a membership."""

    STORED = "its record is on disk"
    NEEDED = "a subscription needs the pubend"
    UNUSED = "a review finds no subscription that needs the pubend"
    EXPIRED = "no subscription needed the pubend for interest_grace_s"
    REPLACED = "this incarnation joins with an id of its own"
    LEFT = "the PHB has ended it, or there is no PHB to ask"


_S, _I = MembershipState, MembershipInput

NEXT_STATES: Final[dict[tuple[MembershipState, MembershipInput], frozenset[MembershipState]]] = {
    (_S.JOINING, _I.STORED): frozenset({_S.JOINED, _S.UNNEEDED}),
    (_S.JOINING, _I.NEEDED): frozenset({_S.JOINING}),
    (_S.JOINING, _I.UNUSED): frozenset({_S.JOINING}),
    (_S.JOINING, _I.EXPIRED): frozenset({_S.LEAVING}),
    (_S.JOINED, _I.NEEDED): frozenset({_S.JOINED}),
    (_S.JOINED, _I.UNUSED): frozenset({_S.UNNEEDED}),
    (_S.JOINED, _I.REPLACED): frozenset({_S.ENDED}),
    (_S.UNNEEDED, _I.NEEDED): frozenset({_S.JOINED}),
    (_S.UNNEEDED, _I.UNUSED): frozenset({_S.UNNEEDED}),
    (_S.UNNEEDED, _I.EXPIRED): frozenset({_S.LEAVING}),
    (_S.UNNEEDED, _I.REPLACED): frozenset({_S.ENDED}),
    (_S.LEAVING, _I.STORED): frozenset({_S.LEAVING}),
    (_S.LEAVING, _I.LEFT): frozenset({_S.ENDED}),
    (_S.ENDED, _I.STORED): frozenset({_S.ENDED}),
}
"""The states that may follow a state by an input. What is missing here cannot happen."""


class AbandonedInput(Enum):
    """What decides whether a pubend is abandoned."""

    GONE = "its PHB is retired, and nobody feeds it"
    RETURNED = "it is fed, or its PHB has returned with it"


NEXT_ABANDONED: Final[dict[tuple[bool, AbandonedInput], bool]] = {
    (False, AbandonedInput.GONE): True,
    (True, AbandonedInput.GONE): True,
    (False, AbandonedInput.RETURNED): False,
    (True, AbandonedInput.RETURNED): False,
}
"""Whether a pubend is abandoned after an input."""
