"""Reports on their way to the pubend: joined at every router, named by sets (R41, R52).

A subscriber host reports which pubends it wants and up to where it needs them no more. A router passes
on what it heard lately, so that the pubend hears of every host without one message a host: hosts with
about the same tick are one group, reported with the least tick of the group (GD 3.1: a tick is
acknowledged upstream when all downstream have acknowledged it). A report is a statement that stays
true; it may come late, twice, by any way.

Only what was heard within ``ack_report_ttl_ms`` is passed on. A router that went on repeating a dead host's
report would keep it alive for ever (A12).

The other way goes the pubend's wish for reports: a tick whose acknowledgement is overdue is told to
every peer by which lower reports came, so that hosts behind it look for their gaps (GD 3.2; R57). If
the log is at its limit, every peer with hosts behind it is told: what a host still holds of the log
for a catch-up does not show in its reports (R49, R58).
"""

from __future__ import annotations

from typing import NamedTuple

from gapless.core.ids import BrokerId, PubendId, ShbId
from gapless.core.machine import Context
from gapless.core.parameters import microseconds
from gapless.core.ticks import Tick
from gapless.messages.streams import (
    AckExpected,
    AckReport,
    DefineMemberSet,
    ForgetMemberSet,
    Member,
)
from gapless.routing.protocols import Feeders, ReportTargets

__all__ = ["Groups", "ReportAggregator", "grouped"]


class _LastReport(NamedTuple):
    """The last report of a host for a pubend."""

    member: Member
    tick: Tick
    at: int
    by: BrokerId


Groups = list[tuple[Tick, tuple[Member, ...]]]


def grouped(reports: list[tuple[Tick, Member]], groups_max: int) -> Groups:
    """Join reports into few groups, nearest ticks first, each with its least tick.

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


class ReportAggregator:
    """What a router has heard in reports, and what it passes on.

    Reports for a pubend of this broker go to ``targets``, all others to the feeder of the pubend.
    """

    def __init__(self, context: Context, feeders: Feeders, targets: ReportTargets) -> None:
        self._context = context
        self._feeders = feeders
        self._targets = targets
        self._sets: dict[BrokerId, dict[int, tuple[Member, ...]]] = {}
        self._last_reports: dict[PubendId, dict[ShbId, _LastReport]] = {}
        self._named: dict[BrokerId, dict[tuple[Member, ...], int]] = {}
        self._numbers: dict[BrokerId, int] = {}
        self._here: set[PubendId] = set()
        """Pubends of this broker: what was heard of them stays here."""
        self._expected: dict[tuple[PubendId, bool], int] = {}
        """When acknowledgement was last asked for, without and with pressure."""
        self.is_urgent = False

    def start(self) -> None:
        """Send reports from time to time."""
        self._context.call_later(microseconds(ms=self._context.parameters.ack_ms), self._tick)

    # --- what comes in -----------------------------------------------------------------------

    def define(self, peer: BrokerId, message: DefineMemberSet) -> None:
        """Learn what a set number of a peer means."""
        self._sets.setdefault(peer, {})[message.number] = message.members

    def forget(self, peer: BrokerId, message: ForgetMemberSet) -> None:
        """Forget a set number."""
        self._sets.get(peer, {}).pop(message.number, None)

    def report(self, peer: BrokerId, message: AckReport) -> None:
        """Take a report; one with an unknown set is ignored, it will be repeated."""
        members = self._sets.get(peer, {}).get(message.set_number)
        if members is None:
            self._context.mark("report with an unknown set")
            return
        for pubend, tick in message.acknowledged:
            for member in members:
                self._take(peer, pubend, member, tick)

    def session_opened(self, peer: BrokerId) -> None:
        """Set numbers begin anew with a session."""
        self._named.pop(peer, None)
        self._numbers.pop(peer, None)

    def session_closed(self, peer: BrokerId) -> None:
        """Forget what was heard over a session, and the names of sets in it."""
        self._sets.pop(peer, None)
        self._named.pop(peer, None)
        self._numbers.pop(peer, None)
        for reports in self._last_reports.values():
            for shb in [shb for shb, each in reports.items() if each.by == peer]:
                del reports[shb]

    def flush(self) -> None:
        """Pass on at once what names a new member (R43)."""
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
            return  # of an earlier stay
        reports[member.shb] = _LastReport(member, tick, self._context.now, peer)

    # --- acknowledgement is expected ---------------------------------------------------------

    def ack_expected(self, peer: BrokerId, message: AckExpected) -> None:
        """Pass on what the own feeder expects; others may have sent it to the leaf of this broker."""
        if peer == self._feeders.feeder(message.pubend):
            self.request_acks(message.pubend, message.tick, pressure=message.pressure)

    def request_acks(self, pubend: PubendId, tick: Tick, *, pressure: bool) -> None:
        """Ask those below who have not acknowledged up to a tick; not too often (R57, R58)."""
        asked = self._expected.get((pubend, pressure))
        interval = microseconds(ms=self._context.parameters.aet_ms) // 2
        if asked is not None and self._context.now - asked < interval:
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

    # --- what goes out -----------------------------------------------------------------------

    def _tick(self) -> None:
        self._context.call_later(microseconds(ms=self._context.parameters.ack_ms), self._tick)
        oldest = self._context.now - microseconds(ms=self._context.parameters.ack_report_ttl_ms)
        for pubend, reports in list(self._last_reports.items()):
            for shb in [shb for shb, each in reports.items() if each.at < oldest]:
                del reports[shb]
            if not reports:
                del self._last_reports[pubend]
                self._here.discard(pubend)
        recent = self._context.now - microseconds(ms=self._context.parameters.aet_ms)
        self._expected = {key: at for key, at in self._expected.items() if at > recent}
        self._pass_on()

    def _pass_on(self) -> None:
        """Tell every feeder, for all its pubends, the groups of hosts and their ticks."""
        by_feeder: dict[BrokerId, dict[tuple[Member, ...], list[tuple[PubendId, Tick]]]] = {}
        for pubend in sorted(self._last_reports):
            feeder = None if pubend in self._here else self._feeders.feeder(pubend)
            if feeder is None:
                continue
            reports = [(each.tick, each.member) for each in self._last_reports[pubend].values()]
            for tick, members in grouped(reports, self._context.parameters.ack_groups):
                by_feeder.setdefault(feeder, {}).setdefault(members, []).append((pubend, tick))
        for feeder, sets in by_feeder.items():
            for members, acknowledged in sets.items():
                number = self._number(feeder, members)
                self._context.send(feeder, AckReport(number, tuple(acknowledged)))

    def _number(self, peer: BrokerId, members: tuple[Member, ...]) -> int:
        """Return the number of a set in the session with a peer, defined if it is new."""
        named = self._named.setdefault(peer, {})
        number = named.pop(members, None)
        if number is None:
            if len(named) >= self._context.parameters.sets_per_session_max:
                oldest = next(iter(named))
                self._context.send(peer, ForgetMemberSet(named.pop(oldest)))
            number = self._numbers[peer] = self._numbers.get(peer, 0) + 1
        named[members] = number  # last used, last
        # said again each time: a lost definition costs one report, not all to come
        self._context.send(peer, DefineMemberSet(number, members))
        return number
