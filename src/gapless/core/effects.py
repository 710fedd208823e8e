"""Effects of the broker machine: the output of a step, which the driver carries out."""

from __future__ import annotations

from typing import Any, TypeAlias

import msgspec

from gapless.core.ids import BrokerId

__all__ = [
    "DisconnectClient",
    "Effect",
    "Fetch",
    "LinkTarget",
    "Notify",
    "Send",
    "SetPeers",
    "StartAgain",
    "Write",
]


class Send(msgspec.Struct, frozen=True):
    """Send a packet to a peer."""

    peer: BrokerId
    packet: Any


class Notify(msgspec.Struct, frozen=True):
    """Send a message to a client."""

    client: str
    notice: Any


class DisconnectClient(msgspec.Struct, frozen=True):
    """Disconnect a client, with a reason text."""

    client: str
    reason: str


class Write(msgspec.Struct, frozen=True):
    """Make changes durable, all or none, and report it with :class:`Written`."""

    write_id: int
    changes: tuple[Any, ...]


class Fetch(msgspec.Struct, frozen=True):
    """Read rows of a pubend's log between two ticks, at most so many bytes."""

    fetch_id: int
    pubend: Any
    low: int
    high: int
    bytes_max: int
    packed: bool = False
    """Whether the publications stay encoded, because not all of them are needed decoded."""


class LinkTarget(msgspec.Struct, frozen=True):
    """A broker to link with, and the addresses that its cell's record gives it."""

    broker: BrokerId
    addresses: tuple[str, ...] = ()


class SetPeers(msgspec.Struct, frozen=True):
    """Keep links with exactly these brokers (R13, RS-35)."""

    peers: tuple[LinkTarget, ...]
    """The neighbourhood. Of two peers the one whose name comes first dials."""
    control: tuple[LinkTarget, ...] = ()
    """Brokers outside it that this broker dials for control sessions."""
    admitted: tuple[BrokerId, ...] = ()
    """Brokers outside it that have dialled this broker."""


class StartAgain(msgspec.Struct, frozen=True):
    """End this incarnation and start the next one: the broker has joined a tree, in another cell (RS-15)."""


Effect: TypeAlias = Send | Notify | DisconnectClient | Write | Fetch | SetPeers | StartAgain
