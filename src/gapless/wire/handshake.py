"""How a connection begins and how it ends."""

from __future__ import annotations

from enum import IntEnum
from typing import Any, Final, TypeAlias

import msgspec

from gapless.core.ids import BrokerId, CellId

__all__ = [
    "VERSIONS",
    "Connect",
    "Connected",
    "Disconnect",
    "DisconnectReason",
    "Handshake",
    "KeepAlive",
    "Role",
    "common_version",
]

VERSIONS: Final = (2,)
"""The versions of the wire protocol that this release speaks."""


class Role(IntEnum):
    """What the side that dials is."""

    CLIENT = 0
    BROKER = 1


class DisconnectReason(IntEnum):
    """Why a connection ends; what the other side should do about it."""

    STOPPING = 0
    """The broker stops: come back later, or go to another."""
    CLOSED_BY_BROKER = 1
    """The broker ends this client, for the reason it gives."""
    PROTOCOL_ERROR = 2
    """A frame was malformed, too large or out of place: coming back as you are will not help."""
    NO_COMMON_VERSION = 3
    UNKNOWN_BROKER = 4
    """No broker of this name belongs here."""
    CONNECTION_LIMIT = 5
    """The broker has as many connections as it takes: come back later, or go to another."""
    KEEPALIVE_TIMEOUT = 6
    """Nothing was heard for too long."""
    CLIENT_DONE = 7
    """The side that says it has all it wanted."""
    NOT_AUTHENTICATED = 8
    """No token came, or none that is taken here: coming back with the same will not help."""
    AUTHENTICATION_UNAVAILABLE = 9
    """The broker cannot tell at the moment who may come in: come back later, or go to another."""


class Connect(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The first frame, from the side that dials."""

    role: Role
    name: str
    """A broker's id; of a client, what people may call it."""
    versions: tuple[int, ...] = VERSIONS
    overlay: str = ""
    """Of a broker, the overlay that it belongs to."""
    token: str = ""
    """The secret by which it is known; empty if it has none."""

    def __repr__(self) -> str:
        """Show all but the token: what is shown ends in logs and in errors."""
        shown = ", ".join(f"{name}={value!r}" for name, value in self.__rich_repr__())
        return f"Connect({shown})"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        shown = {name: getattr(self, name) for name in self.__struct_fields__}
        return [*{**shown, "token": "…" if self.token else ""}.items()]


class Connected(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The answer: who is here, and what holds on this connection."""

    version: int
    broker: BrokerId
    cell: CellId
    frame_bytes_max: int
    keepalive_ms: int
    """Each side says something at least so often, and gives the other up after four such times."""
    client: str = ""
    """The name that the broker gave this connection."""


class KeepAlive(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Still here."""


class Disconnect(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """This connection ends now, and why."""

    code: DisconnectReason
    reason: str


Handshake: TypeAlias = Connect | Connected | Disconnect


def common_version(theirs: tuple[int, ...]) -> int | None:
    """Return the newest version that both sides speak, or None.

    >>> common_version((1, 2, 3)), common_version((7,))
    (1, None)
    """
    return max(set(VERSIONS) & set(theirs), default=None)
