"""Members and log holds: from which tick and how long they retain the log (R49, R53 to R55)."""

from __future__ import annotations

import pytest

from gapless.core.ids import MembershipId, ShbId, VectorEntry, VirtualTime
from gapless.core.parameters import Parameters, microseconds
from gapless.core.ticks import Tick
from gapless.messages.pubend_requests import LogHoldId
from gapless.messages.records import LogHoldRecord, MemberRecord
from gapless.messages.streams import Member
from gapless.pubend.members import Claim, Members
from tests.pubend.small_disk import STOCKS, Bench

HOST = ShbId("s", "s")
LOG_HOLD = LogHoldId(HOST, "x")
BRIEF = Parameters(retention_s=0, inactive_after_s=10, member_expiry_s=20, log_hold_ttl_s=5)


def member(membership: int = 1, *, durable: bool = True, incarnation: int = 1) -> Member:
    return Member(HOST, MembershipId(incarnation, membership), durable, VirtualTime(1, 1))


def with_member(now: int = 0) -> Members:
    """Return the members with one SHB, its ack floor at 99."""
    found = Members(STOCKS, Parameters(), now)
    found.report(member(), 0, now)
    found.rows_for({HOST: VectorEntry(VirtualTime(1, 1))}, 100, 0)
    return found


def floor(members: Members) -> Tick:
    row = members.row(HOST)
    assert row is not None
    return row.ack_floor


# --- ack floors (R53) ---------------------------------------------------------------------------


def test_a_new_member_retains_the_log_from_its_first_stream_epoch_on() -> None:
    # A10, example 14.7
    assert floor(with_member()) == 99


def test_a_member_that_returns_after_expiry_retains_the_log_from_its_reported_tick() -> None:
    # R53: it does not know that it expired, and still needs the ticks above
    members = Members(STOCKS, Parameters(), 0)
    members.report(member(), 60, 0)
    members.report(member(), 50, 0)  # an older report, late
    members.rows_for({HOST: VectorEntry(VirtualTime(1, 1))}, 100, 40)
    assert floor(members) == 60


def test_a_member_that_returns_after_a_release_gets_the_remaining_log() -> None:
    # it learns of the rest by Released, as a gap (R55)
    members = Members(STOCKS, Parameters(), 0)
    members.report(member(), 30, 0)
    members.rows_for({HOST: VectorEntry(VirtualTime(1, 1))}, 100, 40)
    assert floor(members) == 40


def test_no_member_has_an_ack_floor_at_or_above_its_first_stream_epoch() -> None:
    members = Members(STOCKS, Parameters(), 0)
    members.report(member(), 500, 0)
    members.rows_for({HOST: VectorEntry(VirtualTime(1, 1))}, 100, 40)
    assert floor(members) == 99


def test_the_log_is_retained_again_for_an_expired_member_that_returns() -> None:
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
    bench.claim("t", 1)  # t retains the log while s is silent
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


def test_a_report_of_an_earlier_membership_does_not_change_the_current_one() -> None:
    # nor its ack floor (R53): routers may repeat reports from before it
    members = with_member()
    members.report(member(2, durable=True), 100, 0)
    members.report(member(1, durable=False), 120, 0)
    row = members.row(HOST)
    assert row is not None
    assert (row.membership, row.durable, row.ack_floor) == (MembershipId(1, 2), True, 100)


def test_a_membership_becomes_durable_at_once() -> None:
    members = Members(STOCKS, Parameters(), 0)
    members.report(member(durable=False), 0, 0)
    members.rows_for({HOST: VectorEntry(VirtualTime(1, 1))}, 100, 0)
    members.report(member(durable=True), 0, 0)
    row = members.row(HOST)
    assert row is not None
    assert row.durable


# --- expiry (R55) ---------------------------------------------------------------------------------


def ended(members: Members, claimed: VectorEntry, now: int) -> bool:
    return members.update_states(lambda _: claimed, now)[1] == [HOST]


@pytest.mark.parametrize("durable", [False, True])
def test_a_restarted_silent_shb_stays_a_member_until_it_expires(durable: bool) -> None:
    # it leaves pubends that it does not need (R43), and a report of durable subscriptions may be
    # lost
    members = Members(STOCKS, BRIEF, 0)
    members.report(member(durable=durable), 0, 0)
    members.rows_for({HOST: VectorEntry(VirtualTime(1, 1))}, 100, 0)
    assert not ended(members, VectorEntry(VirtualTime(2, 1)), microseconds(s=BRIEF.member_expiry_s))
    assert ended(members, VectorEntry(VirtualTime(2, 1)), microseconds(s=BRIEF.member_expiry_s) + 1)


# --- log holds (R49) ------------------------------------------------------------------------------


def test_an_expired_log_hold_is_deleted_on_disk() -> None:
    bench = Bench(BRIEF)
    record = bench.pubend.members.hold_log(LOG_HOLD, 5, bench.now)
    bench.records[record.key] = record
    bench.run(ms=4_000)
    assert record.key in bench.records
    bench.run(ms=2_000)
    assert record.key not in bench.records
    assert bench.pubend.members.ack_floor() is None


def test_a_log_hold_of_a_member_does_not_expire() -> None:
    members = with_member()
    members.hold_log(LOG_HOLD, 5, 0)
    assert members.expired_log_holds(microseconds(s=100_000)) == []


def test_after_a_restart_a_log_hold_counts_as_refreshed() -> None:
    # monotonic times start again with the process
    for refreshed in (0, microseconds(s=10**9)):
        records = [LogHoldRecord(STOCKS, LOG_HOLD, 5, refreshed)]
        now = microseconds(s=5_000)
        members = Members(STOCKS, BRIEF, now, log_holds=records)
        assert members.expired_log_holds(now + microseconds(s=5)) == []
        (ended_hold,) = members.expired_log_holds(now + microseconds(s=5) + 1)
        assert ended_hold.key == records[0].key


def test_members_and_log_holds_that_retain_the_log_are_listed_by_ack_floor() -> None:
    members = with_member()
    other = LogHoldId(ShbId("t", "t"), "y")
    members.hold_log(LOG_HOLD, 50, 0)
    members.hold_log(other, 20, 0)
    assert members.lagging_hosts(100) == [other.shb, HOST]
    assert members.lagging_hosts(50) == [other.shb]
    assert members.blocks_release(21)
    assert not members.blocks_release(20)


# --- joining hosts (R46) --------------------------------------------------------------------------


def test_the_log_is_retained_for_a_joining_host_before_it_is_in_the_vector() -> None:
    members = Members(STOCKS, Parameters(), 0)
    row = members.expect_member(member(), 30, 0)
    assert row is not None
    assert (row.ack_floor, row.inactive, members.ack_floor()) == (30, True, 30)
    claimed = VectorEntry(VirtualTime(1, 1))
    assert members.vector(lambda _: claimed, 0) == {}, "the host has not reported"
    assert members.report(member(), 0, 0)
    assert members.vector(lambda _: claimed, 0) == {HOST: claimed}
    (listed,) = members.rows_for({HOST: claimed}, 100, 0)
    assert (listed.ack_floor, listed.inactive, listed.time) == (30, False, claimed.time)


def test_a_joining_host_that_is_a_member_keeps_its_ack_floor() -> None:
    members = with_member()
    row = members.expect_member(member(), 30, 0)
    assert row is not None
    assert row.ack_floor == 99


def test_the_end_of_an_older_membership_keeps_the_ack_floor_of_a_joining_host() -> None:
    # I10: it leaves its membership from before the crash while it receives its new start
    members = with_member()
    row = members.expect_member(member(membership=2, durable=True), 30, 0)
    assert row is not None
    assert (row.membership, row.durable) == (MembershipId(1, 2), True)
    _, was_member = members.leave(HOST, MembershipId(1, 1), 0)
    assert not was_member
    assert members.ack_floor() == row.ack_floor


def test_a_join_request_prolongs_the_membership_of_a_silent_host() -> None:
    # I10: it had been silent for long
    members = with_member()
    late = microseconds(s=Parameters().member_expiry_s)
    for number in (1, 2):
        now = number * late
        row = members.expect_member(member(membership=number), 30, now)
        assert members.update_states(lambda _: None, now + microseconds(s=1)) == ([], [])
        assert members.row(HOST) == row


def test_a_join_request_of_an_older_membership_does_not_prolong_a_newer_one() -> None:
    members = with_member()
    members.report(member(membership=2), 99, 0)
    late = microseconds(s=Parameters().member_expiry_s) + 1
    members.expect_member(member(membership=1), 30, late)
    _, ended = members.update_states(lambda _: None, late)
    assert ended == [HOST]


def test_log_holds_of_a_host_that_joins_after_a_long_silence_are_retained() -> None:
    # it could not refresh them meanwhile
    members = with_member()
    members.hold_log(LOG_HOLD, 5, 0)
    late = microseconds(s=Parameters().log_hold_ttl_s) * 3
    members.expect_member(member(), 30, late)
    members.report(member(), 99, late + 1)
    assert members.expired_log_holds(late + 1) == []


def test_an_old_join_request_does_not_restore_a_host_that_has_left() -> None:
    members = with_member()
    members.leave(HOST, MembershipId(1, 1), 0)
    assert members.expect_member(member(), 30, 0) is None
    assert members.expect_member(member(membership=2), 30, 0) is not None
    members.retire(HOST)
    assert members.expect_member(member(membership=3), 30, 0) is None


def test_reports_of_shbs_that_no_table_claims_do_not_compute_the_vector(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Otherwise the reports of a thousand SHBs in one message take a million tests of claims."""
    vectors = 0
    vector = Members.vector

    def counted(members: Members, claim: Claim, now: int) -> dict[ShbId, VectorEntry]:
        nonlocal vectors
        vectors += 1
        return vector(members, claim, now)

    monkeypatch.setattr(Members, "vector", counted)
    bench = Bench()
    for number in range(1_000):
        shb = ShbId(f"s{number}", "s")
        bench.pubend.report(Member(shb, MembershipId(1, 1), True, VirtualTime(1, 1)), 5)
    assert vectors == 0
    bench.claims[ShbId("s7", "s")] = VectorEntry(VirtualTime(1, 1))
    bench.pubend.report(Member(ShbId("s7", "s"), MembershipId(1, 2), True, VirtualTime(1, 1)), 5)
    assert vectors == 1
