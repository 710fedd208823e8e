"""Events of the broker machine: the input of a step."""

from __future__ import annotations

from typing import Any, TypeAlias

import msgspec

from gapless.core.ids import BrokerId

__all__ = [
    "ClientDown",
    "ClientDrained",
    "ClientFull",
    "ClientRequest",
    "ClientUp",
    "Fetched",
    "LinkDown",
    "LinkDrained",
    "LinkFull",
    "LinkUp",
    "MachineEvent",
    "Received",
    "Stopping",
    "Written",
]


class LinkUp(msgspec.Struct, frozen=True):
    """Packets can now be sent to a peer."""

    peer: BrokerId


class LinkDown(msgspec.Struct, frozen=True):
    """The link to a peer is down, and packets in flight are lost."""

    peer: BrokerId


class LinkFull(msgspec.Struct, frozen=True):
    """The send queue of a peer is over ``queue_bytes_max``. Further packets are still queued."""

    peer: BrokerId


class LinkDrained(msgspec.Struct, frozen=True):
    """Most of the send queue of a peer is sent."""

    peer: BrokerId


class Received(msgspec.Struct, frozen=True):
    """A packet came from a peer."""

    peer: BrokerId
    packet: Any


class ClientUp(msgspec.Struct, frozen=True):
    """A client connected."""

    client: str
    capabilities: tuple[str, ...] = ()
    """What it understands beyond the first version (D14)."""


class ClientDown(msgspec.Struct, frozen=True):
    """A client disconnected."""

    client: str


class ClientFull(msgspec.Struct, frozen=True):
    """The send queue of a client is over ``queue_bytes_max``. Further messages are still queued."""

    client: str


class ClientDrained(msgspec.Struct, frozen=True):
    """Most of the send queue of a client is sent."""

    client: str


class ClientRequest(msgspec.Struct, frozen=True):
    """A client sent a request."""

    client: str
    request: Any


class Stopping(msgspec.Struct, frozen=True):
    """The broker is shutting down: deferred writes are requested now."""


class Written(msgspec.Struct, frozen=True):
    """A write is on disk. Writes become durable and are reported in the order of the requests."""

    write_id: int


class Fetched(msgspec.Struct, frozen=True):
    """The requested rows of a log, lowest first."""

    fetch_id: int
    rows: tuple[Any, ...]
    corruption: str | None = None
    """Which row could not be read, and why; then ``rows`` are those before it."""
    complete: bool = True
    """Whether these are all rows of the range; else there may be more above the last."""


MachineEvent: TypeAlias = (
    LinkUp
    | LinkDown
    | LinkFull
    | LinkDrained
    | Received
    | ClientUp
    | ClientDown
    | ClientFull
    | ClientDrained
    | ClientRequest
    | Stopping
    | Written
    | Fetched
    | None
)
"""The input of a step; None if only time has passed."""
