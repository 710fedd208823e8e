"""The table of a search for a hosting broker (MV-15), and what follows from it."""

from __future__ import annotations

import itertools

import pytest

from gapless.mobility.find_state import FINAL, TRANSITIONS, FindInput, FindState, next_state

ANSWERS = (
    FindInput.ANSWER_NONE,
    FindInput.ANSWER_UNKNOWN,
    FindInput.ANSWER_FOUND,
    FindInput.ANSWER_CONTESTED,
)
ENDS = (FindInput.ALL_ANSWERED, FindInput.SOME_SILENT)
RETRIES = (FindInput.ANSWER_RETRY, FindInput.TREE_STEPPED)


def after(*inputs: FindInput) -> FindState:
    """Return the state after inputs; those after the end do not count."""
    state = FindState.WAITING
    for each in inputs:
        if state in FINAL:
            return state
        state = next_state(state, each)
    return state


def test_every_state_that_is_not_final_takes_every_input() -> None:
    assert all(not inputs or set(inputs) == set(FindInput) for inputs in TRANSITIONS.values())


@pytest.mark.parametrize("state", [state for state in FindState if state in FINAL])
def test_a_search_that_has_ended_takes_no_input(state: FindState) -> None:
    with pytest.raises(AssertionError, match="takes no"):
        next_state(state, FindInput.ANSWER_NONE)


@pytest.mark.parametrize("answers", [*itertools.product(ANSWERS, repeat=3)])
@pytest.mark.parametrize("end", ENDS)
def test_only_answers_of_all_brokers_that_they_host_none_end_as_none(
    answers: tuple[FindInput, ...], end: FindInput
) -> None:
    found = after(*answers, end)
    is_none = set(answers) == {FindInput.ANSWER_NONE} and end is FindInput.ALL_ANSWERED
    assert (found is FindState.NONE) is is_none


@pytest.mark.parametrize("end", ENDS)
def test_a_located_subscription_is_found_whatever_comes_after(end: FindInput) -> None:
    for later in itertools.product(set(FindInput) - {*ENDS, *RETRIES}, repeat=2):
        assert after(FindInput.ANSWER_FOUND, *later, end) is FindState.FOUND


@pytest.mark.parametrize("retry", RETRIES)
@pytest.mark.parametrize("before", [(), *((each,) for each in ANSWERS)])
def test_a_search_whose_tree_has_changed_is_made_anew_whatever_was_found(
    before: tuple[FindInput, ...], retry: FindInput
) -> None:
    expected = FindState.CONTESTED if FindInput.ANSWER_CONTESTED in before else FindState.RETRY
    assert after(*before, retry) is expected


def test_a_search_that_a_lesser_broker_outranks_creates_nothing() -> None:
    assert after(FindInput.ANSWER_NONE, FindInput.OUTRANKED) is FindState.CONTESTED
