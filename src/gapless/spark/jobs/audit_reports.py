"""The result of an audit."""

from __future__ import annotations

import msgspec

from gapless.spark.jobs.rights_audit import RightsFindings, RightsReport

__all__ = ["AuditLogReport", "AuditReport", "AuditRow"]


class AuditRow(msgspec.Struct, kw_only=True):
    """The counts of one subscription, or of all."""

    subscription: str
    side: str = ""
    """Whose log is used: the client's, or that of brokers."""
    expected: int = 0
    delivered: int = 0
    lost: int = 0
    duplicates: int = 0
    out_of_order: int = 0
    spurious: int = 0
    gaps: int = 0
    """Reported gaps; events in them are not lost."""
    in_flight: int = 0
    repeated: int = 0
    """Came again because it was not acknowledged, or after a seek."""
    unjudged: int = 0
    unauthorised: int | None = None
    """Sent to a principal without a right; None if rights were not judged."""

    @property
    def is_clean(self) -> bool:
        """Whether there are no faults."""
        found = (self.lost, self.duplicates, self.out_of_order, self.spurious, self.gaps)
        return not any(found) and not self.unauthorised

    def judge_rights(self, unauthorised: int) -> None:
        """Set the number of unauthorised deliveries."""
        self.unauthorised = unauthorised


class AuditLogReport(msgspec.Struct, frozen=True, kw_only=True):
    """One run of a writer."""

    side: str
    name: str
    cell: str
    started_us: int
    seen_us: int
    is_closed: bool
    """Whether it ended in order; otherwise it still runs, or crashed."""
    is_whole: bool
    """Whether all its segments are there."""


class AuditReport(msgspec.Struct, kw_only=True):
    """The whole result."""

    published: int
    unsure: int
    """Published events that may not be on disk, because their broker crashed."""
    unlogged: int
    """Acknowledged to a publisher, and not in the log of the broker."""
    given: int | None
    """How many published events are among the given events; None if none were given."""
    undescribed: int
    """Published events whose attributes are neither in a log nor among the given events: their
    deliveries are unknown, so they are not judged."""
    undescribed_first: list[str]
    """A few of them."""
    rights: RightsReport | None
    """Unauthorised publications and deliveries; None if no rules were given."""
    rows: list[AuditRow]
    total: AuditRow
    examples: list[str]
    logs: list[AuditLogReport]

    def add_rights(self, found: RightsFindings) -> None:
        """Add the unauthorised publications and deliveries."""
        self.rights = found.report
        self.total.judge_rights(found.report.unauthorised_deliveries)
        for row in self.rows:
            row.judge_rights(found.by_subscription.get(row.subscription, 0))
        self.examples += found.examples

    @property
    def is_clean(self) -> bool:
        """Whether every guarantee was kept."""
        may = self.rights is None or self.rights.is_clean
        return self.total.is_clean and not self.unlogged and may
