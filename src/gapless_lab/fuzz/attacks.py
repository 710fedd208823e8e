"""Attacks: what one hostile connection sends, as data that can be saved and repeated."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from pathlib import Path

import msgspec

from gapless.core.errors import UsageError

__all__ = [
    "Attack",
    "AttackerRole",
    "AttackerState",
    "Ending",
    "FrameKind",
    "FuzzFrame",
    "load_attacks",
    "save_attacks",
]


class AttackerRole(StrEnum):
    """What the hostile connection pretends to be."""

    CLIENT = "client"
    PEER = "peer"


class FrameKind(StrEnum):
    """How a frame was made."""

    PLAUSIBLE = "plausible"
    """From its type, with values that may be meant."""
    EXTREME = "extreme"
    """From its type, with extreme values and values of other types."""
    RECORDED = "recorded"
    """From a run of the simulator, unchanged."""
    MUTATED_VALUES = "mutated values"
    """From a run of the simulator, with some values replaced."""
    MUTATED_BYTES = "mutated bytes"
    """From a run of the simulator, with some bytes changed."""
    BOMB = "bomb"


class AttackerState(StrEnum):
    """The state of the connection when the frames come."""

    HANDSHAKE = "handshake"
    """The broker waits for the handshake."""
    CONNECTED = "connected"
    """A client that has requested nothing; a peer without a session."""
    PUBLISHING = "publishing"
    SUBSCRIBED = "subscribed"
    DURABLE = "durable"
    CATCHING_UP = "catching up"
    """A subscription from the earliest event, without credit."""
    CHANGING = "changing"
    """A filter change is not complete."""
    STAGING = "staging"
    DEAF = "deaf"
    """A subscription with much credit, whose client reads nothing."""
    GREETED = "greeted"
    """The peer has sent Hello, and not confirmed the one of the broker."""
    OPEN = "open"
    """A peer session is open."""
    FEEDING = "feeding"
    """The peer has announced pubends and has sent tables."""
    FED = "fed"
    """The peer has attached to streams."""
    STALE = "stale"
    """The packets belong to an older session."""


class Ending(StrEnum):
    """How the attacker ends the connection."""

    ABORT = "abort"
    DISCONNECT = "disconnect"
    HALF_FRAME = "half a frame"


class FuzzFrame(msgspec.Struct, frozen=True, kw_only=True):
    """A frame."""

    kind: FrameKind
    type: str
    """The message that it is, or was before it was changed; or the name of the bomb."""
    body: bytes
    is_message: bool = False
    """Whether a peer sends it as a message in a packet of its session."""


class Attack(msgspec.Struct, frozen=True, kw_only=True):
    """One hostile connection."""

    number: int
    role: AttackerRole
    target: str
    """The attacked broker."""
    state: AttackerState
    frames: tuple[FuzzFrame, ...]
    ending: Ending = Ending.ABORT

    @property
    def name(self) -> str:
        """The name of the client, by which a step of the broker is traced to the attack."""
        return f"fuzz-{self.number}"


def save_attacks(path: Path, attacks: Iterable[Attack]) -> None:
    """Write attacks, one a line."""
    lines = [msgspec.json.encode(attack) + b"\n" for attack in attacks]
    path.write_bytes(b"".join(lines))


def load_attacks(path: Path) -> list[Attack]:
    """Read attacks that :func:`save_attacks` wrote."""
    try:
        lines = path.read_bytes().splitlines()
        return [msgspec.json.decode(line, type=Attack) for line in lines]
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from None
    except msgspec.DecodeError as error:
        raise UsageError(f"{path} contains no saved attacks: {error}") from None
