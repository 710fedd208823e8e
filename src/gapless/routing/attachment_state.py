"""The states of an attachment, its inputs, and the table that joins them (R10, R40).

Theory of operation
-------------------
An attachment is a feeder's record of one receiver of one pubend.

- ``WAITING``: the router has no source of the pubend, neither a feeder nor the log. The receiver
  gets nothing new. Only nacks are answered, from the cache.
- ``FED``: the receiver gets new knowledge.
- ``HELD``: the router has a source, but the session with the receiver's broker is congested. The
  receiver gets nothing. It sees a gap when the session has drained, and sends a nack.

Congestion belongs to the session, not to the attachment: a waiting attachment of a congested
session becomes ``HELD`` when a source is found. So the attachment also keeps whether its session is
congested. The input SOURCE_FOUND has two next states for this reason.

An attachment ends in any state: the receiver detaches, its session closes, it does not attach again
in time, or it is no longer beyond this broker. Then the router forgets it.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import Final

__all__ = ["NEXT_STATES", "AttachmentInput", "AttachmentState"]


class AttachmentState(Enum):
    """Whether a receiver gets new knowledge."""

    WAITING = auto()
    FED = auto()
    HELD = auto()


class AttachmentInput(Enum):
    """An input that may change the state of an attachment."""

    SOURCE_FOUND = auto()
    """The router has a feeder or the log of the pubend."""
    SOURCE_LOST = auto()
    """The router has had no source for a while."""
    CONGESTED = auto()
    """The route to the receiver's broker is congested."""
    DRAINED = auto()
    """The route to the receiver's broker has drained."""


NEXT_STATES: Final[dict[tuple[AttachmentState, AttachmentInput], tuple[AttachmentState, ...]]] = {
    (AttachmentState.WAITING, AttachmentInput.SOURCE_FOUND): (
        AttachmentState.FED,
        AttachmentState.HELD,
    ),
    (AttachmentState.WAITING, AttachmentInput.SOURCE_LOST): (AttachmentState.WAITING,),
    (AttachmentState.WAITING, AttachmentInput.CONGESTED): (AttachmentState.WAITING,),
    (AttachmentState.WAITING, AttachmentInput.DRAINED): (AttachmentState.WAITING,),
    (AttachmentState.FED, AttachmentInput.SOURCE_LOST): (AttachmentState.WAITING,),
    (AttachmentState.FED, AttachmentInput.CONGESTED): (AttachmentState.HELD,),
    (AttachmentState.HELD, AttachmentInput.SOURCE_LOST): (AttachmentState.WAITING,),
    (AttachmentState.HELD, AttachmentInput.DRAINED): (AttachmentState.FED,),
}
"""The states in which an attachment may be after an input."""
