"""Computes which events each subscription must receive, under which filter and how certainly.

A subscription has sessions, one after the other. On each pubend a session starts after a tick and
has reached a tick. A stream is delivered in order, so all matching events up to there must have
been delivered: they are *settled*. Events above may still be delivered, or were delivered and not
recorded: they are *in flight*. An event above that was published more than ``tail_us`` ago, while
the subscriber was connected, is settled too.

Between two sessions of one subscription no event may be missing, unless there was a seek. If a
writer crashed, its last records are unknown: events between its last record and the next session
are in flight, not lost.

An event that a session receives again is a *repetition* if it was not acknowledged before: the
subscriber resumed before it. Otherwise it is a duplicate.

If clients have written a log, their records are used, otherwise those of the brokers. For a broker,
an event that is sent again on another connection is a repetition if it is after the position with
which the client resumed.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from typing import Final, NamedTuple

from gapless.audit.facts import Control, client_session_key
from gapless.audit.records import (
    AuditEnded,
    AuditFilterChanged,
    AuditOpened,
    AuditStarted,
    GapReported,
)
from gapless.audit.session_timelines import (
    SessionTimeline,
    session_timelines,
    subscription_key,
    ticks_by_name,
)
from gapless.audit.writer_runs import logs_of

__all__ = [
    "FOREVER",
    "AuditedSession",
    "AuditedSubscription",
    "Interval",
    "subscriptions_of",
]

FOREVER: Final = 2**62
"""Above every tick."""


class Interval(NamedTuple):
    """Ticks above ``low`` up to ``high`` of a pubend, under one filter."""

    pubend: str
    low: int
    high: int
    filter: str
    settled: bool


class AuditedSession(NamedTuple):
    """A session on one pubend: how to judge the events delivered in it."""

    run: str
    client_session: str
    rank: int
    """Its number among the sessions of its subscription, in order."""
    epoch: int
    """The number of seeks before it: order holds between seeks."""
    pubend: str
    above: int
    """Events up to this tick precede the first record of the session."""
    up_to: int
    """Events above this tick were dropped before they were handed out."""
    fresh_up_to: int
    """Events up to this tick were acknowledged or received before: a repeat is a duplicate."""


class AuditedSubscription(NamedTuple):
    """The expected events and the sessions of one subscription."""

    name: str
    side: str
    total: bool
    intervals: list[Interval]
    client_sessions: list[AuditedSession]
    gaps: list[tuple[str, int, int]]


def subscriptions_of(controls: Iterable[Control], tail_us: int) -> list[AuditedSubscription]:
    """Return the expected events of every subscription, from one side each, sorted by name."""
    ordered = sorted(controls, key=lambda each: (each.header.run, each.offset))
    logs = logs_of(ordered)
    client_sessions = session_timelines(ordered, logs)
    removed = _removed(ordered, client_sessions)
    grouped: dict[str, dict[str, list[SessionTimeline]]] = {}
    for client_session in client_sessions.values():
        sides = grouped.setdefault(subscription_key(client_session.opened), {})
        sides.setdefault(client_session.log.header.side, []).append(client_session)
    found = []
    for name in sorted(grouped):
        sides = grouped[name]
        side = "client" if "client" in sides else "broker"
        chosen = sorted(sides[side], key=lambda client_session: client_session.order)
        found.append(_Timeline(name, side, chosen, tail_us, is_removed=name in removed).done())
    return found


def _removed(
    controls: list[Control], client_sessions: dict[tuple[str, str, str], SessionTimeline]
) -> set[str]:
    """Return subscriptions that were removed."""
    found = set()
    for each in controls:
        record = each.record
        if isinstance(record, AuditEnded) and record.is_removed:
            found.add(f"{record.subscription}@{each.header.name}")
            client_session = client_sessions.get(
                (each.header.run, record.subscription, record.client_session)
            )
            if client_session is not None:
                found.add(subscription_key(client_session.opened))
    return found


class _Timeline:
    """The sessions of one subscription, combined."""

    def __init__(
        self,
        name: str,
        side: str,
        client_sessions: list[SessionTimeline],
        tail_us: int,
        *,
        is_removed: bool,
    ) -> None:
        self._name = name
        self._side = side
        self._client_sessions = client_sessions
        self._tail_us = tail_us
        self._is_removed = is_removed
        self._text = client_sessions[0].opened.filter
        self._filters_after: dict[str, list[tuple[int, str]]] = {}
        """By pubend: the ticks after which a filter applies, with the filter."""
        self._spans: list[tuple[str, int, int, bool]] = []
        self._reached: dict[str, tuple[int, SessionTimeline]] = {}
        self._acked: dict[str, int] = {}
        self._audited: list[AuditedSession] = []
        self._epoch = 0

    def done(self) -> AuditedSubscription:
        for rank, client_session in enumerate(self._client_sessions):
            self._epoch += client_session.opened.repositioned
            for _, record in client_session.controls:
                self._take(client_session, record)
            for pubend, start in client_session.starts.items():
                self._add_session(rank, client_session, pubend, start)
            for pubend, tick in client_session.acked.items():
                self._acked[pubend] = max(self._acked.get(pubend, 0), tick)
        for pubend, (reached, client_session) in self._reached.items():
            self._tail(pubend, reached, client_session)
        gaps = [gap for client_session in self._client_sessions for gap in client_session.gaps]
        return AuditedSubscription(
            self._name,
            self._side,
            self._client_sessions[0].opened.total,
            [*self._intervals(gaps)],
            self._audited,
            [(str(gap.pubend), gap.low, gap.high) for gap in gaps if not gap.expected],
        )

    def _take(
        self,
        client_session: SessionTimeline,
        record: AuditOpened | AuditStarted | AuditFilterChanged,
    ) -> None:
        """Track which filter applies where."""
        if isinstance(record, AuditFilterChanged):
            self._switch(record.filter, ticks_by_name(record.position))
            return
        if isinstance(record, AuditStarted):
            ticks = {str(record.pubend): record.after}
        else:
            ticks = ticks_by_name(record.position)
            if not record.durable and record.filter != self._text:
                # it restarted with a filter that was requested before the connection was lost
                self._switch(record.filter, ticks)
        for pubend, tick in ticks.items():
            client_session.start(pubend, tick)
            self._filters_after.setdefault(pubend, [(-1, self._text)])

    def _switch(self, text: str, ticks: dict[str, int]) -> None:
        for pubend, tick in ticks.items():
            self._filters_after.setdefault(pubend, [(-1, self._text)]).append((tick, text))
        self._text = text

    def _add_session(
        self, rank: int, client_session: SessionTimeline, pubend: str, start: int
    ) -> None:
        """Add the expected events of a session on a pubend, and how to judge its events."""
        before = self._reached.get(pubend)
        is_repositioned = client_session.opened.repositioned
        if before is not None and not is_repositioned and start > before[0]:
            self._spans.append((pubend, before[0], start, before[1].is_sure))
        reached = client_session.reached_tick(pubend, start)
        if reached > start:
            self._spans.append((pubend, start, reached, True))
        handed = client_session.ended.position if client_session.ended is not None else None
        dropped = reached if handed is not None and pubend in ticks_by_name(handed) else FOREVER
        if is_repositioned:
            fresh_up_to = -1
        else:
            fresh_up_to = start if self._side == "broker" else self._acked.get(pubend, -1)
        self._audited.append(
            AuditedSession(
                client_session.log.header.run,
                client_session_key(
                    client_session.opened.client_session, client_session.opened.subscription
                ),
                rank,
                self._epoch,
                pubend,
                start if client_session.opened.restated else -1,
                dropped,
                fresh_up_to,
            )
        )
        self._reached[pubend] = (reached, client_session)

    def _tail(self, pubend: str, reached: int, client_session: SessionTimeline) -> None:
        """Add the expected events above the reached tick."""
        last = self._client_sessions[-1]
        if client_session.ended is None and client_session is last:
            overdue = client_session.log.seen_us - self._tail_us
            if overdue > reached:
                self._spans.append((pubend, reached, overdue, True))
                reached = overdue
        elif self._is_removed or not last.opened.durable:
            return
        self._spans.append((pubend, reached, FOREVER, False))

    def _intervals(self, gaps: list[GapReported]) -> Iterable[Interval]:
        """Split spans where filters change, and remove reported gaps."""
        for pubend, spans in _disjoint(self._spans).items():
            reported = [(gap.low - 1, gap.high) for gap in gaps if str(gap.pubend) == pubend]
            switches = sorted(self._filters_after.get(pubend, []), key=lambda change: change[0])
            for low, high, settled in _without(spans, reported):
                for index, (after, text) in enumerate(switches):
                    following = switches[index + 1][0] if index + 1 < len(switches) else FOREVER
                    start = max(low, after)
                    end = min(high, following)
                    if start < end:
                        yield Interval(pubend, start, end, text, settled)


_Span = tuple[int, int, bool]


def _disjoint(spans: Iterable[tuple[str, int, int, bool]]) -> dict[str, list[_Span]]:
    """Return spans that do not overlap. A span is settled if any of the overlapping ones is."""
    found: dict[str, list[_Span]] = {}
    for pubend in sorted({span[0] for span in spans}):
        mine = [span[1:] for span in spans if span[0] == pubend]
        bounds = sorted({bound for low, high, _ in mine for bound in (low, high)})
        for low, high in pairwise(bounds):
            over = [settled for start, end, settled in mine if start <= low and high <= end]
            if over:
                found.setdefault(pubend, []).append((low, high, any(over)))
    return found


def _without(spans: list[_Span], reported: list[tuple[int, int]]) -> Iterable[_Span]:
    """Yield the spans without the reported gaps."""
    for low, high, settled in spans:
        start = low
        for gap_low, gap_high in sorted(reported):
            if gap_high <= start or gap_low >= high:
                continue
            if gap_low > start:
                yield start, gap_low, settled
            start = max(start, gap_high)
        if start < high:
            yield start, high, settled
