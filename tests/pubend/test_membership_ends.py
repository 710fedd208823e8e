"""Members that will not return, or return otherwise than they were (R26, R31, R54)."""

from __future__ import annotations

from gapless.core.ids import Entry, Join, PubendId, ShbId, VirtualTime
from gapless.core.parameters import Parameters, us
from gapless.messages.pubend_requests import HoldId
from gapless.messages.records import MemberRecord
from gapless.messages.streams import Member
from gapless.pubend.members import Membership

P, HOST, OTHER = PubendId("P"), ShbId("n", "n"), ShbId("m", "m")
PARAMETERS = Parameters(park_after_s=7, member_grace_s=3)


def member(counter: int = 4, shb: ShbId = HOST) -> Member:
    return Member(shb, Join(1, 1), True, VirtualTime(1, counter))


def members() -> Membership:
    """Return a membership in which one host is listed at 1:4, with the floor 50."""
    row = MemberRecord(P, HOST, Join(1, 1), VirtualTime(1, 4), True, parked=False, floor=50)
    made = Membership(P, PARAMETERS, 0, [row])
    made.report(member(), 50, 0)
    return made


def claim(counter: int, *, retired: bool = False) -> Entry:
    return Entry(VirtualTime(1, counter), 0, retired)


def test_a_retired_host_keeps_neither_a_row_nor_holds_and_is_not_heard_any_more() -> None:
    made = members()
    made.hold(HoldId(HOST, "x"), 10, 0)
    made.hold(HoldId(OTHER, "y"), 20, 0)
    was_member, holds = made.retire(HOST)
    assert was_member
    assert [each.hold for each in holds] == [HoldId(HOST, "x")]
    assert made.floor() == 20, "holds of others stay"
    assert not made.report(member(), 60, 1)
    assert made.vector(lambda _: claim(4), 1) == {}
    assert made.retire(HOST) == (False, [])


def test_a_claim_that_says_retired_takes_a_host_out() -> None:
    made = members()
    assert made.vector(lambda _: claim(4), 0) == {HOST: claim(4)}
    assert made.vector(lambda _: claim(9, retired=True), 0) == {}
    assert made.review(lambda _: claim(9, retired=True), 0) == ([], [HOST])


def test_a_parked_host_is_listed_again_when_it_is_claimed_at_what_it_had() -> None:
    # R54
    made = members()
    (parked,), _ = made.review(lambda _: claim(4), us(s=8))
    assert parked.parked
    made.report(member(), 50, us(s=9))
    assert made.vector(lambda _: claim(3), us(s=9)) == {}
    assert made.vector(lambda _: claim(4), us(s=9)) == {HOST: claim(4)}


def test_where_tables_do_not_bring_the_time_of_a_host_its_own_word_is_taken_in_the_end() -> None:
    # section 17, R31: otherwise a host that is fed may never start
    made = members()
    made.report(member(6), 50, 0)
    assert made.vector(lambda _: claim(4), us(s=1)) == {HOST: claim(4)}
    assert made.vector(lambda _: claim(4), us(s=4)) == {HOST: claim(4)}
    assert made.vector(lambda _: claim(4), us(s=5)) == {HOST: claim(6)}
    assert made.vector(lambda _: claim(7), us(s=5)) == {HOST: claim(7)}
