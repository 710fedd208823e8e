"""Random operations on a stream and on a dictionary of ticks."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from tests.cases import scaled
from tests.stream.model import TICKS, CheckedStream, random_range, true_range

ticks = st.sampled_from(TICKS)
data_ticks = st.sets(st.sampled_from(TICKS[::2]))


class StreamAgainstModel(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.checked = CheckedStream()

    @rule(one=ticks, other=ticks, data=data_ticks)
    def accumulate(self, one: int, other: int, data: set[int]) -> None:
        self.checked.accumulate(true_range(min(one, other), max(one, other), data))

    @rule(one=ticks, other=ticks)
    def forget(self, one: int, other: int) -> None:
        self.checked.forget(min(one, other), max(one, other))

    @rule(high=ticks)
    def forget_up_to(self, high: int) -> None:
        self.checked.forget_up_to(high)

    @rule()
    def forget_lowest(self) -> None:
        self.checked.forget_lowest()

    @rule()
    def forget_highest(self) -> None:
        self.checked.forget_highest()

    @rule(tick=ticks)
    def raise_top(self, tick: int) -> None:
        self.checked.raise_top(tick)

    @rule(one=ticks, other=ticks)
    def read_a_range(self, one: int, other: int) -> None:
        self.checked.check_range(min(one, other), max(one, other))

    @invariant()
    def the_stream_is_its_model(self) -> None:
        self.checked.check()


TestStreamAgainstModel = StreamAgainstModel.TestCase
TestStreamAgainstModel.settings = settings(max_examples=scaled(100), stateful_step_count=40)


@pytest.mark.parametrize("seed", range(scaled(10)))
def test_with_random_operations_a_stream_equals_its_model(seed: int) -> None:
    chance = Random(seed)
    checked = CheckedStream()
    for _ in range(1_000):
        low, high = sorted((chance.choice(TICKS), chance.choice(TICKS)))
        match chance.randrange(16):
            case 0:
                checked.forget(low, high)
            case 1:
                checked.forget_lowest()
            case 2:
                checked.forget_highest()
            case 3 if chance.random() < 0.2:
                checked.forget_all()
            case 4:
                checked.forget_up_to(low)
            case _:
                checked.accumulate(random_range(chance))
        checked.check()
        checked.check_range(low, high)
