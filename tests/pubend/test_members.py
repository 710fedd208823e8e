"""Members and holds: who keeps the log, from when on, and until when (R49, R53 to R55)."""

from __future__ import annotations

import pytest

from gapless.core.ids import Entry, Join, ShbId, VirtualTime
from gapless.core.parameters import Parameters, us
from gapless.core.ticks import Tick
from gapless.messages.pubend_requests import HoldId
from gapless.messages.records import HoldRecord, MemberRecord
from gapless.messages.streams import Member
from gapless.pubend.members import Membership
from tests.pubend.small_disk import STOCKS, Bench

HOST = ShbId("s", "s")
HOLD = HoldId(HOST, "x")
BRIEF = Parameters(retention_s=0, park_after_s=10, expire_after_s=20, hold_ttl_s=5)


def member(join: int = 1, *, durable: bool = True, life: int = 1) -> Member:
    return Member(HOST, Join(life, join), durable, VirtualTime(1, 1))


def joined(now: int = 0) -> Membership:
    """Return a membership with one host, its floor at 99."""
    found = Membership(STOCKS, Parameters(), now)
    found.report(member(), 0, now)
    found.rows_for({HOST: Entry(VirtualTime(1, 1))}, 100, 0)
    return found


def floor(membership: Membership) -> Tick:
    row = membership.row(HOST)
    assert row is not None
    return row.floor


# --- floors (R53) -------------------------------------------------------------------------------


def test_a_new_member_keeps_the_log_from_its_first_regime_on() -> None:
    # A10, example 14.7
    assert floor(joined()) == 99


def test_a_member_that_returns_after_expiry_keeps_the_log_from_what_it_reports() -> None:
    # R53, section 17: it does not know that it was given up, and still needs what lies above
    membership = Membership(STOCKS, Parameters(), 0)
    membership.report(member(), 60, 0)
    membership.report(member(), 50, 0)  # an older report, late
    membership.rows_for({HOST: Entry(VirtualTime(1, 1))}, 100, 40)
    assert floor(membership) == 60


def test_a_member_that_returns_after_a_release_gets_what_is_left() -> None:
    # the rest it learns by Released, as a gap (R55)
    membership = Membership(STOCKS, Parameters(), 0)
    membership.report(member(), 30, 0)
    membership.rows_for({HOST: Entry(VirtualTime(1, 1))}, 100, 40)
    assert floor(membership) == 40


def test_no_member_has_a_floor_at_or_above_its_first_regime() -> None:
    membership = Membership(STOCKS, Parameters(), 0)
    membership.report(member(), 500, 0)
    membership.rows_for({HOST: Entry(VirtualTime(1, 1))}, 100, 40)
    assert floor(membership) == 99


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
    assert bench.pubend.membership.row(HOST) is None
    assert MemberRecord.key_of(STOCKS, HOST) not in bench.records
    bench.report("s", seen)
    bench.run(ms=100)
    row = bench.pubend.membership.row(HOST)
    assert row is not None
    assert row.floor == seen
    bench.report("t", bench.pubend.top)
    bench.run(ms=2_000)
    assert bench.releases[-1] <= seen


def test_a_report_of_an_earlier_stay_does_not_change_what_the_present_one_is() -> None:
    # nor what it keeps (R53): routers may repeat what was reported before it began
    membership = joined()
    membership.report(member(2, durable=True), 100, 0)
    membership.report(member(1, durable=False), 120, 0)
    row = membership.row(HOST)
    assert row is not None
    assert (row.join, row.durable, row.floor) == (Join(1, 2), True, 100)


def test_a_stay_that_becomes_durable_is_so_at_once() -> None:
    membership = Membership(STOCKS, Parameters(), 0)
    membership.report(member(durable=False), 0, 0)
    membership.rows_for({HOST: Entry(VirtualTime(1, 1))}, 100, 0)
    membership.report(member(durable=True), 0, 0)
    row = membership.row(HOST)
    assert row is not None
    assert row.durable


# --- the end (R55) ------------------------------------------------------------------------------


def ended(membership: Membership, claimed: Entry, now: int) -> bool:
    return membership.review(lambda _: claimed, now)[1] == [HOST]


@pytest.mark.parametrize("durable", [False, True])
def test_a_host_that_began_anew_and_is_silent_stays(durable: bool) -> None:
    # it leaves what it wants no more (R43), and a report that it has durable subscriptions may be lost
    membership = Membership(STOCKS, BRIEF, 0)
    membership.report(member(durable=durable), 0, 0)
    membership.rows_for({HOST: Entry(VirtualTime(1, 1))}, 100, 0)
    assert not ended(membership, Entry(VirtualTime(2, 1)), us(s=BRIEF.expire_after_s))
    assert ended(membership, Entry(VirtualTime(2, 1)), us(s=BRIEF.expire_after_s) + 1)


# --- holds (R49) --------------------------------------------------------------------------------


def test_a_hold_of_nobody_ends_on_disk_too() -> None:
    bench = Bench(BRIEF)
    record = bench.pubend.membership.hold(HOLD, 5, bench.now)
    bench.records[record.key] = record
    bench.run(ms=4_000)
    assert record.key in bench.records
    bench.run(ms=2_000)
    assert record.key not in bench.records
    assert bench.pubend.membership.floor() is None


def test_a_hold_of_a_member_does_not_end_while_it_is_one() -> None:
    membership = joined()
    membership.hold(HOLD, 5, 0)
    assert membership.expired_holds(us(s=100_000)) == []


def test_after_a_restart_a_hold_counts_as_refreshed_whatever_clock_its_record_is_of() -> None:
    # times that drive timers begin anew with the process
    for refreshed in (0, us(s=10**9)):
        records = [HoldRecord(STOCKS, HOLD, 5, refreshed)]
        now = us(s=5_000)
        membership = Membership(STOCKS, BRIEF, now, holds=records)
        assert membership.expired_holds(now + us(s=5)) == []
        (ended_hold,) = membership.expired_holds(now + us(s=5) + 1)
        assert ended_hold.key == records[0].key


def test_those_who_keep_the_log_are_named_the_farthest_behind_first() -> None:
    membership = joined()
    other = HoldId(ShbId("t", "t"), "y")
    membership.hold(HOLD, 50, 0)
    membership.hold(other, 20, 0)
    assert membership.laggards(100) == [other.shb, HOST]
    assert membership.laggards(50) == [other.shb]
    assert membership.holds_back(21)
    assert not membership.holds_back(20)


# --- hosts that come (R46) ------------------------------------------------------------------------


def test_the_log_is_kept_for_a_host_that_comes_before_it_is_listed() -> None:
    membership = Membership(STOCKS, Parameters(), 0)
    row = membership.expect(member(), 30, 0)
    assert row is not None
    assert (row.floor, row.parked, membership.floor()) == (30, True, 30)
    claimed = Entry(VirtualTime(1, 1))
    assert membership.vector(lambda _: claimed, 0) == {}, "it has not reported"
    assert membership.report(member(), 0, 0)
    assert membership.vector(lambda _: claimed, 0) == {HOST: claimed}
    (listed,) = membership.rows_for({HOST: claimed}, 100, 0)
    assert (listed.floor, listed.parked, listed.time) == (30, False, claimed.time)


def test_a_host_that_comes_and_is_a_member_keeps_its_floor() -> None:
    membership = joined()
    row = membership.expect(member(), 30, 0)
    assert row is not None
    assert row.floor == 99


def test_the_end_of_an_older_stay_does_not_take_the_log_from_a_host_that_comes_again() -> None:
    # I10: what it left behind by its crash it leaves while it is told where it begins
    membership = joined()
    row = membership.expect(member(join=2, durable=True), 30, 0)
    assert row is not None
    assert (row.join, row.durable) == (Join(1, 2), True)
    _, was_member = membership.leave(HOST, Join(1, 1), 0)
    assert not was_member
    assert membership.floor() == row.floor


def test_the_lease_of_a_host_that_comes_goes_on_when_it_is_told_that_the_log_is_kept() -> None:
    # I10: it had been silent for long
    membership = joined()
    late = us(s=Parameters().expire_after_s)
    for join in (1, 2):
        now = join * late
        row = membership.expect(member(join=join), 30, now)
        assert membership.review(lambda _: None, now + us(s=1)) == ([], [])
        assert membership.row(HOST) == row


def test_an_old_request_does_not_prolong_the_lease_of_a_newer_stay() -> None:
    membership = joined()
    membership.report(member(join=2), 99, 0)
    late = us(s=Parameters().expire_after_s) + 1
    membership.expect(member(join=1), 30, late)
    _, ended = membership.review(lambda _: None, late)
    assert ended == [HOST]


def test_holds_of_a_host_that_comes_after_a_long_silence_are_still_kept() -> None:
    # it could not refresh them meanwhile
    membership = joined()
    membership.hold(HOLD, 5, 0)
    late = us(s=Parameters().hold_ttl_s) * 3
    membership.expect(member(), 30, late)
    membership.report(member(), 99, late + 1)
    assert membership.expired_holds(late + 1) == []


def test_a_host_that_has_left_does_not_come_by_an_old_request() -> None:
    membership = joined()
    membership.leave(HOST, Join(1, 1), 0)
    assert membership.expect(member(), 30, 0) is None
    assert membership.expect(member(join=2), 30, 0) is not None
    membership.retire(HOST)
    assert membership.expect(member(join=3), 30, 0) is None
