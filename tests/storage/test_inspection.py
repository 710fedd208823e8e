"""A data directory can be listed, checked and exported, also while a broker uses it."""

from __future__ import annotations

from pathlib import Path

import pytest

import gapless.storage.inspection as inspection_module
from gapless.core.errors import CorruptionError, StorageError
from gapless.core.ids import PubendId
from gapless.messages.records import IncarnationRecord, PublisherRecord, PutRecord, TrimLog
from gapless.storage import LogSummary, VerificationReport, export, list_logs, verify
from gapless.storage.codec import encode_row
from tests.storage.harness import (
    QUOTES,
    TRADES,
    StorageHarness,
    append,
    execute,
    flip_record,
    flip_row,
    row,
)


@pytest.fixture
def harness(tmp_path: Path) -> StorageHarness:
    """Return a storage in use, with two logs and three records."""
    harness = StorageHarness(tmp_path)
    harness.write(
        PutRecord(IncarnationRecord(1)), PutRecord(PublisherRecord(TRADES, "p", 1, 1, (), 1))
    )
    harness.write(PutRecord(PublisherRecord(TRADES, "q", 1, 1, (), 1)))
    harness.write(*(append(tick, tick + 4) for tick in range(10, 100, 10)))
    harness.write(append(5, pubend=QUOTES), append(7, pubend=QUOTES))
    harness.write(TrimLog(TRADES, 20))
    return harness


def test_logs_are_listed_with_their_contents(tmp_path: Path, harness: StorageHarness) -> None:
    sizes = sum(len(encode_row(row(tick, tick + 4))) for tick in range(20, 100, 10))
    quotes = sum(len(encode_row(row(tick, pubend=QUOTES))) for tick in (5, 7))
    expected = [
        LogSummary(QUOTES, 5, 7, 2, 2, quotes, None),
        LogSummary(TRADES, 20, 94, 8, 16, sizes, 20),
    ]
    assert list_logs(tmp_path) == expected
    harness.write(TrimLog(QUOTES, 50))
    harness.storage.close()
    assert list_logs(tmp_path)[0] == LogSummary(QUOTES, None, None, 0, 0, 0, 50)


def test_a_valid_directory_is_verified_while_it_is_used_and_after(
    tmp_path: Path, harness: StorageHarness
) -> None:
    reports: list[tuple[PubendId, int, int]] = []
    used = verify(tmp_path, structure=True)
    harness.storage.close()
    closed = verify(tmp_path, progress=lambda *each: reports.append(each))
    for report in (used, closed):
        assert report.corruptions == ()
        assert report.records == {"incarnation": 1, "publisher": 2}
        assert [(log.pubend, log.rows, log.events) for log in report.logs] == [
            (QUOTES, 2, 2),
            (TRADES, 8, 16),
        ]
    assert reports == []


def test_verification_proceeds_in_chunks_and_reports_its_progress(
    tmp_path: Path, harness: StorageHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness.storage.close()
    monkeypatch.setattr(inspection_module, "_CHUNK_BYTES", 1)
    reports: list[tuple[PubendId, int, int]] = []
    assert verify(tmp_path, progress=lambda *each: reports.append(each)).corruptions == ()
    assert reports[-1] == (TRADES, 8, 8)
    assert [looked for pubend, looked, _ in reports if pubend == TRADES] == list(range(1, 9))
    assert [each.first for each in export(tmp_path, TRADES)] == list(range(20, 100, 10))


def test_every_corruption_is_listed(tmp_path: Path, harness: StorageHarness) -> None:
    harness.storage.close()
    flip_row(tmp_path, TRADES, 30)
    flip_row(tmp_path, TRADES, 50)
    execute(tmp_path, "DELETE FROM log WHERE first IN (70, 7)")
    flip_record(tmp_path, '["publisher","trades","q"]')
    report: VerificationReport = verify(tmp_path)
    assert len(report.corruptions) == 5
    record, missing_at_end, first, second, missing = report.corruptions
    assert 'the record ["publisher","trades","q"] is corrupt' in record
    assert missing_at_end == "quotes#2: rows are missing: it ends at 5, not at 7"
    assert first.startswith("trades: row 30 to 34 is corrupt")
    assert second.startswith("trades: row 50 to 54 is corrupt")
    assert missing == "trades: rows are missing: the one before row 80 to 84 ended at 74"
    assert [log.rows for log in report.logs] == [1, 5]


def test_a_corrupt_log_mark_is_listed_and_the_rows_are_still_checked(
    tmp_path: Path, harness: StorageHarness
) -> None:
    harness.storage.close()
    execute(tmp_path, "UPDATE logs SET last=1 WHERE pubend='trades#1'")
    report = verify(tmp_path)
    assert report.corruptions == (
        "trades: the mark of its log is corrupt: its checksum does not fit",
    )
    assert report.logs[1].rows == 8
    assert list_logs(tmp_path)[1].rows == 8


def test_an_export_gives_the_rows_of_a_range(tmp_path: Path, harness: StorageHarness) -> None:
    assert list(export(tmp_path, TRADES, 34, 40)) == [row(30, 34), row(40, 44)]
    harness.storage.close()
    assert list(export(tmp_path, QUOTES)) == [row(5, pubend=QUOTES), row(7, pubend=QUOTES)]
    assert list(export(tmp_path, PubendId("unknown"))) == []


def test_an_export_stops_at_corruption(tmp_path: Path, harness: StorageHarness) -> None:
    harness.storage.close()
    flip_row(tmp_path, TRADES, 40)
    rows = export(tmp_path, TRADES)
    assert [next(rows).first, next(rows).first] == [20, 30]
    with pytest.raises(CorruptionError, match="row 40 to 44 is corrupt"):
        next(rows)


def test_a_directory_without_a_database_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="not a data directory of a broker"):
        verify(tmp_path)
    assert list(tmp_path.iterdir()) == []
