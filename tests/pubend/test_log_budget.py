"""All logs of a broker share a number of bytes: the largest ones give up first (R58)."""

from __future__ import annotations

import pytest

from gapless.core.limits import LOG_SIZE_MARKS_MAX
from gapless.core.parameters import DEFAULTS
from gapless.pubend.log_budget import LogBudget
from gapless.pubend.log_size import LogSize
from tests.broker.harness import BrokerHarness, P


def logs(budget: LogBudget, *sizes: int) -> list[LogSize]:
    """Return logs of these sizes, with rows of one byte."""
    made = [LogSize(0, budget=budget) for _ in sizes]
    for log, size in zip(made, sizes, strict=True):
        for tick in range(1, size + 1):
            log.add(tick, 1)
    return made


def test_logs_keep_seven_days_by_default_or_what_fits_on_the_disk() -> None:
    assert DEFAULTS.retention_s == 7 * 86_400
    assert DEFAULTS.log_bytes_max == DEFAULTS.all_logs_bytes_max == 0


def test_without_a_limit_no_log_is_full() -> None:
    (log,) = logs(LogBudget(0), 10_000)
    assert not log.is_full
    assert not LogSize(0).is_full


def test_one_log_may_use_all_bytes_while_the_others_are_small() -> None:
    budget = LogBudget(10_000)
    large, *small = logs(budget, 9_900, 10, 10, 10)
    assert not large.is_full
    assert not any(each.is_full for each in small)


def test_beyond_the_limit_only_the_largest_logs_are_full_and_shrink_to_one_level() -> None:
    budget = LogBudget(10_000)
    large, larger, small = logs(budget, 4_500, 5_000, 600)
    assert [large.is_full, larger.is_full, small.is_full] == [True, True, False]
    for log in (large, larger):
        log.release(log.tick_to_fit())
        assert 3_350 <= log.bytes <= 3_450
    assert not any(each.is_full for each in (large, larger, small))
    assert budget.bytes <= budget.goal


def test_a_log_that_cannot_be_released_leaves_the_others_their_equal_share() -> None:
    budget = LogBudget(10_000)
    kept, *others = logs(budget, 10_000, *[0] * 9)
    grown = 0
    while any(not each.is_full for each in others):
        grown += 1
        for each in others:
            if not each.is_full:
                each.add(grown, 10)
    assert kept.is_full
    assert all(700 <= each.bytes <= 1_100 for each in others)
    assert budget.bytes < 2 * budget.bytes_max


def test_a_log_has_few_marks_and_can_be_released_in_small_parts_at_any_size() -> None:
    budget = LogBudget(1_000_000)
    (log,) = logs(budget, 200_000)
    assert len(log.marks) <= LOG_SIZE_MARKS_MAX
    assert max(b[1] - a[1] for a, b in zip(log.marks, log.marks[1:], strict=False)) < 200_000 / 16


@pytest.mark.parametrize("limit", ["all_logs_bytes_max", "log_bytes_max"])
def test_a_log_that_only_retention_keeps_is_released_in_time_and_refuses_nothing(
    limit: str,
) -> None:
    parameters: dict[str, int] = {"retention_s": 604_800, limit: 20_000}
    world = BrokerHarness("p", cells=None, **parameters)
    ann = world.publisher("p")
    log = world["p"].components.pubends.logs()[0]
    for number in range(60):
        ann.publish(f"e{number}", kind=number)
        world.run(ms=20)
    assert log.record.last_released_event == 0
    for number in range(400):
        ann.publish(f"f{number}", kind=number)
        world.run(ms=20)
    world.run(s=1)
    assert log.record.pubend == P
    assert 0 < log.log_bytes <= 20_000
    assert log.record.last_released_event > 0


def test_an_idle_log_is_released_soon_when_another_log_grows() -> None:
    # an idle pubend is reviewed seldom, and the logs would exceed the limit meanwhile
    world = BrokerHarness(
        "p", retention_s=604_800, all_logs_bytes_max=1_000_000, idle_silence_max_ms=10_000
    )
    idle, busy = world.publisher("p", "idle"), world.publisher("p", "busy")
    budget = world["p"].components.pubends.log_budget
    for number in range(80):
        idle.publish("i" * 10_000, number=number)
    world.run(s=60)
    while budget.bytes < budget.bytes_max - budget.bytes_max // 8:
        busy.publish("b" * 10_000, number=1)
    world.run(s=1)
    assert budget.bytes <= budget.goal
