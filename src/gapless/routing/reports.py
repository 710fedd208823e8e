"""Ack reports, sent upstream: aggregated at every router, named by member sets (R41, R52).

An SHB reports which pubends it needs, and for each the tick up to which it needs nothing more. A
router aggregates recent reports, so that the pubend is not sent one message for each SHB: SHBs with
nearly the same tick form a group, which is reported with its least tick (GD 3.1: a tick is
acknowledged upstream when all downstream have acknowledged it). A report remains true, so it may
arrive late, twice and by any route.

Every report is passed on once, after at most ``ack_ms``. A router that repeated the report of a dead
SHB would keep its membership alive for ever (A12). It remembers reports for longer, to know
whom to ask for more.

Requests for reports go downstream. If the acknowledgement of a tick is overdue, AckExpected goes to
every peer from which lower reports came, and the SHBs behind it look for their gaps (GD 3.2; R57).
If the log is at its limit, AckExpected goes to every peer with SHBs behind it, because log holds do
not appear in reports (R49, R58).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple, TypeVar

from gapless.core.context import Context
from gapless.core.ids import BrokerId, PubendId, ShbId
from gapless.core.limits import REPORT_ITEMS_MAX
from gapless.core.parameters import microseconds
from gapless.core.ticks import Tick
from gapless.messages.streams import (
    AckExpected,
    AckReport,
    DefineMemberSet,
    ForgetMemberSet,
    Member,
)
from gapless.routing.arriving_reports import ArrivingReports
from gapless.routing.protocols import Feeders, ReportTargets

__all__ = ["Groups", "ReportAggregator", "batched", "grouped"]

T = TypeVar("T")


class _LastReport(NamedTuple):
    """The last report of an SHB for a pubend."""

    member: Member
    tick: Tick
    at: int
    by: BrokerId


Groups = list[tuple[Tick, tuple[Member, ...]]]


def grouped(reports: list[tuple[Tick, Member]], groups_max: int) -> Groups:
    """Merge reports into few groups, nearest ticks first, each with its least tick.

    >>> from gapless.core.ids import MembershipId, VirtualTime
    >>> def member(name):
    ...     return Member(ShbId(name, name), MembershipId(1, 1), True, VirtualTime(1, 1))
    >>> found = grouped([(90, member("a")), (10, member("b")), (91, member("c"))], 2)
    >>> [(tick, [each.shb.broker for each in members]) for tick, members in found]
    [(10, ['b']), (90, ['a', 'c'])]
    """
    ordered = sorted(reports, key=lambda report: (report[0], report[1].shb))
    groups: list[tuple[Tick, list[Member]]] = []
    highest: list[Tick] = []
    for tick, member in ordered:
        if groups and highest[-1] == tick:
            groups[-1][1].append(member)
        else:
            groups.append((tick, [member]))
            highest.append(tick)
    while len(groups) > groups_max:
        gaps = [groups[index + 1][0] - highest[index] for index in range(len(groups) - 1)]
        index = gaps.index(min(gaps))
        groups[index][1].extend(groups.pop(index + 1)[1])
        highest[index] = highest.pop(index + 1)
    return [
        (tick, tuple(sorted(members, key=lambda member: member.shb))) for tick, members in groups
    ]


def batched(items: Sequence[T], most: int) -> list[tuple[T, ...]]:
    """Divide items into parts of at most ``most``.

    >>> batched("abcde", 2)
    [('a', 'b'), ('c', 'd'), ('e',)]
    """
    return [tuple(items[at : at + most]) for at in range(0, len(items), most)]


class ReportAggregator:
    """Aggregates the reports that a router receives.

    Reports for a pubend of this broker go to ``targets``, all others to the feeder of the pubend.
    """

    def __init__(self, context: Context, feeders: Feeders, targets: ReportTargets) -> None:
        self._context = context
        self._feeders = feeders
        self._targets = targets
        self._sets: dict[BrokerId, dict[int, tuple[Member, ...]]] = {}
        self._last_reports: dict[PubendId, dict[ShbId, _LastReport]] = {}
        self._fresh: dict[PubendId, dict[ShbId, None]] = {}
        """The SHBs whose reports were not passed on yet."""
        self._expired_at = context.now
        self._ttl_us = context.parameters.report_ttl_us
        self._named: dict[BrokerId, dict[tuple[Member, ...], int]] = {}
        self._numbers: dict[BrokerId, int] = {}
        self._here: set[PubendId] = set()
        """Pubends of this broker: their reports are not passed on."""
        self._expected: dict[tuple[PubendId, bool], int] = {}
        """When AckExpected was last sent for a pubend, without and with pressure."""
        self.is_urgent = False
        self._arrivals = ArrivingReports(context, self._take)

    def start(self) -> None:
        """Start to send reports at intervals."""
        self._context.call_later(microseconds(ms=self._context.parameters.ack_ms), self._tick)

    @property
    def received_sets(self) -> Mapping[BrokerId, Collection[int]]:
        """The numbers of the member sets that each peer has defined."""
        return self._sets

    @property
    def sent_sets(self) -> Mapping[BrokerId, Collection[tuple[Member, ...]]]:
        """The member sets that were defined in the session with each peer."""
        return self._named

    # --- receiving ---------------------------------------------------------------------------

    def define(self, peer: BrokerId, message: DefineMemberSet) -> None:
        """Store the members of a set number of a peer."""
        self._sets.setdefault(peer, {})[message.number] = message.members

    def forget(self, peer: BrokerId, message: ForgetMemberSet) -> None:
        """Forget a set number."""
        self._sets.get(peer, {}).pop(message.number, None)

    def report(self, peer: BrokerId, message: AckReport) -> None:
        """Process a report; ignore it if its set is unknown, because it will be repeated."""
        members = self._sets.get(peer, {}).get(message.set_number)
        if members is None:
            self._context.mark("report with an unknown set")
            return
        self._arrivals.add(peer, members, message.acknowledged)

    def session_opened(self, peer: BrokerId) -> None:
        """Forget the set numbers: they are numbered per session."""
        self._named.pop(peer, None)
        self._numbers.pop(peer, None)

    def session_closed(self, peer: BrokerId) -> None:
        """Forget the reports and set numbers of a session."""
        self._sets.pop(peer, None)
        self._named.pop(peer, None)
        self._numbers.pop(peer, None)
        self._arrivals.forget(peer)
        for reports in self._last_reports.values():
            for shb in [shb for shb, each in reports.items() if each.by == peer]:
                del reports[shb]

    def flush(self) -> None:
        """Send reports at once if one names a new member (R43)."""
        if self.is_urgent:
            self.is_urgent = False
            self._pass_on()

    def _take(self, peer: BrokerId, pubend: PubendId, member: Member, tick: Tick) -> None:
        here = self._targets.report(pubend, member, tick)
        if here:
            self._here.add(pubend)
        else:
            self._here.discard(pubend)
        reports = self._last_reports.setdefault(pubend, {})
        before = reports.get(member.shb)
        if before is None or before.member.membership < member.membership:
            self.is_urgent |= not here
        elif before.member.membership == member.membership:
            tick = max(tick, before.tick)
        else:
            return  # of an earlier membership
        reports[member.shb] = _LastReport(member, tick, self._context.now, peer)
        if not here:
            self._fresh.setdefault(pubend, {})[member.shb] = None

    # --- requests for acknowledgements -------------------------------------------------------

    def ack_expected(self, peer: BrokerId, message: AckExpected) -> None:
        """Pass on an AckExpected of the own feeder; those of other brokers are for the subend."""
        if peer == self._feeders.feeder(message.pubend):
            self.request_acks(message.pubend, message.tick, pressure=message.pressure)

    def request_acks(self, pubend: PubendId, tick: Tick, *, pressure: bool) -> None:
        """Send AckExpected to peers with reports below a tick; the rate is limited (R57, R58)."""
        requested_at = self._expected.get((pubend, pressure))
        interval = microseconds(ms=self._context.parameters.aet_ms) // 2
        if requested_at is not None and self._context.now - requested_at < interval:
            return
        peers = sorted(
            {
                each.by
                for each in self._last_reports.get(pubend, {}).values()
                if pressure or each.tick < tick
            }
        )
        if peers:
            self._expected[pubend, pressure] = self._context.now
        for peer in peers:
            self._context.send(peer, AckExpected(pubend, tick, pressure))

    # --- sending -----------------------------------------------------------------------------

    def _tick(self) -> None:
        self._context.call_later(microseconds(ms=self._context.parameters.ack_ms), self._tick)
        if self._context.now - self._expired_at > self._ttl_us // 4:
            self._expire()
        self._pass_on()

    def _expire(self) -> None:
        """Forget old reports (R41)."""
        self._expired_at = self._context.now
        oldest = self._context.now - self._ttl_us
        for pubend, reports in list(self._last_reports.items()):
            for shb in [shb for shb, each in reports.items() if each.at < oldest]:
                del reports[shb]
            if not reports:
                del self._last_reports[pubend]
                self._here.discard(pubend)
        recent = self._context.now - microseconds(ms=self._context.parameters.aet_ms)
        self._expected = {key: at for key, at in self._expected.items() if at > recent}

    def _pass_on(self) -> None:
        """Send every feeder the groups of members and their ticks, for all its pubends.

        A report is passed on once. Without a feeder it waits for one until it is too old.
        """
        by_feeder: dict[BrokerId, dict[tuple[Member, ...], list[tuple[PubendId, Tick]]]] = {}
        fresh, self._fresh = self._fresh, {}
        oldest = self._context.now - microseconds(ms=self._context.parameters.ack_report_ttl_ms)
        for pubend in sorted(fresh):
            last = self._last_reports.get(pubend, {})
            if not last or pubend in self._here:
                continue
            feeder = self._feeders.feeder(pubend)
            if feeder is None:
                self._fresh[pubend] = fresh[pubend]
                continue
            found = [last[shb] for shb in fresh[pubend] if shb in last and last[shb].at >= oldest]
            reports = [(each.tick, each.member) for each in found]
            for tick, group in grouped(reports, self._context.parameters.ack_groups):
                for members in batched(group, REPORT_ITEMS_MAX):
                    by_feeder.setdefault(feeder, {}).setdefault(members, []).append((pubend, tick))
        for feeder, sets in by_feeder.items():
            for members, acknowledged in sets.items():
                number = self._number(feeder, members)
                for part in batched(acknowledged, REPORT_ITEMS_MAX):
                    self._context.send(feeder, AckReport(number, part))

    def _number(self, peer: BrokerId, members: tuple[Member, ...]) -> int:
        """Return the number of a set in the session with a peer; define it there."""
        named = self._named.setdefault(peer, {})
        number = named.pop(members, None)
        if number is None:
            if len(named) >= self._context.parameters.sets_per_session_max:
                oldest = next(iter(named))
                self._context.send(peer, ForgetMemberSet(named.pop(oldest)))
            number = self._numbers[peer] = self._numbers.get(peer, 0) + 1
        named[members] = number  # last used, last
        # defined again each time: a lost definition then costs only one report
        self._context.send(peer, DefineMemberSet(number, members))
        return number
