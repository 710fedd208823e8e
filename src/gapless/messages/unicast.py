"""Unicast requests: to a named broker, hop by hop; the reply returns by the recorded route (D9).

The requester repeats a request under a new id until it is answered. So bodies are idempotent, and
none refers to the route. The bodies are a closed union: every broker on the way checks them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, TypeAlias

import msgspec

from gapless.core.ids import BrokerId, CellId, ShbId
from gapless.core.numbers import Count
from gapless.messages.overlay import CellRecord
from gapless.messages.plans import AreEdgesSettled, EdgesSettled
from gapless.messages.reshape import OpReply, OpRequest, TakeOverCell, TakeoverReply

__all__ = [
    "REPLY_BODIES",
    "UnicastBody",
    "UnicastReply",
    "UnicastReplyBody",
    "UnicastRequest",
    "Walk",
    "Walked",
]


class Walk(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Asks a broker for all cell records that it holds, page by page (RS-20)."""

    after: CellId = ""
    """The page starts after this cell, in the order of names."""


class Walked(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """A page of the cell records that a broker holds, in the order of their names."""

    records: tuple[CellRecord, ...]
    more: bool = False


UnicastBody: TypeAlias = Walk | OpRequest | TakeOverCell | AreEdgesSettled
"""What a unicast request may ask."""

UnicastReplyBody: TypeAlias = Walked | OpReply | TakeoverReply | EdgesSettled
"""What a unicast reply may contain. A request that only has to be done gets a reply without a body."""

REPLY_BODIES: Final[Mapping[type, type]] = {
    Walk: Walked,
    OpRequest: OpReply,
    TakeOverCell: TakeoverReply,
    AreEdgesSettled: EdgesSettled,
}
"""The body of the reply to each request, by the body of the request; those without one are missing."""


class UnicastRequest(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """A request to a named broker."""

    to: ShbId
    request: Count
    """The id of this attempt. It selects the next hop if there is a choice."""
    requester: BrokerId
    route: tuple[BrokerId, ...]
    """The brokers that forwarded it, in their order."""
    body: UnicastBody


class UnicastReply(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The reply of the named broker."""

    request: Count
    route: tuple[BrokerId, ...]
    """The brokers that it still has to reach, the requester first."""
    body: UnicastReplyBody | None = None
