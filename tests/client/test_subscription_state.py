"""The states of a client's subscription: the tables are complete, and the inbox agrees with them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gapless.client.inbox import Inbox
from gapless.client.link import _OF_SUBSCRIPTIONS
from gapless.client.settings import SubscriptionOptions
from gapless.client.subscription_state import (
    NEXT_STATE,
    TAKEN,
    ClientSubscriptionInput,
    ClientSubscriptionState,
)
from gapless.core.errors import ClosedError, FencedError, RefusedError, SlowConsumerError
from gapless.core.ids import PubendId
from gapless.messages.clients import (
    Ack,
    Closed,
    Credit,
    Delivery,
    FilterChanged,
    Gap,
    HostingReference,
    Order,
    Progress,
    RefusalCause,
    Refused,
    Seek,
    Stalled,
    StartKind,
    StartPoint,
    Subscribe,
    Subscribed,
    SubscriptionEnded,
    SubscriptionStarted,
)
from gapless.messages.streams import Publication
from tests.client.driven_link import DrivenLink

State = ClientSubscriptionState
Input = ClientSubscriptionInput

P = PubendId("quotes")
Q = PubendId("trades")

PATHS: dict[State, tuple[Input, ...]] = {
    State.UNOPENED: (),
    State.DISCONNECTED: (Input.OPENED,),
    State.SUBSCRIBING: (Input.OPENED, Input.LINK_UP),
    State.RESEEKING: (Input.OPENED, Input.LINK_UP, Input.SUBSCRIBED_BEHIND),
    State.ACTIVE: (Input.OPENED, Input.LINK_UP, Input.SUBSCRIBED),
    State.OVER: (Input.OPENED, Input.LINK_UP, Input.SUBSCRIBED, Input.ENDED),
}
"""Inputs that lead to each state."""

PAIRS = [(state, given_) for state in State for given_ in Input]


def event(tick: int) -> Publication:
    """Return an event."""
    return Publication(tick, "ann", tick, {}, b"")


NOTICES: dict[type[Any], Any] = {
    Delivery: Delivery("desk", ((P, (event(30),)),)),
    SubscriptionStarted: SubscriptionStarted("desk", Q, 5),
    Stalled: Stalled("desk", Q, "its log is corrupt"),
    Progress: Progress("desk", ((P, 40),)),
    Gap: Gap("desk", P, 21, 25),
    Closed: Closed("desk", P, 30),
    FilterChanged: FilterChanged("desk", "price > 1", ((P, 20),)),
    SubscriptionEnded: SubscriptionEnded("desk", "another session has it"),
}
"""One of each notice that names a subscription."""


class DrivenInbox(DrivenLink):
    """A durable subscription over a driven link; the test acts as its broker and its program."""

    def __init__(self, *, durable: bool = True) -> None:
        super().__init__()
        self.ends = 0
        settings = SubscriptionOptions(
            durable=durable,
            start=StartPoint(),
            order=Order.PUBLISHER,
            prefetch=10,
            ack="manual",
            on_gap="report",
            expiry_s=60,
            deadline_s=None,
        )
        self.inbox = Inbox("desk", "TRUE", settings, on_end=self._ended)

    def _ended(self) -> None:
        self.ends += 1

    def take(self, given_: Input) -> None:
        """Apply one input to the inbox, through its link if there is one."""
        actions: dict[Input, Callable[[], None]] = {
            Input.OPENED: lambda: self.inbox.open_over(self.link),
            Input.LINK_UP: self._link_up,
            Input.SUBSCRIBED: self._subscribed,
            Input.SUBSCRIBED_BEHIND: self._subscribed_behind,
            Input.RESEEK_DONE: self._reseek_done,
            Input.SEEK_DONE: lambda: self.inbox.repositioned(((P, 20),), StartKind.POSITION),
            Input.REDIRECTED: self._redirected,
            Input.HOSTED_ELSEWHERE: self._hosted_elsewhere,
            Input.LINK_DOWN: self._link_down,
            Input.ENDED: lambda: self.inbox.end(ClosedError("the test ends it")),
        }
        actions[given_]()

    def _link_up(self) -> None:
        if self.link.is_up or self.inbox.link is None:
            self.inbox.link_up()
        else:
            self.accept()

    def _link_down(self) -> None:
        if self.link.is_up:
            self.lose()
        else:
            self.inbox.link_down()

    def answer(self) -> Subscribed:
        """Return a reply to the last Subscribe."""
        hosting = HostingReference("key", 1, "b1")
        request = self.last(Subscribe) if self.sent_of(Subscribe) else 0
        return Subscribed(request, ((P, 20),), hosting=hosting)

    def _subscribed(self) -> None:
        self.inbox._resume._sought_back_from.clear()
        self.inbox._subscribed(self.answer())

    def _subscribed_behind(self) -> None:
        """Send the reply to a subscription whose program has sought back."""
        self.inbox._resume._sought_back_from[P] = 50
        self.inbox._subscribed(self.answer())

    def _reseek_done(self) -> None:
        """Send the reply to the Seek if the link still waits for it."""
        assert self.inbox.state in {State.RESEEKING, State.OVER}, "nothing was sought again"
        self.inbox._reseek_done(Subscribed(0, ((P, 20),)))

    def _redirected(self) -> None:
        refused = Refused(0, "hosted by b2", RefusalCause.WRONG_BROKER, "b2")
        if self.inbox.is_over:
            self.inbox._subscribed(refused)
        else:
            self.inbox._redirected(refused)
        if self.link.is_up:
            self.lose()

    def _hosted_elsewhere(self) -> None:
        known = self.inbox.hosting
        newer = HostingReference("key", 1 if known is None else known.epoch + 1, "b2")
        if self.inbox.state in {State.SUBSCRIBING, State.OVER}:
            self.inbox._subscribed(Refused(0, "moved", RefusalCause.FENCED, "b2", newer))
        elif self.inbox.state in {State.RESEEKING, State.ACTIVE}:
            self.inbox.notified(SubscriptionEnded("desk", "moved", hosting=newer))
        else:
            self.inbox._follow(newer)

    def last(self, kind: type[Subscribe | Seek]) -> int:
        """Return the number of the last request of a kind."""
        return self.sent_of(kind)[-1].request

    def is_in(self, state: State) -> bool:
        """Return whether the inbox is in a state."""
        return self.inbox.state is state

    def arrive_at(self, state: State) -> None:
        """Bring the inbox to a state."""
        for each in PATHS[state]:
            self.take(each)
        assert self.inbox.state is state


def driven(test: Callable[[DrivenInbox], None]) -> None:
    """Run a test with an inbox in an event loop."""

    async def scenario() -> None:
        test(DrivenInbox())

    asyncio.run(scenario())


# --- the tables ---------------------------------------------------------------------------------


@pytest.mark.parametrize("state", State)
def test_every_state_is_reached_by_its_path(state: State) -> None:
    found = State.UNOPENED
    for each in PATHS[state]:
        found = NEXT_STATE[found, each]
    assert found is state


@pytest.mark.parametrize("given_", Input)
def test_over_is_final(given_: Input) -> None:
    assert NEXT_STATE[State.OVER, given_] is State.OVER


@pytest.mark.parametrize("state", State)
def test_every_state_can_end(state: State) -> None:
    assert NEXT_STATE[state, Input.ENDED] is State.OVER


@pytest.mark.parametrize("state", State)
def test_events_are_accepted_only_after_the_reply_of_the_broker(state: State) -> None:
    assert (Delivery in TAKEN[state]) is (state in {State.RESEEKING, State.ACTIVE})


def test_an_active_subscription_accepts_every_notice() -> None:
    assert TAKEN[State.ACTIVE] == _OF_SUBSCRIPTIONS == NOTICES.keys()


# --- the inbox agrees ---------------------------------------------------------------------------


@pytest.mark.parametrize(("state", "given_"), PAIRS)
def test_the_inbox_follows_the_table_and_asserts_on_inputs_outside_it(
    state: State, given_: Input
) -> None:
    def test(made: DrivenInbox) -> None:
        made.arrive_at(state)
        if (state, given_) not in NEXT_STATE:
            with pytest.raises(AssertionError):
                made.take(given_)
            return
        made.take(given_)
        assert made.inbox.state is NEXT_STATE[state, given_]

    driven(test)


@pytest.mark.parametrize("state", State)
@pytest.mark.parametrize("kind", NOTICES)
def test_a_notice_is_accepted_or_ignored_according_to_the_table(
    state: State, kind: type[Any]
) -> None:
    def test(made: DrivenInbox) -> None:
        made.arrive_at(state)
        inbox, notice = made.inbox, NOTICES[kind]

        def seen() -> tuple[object, ...]:
            prefetch = inbox.prefetch
            return (
                prefetch.received.copy(),
                len(prefetch.queue),
                inbox.pending,
                inbox.text,
                inbox.state,
            )

        before = seen()
        if kind is Delivery:
            inbox.delivered(notice)
        else:
            inbox.notified(notice)
        assert (seen() != before) is (kind in TAKEN[state])

    driven(test)


@given(st.lists(st.sampled_from([*Input, *NOTICES]), max_size=25))
def test_the_inbox_agrees_with_the_tables_over_any_inputs(
    inputs: list[Input | type[Any]],
) -> None:
    def test(made: DrivenInbox) -> None:
        inbox, state = made.inbox, State.UNOPENED
        subscribes = 0
        for each in inputs:
            sent, received = len(made.sent), inbox.prefetch.received.copy()
            if isinstance(each, Input):
                following = NEXT_STATE.get((state, each))
                if following is None:
                    continue
                made.take(each)
                subscribes += following is State.SUBSCRIBING and each is not Input.SEEK_DONE
            else:
                following = state
                if each is SubscriptionEnded and each in TAKEN[state]:
                    following = State.OVER
                if each is Delivery:
                    inbox.delivered(NOTICES[each])
                else:
                    inbox.notified(NOTICES[each])
            fresh = made.sent[sent:]
            assert inbox.state is following
            assert inbox.is_answered is (following in {State.RESEEKING, State.ACTIVE})
            assert (inbox.error is not None) is (following is State.OVER)
            assert len(made.sent_of(Subscribe)) == subscribes, "one Subscribe a link up"
            if any(isinstance(request, Credit) for request in fresh):
                assert following is State.ACTIVE
            if each is not Input.SEEK_DONE and following is not State.OVER:
                for pubend, tick in received.items():
                    assert inbox.prefetch.received[pubend] >= tick, "only a seek goes back"
            state = following
        assert made.ends == (state is State.OVER)

    driven(test)


# --- actions of a transition --------------------------------------------------------------------


def test_a_subscription_that_was_sought_back_gives_no_credit_before_the_reply_to_its_seek() -> None:
    def test(made: DrivenInbox) -> None:
        made.arrive_at(State.ACTIVE)
        made.notify(Delivery("desk", ((P, tuple(map(event, range(21, 28)))),)))
        made.inbox.repositioned(((P, 20),), StartKind.POSITION)
        made.lose()
        made.accept()
        assert made.sent_of(Subscribe)[-1].credit == 0
        given_before = len(made.sent_of(Credit))
        made.notify(made.answer())
        assert made.is_in(State.RESEEKING)
        assert made.sent_of(Seek)[-1].start.position == ((P, 20),)
        assert len(made.sent_of(Credit)) == given_before
        made.notify(Subscribed(made.last(Seek), ((P, 20),)))
        assert made.is_in(State.ACTIVE)
        assert made.sent_of(Credit)[-1].events == 10

    driven(test)


def test_a_seek_during_reseeking_is_sent_after_the_seek_of_the_client() -> None:
    def test(made: DrivenInbox) -> None:
        made.arrive_at(State.ACTIVE)
        made.notify(Delivery("desk", ((P, tuple(map(event, range(21, 28)))),)))
        made.inbox.repositioned(((P, 20),), StartKind.POSITION)
        made.lose()
        made.accept()
        made.notify(made.answer())
        overtaken, given_before = made.last(Seek), len(made.sent_of(Credit))
        made.inbox.repositioned(((P, 7),), StartKind.POSITION)
        assert made.sent_of(Seek)[-1].start.position == ((P, 7),)
        made.notify(Subscribed(overtaken, ((P, 20),)))
        assert made.is_in(State.RESEEKING)
        assert len(made.sent_of(Credit)) == given_before
        made.notify(Subscribed(made.last(Seek), ((P, 7),)))
        assert made.is_in(State.ACTIVE)
        assert made.sent_of(Credit)[-1].events == 10

    driven(test)


def test_acknowledgements_are_sent_again_with_every_reply() -> None:
    def test(made: DrivenInbox) -> None:
        made.arrive_at(State.DISCONNECTED)
        made.inbox.acknowledge({P: 7})
        assert made.sent_of(Ack) == []
        made.accept()
        made.notify(made.answer())
        assert made.sent_of(Ack) == [Ack("desk", ((P, 7),))]

    driven(test)


def test_an_operator_seek_while_the_client_was_disconnected_ends_the_subscription() -> None:
    def test(made: DrivenInbox) -> None:
        made.arrive_at(State.ACTIVE)
        made.lose()
        made.accept()
        made.notify(Subscribed(made.last(Subscribe), ((P, 3),), seek_count=1))
        assert isinstance(made.inbox.error, FencedError)

    driven(test)


def test_a_refusal_without_a_hosting_broker_ends_the_subscription() -> None:
    def test(made: DrivenInbox) -> None:
        made.arrive_at(State.SUBSCRIBING)
        made.notify(Refused(made.last(Subscribe), "too many"))
        assert isinstance(made.inbox.error, RefusedError)

    driven(test)


def test_a_slow_consumer_ends_with_that_error() -> None:
    def test(made: DrivenInbox) -> None:
        made.arrive_at(State.ACTIVE)
        made.notify(SubscriptionEnded("desk", "too slow", RefusalCause.SLOW_CONSUMER))
        assert isinstance(made.inbox.error, SlowConsumerError)

    driven(test)


def test_a_client_that_failed_over_is_fenced_by_a_newer_hosting_epoch() -> None:
    def test(made: DrivenInbox) -> None:
        made.arrive_at(State.SUBSCRIBING)
        made.notify(Subscribed(made.last(Subscribe), (), hosting=HostingReference("key", 1, "b1")))
        made.lose()
        made.accept("b2")
        newer = HostingReference("key", 4, "b3")
        made.notify(Refused(made.last(Subscribe), "moved", RefusalCause.FENCED, "b3", newer))
        assert isinstance(made.inbox.error, FencedError)

    driven(test)


def test_a_reply_after_the_end_is_ignored() -> None:
    def test(made: DrivenInbox) -> None:
        made.arrive_at(State.SUBSCRIBING)
        made.take(Input.ENDED)
        made.notify(made.answer())
        assert made.inbox.state is State.OVER
        assert not made.inbox.is_started

    driven(test)


def test_the_end_wakes_a_task_that_waits() -> None:
    async def scenario() -> None:
        made = DrivenInbox()
        made.arrive_at(State.ACTIVE)
        waiting = asyncio.create_task(made.inbox.arrival())
        await asyncio.sleep(0)
        made.take(Input.ENDED)
        await asyncio.wait_for(waiting, 5)

    asyncio.run(scenario())
