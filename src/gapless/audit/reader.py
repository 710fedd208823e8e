"""Reading of audit logs, also of incomplete ones that are being written or end in a crash."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from gapless.audit.records import VERSION, AuditRecord, Header
from gapless.audit.segments import CLOSED, OPEN, frames_of, segments_of
from gapless.core.errors import UsageError

__all__ = ["AuditEntry", "read", "read_segment"]


class AuditEntry(NamedTuple):
    """A record with its writer and its time."""

    header: Header
    """The header of its segment."""
    at_us: int
    """When it was written, shortly after the recorded event."""
    record: AuditRecord


def read(directory: str | Path) -> Iterator[AuditEntry]:
    """Yield the records of all writers of a directory, those of each writer in order.

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
        raise UsageError(f"{root} is not a directory of an audit log")
    for path in segments_of(root):
        try:
            data = path.read_bytes()
        except FileNotFoundError:  # it was ended meanwhile, and renamed or removed
            if path.suffix != OPEN or not path.with_suffix(CLOSED).exists():
                continue
            data = path.with_suffix(CLOSED).read_bytes()
        yield from read_segment(data, str(path))


def read_segment(data: bytes, name: str = "a segment") -> Iterator[AuditEntry]:
    """Yield the records of a segment after its header, as far as the segment is complete."""
    header: Header | None = None
    for at_us, records in frames_of(data):
        for record in records:
            if isinstance(record, Header):
                header = record
                if header.version > VERSION:
                    raise UsageError(
                        f"{name} has version {header.version}, this program reads up to {VERSION}: "
                        "read it with a newer gapless"
                    )
            elif header is not None:
                yield AuditEntry(header, at_us, record)
