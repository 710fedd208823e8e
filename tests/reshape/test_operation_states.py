"""The states of operations, locks and takeovers: every state with every input."""

from __future__ import annotations

from enum import Enum
from itertools import product
from typing import Any

import pytest

from gapless.messages.records import OperationPhase
from gapless.reshape import coordinator_state, lock_state, takeover_state
from gapless.reshape.coordinator_state import OperationInput, next_phase
from gapless.reshape.lock_state import LockInput, LockState, next_lock_state
from gapless.reshape.takeover_state import TakeoverInput, TakeoverState, next_takeover_state

MACHINES = (
    (coordinator_state.TRANSITIONS, OperationPhase, OperationInput, next_phase),
    (lock_state.TRANSITIONS, LockState, LockInput, next_lock_state),
    (takeover_state.TRANSITIONS, TakeoverState, TakeoverInput, next_takeover_state),
)


@pytest.mark.parametrize(("table", "states", "inputs", "following"), MACHINES)
def test_every_state_takes_the_inputs_of_its_table_and_no_others(
    table: Any, states: type[Enum], inputs: type[Enum], following: Any
) -> None:
    assert table.keys() == set(states)
    for state, happened in product(states, inputs):
        if happened in table[state]:
            assert following(state, happened) is table[state][happened]
        else:
            with pytest.raises(AssertionError):
                following(state, happened)


@pytest.mark.parametrize(("table", "states", "inputs", "following"), MACHINES)
def test_every_state_is_reached_and_every_input_is_used(
    table: Any, states: type[Enum], inputs: type[Enum], following: Any
) -> None:
    del following
    reached = {state for row in table.values() for state in row.values()}
    assert set(states) - {OperationPhase.PREPARING} <= reached, "an operation begins preparing"
    assert {happened for row in table.values() for happened in row} == set(inputs)


def test_a_committed_operation_is_never_aborted() -> None:
    following = coordinator_state.TRANSITIONS[OperationPhase.COMMITTED].values()
    assert OperationPhase.ABORTED not in following, "RS-7"


def test_no_proof_resolves_a_lock_that_was_passed_on() -> None:
    assert LockInput.PROOF not in lock_state.TRANSITIONS[LockState.PASSED], "RS-17"
