"""The caller commits inline while that takes little of its time."""

from __future__ import annotations

import pytest

from gapless.storage.inline_commits import DEBT_FACTOR, SMALL_BYTES, InlineCommitPolicy


def share_waited(commit_s: float, every_s: float, *, seconds: float = 100.0) -> tuple[float, int]:
    """Return the share of its time a caller waits, and how many commits go to the writer."""
    pace, waited, handed_on, now = InlineCommitPolicy(), 0.0, 0, 0.0
    while now < seconds:
        if pace.may_commit_inline(300, now):
            pace.waited(now, now + commit_s)
            waited += commit_s
        else:
            handed_on += 1
        now += max(every_s, commit_s)
    return waited / seconds, handed_on


def test_commits_to_a_fast_disk_are_always_inline() -> None:
    assert share_waited(0.0003, 0.001)[1] == 0


def test_an_occasional_slow_commit_changes_nothing() -> None:
    pace, now = InlineCommitPolicy(), 0.0
    for number in range(10_000):
        assert pace.may_commit_inline(300, now), f"commit {number}"
        took = 0.010 if number % 1_000 == 0 else 0.0003
        pace.waited(now, now + took)
        now += 0.001 + took


@pytest.mark.parametrize("commit_s", [0.001_01, 0.001_5, 0.003, 0.010, 0.100])
def test_inline_commits_to_a_slow_disk_take_a_fiftieth_of_the_time(commit_s: float) -> None:
    share, handed_on = share_waited(commit_s, 0.002)
    assert share < 1.1 / DEBT_FACTOR + 0.001
    assert handed_on > 0


def test_a_large_commit_is_not_inline() -> None:
    assert InlineCommitPolicy().may_commit_inline(SMALL_BYTES, 0.0)
    assert not InlineCommitPolicy().may_commit_inline(SMALL_BYTES + 1, 0.0)
