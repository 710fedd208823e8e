"""Members and holds: who keeps the log, from when on, and until when (R49, R53 to R55)."""

from __future__ import annotations

import pytest

from gapless.core.ids import MembershipId, ShbId, VectorEntry, VirtualTime
from gapless.core.parameters import Parameters, microseconds
from gapless.core.ticks import Tick
from gapless.messages.pubend_requests import LogHoldId
from gapless.messages.records import LogHoldRecord, MemberRecord
from gapless.messages.streams import Member
from gapless.pubend.members import Members
from tests.pubend.small_disk import STOCKS, Bench

HOST = ShbId("s", "s")
LOG_HOLD = LogHoldId(HOST, "x")
BRIEF = Parameters(retention_s=0, inactive_after_s=10, member_expiry_s=20, log_hold_ttl_s=5)


def member(membership: int = 1, *, durable: bool = True, incarnation: int = 1) -> Member:
    return Member(HOST, MembershipId(incarnation, membership), durable, VirtualTime(1, 1))


def with_member(now: int = 0) -> Members:
    """Return a membership with one host, its floor at 99."""
    found = Members(STOCKS, Parameters(), now)
    found.report(member(), 0, now)
    found.rows_for({HOST: VectorEntry(VirtualTime(1, 1))}, 100, 0)
    return found


def floor(members: Members) -> Tick:
    row = members.row(HOST)
    assert row is not None
    return row.ack_floor


# --- floors (R53) -------------------------------------------------------------------------------


def test_a_new_member_keeps_the_log_from_its_first_stream_epoch_on() -> None:
    # A10, example 14.7
    assert floor(with_member()) == 99


def test_a_member_that_returns_after_expiry_keeps_the_log_from_what_it_reports() -> None:
    # R53, section 17: it does not know that it was given up, and still needs what lies above
    members = Members(STOCKS, Parameters(), 0)
    members.report(member(), 60, 0)
    members.report(member(), 50, 0)  # an older report, late
    members.rows_for({HOST: VectorEntry(VirtualTime(1, 1))}, 100, 40)
    assert floor(members) == 60


def test_a_member_that_returns_after_a_release_gets_what_is_left() -> None:
    # the rest it learns by Released, as a gap (R55)
    members = Members(STOCKS, Parameters(), 0)
    members.report(member(), 30, 0)
    members.rows_for({HOST: VectorEntry(VirtualTime(1, 1))}, 100, 40)
    assert floor(members) == 40


def test_no_member_has_a_floor_at_or_above_its_first_stream_epoch() -> None:
    members = Members(STOCKS, Parameters(), 0)
    members.report(member(), 500, 0)
    members.rows_for({HOST: VectorEntry(VirtualTime(1, 1))}, 100, 40)
    assert floor(members) == 99


def test_a_member_that_expired_and_returns_is_protected_again() -> None:
    bench = Bench(BRIEF)
    bench.claim("s", 1)
    bench.report("s")
    bench.run(ms=100)
    session = bench.open()
    bench.publish(session, 1, 1)
    bench.sync()
    seen = bench.rows[0].last
    bench.report("s", seen)
    bench.report("t")
    bench.claim("t", 1)  # t keeps the log while s is away
    for sequence in range(2, 24):
        bench.publish(session, sequence, sequence)
        bench.run(ms=1_000)
        bench.report("t", seen)
    assert bench.pubend.members.row(HOST) is None
    assert MemberRecord.key_of(STOCKS, HOST) not in bench.records
    bench.report("s", seen)
    bench.run(ms=100)
    row = bench.pubend.members.row(HOST)
    assert row is not None
    assert row.ack_floor == seen
    bench.report("t", bench.pubend.top)
    bench.run(ms=2_000)
    assert bench.releases[-1] <= seen


def test_a_report_of_an_earlier_stay_does_not_change_what_the_present_one_is() -> None:
    # nor what it keeps (R53): routers may repeat what was reported before it began
    members = with_member()
    members.report(member(2, durable=True), 100, 0)
    members.report(member(1, durable=False), 120, 0)
    row = members.row(HOST)
    assert row is not None
    assert (row.membership, row.durable, row.ack_floor) == (MembershipId(1, 2), True, 100)


def test_a_stay_that_becomes_durable_is_so_at_once() -> None:
    members = Members(STOCKS, Parameters(), 0)
    members.report(member(durable=False), 0, 0)
    members.rows_for({HOST: VectorEntry(VirtualTime(1, 1))}, 100, 0)
    members.report(member(durable=True), 0, 0)
    row = members.row(HOST)
    assert row is not None
    assert row.durable


# --- the end (R55) ------------------------------------------------------------------------------


def ended(members: Members, claimed: VectorEntry, now: int) -> bool:
    return members.update_states(lambda _: claimed, now)[1] == [HOST]


@pytest.mark.parametrize("durable", [False, True])
def test_a_host_that_began_anew_and_is_silent_stays(durable: bool) -> None:
    # it leaves what it wants no more (R43), and a report that it has durable subscriptions may be lost
    members = Members(STOCKS, BRIEF, 0)
    members.report(member(durable=durable), 0, 0)
    members.rows_for({HOST: VectorEntry(VirtualTime(1, 1))}, 100, 0)
    assert not ended(members, VectorEntry(VirtualTime(2, 1)), microseconds(s=BRIEF.member_expiry_s))
    assert ended(members, VectorEntry(VirtualTime(2, 1)), microseconds(s=BRIEF.member_expiry_s) + 1)


# --- holds (R49) --------------------------------------------------------------------------------


def test_a_hold_of_nobody_ends_on_disk_too() -> None:
    bench = Bench(BRIEF)
    record = bench.pubend.members.hold_log(LOG_HOLD, 5, bench.now)
    bench.records[record.key] = record
    bench.run(ms=4_000)
    assert record.key in bench.records
    bench.run(ms=2_000)
    assert record.key not in bench.records
    assert bench.pubend.members.ack_floor() is None


def test_a_hold_of_a_member_does_not_end_while_it_is_one() -> None:
    members = with_member()
    members.hold_log(LOG_HOLD, 5, 0)
    assert members.expired_log_holds(microseconds(s=100_000)) == []


def test_after_a_restart_a_hold_counts_as_refreshed_whatever_clock_its_record_is_of() -> None:
    # times that drive timers begin anew with the process
    for refreshed in (0, microseconds(s=10**9)):
        records = [LogHoldRecord(STOCKS, LOG_HOLD, 5, refreshed)]
        now = microseconds(s=5_000)
        members = Members(STOCKS, BRIEF, now, log_holds=records)
        assert members.expired_log_holds(now + microseconds(s=5)) == []
        (ended_hold,) = members.expired_log_holds(now + microseconds(s=5) + 1)
        assert ended_hold.key == records[0].key


def test_those_who_keep_the_log_are_named_the_farthest_behind_first() -> None:
    members = with_member()
    other = LogHoldId(ShbId("t", "t"), "y")
    members.hold_log(LOG_HOLD, 50, 0)
    members.hold_log(other, 20, 0)
    assert members.lagging_hosts(100) == [other.shb, HOST]
    assert members.lagging_hosts(50) == [other.shb]
    assert members.blocks_release(21)
    assert not members.blocks_release(20)


# --- hosts that come (R46) ------------------------------------------------------------------------


def test_the_log_is_kept_for_a_host_that_comes_before_it_is_listed() -> None:
    members = Members(STOCKS, Parameters(), 0)
    row = members.expect_member(member(), 30, 0)
    assert row is not None
    assert (row.ack_floor, row.inactive, members.ack_floor()) == (30, True, 30)
    claimed = VectorEntry(VirtualTime(1, 1))
    assert members.vector(lambda _: claimed, 0) == {}, "it has not reported"
    assert members.report(member(), 0, 0)
    assert members.vector(lambda _: claimed, 0) == {HOST: claimed}
    (listed,) = members.rows_for({HOST: claimed}, 100, 0)
    assert (listed.ack_floor, listed.inactive, listed.time) == (30, False, claimed.time)


def test_a_host_that_comes_and_is_a_member_keeps_its_floor() -> None:
    members = with_member()
    row = members.expect_member(member(), 30, 0)
    assert row is not None
    assert row.ack_floor == 99


def test_the_end_of_an_older_stay_does_not_take_the_log_from_a_host_that_comes_again() -> None:
    # I10: what it left behind by its crash it leaves while it is told where it begins
    members = with_member()
    row = members.expect_member(member(membership=2, durable=True), 30, 0)
    assert row is not None
    assert (row.membership, row.durable) == (MembershipId(1, 2), True)
    _, was_member = members.leave(HOST, MembershipId(1, 1), 0)
    assert not was_member
    assert members.ack_floor() == row.ack_floor


def test_the_lease_of_a_host_that_comes_goes_on_when_it_is_told_that_the_log_is_kept() -> None:
    # I10: it had been silent for long
    members = with_member()
    late = microseconds(s=Parameters().member_expiry_s)
    for number in (1, 2):
        now = number * late
        row = members.expect_member(member(membership=number), 30, now)
        assert members.update_states(lambda _: None, now + microseconds(s=1)) == ([], [])
        assert members.row(HOST) == row


def test_an_old_request_does_not_prolong_the_lease_of_a_newer_stay() -> None:
    members = with_member()
    members.report(member(membership=2), 99, 0)
    late = microseconds(s=Parameters().member_expiry_s) + 1
    members.expect_member(member(membership=1), 30, late)
    _, ended = members.update_states(lambda _: None, late)
    assert ended == [HOST]


def test_holds_of_a_host_that_comes_after_a_long_silence_are_still_kept() -> None:
    # it could not refresh them meanwhile
    members = with_member()
    members.hold_log(LOG_HOLD, 5, 0)
    late = microseconds(s=Parameters().log_hold_ttl_s) * 3
    members.expect_member(member(), 30, late)
    members.report(member(), 99, late + 1)
    assert members.expired_log_holds(late + 1) == []


def test_a_host_that_has_left_does_not_come_by_an_old_request() -> None:
    members = with_member()
    members.leave(HOST, MembershipId(1, 1), 0)
    assert members.expect_member(member(), 30, 0) is None
    assert members.expect_member(member(membership=2), 30, 0) is not None
    members.retire(HOST)
    assert members.expect_member(member(membership=3), 30, 0) is None
