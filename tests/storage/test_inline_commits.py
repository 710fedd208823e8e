"""The caller waits for the disk while that takes little of its time."""

from __future__ import annotations

import pytest

from gapless.storage.inline_commits import DEBT_FACTOR, SMALL_BYTES, InlineCommitPolicy


def share_waited(commit_s: float, every_s: float, *, seconds: float = 100.0) -> tuple[float, int]:
    """Return which share of its time a caller waits, and how many commits it hands to a thread."""
    pace, waited, handed_on, now = InlineCommitPolicy(), 0.0, 0, 0.0
    while now < seconds:
        if pace.may_commit_inline(300, now):
            pace.waited(now, now + commit_s)
            waited += commit_s
        else:
            handed_on += 1
        now += max(every_s, commit_s)
    return waited / seconds, handed_on


def test_a_fast_disk_is_always_waited_for() -> None:
    assert share_waited(0.0003, 0.001)[1] == 0


def test_a_late_commit_now_and_then_changes_nothing() -> None:
    pace, now = InlineCommitPolicy(), 0.0
    for number in range(10_000):
        assert pace.may_commit_inline(300, now), f"commit {number}"
        took = 0.010 if number % 1_000 == 0 else 0.0003
        pace.waited(now, now + took)
        now += 0.001 + took


@pytest.mark.parametrize("commit_s", [0.001_01, 0.001_5, 0.003, 0.010, 0.100])
def test_a_slow_disk_takes_about_a_fiftieth_of_the_callers_time(commit_s: float) -> None:
    share, handed_on = share_waited(commit_s, 0.002)
    assert share < 1.1 / DEBT_FACTOR + 0.001
    assert handed_on > 0


def test_what_is_large_is_not_waited_for() -> None:
    assert InlineCommitPolicy().may_commit_inline(SMALL_BYTES, 0.0)
    assert not InlineCommitPolicy().may_commit_inline(SMALL_BYTES + 1, 0.0)
