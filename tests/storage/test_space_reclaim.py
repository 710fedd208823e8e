"""The space of trimmed rows is reused or given back, and the WAL stays bounded."""

from __future__ import annotations

import sqlite3
import threading
from pathlib import Path

import pytest

from gapless.core.parameters import Parameters
from gapless.messages.records import IncarnationRecord, PublisherRecord, PutRecord, TrimLog
from gapless.storage import schema, space_reclaim, wal
from gapless.storage.schema import PAGE_BYTES, wal_path
from tests.storage.harness import TIMEOUT_S, TRADES, StorageHarness, append, firsts

SIZE = 20_000


def wait_for_reclaim(harness: StorageHarness) -> None:
    """Wait until no space is left to reclaim. Every write makes a step, so this ends."""
    for incarnation in range(10_000):
        if not harness.storage._reclaimer.waits:
            return
        harness.write(PutRecord(IncarnationRecord(incarnation)))
    raise AssertionError("reclaiming does not end")


def pages(harness: StorageHarness) -> int:
    return int(harness.storage._reader.execute("PRAGMA page_count").fetchone()[0])


def test_a_log_of_steady_length_does_not_make_the_file_grow(tmp_path: Path) -> None:
    with StorageHarness(tmp_path) as harness:
        sizes = []
        for tick in range(1, 601):
            harness.write(append(tick, size=SIZE), TrimLog(TRADES, tick - 20))
            sizes.append(pages(harness))
        assert max(sizes[100:]) <= 2 * sizes[99]
        assert firsts(harness.fetch(TRADES)) == list(range(581, 601))


def test_a_lone_event_of_a_busy_publisher_changes_few_pages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # one page each for the row, its index, the log mark and the record, and sometimes more for a new page;
    # a record with a full window must not move to overflow pages with every change
    monkeypatch.setattr(wal, "_CHECKPOINT_COMMITS", 10_000)
    events, before, window = 200, 0, list[tuple[int, int, int]]()
    with StorageHarness(tmp_path) as harness:
        wait_for_reclaim(harness)
        for number in range(events * 2):
            if number == events:
                before = wal_path(tmp_path).stat().st_size
            tick = 1_700_000_000_000_000 + number * 1_000
            window = [*window, (100_000 + number, tick, 1)][-Parameters().publisher_window :]
            record = PublisherRecord(TRADES, "ann", 3, number, tuple(window), tick)
            harness.write(append(tick, size=300), PutRecord(record))
        grown = wal_path(tmp_path).stat().st_size - before
    assert grown / PAGE_BYTES / events < 5


def test_when_most_is_free_the_file_shrinks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(space_reclaim, "FREE_PAGES_KEPT", 50)
    with StorageHarness(tmp_path) as harness:
        for low in range(1, 1_001, 100):
            harness.write(*(append(tick, size=SIZE) for tick in range(low, low + 100)))
        large = pages(harness)
        assert large * PAGE_BYTES > 1_000 * SIZE
        harness.write(TrimLog(TRADES, 990))
        wait_for_reclaim(harness)
        assert pages(harness) < large // 4
        assert firsts(harness.fetch(TRADES)) == list(range(991, 1_001))


def test_an_unfinished_trim_is_finished_after_a_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(space_reclaim.SpaceReclaimer, "step", lambda *_: None)
        patch.setattr(space_reclaim.SpaceReclaimer, "waits", False)
        with StorageHarness(tmp_path) as harness:
            harness.write(append(10), append(20), append(30))
            harness.write(TrimLog(TRADES, 20))
            assert firsts(harness.fetch(TRADES)) == [30]
            assert rows_in_table(harness) == 3
    with StorageHarness(tmp_path) as harness:
        wait_for_reclaim(harness)
        assert rows_in_table(harness) == 1
        assert firsts(harness.fetch(TRADES)) == [30]


def rows_in_table(harness: StorageHarness) -> int:
    return int(harness.storage._reader.execute("SELECT count(*) FROM log").fetchone()[0])


def test_a_large_wal_is_truncated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wal, "WAL_BYTES_MAX", 100_000)
    monkeypatch.setattr(wal, "_CHECKPOINT_COMMITS", 1)
    truncated = threading.Event()
    real = schema.truncate_wal
    sizes: list[int] = []

    def watched(connection: sqlite3.Connection) -> None:
        real(connection)
        sizes.append(wal_path(tmp_path).stat().st_size)
        truncated.set()

    monkeypatch.setattr(wal, "truncate_wal", watched)
    with StorageHarness(tmp_path) as harness:
        harness.write(append(1, size=200_000))
        assert truncated.wait(TIMEOUT_S)
        assert sizes[0] == 0
        assert firsts(harness.fetch(TRADES)) == [1]


@pytest.mark.parametrize("here", [False, True])
def test_the_wal_is_checkpointed_regularly_and_reused(tmp_path: Path, *, here: bool) -> None:
    with StorageHarness(tmp_path) as harness:
        wait_for_reclaim(harness)
        write = harness.write_here if here else harness.write
        for tick in range(1, 3_001):
            write(append(tick))
        assert wal_path(tmp_path).stat().st_size < 1_000 * 4 * PAGE_BYTES


def test_the_wal_is_truncated_at_rest_after_another_process_has_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wal, "WAL_BYTES_MAX", 100_000)
    monkeypatch.setattr(wal, "_CHECKPOINT_COMMITS", 1)
    monkeypatch.setattr(wal, "_RETRY_S", 0.01)
    tried, truncated = threading.Event(), threading.Event()
    real = schema.truncate_wal

    def watched(connection: sqlite3.Connection) -> None:
        real(connection)
        tried.set()
        if not wal_path(tmp_path).stat().st_size:
            truncated.set()

    monkeypatch.setattr(wal, "truncate_wal", watched)
    with StorageHarness(tmp_path) as harness:
        wait_for_reclaim(harness)
        with schema.open_read_only(tmp_path) as other, schema.snapshot(other):
            other.execute("SELECT count(*) FROM log").fetchone()
            harness.write(append(1, size=200_000))
            assert tried.wait(TIMEOUT_S)
            assert not truncated.is_set()
        assert truncated.wait(TIMEOUT_S), "although nothing is written"


def test_a_full_disk_that_prevents_a_truncation_ends_no_storage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wal, "WAL_BYTES_MAX", 100_000)
    monkeypatch.setattr(wal, "_CHECKPOINT_COMMITS", 1)
    monkeypatch.setattr(wal, "_RETRY_S", 0.01)
    failed, truncated = threading.Event(), threading.Event()
    real = schema.truncate_wal

    def full_at_first(connection: sqlite3.Connection) -> None:
        if not failed.is_set():
            failed.set()
            raise sqlite3.OperationalError("database or disk is full")
        real(connection)
        truncated.set()

    monkeypatch.setattr(wal, "truncate_wal", full_at_first)
    with StorageHarness(tmp_path) as harness:
        harness.write(append(1, size=200_000))
        assert failed.wait(TIMEOUT_S)
        assert truncated.wait(TIMEOUT_S), "although nothing is written"
        harness.write(append(2))
        assert harness.storage.failure is None


def test_pages_that_reclaiming_moves_count_for_the_next_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(space_reclaim, "FREE_PAGES_KEPT", 50)
    with StorageHarness(tmp_path) as harness:
        for low in range(1, 801, 100):
            harness.write(*(append(tick, size=SIZE) for tick in range(low, low + 100)))
        checkpoints: list[int] = []
        real = schema.checkpoint_wal

        def counted(connection: sqlite3.Connection) -> None:
            checkpoints.append(1)
            real(connection)

        monkeypatch.setattr(wal, "checkpoint_wal", counted)
        large = pages(harness)
        harness.write(TrimLog(TRADES, 790))
        wait_for_reclaim(harness)
        returned = (large - pages(harness)) * PAGE_BYTES
        assert returned > 10_000_000
        assert len(checkpoints) >= returned // wal._CHECKPOINT_BYTES - 1


def test_deleting_large_rows_does_not_write_them_once_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wal, "_CHECKPOINT_BYTES", 2**40)
    monkeypatch.setattr(wal, "_CHECKPOINT_COMMITS", 10_000)
    with StorageHarness(tmp_path) as harness:
        harness.write(*(append(tick, size=10 * SIZE) for tick in range(1, 51)))
        wait_for_reclaim(harness)
        with harness.storage._writing:
            schema.truncate_wal(harness.storage._writer)
        harness.write(TrimLog(TRADES, 49))
        wait_for_reclaim(harness)
        assert rows_in_table(harness) == 1
        assert wal_path(tmp_path).stat().st_size < 50 * 10 * SIZE // 4
