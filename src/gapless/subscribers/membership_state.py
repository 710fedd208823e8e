"""The states of this SHB's membership of a pubend (R43, R26).

Theory of operation
-------------------
An SHB becomes a member of a pubend when a subscription first needs it. The membership has an id,
which is on disk before the subend is fed.

==========  ====================================================================================
JOINING     The record of the membership is being written.
JOINED      The record is on disk. No review has found the pubend unneeded since it was needed.
UNNEEDED    No subscription needs the pubend. After ``interest_grace_s`` the SHB leaves.
LEAVING     The SHB has sent LeavePubend to the PHB. The subend is closed.
ENDED       The membership is over. The SHB may have a newer one.
==========  ====================================================================================

If the pubend is needed again while the SHB is LEAVING, the SHB starts a membership with a new id,
and the old one still ends. A membership of an earlier incarnation that no durable subscription
needs is replaced in the same manner, because a LeavePubend of it may still arrive at the PHB.

If the pubend is sealed, the SHB leaves as soon as no subscription needs a tick up to the last one
(RS-32). If it is a tombstone, the membership ends without a LeavePubend (RS-34).

Independent of the state a membership is *abandoned* or not. It becomes abandoned when the PHB is
retired and no broker feeds the pubend. It is no longer abandoned when the pubend is fed again or
its PHB has returned. The state of an abandoned pubend is kept, but nothing waits for it: an SHB
leaves without a request to the PHB, and a merge continues without the pubend. The record of the
membership contains whether it is abandoned, because brokers forget old retirements if there are too
many.
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
    """Inputs that may change the state of a membership."""

    STORED = "its record is on disk"
    NEEDED = "a subscription needs the pubend"
    UNUSED = "a review finds no subscription that needs the pubend"
    EXPIRED = "no subscription needed the pubend for interest_grace_s"
    REPLACED = "a newer membership with another id replaces it"
    LEFT = "the PHB has ended it, or there is no PHB"
    FINISHED = "the pubend is sealed, and no subscription needs a tick up to the last one"
    TOMBSTONE = "the pubend is a tombstone"


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
    (_S.JOINED, _I.FINISHED): frozenset({_S.LEAVING}),
    (_S.UNNEEDED, _I.FINISHED): frozenset({_S.LEAVING}),
    (_S.JOINING, _I.TOMBSTONE): frozenset({_S.ENDED}),
    (_S.JOINED, _I.TOMBSTONE): frozenset({_S.ENDED}),
    (_S.UNNEEDED, _I.TOMBSTONE): frozenset({_S.ENDED}),
    (_S.LEAVING, _I.TOMBSTONE): frozenset({_S.ENDED}),
    (_S.LEAVING, _I.STORED): frozenset({_S.LEAVING}),
    (_S.LEAVING, _I.LEFT): frozenset({_S.ENDED}),
    (_S.ENDED, _I.STORED): frozenset({_S.ENDED}),
}
"""The states that may follow a state by an input. Any other transition is a bug."""


class AbandonedInput(Enum):
    """Inputs that decide whether a pubend is abandoned."""

    UNAVAILABLE = "its PHB is retired, and no broker feeds it"
    RETURNED = "it is fed, or its PHB has returned with it"


NEXT_ABANDONED: Final[dict[tuple[bool, AbandonedInput], bool]] = {
    (False, AbandonedInput.UNAVAILABLE): True,
    (True, AbandonedInput.UNAVAILABLE): True,
    (False, AbandonedInput.RETURNED): False,
    (True, AbandonedInput.RETURNED): False,
}
"""Whether a pubend is abandoned after an input."""
