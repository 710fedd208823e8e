"""Reports: joined on their way up, true whatever happens to them (GD 3.1, R52)."""

from __future__ import annotations

from typing import Any

from gapless.core.ids import MembershipId, PubendId, ShbId, VirtualTime
from gapless.core.machine import Context, Identity
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

STOCKS, BONDS = PubendId("stocks"), PubendId("bonds")


def member(broker: str, membership: int = 1) -> Member:
    return Member(
        ShbId(broker, broker), MembershipId(1, membership), durable=True, time=VirtualTime(1, 1)
    )


class Relay:
    """A router that hears reports and passes them on to ``up``."""

    def __init__(self, parameters: Parameters = DEFAULTS) -> None:
        self.context = Context(Identity("n", "n", 1), parameters)
        self.hosted: list[tuple[PubendId, str, Tick]] = []
        self.here: set[PubendId] = set()
        self.reports = ReportAggregator(self.context, self, self)
        self.reports.start()

    def feeder(self, pubend: PubendId) -> str:
        del pubend
        return "up"

    def report(self, pubend: PubendId, member: Member, tick: Tick) -> bool:
        if pubend in self.here:
            self.hosted.append((pubend, member.shb.broker, tick))
            return True
        return False

    def hears(self, peer: str, brokers: list[str], pubend: PubendId, tick: Tick) -> None:
        self.reports.define(peer, DefineMemberSet(1, tuple(map(member, brokers))))
        self.reports.report(peer, AckReport(1, ((pubend, tick),)))

    def run(self, ms: int) -> None:
        for _ in range(ms):
            self.context.now += microseconds(ms=1)
            self.context.run_timers()

    def posted(self) -> list[Any]:
        return [message for _, messages in self.context.take_messages() for message in messages]

    def passed_on(self) -> dict[tuple[str, ...], dict[PubendId, Tick]]:
        """Return what the receiver of the posted messages understands."""
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
    # GD 3.1, propagation of A ticks: the least of a group speaks for the group
    relay = Relay(Parameters(ack_groups=1))
    relay.hears("s1", ["s1"], STOCKS, 90)
    relay.hears("s2", ["s2"], STOCKS, 70)
    relay.run(ms=600)
    assert relay.passed_on() == {("s1", "s2"): {STOCKS: 70}}


def test_hosts_far_apart_are_reported_apart() -> None:
    relay = Relay()
    relay.hears("s1", ["s1"], STOCKS, 500)
    relay.hears("s2", ["s2"], STOCKS, 90)
    relay.run(ms=600)
    assert relay.passed_on() == {("s2",): {STOCKS: 90}, ("s1",): {STOCKS: 500}}


def test_groups_join_the_nearest_ticks_and_keep_the_least() -> None:
    reports = [(tick, member(f"s{tick}")) for tick in (1, 2, 50, 51, 99)]
    found = grouped(reports, 3)
    assert [(tick, len(members)) for tick, members in found] == [(1, 2), (50, 2), (99, 1)]
    assert [tick for tick, _ in grouped(reports, 1)] == [1]


def test_no_group_claims_more_than_any_of_its_members() -> None:
    reports = [(tick * tick % 97, member(f"s{tick:02}")) for tick in range(40)]
    own = {who.shb: tick for tick, who in reports}
    for groups_max in range(1, 12):
        found = grouped(reports, groups_max)
        assert len(found) <= groups_max
        assert sorted(who.shb for _, members in found for who in members) == sorted(own)
        for tick, members in found:
            assert all(tick <= own[who.shb] for who in members)


def test_pubends_with_the_same_hosts_share_a_set_and_a_report() -> None:
    relay = Relay()
    relay.hears("s1", ["s1", "s2"], STOCKS, 5)
    relay.hears("s1", ["s1", "s2"], BONDS, 7)
    relay.run(ms=600)
    assert relay.passed_on() == {("s1", "s2"): {STOCKS: 5, BONDS: 7}}


def test_a_new_member_is_passed_on_at_once() -> None:
    # R43
    relay = Relay()
    relay.hears("s1", ["s1"], STOCKS, 0)
    relay.reports.flush()
    assert relay.passed_on() == {("s1",): {STOCKS: 0}}
    relay.hears("s1", ["s1"], STOCKS, 5)
    relay.reports.flush()
    assert relay.passed_on() == {}


def test_what_was_heard_long_ago_is_not_repeated() -> None:
    # A12: a dead host must not be kept alive by routers
    relay = Relay()
    relay.hears("s1", ["s1"], STOCKS, 5)
    relay.run(ms=DEFAULTS.ack_report_ttl_ms + DEFAULTS.ack_ms)
    relay.posted()
    relay.run(ms=2_000)
    assert relay.posted() == []


def test_a_report_of_a_dead_session_is_forgotten_with_it() -> None:
    relay = Relay()
    relay.hears("s1", ["s1"], STOCKS, 5)
    relay.reports.session_closed("s1")
    relay.run(ms=600)
    assert relay.posted() == []
    relay.reports.report("s1", AckReport(1, ((STOCKS, 6),)))
    assert relay.context.coverage_marks["report with an unknown set"] == 1


def test_ticks_of_one_stay_only_rise_and_a_new_stay_begins_anew() -> None:
    relay = Relay()
    for membership, tick in ((2, 50), (2, 40), (1, 90), (3, 10)):
        relay.reports.define("s1", DefineMemberSet(1, (member("s1", membership),)))
        relay.reports.report("s1", AckReport(1, ((STOCKS, tick),)))
        relay.run(ms=600)
        relay.reports.flush()
        expected = 10 if membership == 3 else 50
        assert relay.passed_on() == {("s1",): {STOCKS: expected}}


def test_reports_for_a_pubend_of_this_broker_stay_here() -> None:
    relay = Relay()
    relay.here.add(STOCKS)
    relay.hears("s1", ["s1", "s2"], STOCKS, 5)
    relay.run(ms=600)
    assert relay.hosted == [(STOCKS, "s1", 5), (STOCKS, "s2", 5)]
    assert relay.posted() == []


def test_a_new_member_of_a_pubend_of_this_broker_makes_no_haste_elsewhere() -> None:
    relay = Relay()
    relay.hears("s1", ["s1"], BONDS, 5)
    relay.reports.flush()
    relay.posted()
    relay.here.add(STOCKS)
    relay.hears("s1", ["s1"], STOCKS, 5)
    relay.reports.flush()
    assert relay.posted() == []


def test_a_session_has_only_so_many_sets() -> None:
    relay = Relay(Parameters(sets_per_session_max=4))
    for index in range(10):
        relay.hears("s", [f"s{index}"], STOCKS, index * 1_000)
        relay.hears("s", [f"s{index}"], PubendId(f"p{index}"), 1)
        relay.reports.flush()
    messages = relay.posted()
    defined = {message.number for message in messages if isinstance(message, DefineMemberSet)}
    forgotten = {message.number for message in messages if isinstance(message, ForgetMemberSet)}
    assert len(defined - forgotten) <= 4


# --- acknowledgement is expected (GD 3.2; R57, R58) -------------------------------------------


def expected(relay: Relay) -> list[tuple[str, AckExpected]]:
    return [
        (peer, message)
        for peer, messages in relay.context.take_messages()
        for message in messages
        if isinstance(message, AckExpected)
    ]


def lagging(relay: Relay) -> None:
    relay.hears("x", ["s1"], STOCKS, 50)
    relay.hears("y", ["s2"], STOCKS, 99)
    relay.hears("z", ["s3"], STOCKS, 100)
    relay.hears("z", ["s4"], BONDS, 1)


def test_those_below_whose_reports_are_lower_are_asked() -> None:
    relay = Relay()
    lagging(relay)
    relay.reports.ack_expected("up", AckExpected(STOCKS, 100))
    assert expected(relay) == [
        ("x", AckExpected(STOCKS, 100)),
        ("y", AckExpected(STOCKS, 100)),
    ]


def test_the_broker_of_the_pubend_asks_too_though_reports_end_there() -> None:
    relay = Relay()
    relay.here.add(STOCKS)
    lagging(relay)
    relay.reports.request_acks(STOCKS, 100, pressure=False)
    assert [peer for peer, _ in expected(relay)] == ["x", "y"]


def test_the_own_leaf_is_asked_like_any_other() -> None:
    relay = Relay()
    relay.hears("n", ["n"], STOCKS, 50)
    relay.reports.request_acks(STOCKS, 100, pressure=False)
    assert expected(relay) == [("n", AckExpected(STOCKS, 100))]


def test_only_the_own_feeder_can_ask() -> None:
    # a peer of the cell that feeds the leaf of this broker speaks to the leaf
    relay = Relay()
    lagging(relay)
    relay.reports.ack_expected("other", AckExpected(STOCKS, 100))
    assert expected(relay) == []


def test_they_are_not_asked_too_often() -> None:
    relay = Relay(Parameters(aet_ms=1_000))
    for _ in range(40):
        relay.hears("x", ["s1"], STOCKS, 50)
        relay.reports.ack_expected("up", AckExpected(STOCKS, 100))
        relay.run(ms=50)
    assert len(expected(relay)) == 4


def test_pressure_reaches_all_who_report_even_if_others_were_asked_just_now() -> None:
    # R49, R58: a log may be held for a catch-up of a host that has acknowledged everything itself
    relay = Relay()
    lagging(relay)
    relay.reports.ack_expected("up", AckExpected(STOCKS, 100))
    relay.reports.ack_expected("up", AckExpected(STOCKS, 90, pressure=True))
    assert [peer for peer, each in expected(relay) if each.pressure] == ["x", "y", "z"]


def test_nobody_is_asked_who_has_not_reported_lately() -> None:
    relay = Relay()
    lagging(relay)
    relay.run(ms=DEFAULTS.ack_report_ttl_ms + DEFAULTS.ack_ms)
    relay.posted()
    relay.reports.ack_expected("up", AckExpected(STOCKS, 100))
    assert expected(relay) == []
