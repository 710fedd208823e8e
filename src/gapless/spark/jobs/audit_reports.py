"""What an audit tells, in one piece."""

from __future__ import annotations

import msgspec

from gapless.spark.jobs.rights_audit import RightsFindings, RightsReport

__all__ = ["AuditLogReport", "AuditReport", "AuditRow"]


class AuditRow(msgspec.Struct, kw_only=True):
    """What is to be said of one subscription, or of all."""

    subscription: str
    side: str = ""
    """Whose log counts: the client's, or that of brokers."""
    expected: int = 0
    delivered: int = 0
    lost: int = 0
    duplicates: int = 0
    out_of_order: int = 0
    spurious: int = 0
    gaps: int = 0
    """Told gaps; what falls into them is not lost."""
    in_flight: int = 0
    repeated: int = 0
    """Came again as it was not acknowledged, or was sought."""
    unjudged: int = 0
    unauthorised: int | None = None
    """Was sent to somebody who has no right to it; None if rights were not judged."""

    @property
    def is_clean(self) -> bool:
        """Whether nothing is wrong."""
        found = (self.lost, self.duplicates, self.out_of_order, self.spurious, self.gaps)
        return not any(found) and not self.unauthorised

    def judge_rights(self, unauthorised: int) -> None:
        """Note how many deliveries had no right."""
        self.unauthorised = unauthorised


class AuditLogReport(msgspec.Struct, frozen=True, kw_only=True):
    """One life of a writer."""

    side: str
    name: str
    cell: str
    started_us: int
    seen_us: int
    is_closed: bool
    """Whether it ended in order; else it runs, or crashed."""
    is_whole: bool
    """Whether all its segments are there."""


class AuditReport(msgspec.Struct, kw_only=True):
    """The whole result."""

    published: int
    unsure: int
    """Published events of which nobody knows whether they are on disk: their broker died meanwhile."""
    unlogged: int
    """Acknowledged to a publisher, and not in the log of the broker."""
    given: int | None
    """How many of the published are among the events that were given; None if none were given."""
    undescribed: int
    """Published, and what they have is neither in a log nor among the events: who is owed them is not
    known, so they are not judged."""
    undescribed_first: list[str]
    """A few of them."""
    rights: RightsReport | None
    """What was published or delivered without a right; None if no rules were given: not judged."""
    rows: list[AuditRow]
    total: AuditRow
    examples: list[str]
    logs: list[AuditLogReport]

    def add_rights(self, found: RightsFindings) -> None:
        """Note what was published or delivered without a right."""
        self.rights = found.report
        self.total.judge_rights(found.report.unauthorised_deliveries)
        for row in self.rows:
            row.judge_rights(found.by_subscription.get(row.subscription, 0))
        self.examples += found.examples

    @property
    def is_clean(self) -> bool:
        """Whether every promise was kept."""
        may = self.rights is None or self.rights.is_clean
        return self.total.is_clean and not self.unlogged and may
