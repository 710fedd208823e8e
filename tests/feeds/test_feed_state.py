"""The states of a feed: every state with every input, and the class (R7 to R9)."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gapless.core.parameters import DEFAULTS, microseconds
from gapless.feeds.feed import Candidate, Feed
from gapless.feeds.feed_state import FED_STATES, NEXT_STATES, FeedInput, FeedState
from gapless.messages.streams import Attached, FeedUnavailable, FeedUnavailableReason
from tests.feeds.test_feed import P, Table

BROKERS = ("a", "b", "c")
UNKNOWN_BROKER = "z"


def trial_of(feed: Feed) -> tuple[str, int] | None:
    """Return the broker that is tried, and the number of its Attach."""
    return None if feed._trial is None else (feed._trial.candidate.broker, feed._trial.number)


def is_retry_armed(feed: Feed) -> bool:
    return feed._retry is not None and feed._retry.action is not None


def refuse(table: Table, peer: str, number: int) -> None:
    table.feed.feed_unavailable(peer, FeedUnavailable(P, number, FeedUnavailableReason.NO_FEED))


# --- one feed in each state -----------------------------------------------------------------------


def retrying() -> Table:
    return Table()


def trying() -> Table:
    return Table(Candidate("a", 0), Candidate("b", 1))


def fed() -> Table:
    table = Table(Candidate("b", 1))
    table.answer("b")
    return table


def fed_trying() -> Table:
    table = fed()
    table.found.insert(0, Candidate("a", 0))
    while table.feed.state is FeedState.FED:
        table.run(10)
    return table


def fed_leaving() -> Table:
    table = fed()
    table.found.append(Candidate("c", 2))
    table.context.now += microseconds(ms=DEFAULTS.dct_ms + DEFAULTS.idle_silence_max_ms + 1)
    table.feed._refresh()
    return table


def closed() -> Table:
    table = fed()
    table.feed.close()
    return table


MADE: dict[FeedState, Callable[[], Table]] = {
    FeedState.RETRYING: retrying,
    FeedState.TRYING: trying,
    FeedState.FED: fed,
    FeedState.FED_TRYING: fed_trying,
    FeedState.FED_LEAVING: fed_leaving,
    FeedState.CLOSED: closed,
}


# --- inputs ---------------------------------------------------------------------------------------


def stale_attached(table: Table) -> None:
    table.feed.attached(UNKNOWN_BROKER, Attached(P, -2, 0))


def trial_attached(table: Table) -> None:
    trial = trial_of(table.feed)
    assert trial is not None
    table.feed.attached(trial[0], Attached(P, trial[1], 0))


def feeder_attached(table: Table) -> None:
    assert table.feed.feeder is not None
    table.feed.attached(table.feed.feeder, Attached(P, table.feed._number + 2, 0))


def other_attached(table: Table) -> None:
    table.feed.attached(UNKNOWN_BROKER, Attached(P, table.feed._oldest + 1_000, 0))


def trial_refuses(table: Table) -> None:
    trial = trial_of(table.feed)
    assert trial is not None
    refuse(table, *trial)


def trial_times_out(table: Table) -> None:
    assert table.feed._trial is not None
    action = table.feed._trial.timer.action
    assert action is not None
    action()


def feeder_refuses(table: Table) -> None:
    feeder = table.feed.feeder
    assert feeder is not None
    if trial_of(table.feed) == (feeder, table.feed._number):
        table.feed.session_closed(feeder)
    else:
        refuse(table, feeder, table.feed._number)


INPUTS: dict[FeedInput, list[Callable[[Table], None]]] = {
    FeedInput.STALE_ATTACHED: [stale_attached],
    FeedInput.TRIAL_ATTACHED: [trial_attached],
    FeedInput.FEEDER_ATTACHED: [feeder_attached],
    FeedInput.OTHER_ATTACHED: [other_attached],
    FeedInput.TRIAL_FAILED: [trial_refuses, trial_times_out],
    FeedInput.FEEDER_LOST: [feeder_refuses],
    FeedInput.RETRY_TIMER: [lambda table: table.feed._retry_due()],
    FeedInput.SESSION_OPENED: [lambda table: table.feed.session_opened()],
    FeedInput.REFRESH_TIMER: [lambda table: table.feed._refresh()],
    FeedInput.RENEW: [lambda table: table.feed.renew(0)],
    FeedInput.CLOSE: [lambda table: table.feed.close()],
}


def check(feed: Feed) -> None:
    """Check that the state agrees with the fields."""
    state, is_trying = feed.state, feed._trial is not None
    assert (feed.feeder is not None) == (state in FED_STATES)
    if state is not FeedState.FED_LEAVING:
        assert is_trying == (state in {FeedState.TRYING, FeedState.FED_TRYING})
    assert is_retry_armed(feed) == (state is FeedState.RETRYING)


def possible(table: Table, cause: FeedInput) -> bool:
    """Return whether an input is possible by the fields of a feed."""
    if cause in {FeedInput.TRIAL_ATTACHED, FeedInput.TRIAL_FAILED}:
        return table.feed._trial is not None
    if cause in {FeedInput.FEEDER_ATTACHED, FeedInput.FEEDER_LOST}:
        return table.feed.feeder is not None
    if cause is FeedInput.RETRY_TIMER:
        return is_retry_armed(table.feed)
    return cause is not FeedInput.RENEW or table.feed.state is not FeedState.CLOSED


@pytest.mark.parametrize("state", FeedState)
def test_a_feed_can_be_brought_into_every_state(state: FeedState) -> None:
    table = MADE[state]()
    assert table.feed.state is state
    check(table.feed)


@pytest.mark.parametrize("cause", [each for each in FeedInput if each is not FeedInput.START])
@pytest.mark.parametrize("state", FeedState)
def test_every_input_in_every_state_leads_to_the_state_of_the_table(
    state: FeedState, cause: FeedInput
) -> None:
    for act in INPUTS[cause]:
        table = MADE[state]()
        if not possible(table, cause):
            assert (state, cause) not in NEXT_STATES
            continue
        assert (state, cause) in NEXT_STATES
        act(table)
        assert table.feed.state in NEXT_STATES[state, cause]
        check(table.feed)


def test_an_input_that_the_table_does_not_have_is_an_error() -> None:
    table = fed()
    with pytest.raises(AssertionError, match="TRIAL_FAILED"):
        table.feed._trial_failed()


def test_the_table_names_every_state_and_every_input() -> None:
    assert {state for state, _ in NEXT_STATES} == set(FeedState)
    assert {cause for _, cause in NEXT_STATES} == set(FeedInput)
    assert {state for following in NEXT_STATES.values() for state in following} == set(FeedState)


@pytest.mark.parametrize("state", [each for each in FeedState if each in FED_STATES])
def test_a_feed_with_a_feeder_loses_it_only_by_refusal_a_closed_session_or_a_new_path(
    state: FeedState,
) -> None:
    losing = {
        cause
        for (each, cause), following in NEXT_STATES.items()
        if each is state and not set(following) <= FED_STATES
    }
    assert losing == {FeedInput.FEEDER_LOST, FeedInput.RENEW, FeedInput.CLOSE}


# --- any inputs in any order ----------------------------------------------------------------------


STEPS = st.one_of(
    st.tuples(st.just("time"), st.integers(1, 3_000)),
    st.tuples(st.just("input"), st.sampled_from([*INPUTS])),
    st.tuples(st.just("answer"), st.sampled_from(BROKERS)),
    st.tuples(st.just("late"), st.sampled_from(BROKERS)),
    st.tuples(st.just("closed"), st.sampled_from(BROKERS)),
    st.tuples(st.just("candidates"), st.permutations(BROKERS)),
    st.tuples(st.just("fewer"), st.integers(0, 2)),
)


@settings(max_examples=300, deadline=None)
@given(st.lists(STEPS, max_size=40))
def test_with_random_inputs_the_class_follows_the_table(steps: list[tuple[str, object]]) -> None:
    table = Table(*(Candidate(name, rank) for rank, name in enumerate(BROKERS)))
    feed, attached = table.feed, dict[str, int]()
    for kind, value in steps:
        attached.update(feed._numbers)
        match kind, value:
            case "time", int():
                table.context.now += microseconds(ms=value)
                table.context.run_timers()
            case "input", FeedInput() if value is not FeedInput.CLOSE and possible(table, value):
                before = feed.state
                INPUTS[value][0](table)
                if value is not FeedInput.FEEDER_LOST:
                    assert feed.state in NEXT_STATES[before, value]
            case "answer" | "late", str() if value in attached:
                relayed = kind == "late"
                feed.attached(value, Attached(P, attached[value], 0, relayed))
            case "closed", str():
                feed.session_closed(value)
            case "candidates", list():
                table.found = [Candidate(name, rank) for rank, name in enumerate(value)]
            case "fewer", int():
                table.found = table.found[:value]
            case _:
                continue
        check(feed)
    feed.close()
    check(feed)
