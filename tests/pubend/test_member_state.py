"""The states of a member: every state with every input, and the class (R26, R53 to R55)."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gapless.core.ids import MembershipId, PubendId, ShbId, VectorEntry, VirtualTime
from gapless.core.parameters import Parameters, microseconds
from gapless.messages.streams import Member
from gapless.pubend.member_state import NEXT_STATES, MemberInput, MemberPhase
from gapless.pubend.members import Members

P = PubendId("P")
HOST = ShbId("s", "s")
PARAMETERS = Parameters()
EXPIRY_US = microseconds(s=PARAMETERS.member_expiry_s)
INACTIVE_US = microseconds(s=PARAMETERS.inactive_after_s)
ENDED_US = microseconds(s=PARAMETERS.ended_membership_ttl_s)


class Table:
    """The members of a pubend, one SHB, and what tables claim of it."""

    def __init__(self) -> None:
        self.now = 0
        self.members = Members(P, PARAMETERS, 0)
        self.last = 0

    def state(self) -> MemberPhase:
        return self.members.state_of(HOST)

    def member(self, number: int) -> Member:
        return Member(HOST, MembershipId(1, number), durable=True, time=VirtualTime(1, 1))

    def report(self, number: int = 1) -> None:
        self.members.report(self.member(number), 0, self.now)

    def expect(self, number: int = 1) -> None:
        self.members.expect_member(self.member(number), 0, self.now)

    def list(self) -> None:
        """Open a stream epoch; tables claim the SHB, and a member has reported."""
        if self.state() is MemberPhase.INACTIVE:
            self.report()
        self.last += 1
        vector = self.members.vector(lambda _: VectorEntry(VirtualTime(1, 1)), self.now)
        self.members.rows_for(vector, self.last, 0)

    def review(self, silent_us: int) -> None:
        """Let time pass without reports of the SHB."""
        self.now += silent_us
        self.members.update_states(lambda _: None, self.now)

    def leave(self, number: int = 1) -> None:
        self.members.leave(HOST, MembershipId(1, number), self.now)

    def forget(self) -> None:
        self.now += ENDED_US
        self.members.forget_ended(self.now)


def table_in(state: MemberPhase) -> Table:
    table = Table()
    if state in {MemberPhase.HEARD, MemberPhase.LISTED, MemberPhase.INACTIVE}:
        table.report()
    if state in {MemberPhase.LISTED, MemberPhase.INACTIVE}:
        table.list()
    if state is MemberPhase.INACTIVE:
        table.review(INACTIVE_US + 1)
    if state is MemberPhase.LEFT:
        table.leave()
    if state is MemberPhase.RETIRED:
        table.members.retire(HOST)
    assert table.state() is state
    return table


INPUTS: dict[MemberInput, list[Callable[[Table], object]]] = {
    MemberInput.REPORT: [Table.report, lambda table: table.report(2)],
    MemberInput.EXPECT: [Table.expect, lambda table: table.expect(2)],
    MemberInput.LIST: [Table.list],
    MemberInput.SILENCE: [lambda table: table.review(INACTIVE_US + 1)],
    MemberInput.EXPIRE: [lambda table: table.review(EXPIRY_US + 1)],
    MemberInput.LEAVE: [lambda table: table.leave(0), Table.leave, lambda table: table.leave(9)],
    MemberInput.FORGET: [Table.forget],
    MemberInput.RETIRE: [lambda table: table.members.retire(HOST)],
    MemberInput.READMIT: [lambda table: table.members.readmit(HOST)],
}


@pytest.mark.parametrize("cause", MemberInput)
@pytest.mark.parametrize("state", MemberPhase)
def test_every_input_in_every_state_leads_to_the_state_of_the_table(
    state: MemberPhase, cause: MemberInput
) -> None:
    for act in INPUTS[cause]:
        table = table_in(state)
        act(table)
        # an input that the table does not have for a state does not reach the SHB
        assert table.state() in NEXT_STATES.get((state, cause), (state,))


def test_a_change_that_the_table_does_not_have_is_an_error() -> None:
    table = table_in(MemberPhase.HEARD)
    with pytest.raises(AssertionError, match="SILENCE"):
        table.members._entered(HOST, MemberPhase.LISTED, MemberInput.SILENCE)


def test_the_table_names_every_state_and_every_input() -> None:
    assert {state for state, _ in NEXT_STATES} == set(MemberPhase)
    assert {cause for _, cause in NEXT_STATES} == set(MemberInput)
    assert {state for after in NEXT_STATES.values() for state in after} == set(MemberPhase)


def test_a_late_report_of_an_ended_membership_is_ignored() -> None:
    table = table_in(MemberPhase.LEFT)
    table.report(1)
    assert table.state() is MemberPhase.LEFT
    table.report(2)
    assert table.state() is MemberPhase.HEARD


def test_an_shb_that_reported_a_newer_membership_is_heard_when_the_older_one_ends() -> None:
    table = Table()
    table.report(2)
    table.expect(1)
    assert table.state() is MemberPhase.INACTIVE
    table.leave(1)
    assert table.state() is MemberPhase.HEARD


def test_the_end_of_an_older_membership_does_not_end_a_newer_one() -> None:
    table = Table()
    table.report(3)
    table.list()
    table.leave(2)
    assert table.state() is MemberPhase.LISTED
    table.review(EXPIRY_US + 1)
    assert table.state() is MemberPhase.LEFT, "the older membership is remembered"


STEPS = st.one_of(
    st.tuples(st.sampled_from(["report", "expect", "leave"]), st.integers(1, 3)),
    st.tuples(st.just("review"), st.sampled_from([1, INACTIVE_US, EXPIRY_US, ENDED_US])),
    st.tuples(st.sampled_from(["list", "forget", "retire", "readmit"]), st.just(0)),
)


@settings(max_examples=300, deadline=None)
@given(st.lists(STEPS, max_size=30))
def test_with_random_inputs_the_class_follows_the_table(steps: list[tuple[str, int]]) -> None:
    table = Table()  # checks itself after every input
    for kind, value in steps:
        match kind:
            case "report":
                table.report(value)
            case "expect":
                table.expect(value)
            case "leave":
                table.leave(value)
            case "review":
                table.review(value)
            case "list":
                table.list()
            case "forget":
                table.forget()
            case "retire":
                table.members.retire(HOST)
            case "readmit":
                table.members.readmit(HOST)
        row = table.members.row(HOST)
        assert (row is not None) == (table.state() in {MemberPhase.LISTED, MemberPhase.INACTIVE})
