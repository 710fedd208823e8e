"""The states of a membership: every state with every input, and the class (R43, R26)."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gapless.core.context import Context, Identity
from gapless.core.effects import Write
from gapless.core.ids import BrokerId, MembershipId, PubendId, ShbId
from gapless.core.parameters import DEFAULTS, microseconds
from gapless.messages.records import JoinedPubendRecord
from gapless.subscribers.membership import Membership, Memberships
from gapless.subscribers.membership_state import (
    NEXT_ABANDONED,
    NEXT_STATES,
    AbandonedInput,
    MembershipInput,
    MembershipState,
)
from gapless.subscribers.protocols import PubendRequester

P = PubendId("P", 1)
INPUTS = st.sampled_from(MembershipInput)

CALLS: dict[MembershipInput, Callable[[Membership], object]] = {
    MembershipInput.STORED: Membership.stored,
    MembershipInput.NEEDED: Membership.needed,
    MembershipInput.UNUSED: lambda membership: membership.unneeded_for(7),
    MembershipInput.EXPIRED: Membership.expire,
    MembershipInput.REPLACED: Membership.replace,
    MembershipInput.LEFT: Membership.left,
    MembershipInput.FINISHED: Membership.finish,
    MembershipInput.TOMBSTONE: Membership.end,
}


# --- the table ------------------------------------------------------------------------------------


def test_every_state_is_reached_and_every_input_happens() -> None:
    reached = {state for found in NEXT_STATES.values() for state in found}
    assert reached == {*MembershipState}
    assert {given for _, given in NEXT_STATES} == {*MembershipInput}


@given(INPUTS)
def test_a_membership_that_has_ended_stays_so(given: MembershipInput) -> None:
    following = NEXT_STATES.get((MembershipState.ENDED, given), frozenset())
    assert following <= {MembershipState.ENDED}


@given(INPUTS)
def test_a_membership_that_is_about_to_end_is_not_used_again(given: MembershipInput) -> None:
    following = NEXT_STATES.get((MembershipState.LEAVING, given), frozenset())
    assert following <= {MembershipState.LEAVING, MembershipState.ENDED}


@given(st.booleans(), st.sampled_from(AbandonedInput))
def test_the_last_input_decides_whether_a_pubend_is_abandoned(
    before: bool, given: AbandonedInput
) -> None:
    assert NEXT_ABANDONED[before, given] is (given is AbandonedInput.UNAVAILABLE)


# --- the class and the table ----------------------------------------------------------------------


@pytest.mark.parametrize("given", MembershipInput)
@pytest.mark.parametrize("state", MembershipState)
def test_a_membership_takes_exactly_the_inputs_of_the_table(
    state: MembershipState, given: MembershipInput
) -> None:
    membership = Membership(MembershipId(1, 1), state)
    following = NEXT_STATES.get((state, given))
    if following is not None:
        CALLS[given](membership)
        assert membership.state in following
    elif given is MembershipInput.REPLACED and state is MembershipState.LEAVING:
        membership.replace()  # a newer membership replaces it, and it continues to end
        assert membership.state is MembershipState.LEAVING
    else:
        with pytest.raises(AssertionError, match=state.name):
            CALLS[given](membership)


@pytest.mark.parametrize("is_needed", [True, False])
def test_a_membership_whose_record_is_on_disk_is_joined_or_unneeded(*, is_needed: bool) -> None:
    membership = Membership(MembershipId(1, 1), MembershipState.JOINING)
    if not is_needed:
        membership.unneeded_for(7)
    membership.stored()
    expected = MembershipState.JOINED if is_needed else MembershipState.UNNEEDED
    assert membership.state is expected


class Leave:
    """A request to leave a pubend."""

    def __init__(self, then: Callable[[], None]) -> None:
        self.then = then
        self.is_cancelled = False

    def cancel(self) -> None:
        self.is_cancelled = True


class Requests:
    """Takes requests to leave, and answers them on demand."""

    def __init__(self) -> None:
        self.leaves: list[Leave] = []

    def leave(
        self, pubend: PubendId, shb: ShbId, membership: MembershipId, then: Callable[[], None]
    ) -> Leave:
        del pubend, shb, membership
        made = Leave(then)
        self.leaves.append(made)
        return made

    def answer(self) -> None:
        """Answer all requests that were not cancelled."""
        leaves, self.leaves = self.leaves, []
        for each in leaves:
            if not each.is_cancelled:
                each.then()


class Member:
    """The memberships of an SHB with random inputs."""

    def __init__(self, *joined: JoinedPubendRecord) -> None:
        self.context = Context(Identity(BrokerId("n"), "n", 9), DEFAULTS)
        self.requests = Requests()
        requests: PubendRequester = self.requests  # type: ignore[assignment]
        self.memberships = Memberships(self.context, requests, joined)
        self.is_needed = False

    def join(self) -> None:
        if not self.is_needed:
            _, is_new = self.memberships.join(P, restored=False)
            if is_new:
                self.memberships.store(P, lambda: None)
            self.is_needed = True
        self.memberships.needed(P)

    def drop(self) -> None:
        """No subscription needs the pubend any more."""
        self.is_needed = False

    def review(self) -> None:
        self.context.now += microseconds(s=DEFAULTS.interest_grace_s) // 2
        if P in self.memberships and self.memberships.review(P, needed=self.is_needed):
            self.memberships.leave(P)

    def write(self) -> None:
        """Let all writes become durable."""
        effects, self.context.effects = self.context.effects, []
        for effect in effects:
            assert isinstance(effect, Write)
            self.context._waiting.pop(effect.write_id)()

    def answer(self) -> None:
        self.requests.answer()

    def abandon(self) -> None:
        if P in self.memberships:
            self.memberships.abandon(P)
            self.memberships.give_up_leaving(P)

    def come_back(self) -> None:
        if P in self.memberships:
            self.memberships.pubend_returned(P)


@settings(deadline=None)
@given(
    st.lists(
        st.sampled_from(("join", "drop", "review", "write", "answer", "abandon", "come_back")),
        max_size=40,
    ),
    st.booleans(),
)
def test_with_random_inputs_a_needed_pubend_has_a_membership_and_an_unneeded_one_ends(
    steps: list[str], is_restored: bool
) -> None:
    joined = [JoinedPubendRecord(P, MembershipId(3, 1))] if is_restored else []
    member = Member(*joined)
    for step in steps:
        getattr(member, step)()
        if member.is_needed:
            assert P in member.memberships
        if P not in member.memberships:
            assert not member.memberships.is_abandoned(P)
    member.drop()
    member.write()
    for _ in range(6):
        member.review()
        member.answer()
        member.write()
    assert P not in member.memberships
