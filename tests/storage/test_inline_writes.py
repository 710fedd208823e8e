"""Small writes are committed inline by the caller while that is fast."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from gapless.core.effects import Write
from gapless.core.errors import StorageError
from gapless.core.events import Written
from gapless.messages.records import IncarnationRecord, PutRecord, TrimLog
from gapless.storage import inline_commits
from tests.storage.harness import TIMEOUT_S, TRADES, StorageHarness, append, firsts
from tests.storage.test_space_reclaim import wait_for_reclaim


@pytest.fixture(name="harness")
def idle_harness(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StorageHarness:
    """Return a storage with an idle writer, on a disk that always counts as fast."""
    monkeypatch.setattr(inline_commits, "QUICK_S", 2 * TIMEOUT_S)
    harness = StorageHarness(tmp_path)
    wait_for_reclaim(harness)
    return harness


def test_a_small_write_is_durable_when_the_call_returns(
    harness: StorageHarness, tmp_path: Path
) -> None:
    with harness:
        assert harness.write_here(append(10), PutRecord(IncarnationRecord(7)))
        assert firsts(harness.fetch(TRADES)) == [10]
    with StorageHarness(tmp_path) as again:
        assert again.storage.load().records == [IncarnationRecord(7)]
        assert firsts(again.fetch(TRADES)) == [10]


def test_gathered_writes_are_reported_together_and_in_order(harness: StorageHarness) -> None:
    with harness:
        for write_id in (101, 102, 103):
            harness.storage.gather(Write(write_id, (append(write_id),)))
        assert harness.storage.pending_bytes > 0
        assert harness.storage.flush(here=True) == [Written(101), Written(102), Written(103)]
        assert harness.storage.pending_bytes == 0
        assert harness.storage.flush(here=True) == []


def test_a_large_write_goes_to_the_writer(harness: StorageHarness) -> None:
    with harness:
        assert not harness.write_here(append(10, size=inline_commits.SMALL_BYTES))
        assert harness.write_here(append(20))
        assert firsts(harness.fetch(TRADES)) == [10, 20]


def test_a_write_that_may_not_be_inline_goes_to_the_writer(harness: StorageHarness) -> None:
    with harness:
        harness.storage.gather(Write(50, (append(10),)))
        assert harness.storage.flush() == []
        harness.wait_for(50)


def test_after_a_slow_inline_commit_the_next_write_goes_to_the_writer(
    harness: StorageHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    with harness:
        with monkeypatch.context() as patch:
            patch.setattr(inline_commits, "QUICK_S", 0.0)
            patch.setattr(inline_commits, "DEBT_FACTOR", 10**9)
            assert harness.write_here(append(10))
        assert not harness.write_here(append(20))


def test_a_trim_is_carried_out_by_the_writer(harness: StorageHarness) -> None:
    with harness:
        harness.write_here(append(10), append(20))
        assert harness.write_here(TrimLog(TRADES, 10))
        assert firsts(harness.fetch(TRADES)) == [20]
        wait_for_reclaim(harness)
        assert harness.storage._reader.execute("SELECT count(*) FROM log").fetchone() == (1,)


def test_no_write_is_inline_while_the_writer_works(harness: StorageHarness) -> None:
    with harness:
        with harness.storage._writing:
            harness.storage.gather(Write(50, (append(10),)))
            assert harness.storage.flush(here=True) == []
            assert 50 not in harness.written
        harness.wait_for(50)


class Broken:
    """A connection that fails at the next statement."""

    def execute(self, *_: object) -> None:
        raise sqlite3.OperationalError("disk I/O error")

    def close(self) -> None:
        """Close nothing."""


def test_a_failed_inline_write_ends_the_storage(harness: StorageHarness, tmp_path: Path) -> None:
    with harness:
        real, harness.storage._writer = harness.storage._writer, Broken()  # type: ignore[assignment]
        harness.storage.gather(Write(50, (append(10),)))
        assert harness.storage.flush(here=True) == []
        assert isinstance(harness.failure(), StorageError)
        harness.storage._writer = real
        harness.storage.gather(Write(51, (append(20),)))
        harness.storage.flush()
    assert not any(thread.is_alive() for thread in harness.storage._threads)
    assert {50, 51}.isdisjoint(harness.written)
    with StorageHarness(tmp_path) as again:
        assert firsts(again.fetch(TRADES)) == []
