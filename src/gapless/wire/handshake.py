"""The handshake, keepalives and disconnect reasons of a connection."""

from __future__ import annotations

from enum import IntEnum
from typing import Annotated, Any, Final, TypeAlias

import msgspec

from gapless.core.ids import BrokerId, CellId
from gapless.core.numbers import Count
from gapless.core.overlay_limits import CAPABILITIES_MAX, CAPABILITY_NAME_MAX
from gapless.core.version import PROTOCOL_VERSIONS

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

VERSIONS: Final = PROTOCOL_VERSIONS


Capabilities: TypeAlias = Annotated[
    tuple[Annotated[str, msgspec.Meta(max_length=CAPABILITY_NAME_MAX)], ...],
    msgspec.Meta(max_length=CAPABILITIES_MAX),
]


class Role(IntEnum):
    """The kind of the side that dials."""

    CLIENT = 0
    BROKER = 1


class DisconnectReason(IntEnum):
    """Why a connection ends, and what the other side should do."""

    STOPPING = 0
    """The broker is shutting down. Retry later or use another broker."""
    CLOSED_BY_BROKER = 1
    """The broker ends this client, for the given reason."""
    PROTOCOL_ERROR = 2
    """A frame was malformed, too large or unexpected. A retry will not help."""
    NO_COMMON_VERSION = 3
    UNKNOWN_BROKER = 4
    """The overlay has no broker of this name."""
    CONNECTION_LIMIT = 5
    """The broker has its maximum number of connections. Retry later or use another broker."""
    KEEPALIVE_TIMEOUT = 6
    """No frame was received for too long."""
    CLIENT_DONE = 7
    """The sender has no more use for the connection."""
    NOT_AUTHENTICATED = 8
    """The token is missing or not accepted. A retry with the same token will not help."""
    AUTHENTICATION_UNAVAILABLE = 9
    """The broker cannot read its token file. Retry later or use another broker."""


class Connect(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The first frame, from the side that dials."""

    role: Role
    name: str
    """The id of a broker; for a client, a name for people."""
    versions: tuple[Count, ...] = VERSIONS
    overlay: str = ""
    """The overlay of a broker; empty for a client."""
    token: str = ""
    """The secret that authenticates the side that dials; empty if it has none."""
    capabilities: Capabilities = ()
    """What a client understands beyond the first version, by short names (D14)."""

    def __repr__(self) -> str:
        """Show all but the token, because the text appears in logs and errors."""
        shown = ", ".join(f"{name}={value!r}" for name, value in self.__rich_repr__())
        return f"Connect({shown})"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        shown = {name: getattr(self, name) for name in self.__struct_fields__}
        return [*{**shown, "token": "…" if self.token else ""}.items()]


class Connected(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The answer: the broker, and the settings of this connection."""

    version: Count
    broker: BrokerId
    cell: CellId
    frame_bytes_max: Count
    keepalive_ms: Count
    """Each side sends a frame at least this often, and closes after four periods without one."""
    client: str = ""
    """The name that the broker assigned to this connection."""


class KeepAlive(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Shows that the connection is alive."""


class Disconnect(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The connection ends now; a code and a reason text."""

    code: DisconnectReason
    reason: str


Handshake: TypeAlias = Connect | Connected | Disconnect


def common_version(theirs: tuple[int, ...]) -> int | None:
    """Return the newest version that both sides support, or None.

    >>> common_version((3, 4, 9)), common_version((3,))
    (4, None)
    """
    return max(set(VERSIONS) & set(theirs), default=None)
