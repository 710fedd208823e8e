"""Records of one session of a subscription, gathered from the audit log of one writer."""

from __future__ import annotations

from collections.abc import Iterable

from gapless.audit.facts import Control
from gapless.audit.records import (
    Acked,
    AuditEnded,
    AuditFilterChanged,
    AuditOpened,
    AuditStarted,
    GapReported,
    Progressed,
)
from gapless.audit.writer_runs import AuditWriterRun
from gapless.core.ids import PubendId

__all__ = ["SessionTimeline", "session_timelines", "subscription_key", "ticks_by_name"]


class SessionTimeline:
    """What one writer has recorded of one session of a subscription."""

    def __init__(self, log: AuditWriterRun, control: Control, opened: AuditOpened) -> None:
        self.log = log
        self.opened = opened
        self.order = (control.at_us, log.header.run, control.offset)
        self.controls: list[tuple[int, AuditOpened | AuditStarted | AuditFilterChanged]] = []
        self.reached: dict[str, int] = {}
        self.acked: dict[str, int] = {}
        self.gaps: list[GapReported] = []
        self.ended: AuditEnded | None = None
        self.starts: dict[str, int] = {}

    def note(
        self,
        offset: int,
        record: AuditOpened
        | AuditStarted
        | AuditFilterChanged
        | Progressed
        | Acked
        | GapReported
        | AuditEnded,
    ) -> None:
        """Add a record of the session."""
        if isinstance(record, AuditOpened | AuditStarted | AuditFilterChanged):
            self.controls.append((offset, record))
        elif isinstance(record, GapReported):
            self.gaps.append(record)
        elif isinstance(record, AuditEnded):
            self.ended = record
        else:
            all_of = self.acked if isinstance(record, Acked) else self.reached
            for pubend, tick in ticks_by_name(record.position).items():
                all_of[pubend] = max(all_of.get(pubend, 0), tick)

    def start(self, pubend: str, after: int) -> None:
        """The session starts on a pubend after a tick, unless it has started there."""
        self.starts.setdefault(pubend, after)

    @property
    def is_sure(self) -> bool:
        """Whether all records of the session were written."""
        return self.ended is not None or self.log.is_closed

    def reached_tick(self, pubend: str, start: int) -> int:
        """Return the tick of a pubend that the session has reached, at least ``start``."""
        if self.ended is not None and self.ended.position is not None:
            handed = ticks_by_name(self.ended.position).get(pubend)
            if handed is not None:
                return handed
        skipped = [gap.high for gap in self.gaps if str(gap.pubend) == pubend]
        return max(start, self.reached.get(pubend, start), *skipped)


def session_timelines(
    controls: list[Control], logs: dict[str, AuditWriterRun]
) -> dict[tuple[str, str, str], SessionTimeline]:
    """Return the sessions of all records by run, subscription and name; the records are in order."""
    client_sessions: dict[tuple[str, str, str], SessionTimeline] = {}
    for each in controls:
        record, run = each.record, each.header.run
        if not isinstance(
            record,
            AuditOpened
            | AuditStarted
            | AuditFilterChanged
            | Progressed
            | Acked
            | GapReported
            | AuditEnded,
        ):
            continue
        key = (run, record.subscription, record.client_session)
        client_session = client_sessions.get(key)
        if isinstance(record, AuditOpened):
            if client_session is None:
                client_session = client_sessions[key] = SessionTimeline(logs[run], each, record)
            elif record.restated:
                continue
        if client_session is None:
            continue  # the segment with its start was removed, and it was not restated
        client_session.note(each.offset, record)
    return client_sessions


def subscription_key(opened: AuditOpened) -> str:
    """Return a name for the subscription; a durable one is named with its broker."""
    return f"{opened.subscription}@{opened.broker}" if opened.durable else opened.subscription


def ticks_by_name(ticks: Iterable[tuple[PubendId, int]]) -> dict[str, int]:
    """Return ticks by the names of their pubends."""
    return {str(pubend): tick for pubend, tick in ticks}
