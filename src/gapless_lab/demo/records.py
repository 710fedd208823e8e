"""What feeds and watchers write down, a line of JSON each, in files of their own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self, TypeAlias

import msgspec

__all__ = [
    "DemoDelivered",
    "DemoFilterChanged",
    "DemoGap",
    "DemoOpened",
    "DemoPublished",
    "DemoRecord",
    "Note",
    "PublishOutcome",
    "Quote",
    "RecordFile",
    "read_notes",
    "read_published",
]

Quote: TypeAlias = Mapping[str, Any]
"""The attributes of an event."""

PublishOutcome: TypeAlias = Literal["ok", "unknown", "failed"]


class DemoPublished(msgspec.Struct, frozen=True, tag="published"):
    """A feed published an event, or tried to."""

    publisher: str
    number: int
    """Its own count; it travels in the payload."""
    pubend: str
    attributes: dict[str, bool | int | float | str]
    sent_us: int
    outcome: PublishOutcome
    tick: int = 0
    """Where it is, if it was acknowledged."""


class DemoOpened(msgspec.Struct, frozen=True, tag="opened"):
    """A watcher has subscribed, for the first time or again."""

    filter: str
    order: Literal["publisher", "total"]
    position: dict[str, int]
    at_us: int


class DemoFilterChanged(msgspec.Struct, frozen=True, tag="switched"):
    """Another filter governs after a position."""

    filter: str
    position: dict[str, int]


class DemoDelivered(msgspec.Struct, frozen=True, tag="delivered"):
    """A watcher was given an event."""

    publisher: str
    number: int
    pubend: str
    tick: int
    attributes: dict[str, bool | int | float | str]
    at_us: int


class DemoGap(msgspec.Struct, frozen=True, tag="gap"):
    """A watcher was told that a log has lost a range."""

    pubend: str
    low: int
    high: int


Note: TypeAlias = DemoOpened | DemoFilterChanged | DemoDelivered | DemoGap
"""What a watcher writes down."""

DemoRecord: TypeAlias = Note | DemoPublished

_PUBLISHED = msgspec.json.Decoder(DemoPublished)
_NOTES: msgspec.json.Decoder[Note] = msgspec.json.Decoder(Note)


class RecordFile:
    """A file that grows by a line a record; use it with ``with``."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("wb")
        self._encoder = msgspec.json.Encoder()

    def write(self, record: DemoRecord) -> None:
        """Add a record."""
        self._file.write(self._encoder.encode(record) + b"\n")

    def flush(self) -> None:
        """Let others read all of it."""
        self._file.flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._file.close()


def read_published(path: Path) -> Iterator[DemoPublished]:
    """Read what a feed wrote down."""
    with path.open("rb") as lines:
        yield from map(_PUBLISHED.decode, lines)


def read_notes(path: Path) -> Iterator[Note]:
    """Read what a watcher wrote down."""
    with path.open("rb") as lines:
        yield from map(_NOTES.decode, lines)
