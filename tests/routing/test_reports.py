"""Ack reports: aggregated upstream, correct after every loss and restart (GD 3.1, R52)."""

from __future__ import annotations

from typing import Any

from gapless.core.context import Context, Identity
from gapless.core.ids import MembershipId, PubendId, ShbId, VirtualTime
from gapless.core.parameters import DEFAULTS, Parameters, microseconds
from gapless.core.ticks import Tick
from gapless.messages.streams import (
    AckExpected,
    AckReport,
    DefineMemberSet,
    ForgetMemberSet,
    Member,
)
from gapless.routing.reports import ReportAggregator, grouped

TTL_MS = DEFAULTS.report_ttl_us // 1_000
STOCKS, BONDS = PubendId("stocks"), PubendId("bonds")


def member(broker: str, membership: int = 1) -> Member:
    return Member(
        ShbId(broker, broker), MembershipId(1, membership), durable=True, time=VirtualTime(1, 1)
    )


class Relay:
    """A router that receives reports and forwards them to ``up``."""

    def __init__(self, parameters: Parameters = DEFAULTS) -> None:
        self.context = Context(Identity("n", "n", 1), parameters)
        self.hosted: list[tuple[PubendId, str, Tick]] = []
        self.here: set[PubendId] = set()
        self.feeds: str | None = "up"
        self.reports = ReportAggregator(self.context, self, self)
        self.reports.start()

    def feeder(self, pubend: PubendId) -> str | None:
        del pubend
        return self.feeds

    def report(self, pubend: PubendId, member: Member, tick: Tick) -> bool:
        if pubend in self.here:
            self.hosted.append((pubend, member.shb.broker, tick))
            return True
        return False

    def receives(self, peer: str, brokers: list[str], pubend: PubendId, tick: Tick) -> None:
        self.reports.define(peer, DefineMemberSet(1, tuple(map(member, brokers))))
        self.reports.report(peer, AckReport(1, ((pubend, tick),)))

    def run(self, ms: int) -> None:
        for _ in range(ms):
            self.context.now += microseconds(ms=1)
            self.context.run_timers()

    def posted(self) -> list[Any]:
        return [message for _, messages in self.context.take_messages() for message in messages]

    def passed_on(self) -> dict[tuple[str, ...], dict[PubendId, Tick]]:
        """Return the ticks that the receiver of the messages reads, by SHBs and pubend."""
        sets: dict[int, tuple[Member, ...]] = {}
        understood: dict[tuple[str, ...], dict[PubendId, Tick]] = {}
        for message in self.posted():
            if isinstance(message, DefineMemberSet):
                sets[message.number] = message.members
            elif isinstance(message, AckReport):
                names = tuple(each.shb.broker for each in sets[message.set_number])
                understood.setdefault(names, {}).update(message.acknowledged)
        return understood


def test_a_tick_is_acknowledged_upstream_when_all_below_have_acknowledged_it() -> None:
    # GD 3.1, propagation of A ticks: a group has the least tick of its members
    relay = Relay(Parameters(ack_groups=1))
    relay.receives("s1", ["s1"], STOCKS, 90)
    relay.receives("s2", ["s2"], STOCKS, 70)
    relay.run(ms=600)
    assert relay.passed_on() == {("s1", "s2"): {STOCKS: 70}}


def test_hosts_with_distant_ticks_are_reported_in_separate_groups() -> None:
    relay = Relay()
    relay.receives("s1", ["s1"], STOCKS, 500)
    relay.receives("s2", ["s2"], STOCKS, 90)
    relay.run(ms=600)
    assert relay.passed_on() == {("s2",): {STOCKS: 90}, ("s1",): {STOCKS: 500}}


def test_groups_merge_the_nearest_ticks_and_keep_the_least() -> None:
    reports = [(tick, member(f"s{tick}")) for tick in (1, 2, 50, 51, 99)]
    found = grouped(reports, 3)
    assert [(tick, len(members)) for tick, members in found] == [(1, 2), (50, 2), (99, 1)]
    assert [tick for tick, _ in grouped(reports, 1)] == [1]


def test_no_group_claims_more_than_any_of_its_members() -> None:
    reports = [(tick * tick % 97, member(f"s{tick:02}")) for tick in range(40)]
    own = {each.shb: tick for tick, each in reports}
    for groups_max in range(1, 12):
        found = grouped(reports, groups_max)
        assert len(found) <= groups_max
        assert sorted(each.shb for _, members in found for each in members) == sorted(own)
        for tick, members in found:
            assert all(tick <= own[each.shb] for each in members)


def test_pubends_with_the_same_hosts_share_a_set_and_a_report() -> None:
    relay = Relay()
    relay.receives("s1", ["s1", "s2"], STOCKS, 5)
    relay.receives("s1", ["s1", "s2"], BONDS, 7)
    relay.run(ms=600)
    assert relay.passed_on() == {("s1", "s2"): {STOCKS: 5, BONDS: 7}}


def test_a_new_member_is_reported_at_once() -> None:
    # R43
    relay = Relay()
    relay.receives("s1", ["s1"], STOCKS, 0)
    relay.reports.flush()
    assert relay.passed_on() == {("s1",): {STOCKS: 0}}
    relay.receives("s1", ["s1"], STOCKS, 5)
    relay.reports.flush()
    assert relay.passed_on() == {}


def test_a_report_is_passed_on_once() -> None:
    # A12: routers must not keep a dead host alive
    relay = Relay()
    relay.receives("s1", ["s1"], STOCKS, 5)
    relay.run(ms=DEFAULTS.ack_ms)
    assert relay.passed_on() == {("s1",): {STOCKS: 5}}
    relay.run(ms=2_000)
    assert relay.posted() == []


def test_a_report_waits_for_a_feeder_until_it_is_too_old() -> None:
    relay = Relay()
    relay.feeds = None
    relay.receives("s1", ["s1"], STOCKS, 5)
    relay.run(ms=2 * DEFAULTS.ack_ms)
    assert relay.posted() == []
    relay.feeds = "up"
    relay.run(ms=DEFAULTS.ack_ms)
    assert relay.passed_on() == {("s1",): {STOCKS: 5}}
    relay.feeds = None
    relay.receives("s1", ["s1"], STOCKS, 6)
    relay.run(ms=2 * TTL_MS)
    relay.feeds = "up"
    relay.run(ms=DEFAULTS.ack_ms)
    assert relay.posted() == []


def test_reports_of_a_session_are_forgotten_when_it_closes() -> None:
    relay = Relay()
    relay.receives("s1", ["s1"], STOCKS, 5)
    relay.reports.session_closed("s1")
    relay.run(ms=600)
    assert relay.posted() == []
    relay.reports.report("s1", AckReport(1, ((STOCKS, 6),)))
    assert relay.context.coverage_marks["report with an unknown set"] == 1


def test_the_tick_of_a_membership_only_rises_and_a_new_membership_starts_again() -> None:
    relay = Relay()
    for membership, tick in ((2, 50), (2, 40), (1, 90), (3, 10)):
        relay.reports.define("s1", DefineMemberSet(1, (member("s1", membership),)))
        relay.reports.report("s1", AckReport(1, ((STOCKS, tick),)))
        relay.run(ms=600)
        relay.reports.flush()
        expected = 10 if membership == 3 else 50
        passed_on = {} if membership == 1 else {("s1",): {STOCKS: expected}}
        assert relay.passed_on() == passed_on


def test_reports_for_a_pubend_of_this_broker_are_not_forwarded() -> None:
    relay = Relay()
    relay.here.add(STOCKS)
    relay.receives("s1", ["s1", "s2"], STOCKS, 5)
    relay.run(ms=600)
    assert relay.hosted == [(STOCKS, "s1", 5), (STOCKS, "s2", 5)]
    assert relay.posted() == []


def test_a_new_member_of_a_local_pubend_does_not_expedite_other_reports() -> None:
    relay = Relay()
    relay.receives("s1", ["s1"], BONDS, 5)
    relay.reports.flush()
    relay.posted()
    relay.here.add(STOCKS)
    relay.receives("s1", ["s1"], STOCKS, 5)
    relay.reports.flush()
    assert relay.posted() == []


def test_the_member_sets_of_a_session_are_bounded() -> None:
    relay = Relay(Parameters(sets_per_session_max=4))
    for index in range(10):
        relay.receives("s", [f"s{index}"], STOCKS, index * 1_000)
        relay.receives("s", [f"s{index}"], PubendId(f"p{index}"), 1)
        relay.reports.flush()
    messages = relay.posted()
    defined = {message.number for message in messages if isinstance(message, DefineMemberSet)}
    forgotten = {message.number for message in messages if isinstance(message, ForgetMemberSet)}
    assert len(defined - forgotten) <= 4


# --- AckExpected (GD 3.2; R57, R58) ---------------------------------------------------------------


def expected(relay: Relay) -> list[tuple[str, AckExpected]]:
    return [
        (peer, message)
        for peer, messages in relay.context.take_messages()
        for message in messages
        if isinstance(message, AckExpected)
    ]


def lagging(relay: Relay) -> None:
    relay.receives("x", ["s1"], STOCKS, 50)
    relay.receives("y", ["s2"], STOCKS, 99)
    relay.receives("z", ["s3"], STOCKS, 100)
    relay.receives("z", ["s4"], BONDS, 1)


def test_ack_expected_is_forwarded_to_peers_with_lower_reports() -> None:
    relay = Relay()
    lagging(relay)
    relay.reports.ack_expected("up", AckExpected(STOCKS, 100))
    assert expected(relay) == [
        ("x", AckExpected(STOCKS, 100)),
        ("y", AckExpected(STOCKS, 100)),
    ]


def test_the_phb_sends_ack_expected_although_reports_end_there() -> None:
    relay = Relay()
    relay.here.add(STOCKS)
    lagging(relay)
    relay.reports.request_acks(STOCKS, 100, pressure=False)
    assert [peer for peer, _ in expected(relay)] == ["x", "y"]


def test_ack_expected_is_sent_to_the_local_leaf() -> None:
    relay = Relay()
    relay.receives("n", ["n"], STOCKS, 50)
    relay.reports.request_acks(STOCKS, 100, pressure=False)
    assert expected(relay) == [("n", AckExpected(STOCKS, 100))]


def test_ack_expected_is_ignored_unless_it_comes_from_the_feeder() -> None:
    # a peer of the cell that feeds the leaf of this broker sends to the leaf
    relay = Relay()
    lagging(relay)
    relay.reports.ack_expected("other", AckExpected(STOCKS, 100))
    assert expected(relay) == []


def test_ack_expected_is_not_forwarded_too_often() -> None:
    relay = Relay(Parameters(aet_ms=1_000))
    for _ in range(40):
        relay.receives("x", ["s1"], STOCKS, 50)
        relay.reports.ack_expected("up", AckExpected(STOCKS, 100))
        relay.run(ms=50)
    assert len(expected(relay)) == 4


def test_ack_expected_with_pressure_is_forwarded_to_all_reporting_peers_at_once() -> None:
    # R49, R58: a log may be held for a cursor that catches up at a host whose own ticks are
    # acknowledged
    relay = Relay()
    lagging(relay)
    relay.reports.ack_expected("up", AckExpected(STOCKS, 100))
    relay.reports.ack_expected("up", AckExpected(STOCKS, 90, pressure=True))
    assert [peer for peer, each in expected(relay) if each.pressure] == ["x", "y", "z"]


def test_ack_expected_is_not_forwarded_to_peers_without_recent_reports() -> None:
    relay = Relay()
    lagging(relay)
    relay.run(ms=2 * TTL_MS)
    relay.posted()
    relay.reports.ack_expected("up", AckExpected(STOCKS, 100))
    assert expected(relay) == []
