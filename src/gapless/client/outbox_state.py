"""The states of a publisher's outbox, their inputs, and the table that joins them.

Theory of operation
-------------------
A publisher has a session at the PHB, with a number that grows by one whenever the name of the
publisher is opened. Only the newest session may publish.

- ``CLOSED``: no connection, or the publisher is not opened yet. Events wait.
- ``OPENING``: the publisher is being opened over a new connection. Events wait.
- ``OPEN``: the PHB has opened a session. Batches are sent in it.
- ``FENCED``: the PHB has refused a batch, because it has forgotten the session or because an
  earlier opening of this publisher, whose connection was lost, came after the newest one. The
  publisher is being opened again over the same connection. Replies to batches of the former session
  may still come.
- ``OVER``: the publisher was closed, refused, or fenced by another publisher of its name. Final.

A batch that was sent and not answered is sent again in the next session, under the same sequences.
So ``LINK_DOWN`` and ``FENCED`` both return the sent batches to the queue. A publisher of best
effort sends nothing again; its batches fail instead.

If the connection is lost in ``OPENING`` or ``FENCED``, the PHB may still execute the opening later.
The outbox counts these lost openings. The number of its next session may be greater by that count,
and a refusal does not show that another publisher has the name.

No batch is in flight in ``CLOSED`` and ``OPENING``, so no reply to one can come there: these pairs
are not in the table. Every input is allowed in ``OVER``, because replies may come after the end.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import Final

__all__ = ["NEXT_STATE", "OutboxInput", "OutboxState"]


class OutboxState(Enum):
    """Whether a publisher has a session at its PHB."""

    CLOSED = auto()
    OPENING = auto()
    OPEN = auto()
    FENCED = auto()
    OVER = auto()


class OutboxInput(Enum):
    """What can happen to an outbox."""

    LINK_UP = auto()
    OPENED = auto()
    """The PHB has opened a session."""
    ANSWERED = auto()
    """A batch was published, or refused for a reason of its own."""
    FENCED = auto()
    """A batch was refused because its session is not the newest, and the publisher may open
    another."""
    LINK_DOWN = auto()
    ENDED = auto()
    """The publisher was closed or refused, another one has its name, or the link is over."""


NEXT_STATE: Final[dict[tuple[OutboxState, OutboxInput], OutboxState]] = {
    (OutboxState.CLOSED, OutboxInput.LINK_UP): OutboxState.OPENING,
    (OutboxState.CLOSED, OutboxInput.ENDED): OutboxState.OVER,
    (OutboxState.OPENING, OutboxInput.OPENED): OutboxState.OPEN,
    (OutboxState.OPENING, OutboxInput.LINK_DOWN): OutboxState.CLOSED,
    (OutboxState.OPENING, OutboxInput.ENDED): OutboxState.OVER,
    (OutboxState.OPEN, OutboxInput.ANSWERED): OutboxState.OPEN,
    (OutboxState.OPEN, OutboxInput.FENCED): OutboxState.FENCED,
    (OutboxState.OPEN, OutboxInput.LINK_DOWN): OutboxState.CLOSED,
    (OutboxState.OPEN, OutboxInput.ENDED): OutboxState.OVER,
    (OutboxState.FENCED, OutboxInput.OPENED): OutboxState.OPEN,
    (OutboxState.FENCED, OutboxInput.ANSWERED): OutboxState.FENCED,
    (OutboxState.FENCED, OutboxInput.FENCED): OutboxState.FENCED,
    (OutboxState.FENCED, OutboxInput.LINK_DOWN): OutboxState.CLOSED,
    (OutboxState.FENCED, OutboxInput.ENDED): OutboxState.OVER,
    **{(OutboxState.OVER, given): OutboxState.OVER for given in OutboxInput},
}
"""The next state of an outbox. A pair that is not here cannot happen."""
