"""Runs of audit log writers: which segments exist, and whether a run ended in order."""

from __future__ import annotations

from collections.abc import Iterable

from gapless.audit.facts import Control
from gapless.audit.records import Closing, Header, Stored

__all__ = ["AuditWriterRun", "logs_of"]


class AuditWriterRun:
    """One run of a writer."""

    def __init__(self, header: Header) -> None:
        self.header = header
        self.number = header.number
        """The number of the first segment that exists."""
        self.started_us = header.at_us
        self.seen_us = 0
        """The time of the last record."""
        self.is_closed = False
        self.stored: dict[str, int] = {}
        self.numbers: set[int] = set()

    def note(self, control: Control) -> None:
        """Add a record of the run."""
        header, record = control.header, control.record
        if header.number < self.number:
            self.number, self.started_us = header.number, header.at_us
        self.numbers.add(header.number)
        self.seen_us = max(self.seen_us, control.at_us)
        if isinstance(record, Closing):
            self.is_closed = True
        elif isinstance(record, Stored):
            name = str(record.pubend)
            self.stored[name] = max(self.stored.get(name, 0), record.tick)

    @property
    def is_whole(self) -> bool:
        """Whether all segments exist, from the first to the last known one."""
        return self.numbers == set(range(1, max(self.numbers) + 1))


def logs_of(controls: Iterable[Control]) -> dict[str, AuditWriterRun]:
    """Return the runs of all writers, by their ids."""
    found: dict[str, AuditWriterRun] = {}
    for each in controls:
        found.setdefault(each.header.run, AuditWriterRun(each.header)).note(each)
    return found
