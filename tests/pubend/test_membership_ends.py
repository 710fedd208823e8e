"""Members that are retired, inactive, or known only by their own reports (R26, R31, R54)."""

from __future__ import annotations

from gapless.core.ids import MembershipId, PubendId, ShbId, VectorEntry, VirtualTime
from gapless.core.parameters import Parameters, microseconds
from gapless.messages.pubend_requests import LogHoldId
from gapless.messages.records import MemberRecord
from gapless.messages.streams import Member
from gapless.pubend.members import Members

P, HOST, OTHER = PubendId("P"), ShbId("n", "n"), ShbId("m", "m")
PARAMETERS = Parameters(inactive_after_s=7, member_grace_s=3)


def member(counter: int = 4, shb: ShbId = HOST) -> Member:
    return Member(shb, MembershipId(1, 1), True, VirtualTime(1, counter))


def members() -> Members:
    """Return the members with one SHB at 1:4, its ack floor at 50."""
    row = MemberRecord(
        P, HOST, MembershipId(1, 1), VirtualTime(1, 4), True, inactive=False, ack_floor=50
    )
    made = Members(P, PARAMETERS, 0, [row])
    made.report(member(), 50, 0)
    return made


def claim(counter: int, *, retired: bool = False) -> VectorEntry:
    return VectorEntry(VirtualTime(1, counter), 0, retired)


def test_a_retired_host_has_neither_a_row_nor_log_holds_and_its_reports_are_ignored() -> None:
    made = members()
    made.hold_log(LogHoldId(HOST, "x"), 10, 0)
    made.hold_log(LogHoldId(OTHER, "y"), 20, 0)
    was_member, log_holds = made.retire(HOST)
    assert was_member
    assert [each.log_hold for each in log_holds] == [LogHoldId(HOST, "x")]
    assert made.ack_floor() == 20, "log holds of other SHBs stay"
    assert not made.report(member(), 60, 1)
    assert made.vector(lambda _: claim(4), 1) == {}
    assert made.retire(HOST) == (False, [])


def test_a_claim_with_the_retired_flag_removes_a_member() -> None:
    made = members()
    assert made.vector(lambda _: claim(4), 0) == {HOST: claim(4)}
    assert made.vector(lambda _: claim(9, retired=True), 0) == {}
    assert made.update_states(lambda _: claim(9, retired=True), 0) == ([], [HOST])


def test_an_inactive_host_is_in_the_vector_again_when_it_is_claimed_at_its_former_time() -> None:
    # R54
    made = members()
    (inactive,), _ = made.update_states(lambda _: claim(4), microseconds(s=8))
    assert inactive.inactive
    made.report(member(), 50, microseconds(s=9))
    assert made.vector(lambda _: claim(3), microseconds(s=9)) == {}
    assert made.vector(lambda _: claim(4), microseconds(s=9)) == {HOST: claim(4)}


def test_the_reported_time_of_a_host_is_used_when_tables_do_not_claim_it_in_time() -> None:
    # R31: otherwise a host that is fed may never start
    made = members()
    made.report(member(6), 50, 0)
    assert made.vector(lambda _: claim(4), microseconds(s=1)) == {HOST: claim(4)}
    assert made.vector(lambda _: claim(4), microseconds(s=4)) == {HOST: claim(4)}
    assert made.vector(lambda _: claim(4), microseconds(s=5)) == {HOST: claim(6)}
    assert made.vector(lambda _: claim(7), microseconds(s=5)) == {HOST: claim(7)}
