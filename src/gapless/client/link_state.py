"""The states of a link, its inputs, and the table that joins them.

Theory of operation
-------------------
A link keeps one connection to a broker and replaces it when it is lost.

- ``DOWN``: no broker has accepted a connection. The link dials its addresses.
- ``UP``: a broker has accepted the connection. Requests go out, notices come in.
- ``OVER``: the program closed the link, or dialling again cannot help: the broker and the client have
  no common version, the client is unknown, or no address accepts its token. The state is final.

A dialled connection that fails before a broker accepts it is lost in ``DOWN``. Every input is allowed
in ``OVER``, because a connection may end after the link. A link dials only in ``DOWN``, so a broker
cannot accept a connection in ``UP``; that pair is not in the table.

Users are called when the link goes to ``UP``, ``DOWN`` or ``OVER``. The open requests of a
connection are forgotten before the users are called about its loss.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import Final

__all__ = ["NEXT_STATE", "LinkInput", "LinkState"]


class LinkState(Enum):
    """Whether a link has a connection."""

    DOWN = auto()
    UP = auto()
    OVER = auto()


class LinkInput(Enum):
    """What can happen to a link."""

    CONNECTED = auto()
    """The right broker has accepted a connection."""
    LOST = auto()
    """The present connection has ended, accepted or not."""
    FAILED = auto()
    """The program closed the link, or dialling again cannot help."""


NEXT_STATE: Final[dict[tuple[LinkState, LinkInput], LinkState]] = {
    (LinkState.DOWN, LinkInput.CONNECTED): LinkState.UP,
    (LinkState.DOWN, LinkInput.LOST): LinkState.DOWN,
    (LinkState.DOWN, LinkInput.FAILED): LinkState.OVER,
    (LinkState.UP, LinkInput.LOST): LinkState.DOWN,
    (LinkState.UP, LinkInput.FAILED): LinkState.OVER,
    (LinkState.OVER, LinkInput.CONNECTED): LinkState.OVER,
    (LinkState.OVER, LinkInput.LOST): LinkState.OVER,
    (LinkState.OVER, LinkInput.FAILED): LinkState.OVER,
}
"""The next state of a link. A pair that is not here cannot happen."""
