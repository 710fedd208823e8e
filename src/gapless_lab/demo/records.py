"""The records of publishers and subscribers, one line of JSON each, in a file per client."""

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
    """A publisher published an event, or tried to."""

    publisher: str
    number: int
    """The publisher's own count; the payload contains it."""
    pubend: str
    attributes: dict[str, bool | int | float | str]
    sent_us: int
    outcome: PublishOutcome
    tick: int = 0
    """The tick, if the event was acknowledged."""


class DemoOpened(msgspec.Struct, frozen=True, tag="opened"):
    """A subscriber has subscribed, for the first time or again."""

    filter: str
    order: Literal["publisher", "total"]
    position: dict[str, int]
    at_us: int


class DemoFilterChanged(msgspec.Struct, frozen=True, tag="switched"):
    """A new filter applies after a position."""

    filter: str
    position: dict[str, int]


class DemoDelivered(msgspec.Struct, frozen=True, tag="delivered"):
    """A subscriber received an event."""

    publisher: str
    number: int
    pubend: str
    tick: int
    attributes: dict[str, bool | int | float | str]
    at_us: int


class DemoGap(msgspec.Struct, frozen=True, tag="gap"):
    """A subscriber was notified that a range of a log is lost."""

    pubend: str
    low: int
    high: int


Note: TypeAlias = DemoOpened | DemoFilterChanged | DemoDelivered | DemoGap
"""A record of a subscriber."""

DemoRecord: TypeAlias = Note | DemoPublished

_PUBLISHED = msgspec.json.Decoder(DemoPublished)
_NOTES: msgspec.json.Decoder[Note] = msgspec.json.Decoder(Note)


class RecordFile:
    """A file of records, one per line; use it with ``with``."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("wb")
        self._encoder = msgspec.json.Encoder()

    def write(self, record: DemoRecord) -> None:
        """Add a record."""
        self._file.write(self._encoder.encode(record) + b"\n")

    def flush(self) -> None:
        """Make all records readable for others."""
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
    """Read the records of a publisher."""
    with path.open("rb") as lines:
        yield from map(_PUBLISHED.decode, lines)


def read_notes(path: Path) -> Iterator[Note]:
    """Read the records of a subscriber."""
    with path.open("rb") as lines:
        yield from map(_NOTES.decode, lines)
