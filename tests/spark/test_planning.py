"""Start and end of a read: a time is the same tick in all logs, be it stored, released or ahead."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from gapless.core.errors import UsageError
from gapless.spark.network import Extent
from gapless.spark.planning import after, check_end, check_released

NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)
NOON_TICK = int(NOON.timestamp()) * 1_000_000
HOUR = 3_600_000_000

EXTENTS = {
    "whole": Extent(0, NOON_TICK + HOUR),
    "late": Extent(NOON_TICK + 50, NOON_TICK + HOUR),
}


def test_a_start_time_is_before_its_tick_in_all_logs_also_if_released() -> None:
    assert after(NOON, EXTENTS) == {"whole": NOON_TICK - 1, "late": NOON_TICK - 1}


def test_a_time_before_the_first_tick_is_zero() -> None:
    assert after(datetime(1900, 1, 1, tzinfo=UTC), EXTENTS) == {"whole": 0, "late": 0}


def test_released_ticks_after_a_start_time_are_an_error_or_skipped() -> None:
    start, extent = after(NOON, EXTENTS)["late"], EXTENTS["late"]
    with pytest.raises(UsageError, match=f"late no longer has the ticks from {NOON_TICK} to"):
        check_released("late", start, extent, extent.top, "fail")
    assert check_released("late", start, extent, extent.top, "skip") == extent.released


def test_skipped_ticks_are_counted_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    check_released("late", NOON_TICK - 1, EXTENTS["late"], NOON_TICK + HOUR, "skip")
    assert caplog.messages == [
        f"late: the ticks from {NOON_TICK} to {NOON_TICK + 50} are released and skipped: 51 in all"
    ]


def test_an_end_ahead_of_a_log_is_refused_as_a_time_and_as_a_position() -> None:
    behind = EXTENTS | {"behind": Extent(0, NOON_TICK - 2)}
    check_end(NOON, EXTENTS)
    with pytest.raises(
        UsageError, match=r"2026-01-31T12:00:00.00:00 is ahead of behind.* at .*11:59"
    ):
        check_end(NOON, behind)
    check_end(NOON - timedelta(seconds=1), behind)
    check_end({"whole": NOON_TICK}, EXTENTS)
    with pytest.raises(UsageError, match=f"{NOON_TICK} is ahead of behind, which is at"):
        check_end({"behind": NOON_TICK}, behind)


@pytest.mark.parametrize("end", [None, "latest", "earliest"])
def test_an_end_that_is_a_word_is_the_end_of_the_logs(end: None) -> None:
    check_end(end, EXTENTS)
