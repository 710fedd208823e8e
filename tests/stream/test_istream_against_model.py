"""Random lives of a stream beside a dictionary of ticks."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from tests.cases import scaled
from tests.stream.model import TICKS, Twin, random_piece, true_piece

ticks = st.sampled_from(TICKS)
data_ticks = st.sets(st.sampled_from(TICKS[::2]))


class StreamLife(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.twin = Twin()

    @rule(one=ticks, other=ticks, data=data_ticks)
    def accumulate(self, one: int, other: int, data: set[int]) -> None:
        self.twin.accumulate(true_piece(min(one, other), max(one, other), data))

    @rule(one=ticks, other=ticks)
    def forget(self, one: int, other: int) -> None:
        self.twin.forget(min(one, other), max(one, other))

    @rule(high=ticks)
    def forget_up_to(self, high: int) -> None:
        self.twin.forget_up_to(high)

    @rule()
    def forget_lowest(self) -> None:
        self.twin.forget_lowest()

    @rule()
    def forget_highest(self) -> None:
        self.twin.forget_highest()

    @rule(tick=ticks)
    def raise_top(self, tick: int) -> None:
        self.twin.raise_top(tick)

    @rule(one=ticks, other=ticks)
    def ask_for_a_range(self, one: int, other: int) -> None:
        self.twin.check_range(min(one, other), max(one, other))

    @invariant()
    def the_stream_is_its_model(self) -> None:
        self.twin.check()


TestStreamLife = StreamLife.TestCase
TestStreamLife.settings = settings(max_examples=scaled(100), stateful_step_count=40)


@pytest.mark.parametrize("seed", range(scaled(10)))
def test_a_long_life_of_a_stream_is_that_of_its_model(seed: int) -> None:
    chance = Random(seed)
    twin = Twin()
    for _ in range(1_000):
        low, high = sorted((chance.choice(TICKS), chance.choice(TICKS)))
        match chance.randrange(16):
            case 0:
                twin.forget(low, high)
            case 1:
                twin.forget_lowest()
            case 2:
                twin.forget_highest()
            case 3 if chance.random() < 0.2:
                twin.forget_all()
            case 4:
                twin.forget_up_to(low)
            case _:
                twin.accumulate(random_piece(chance))
        twin.check()
        twin.check_range(low, high)
