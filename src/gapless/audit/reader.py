"""Reads audit logs, also those that are being written or were torn by a crash."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from gapless.audit.records import VERSION, AuditRecord, Header
from gapless.audit.segments import CLOSED, OPEN, frames_of, segments_of
from gapless.core.errors import UsageError

__all__ = ["AuditEntry", "read", "read_segment"]


class AuditEntry(NamedTuple):
    """A record with where it stands."""

    header: Header
    """Whose it is."""
    at_us: int
    """When it was written; it happened a moment before."""
    record: AuditRecord


def read(directory: str | Path) -> Iterator[AuditEntry]:
    """Give the records of all writers of a directory, those of a writer in their order.

    >>> import tempfile
    >>> from gapless.audit import AuditOptions, AuditWriter
    >>> from gapless.audit.records import Confirmed
    >>> from gapless.core.ids import PubendId
    >>> with tempfile.TemporaryDirectory() as directory:
    ...     writer = AuditWriter(AuditOptions(directory=directory), "client", "tape")
    ...     writer.add(Confirmed(PubendId("quotes"), "feed", 1, [1700, 1701]))
    ...     writer.close()
    ...     [type(entry.record).__name__ for entry in read(directory)]
    ['Confirmed', 'Closing']
    """
    root = Path(directory)
    if not root.is_dir():
        raise UsageError(f"{root} is no directory of an audit log")
    for path in segments_of(root):
        try:
            data = path.read_bytes()
        except FileNotFoundError:  # it was ended meanwhile, and has its other name, or is removed
            if path.suffix != OPEN or not path.with_suffix(CLOSED).exists():
                continue
            data = path.with_suffix(CLOSED).read_bytes()
        yield from read_segment(data, str(path))


def read_segment(data: bytes, name: str = "a segment") -> Iterator[AuditEntry]:
    """Give the records of a segment behind its first, as far as it is whole."""
    header: Header | None = None
    for at_us, records in frames_of(data):
        for record in records:
            if isinstance(record, Header):
                header = record
                if header.version > VERSION:
                    raise UsageError(
                        f"{name} is of version {header.version} and this reads up to {VERSION}: "
                        "read it with a newer gapless"
                    )
            elif header is not None:
                yield AuditEntry(header, at_us, record)
