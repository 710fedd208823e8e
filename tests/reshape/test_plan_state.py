"""The table of the states of a plan."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gapless.reshape.plan_state import TRANSITIONS, PlanInput, PlanState
from tests.reshape.plan_world import PlanWorld
from tests.reshape.planning.random_trees import line


@given(st.sampled_from(PlanState), st.sampled_from(PlanInput))
def test_an_executor_takes_exactly_the_inputs_of_the_table(
    state: PlanState, happened: PlanInput
) -> None:
    executor = PlanWorld(line("ab")).executor
    executor._state = state
    if happened in TRANSITIONS[state]:
        executor._enter(happened)
        assert executor.state is TRANSITIONS[state][happened]
    else:
        with pytest.raises(AssertionError, match=f"{state.name} takes no {happened.name}"):
            executor._enter(happened)


def test_a_plan_can_end_from_every_state() -> None:
    ending = {PlanState.ENDED}
    while True:
        before = {state for state in PlanState if {*TRANSITIONS[state].values()} & ending}
        if before <= ending:
            break
        ending |= before
    assert ending == {*PlanState}


def test_every_plan_that_has_not_ended_or_been_aborted_can_be_aborted() -> None:
    assert {state for state in PlanState if PlanInput.ABORTED not in TRANSITIONS[state]} == {
        PlanState.ENDED,
        PlanState.STOPPING,
    }
