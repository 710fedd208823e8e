"""The states of a link: the transition table is complete, and the link agrees with it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gapless.client.link_state import NEXT_STATE, LinkInput, LinkState
from gapless.core.errors import ClosedError, GaplessError
from gapless.messages.operating import ListPartitions
from gapless.wire import DisconnectReason
from tests.client.driven_link import DrivenLink

PATHS: dict[LinkState, tuple[LinkInput, ...]] = {
    LinkState.DOWN: (),
    LinkState.UP: (LinkInput.CONNECTED,),
    LinkState.OVER: (LinkInput.FAILED,),
}
"""Inputs that lead to each state."""

PAIRS = [(state, given_) for state in LinkState for given_ in LinkInput]


class RecordingUser:
    """A user that records the notifications of the link."""

    def __init__(self) -> None:
        self.heard: list[LinkState] = []
        self.error: GaplessError | None = None

    def link_up(self) -> None:
        self.heard.append(LinkState.UP)

    def link_down(self) -> None:
        self.heard.append(LinkState.DOWN)

    def link_over(self, error: GaplessError) -> None:
        self.heard.append(LinkState.OVER)
        self.error = error


class ObservedLink(DrivenLink):
    """A driven link with a user that records the notifications."""

    def __init__(self) -> None:
        super().__init__()
        self.user = RecordingUser()
        self.link.add(self.user)

    def take(self, given_: LinkInput) -> None:
        """Apply one input; dial if there is no connection."""
        if given_ is LinkInput.CONNECTED:
            self.accept()
        elif given_ is LinkInput.LOST:
            self.lose()
        else:
            self.lose(DisconnectReason.NO_COMMON_VERSION)


def driven(test: Callable[[ObservedLink], None]) -> None:
    """Run a test with a link in an event loop."""

    async def scenario() -> None:
        test(ObservedLink())

    asyncio.run(scenario())


@pytest.mark.parametrize(("state", "given_"), PAIRS)
def test_every_pair_has_a_next_state_except_a_second_connection(
    state: LinkState, given_: LinkInput
) -> None:
    impossible = (state, given_) == (LinkState.UP, LinkInput.CONNECTED)
    assert ((state, given_) in NEXT_STATE) is not impossible


@pytest.mark.parametrize("given_", LinkInput)
def test_over_is_final(given_: LinkInput) -> None:
    assert NEXT_STATE[LinkState.OVER, given_] is LinkState.OVER


@pytest.mark.parametrize(("state", "given_"), PAIRS)
def test_the_link_follows_the_table_and_asserts_on_inputs_outside_it(
    state: LinkState, given_: LinkInput
) -> None:
    def test(made: ObservedLink) -> None:
        for each in PATHS[state]:
            made.take(each)
        assert made.link.state is state
        if (state, given_) not in NEXT_STATE:
            with pytest.raises(AssertionError):
                made.take(given_)
            return
        made.take(given_)
        assert made.link.state is NEXT_STATE[state, given_]

    driven(test)


@given(st.lists(st.sampled_from(LinkInput), max_size=12))
def test_the_link_agrees_with_the_table_over_any_inputs(inputs: list[LinkInput]) -> None:
    def test(made: ObservedLink) -> None:
        state, changes = LinkState.DOWN, list[LinkState]()
        for each in inputs:
            following = NEXT_STATE.get((state, each))
            if following is None:
                continue
            if each is LinkInput.FAILED and state is LinkState.UP:
                changes.append(LinkState.DOWN)  # the connection ends with it
            made.take(each)
            if following is not state:
                changes.append(following)
            state = following
            assert made.link.state is state
            assert made.link.is_up is (state is LinkState.UP)
            assert (made.link.handshake is not None) is (state is LinkState.UP)
        assert made.user.heard == changes
        assert (made.user.error is not None) is (state is LinkState.OVER)

    driven(test)


def test_requests_go_out_only_while_the_link_is_up() -> None:
    def test(made: ObservedLink) -> None:
        made.dial()
        made.link.send(ListPartitions(1))
        assert made.sent == []
        made.take(LinkInput.CONNECTED)
        made.link.send(ListPartitions(2))
        assert made.sent == [ListPartitions(2)]

    driven(test)


def test_closing_a_link_ends_its_connection_and_notifies_its_users() -> None:
    async def scenario() -> None:
        made = ObservedLink()
        made.take(LinkInput.CONNECTED)
        error = ClosedError("the test is over")
        await made.link.close(error)
        assert made.link.state is LinkState.OVER
        assert made.link.handshake is None
        assert made.user.heard[:2] == [LinkState.UP, LinkState.OVER]
        assert made.user.error is error
        with pytest.raises(ClosedError):
            made.link.add(made.user)

    asyncio.run(scenario())
