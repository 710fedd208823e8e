"""The states of an outbox: the transition table is complete, and the outbox agrees with it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gapless.client.batches import encoded
from gapless.client.outbox import Outbox
from gapless.client.outbox_state import NEXT_STATE, OutboxInput, OutboxState
from gapless.core.errors import ClosedError, FencedError, OutcomeUnknownError
from gapless.core.ids import PubendId
from gapless.messages.clients import (
    OpenPublisher,
    Publish,
    Published,
    PublisherOpened,
    RefusalCause,
    Refused,
)
from tests.client.driven_link import DrivenLink

QUOTES = PubendId("quotes")
EVENT = encoded({"price": 91.5}, b"")

PATHS: dict[OutboxState, tuple[OutboxInput, ...]] = {
    OutboxState.CLOSED: (),
    OutboxState.OPENING: (OutboxInput.LINK_UP,),
    OutboxState.OPEN: (OutboxInput.LINK_UP, OutboxInput.OPENED),
    OutboxState.FENCED: (OutboxInput.LINK_UP, OutboxInput.OPENED, OutboxInput.FENCED),
    OutboxState.OVER: (OutboxInput.LINK_UP, OutboxInput.OPENED, OutboxInput.ENDED),
}
"""Inputs that lead to each state."""

PAIRS = [(state, given_) for state in OutboxState for given_ in OutboxInput]


class DrivenOutbox(DrivenLink):
    """An outbox over a driven link; the test acts as its PHB."""

    def __init__(self, *, guaranteed: bool = True) -> None:
        super().__init__()
        self.ends = 0
        self.session = 0
        self.outbox = Outbox("desk", guaranteed=guaranteed, on_end=self._ended)
        self.outbox.open_over(self.link, QUOTES, None)

    def _ended(self) -> None:
        self.ends += 1

    def take(self, given_: OutboxInput) -> None:
        """Apply one input to the outbox."""
        outbox = self.outbox
        if given_ is OutboxInput.LINK_UP:
            if self.link.is_up:
                outbox.link_up()
            else:
                self.accept()
        elif given_ is OutboxInput.LINK_DOWN:
            if self.link.is_up:
                self.lose()
            else:
                outbox.link_down()
        elif given_ is OutboxInput.OPENED:
            self.session += 1
            outbox._opened(PublisherOpened(0, self.session, 0, 64))
        elif given_ is OutboxInput.ENDED:
            outbox.end(ClosedError("the test ends it"))
        else:
            self._reply(given_)

    def _reply(self, given_: OutboxInput) -> None:
        """Reply to the oldest batch; make one if there is none."""
        outbox = self.outbox
        if outbox.state is not OutboxState.OVER and not (outbox.sent or outbox.queue):
            outbox.add(EVENT)
        batch = next(iter((*outbox.sent, *outbox.queue)), None)
        if batch is None:  # the outbox is over, so the batch has failed
            return
        if given_ is OutboxInput.FENCED:
            notice: object = Refused(batch.request, "forgotten", RefusalCause.NOT_OPEN)
        else:
            notice = Published(batch.request, tuple(range(1, batch.count + 1)))
        outbox._answered(batch, notice)

    def last(self, kind: type[OpenPublisher | Publish]) -> int:
        """Return the number of the last request of a kind."""
        return self.sent_of(kind)[-1].request


def driven(test: Callable[[DrivenOutbox], None]) -> None:
    """Run a test with an outbox in an event loop."""

    async def scenario() -> None:
        test(DrivenOutbox())

    asyncio.run(scenario())


@pytest.mark.parametrize("given_", OutboxInput)
def test_over_is_final(given_: OutboxInput) -> None:
    assert NEXT_STATE[OutboxState.OVER, given_] is OutboxState.OVER


@pytest.mark.parametrize("state", OutboxState)
def test_every_state_can_end(state: OutboxState) -> None:
    assert NEXT_STATE[state, OutboxInput.ENDED] is OutboxState.OVER


@pytest.mark.parametrize("state", OutboxState)
def test_every_state_is_reached_by_its_path(state: OutboxState) -> None:
    found = OutboxState.CLOSED
    for each in PATHS[state]:
        found = NEXT_STATE[found, each]
    assert found is state


@pytest.mark.parametrize(("state", "given_"), PAIRS)
def test_the_outbox_follows_the_table_and_asserts_on_inputs_outside_it(
    state: OutboxState, given_: OutboxInput
) -> None:
    def test(made: DrivenOutbox) -> None:
        for each in PATHS[state]:
            made.take(each)
        assert made.outbox.state is state
        if (state, given_) not in NEXT_STATE:
            with pytest.raises(AssertionError):
                made.take(given_)
            return
        made.take(given_)
        assert made.outbox.state is NEXT_STATE[state, given_]

    driven(test)


@given(st.lists(st.sampled_from(OutboxInput), max_size=20))
def test_the_outbox_agrees_with_the_table_over_any_inputs(inputs: list[OutboxInput]) -> None:
    def test(made: DrivenOutbox) -> None:
        state, openings, lost = OutboxState.CLOSED, 0, 0
        for each in inputs:
            following = NEXT_STATE.get((state, each))
            if following is None:
                continue
            made.take(each)
            was, state = state, following
            assert made.outbox.state is state
            assert made.outbox.is_open is (state is OutboxState.OPEN)
            is_opened_again = was is OutboxState.OPEN and state is OutboxState.FENCED
            openings += is_opened_again or state is OutboxState.OPENING
            lost += each is OutboxInput.LINK_DOWN and was in {
                OutboxState.OPENING,
                OutboxState.FENCED,
            }
            assert len(made.sent_of(OpenPublisher)) == openings
            assert made.outbox._lost_openings == lost
            if state is not OutboxState.OPEN:
                assert not made.outbox.sent, "nothing is under way without a session"
            assert made.outbox.held == sum(
                batch.count for batch in (*made.outbox.sent, *made.outbox.queue)
            )
        assert made.ends == (state is OutboxState.OVER)

    driven(test)


def test_a_reply_after_the_end_is_ignored() -> None:
    def test(made: DrivenOutbox) -> None:
        made.take(OutboxInput.LINK_UP)
        made.take(OutboxInput.OPENED)
        batch, _ = made.outbox.add(EVENT)
        made.outbox.end(ClosedError("the test ends it"))
        made.notify(Published(made.last(Publish), (7,)))
        assert made.outbox.state is OutboxState.OVER
        assert isinstance(batch.error, OutcomeUnknownError)
        assert made.link.is_up, "others use the connection"

    driven(test)


def test_a_reply_of_the_former_session_counts_while_the_publisher_is_reopened() -> None:
    def test(made: DrivenOutbox) -> None:
        made.take(OutboxInput.LINK_UP)
        made.take(OutboxInput.OPENED)
        first, _ = made.outbox.add(EVENT)
        written = made.last(Publish)
        second, _ = made.outbox.add_all([EVENT])
        made.outbox._pump()
        made.notify(Refused(made.last(Publish), "forgotten", RefusalCause.NOT_OPEN))
        assert made.outbox.state is OutboxState.FENCED
        made.notify(Published(written, (7,)))
        assert first.ticks == (7,)
        assert [*made.outbox.queue] == [second]
        made.notify(PublisherOpened(made.last(OpenPublisher), 9, 1, 64))
        assert [*made.outbox.sent] == [second]

    driven(test)


def test_a_fenced_publisher_ends_with_that_error() -> None:
    def test(made: DrivenOutbox) -> None:
        made.take(OutboxInput.LINK_UP)
        made.take(OutboxInput.OPENED)
        made.outbox.add(EVENT)
        made.notify(Refused(made.last(Publish), "another has it", RefusalCause.FENCED))
        assert made.outbox.state is OutboxState.OVER
        assert isinstance(made.outbox.error, FencedError)

    driven(test)


def test_a_lost_open_request_may_fence_the_publisher_that_sent_it() -> None:
    def test(made: DrivenOutbox) -> None:
        for each in (OutboxInput.LINK_UP, OutboxInput.LINK_DOWN, OutboxInput.LINK_UP):
            made.take(each)
        made.take(OutboxInput.OPENED)
        made.outbox.add(EVENT)
        made.notify(Refused(made.last(Publish), "another has it", RefusalCause.FENCED))
        assert made.outbox.state is OutboxState.FENCED
        made.notify(Refused(made.last(Publish), "another has it", RefusalCause.FENCED))
        assert made.outbox.state is OutboxState.FENCED

    driven(test)
