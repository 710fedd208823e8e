"""The filter that a subscription requests: the table is complete, and the class agrees with it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gapless.client.requested_filter import RequestedFilter
from gapless.client.requested_filter_state import (
    NEXT_STATE,
    RequestedFilterInput,
    RequestedFilterState,
)

State = RequestedFilterState
Input = RequestedFilterInput

ACTIONS: dict[Input, Callable[[RequestedFilter], object]] = {
    Input.REQUESTED: lambda made: made.request("new"),
    Input.CHANGED: lambda made: made.changed("new"),
    Input.REFUSED: lambda made: made.refused(),
    Input.UNKNOWN: lambda made: made.unknown(),
    Input.REPLACED: lambda made: made.replace("stored"),
}


@given(st.booleans(), st.lists(st.sampled_from(Input), max_size=12))
def test_the_filter_agrees_with_the_table_over_any_inputs(
    durable: bool, inputs: list[Input]
) -> None:
    made, state = RequestedFilter("old", durable=durable), State.SETTLED
    for each in inputs:
        if (state, each) not in NEXT_STATE:
            with pytest.raises(AssertionError):
                ACTIONS[each](made)
            continue
        ACTIONS[each](made)
        state = NEXT_STATE[state, each]
        assert made.state is state
        assert made.is_changing is (state is State.CHANGING)


def test_a_subscription_that_is_not_durable_starts_again_with_the_requested_filter() -> None:
    made = RequestedFilter("old", durable=False)
    made.request("new")
    assert made.text == "new"


def test_a_durable_subscription_keeps_its_filter_until_the_reply() -> None:
    made = RequestedFilter("old", durable=True)
    made.request("new")
    assert made.text == "old"


@pytest.mark.parametrize("durable", [False, True])
def test_a_refused_change_restores_the_filter(durable: bool) -> None:
    made = RequestedFilter("old", durable=durable)
    made.request("new")
    made.refused()
    assert made.text == "old"


def test_a_change_to_the_same_filter_is_no_change() -> None:
    made = RequestedFilter("old", durable=True)
    made.request("old")
    assert not made.changed("old")
    made.request("new")
    assert made.changed("new")
