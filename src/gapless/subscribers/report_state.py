"""What this SHB has last reported about a stream, and whether there is something new (R52)."""

from __future__ import annotations

from typing import NamedTuple

from gapless.core.ids import BrokerId
from gapless.core.ticks import Tick
from gapless.messages.streams import Member

__all__ = ["ReportState", "SentReport"]


class SentReport(NamedTuple):
    """The last report about a stream."""

    feeder: BrokerId
    member: Member
    tick: Tick
    pause_us: int
    """After this time the report is repeated if nothing changes."""
    repeat_at: int


class ReportState:
    """The reports about one stream in this incarnation."""

    __slots__ = ("greatest", "has_news", "last", "repeat_at")

    def __init__(self) -> None:
        self.greatest: Tick | None = None
        """The greatest tick that this SHB has reported."""
        self.last: SentReport | None = None
        self.repeat_at = 0
        """When the last report is to be repeated; 0 if there is none."""
        self.has_news = False
        """Whether the ack floor may have changed since it was last computed."""

    def note_news(self) -> None:
        """The ack floor may have changed: compute it with the next review."""
        self.has_news = True

    def repeat_soon(self) -> None:
        """The last report may be lost: send one with the next review, new or not."""
        self.has_news, self.repeat_at = True, 0

    def note_computed(self) -> None:
        """The ack floor was computed."""
        self.has_news = False

    def note_sent(self, report: SentReport) -> None:
        """A report was sent."""
        self.last = report
        self.repeat_at = report.repeat_at
        self.greatest = max(report.tick, self.greatest or 0)
        self.has_news = False
