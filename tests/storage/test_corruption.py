"""Corruption is found and reported, refuses no more than necessary, and deletes nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from gapless.core.errors import CorruptionError
from gapless.core.ids import PubendId
from gapless.messages.records import PublisherRecord, PutRecord, Record, TrimLog
from gapless.storage.codec import encode_key
from gapless.storage.schema import PAGE_BYTES
from tests.storage.harness import (
    QUOTES,
    TRADES,
    StorageHarness,
    append,
    execute,
    firsts,
    flip_record,
    flip_row,
)
from tests.storage.test_storage import RECORDS

FAR = PubendId("far#away")
INDEX_LEAF = 0x0A
"""The first byte of an SQLite page with entries of an index."""


def write_rows(directory: Path) -> None:
    with StorageHarness(directory) as harness:
        harness.write(*(append(tick, tick + 4) for tick in (10, 20, 30, 40)))
        harness.write(append(10, 14, QUOTES))


def test_a_fetch_ends_before_a_corrupt_row_and_names_it(tmp_path: Path) -> None:
    write_rows(tmp_path)
    flip_row(tmp_path, TRADES, 30)
    with StorageHarness(tmp_path) as harness:
        fetched = harness.fetch(TRADES)
        assert firsts(fetched) == [10, 20]
        assert not fetched.complete
        assert fetched.corruption is not None
        assert fetched.corruption.startswith(
            "trades: row 30 to 34 is corrupt: its content does not"
        )
        assert firsts(harness.fetch(TRADES, 35)) == [40]
        assert firsts(harness.fetch(TRADES, 0, 29)) == [10, 20]
        assert firsts(harness.fetch(QUOTES)) == [10]
        assert not harness.storage.load().corrupt, "rows are checked when they are read"


@pytest.mark.parametrize(
    ("column", "value"),
    [("last", 33), ("previous", 23), ("events", 1), ("checksum", 1), ("first", 29)],
)
def test_every_column_of_a_row_is_checksummed(tmp_path: Path, column: str, value: int) -> None:
    write_rows(tmp_path)
    update = f"UPDATE log SET {column}=? WHERE pubend='trades#1' AND first=30"  # noqa: S608
    execute(tmp_path, update, value)
    with StorageHarness(tmp_path) as harness:
        fetched = harness.fetch(TRADES)
        assert firsts(fetched) == [10, 20]
        assert "is corrupt" in (fetched.corruption or "")


def test_a_row_moved_to_another_log_is_detected_in_both_logs(tmp_path: Path) -> None:
    write_rows(tmp_path)
    execute(tmp_path, "UPDATE log SET pubend='quotes#2' WHERE pubend='trades#1' AND first=20")
    with StorageHarness(tmp_path) as harness:
        assert "its log ends at 24" in harness.storage.load().corrupt[QUOTES]
        missing = harness.fetch(TRADES)
        assert firsts(missing) == [10]
        assert "rows are missing: the one before row 30 to 34 ended at 24" in str(
            missing.corruption
        )


@pytest.mark.parametrize(("first", "rest"), [(10, [20, 30, 40]), (20, [10]), (30, [10, 20])])
def test_a_deleted_row_is_detected(tmp_path: Path, first: int, rest: list[int]) -> None:
    write_rows(tmp_path)
    execute(tmp_path, "DELETE FROM log WHERE pubend='trades#1' AND first=?", first)
    with StorageHarness(tmp_path) as harness:
        fetched = harness.fetch(TRADES)
        assert not fetched.complete
        assert "rows are missing" in str(fetched.corruption)
        assert firsts(fetched) == (rest if first > 10 else [])
        assert "rows are missing" in str(harness.fetch(TRADES, first, first).corruption)
        assert firsts(harness.fetch(TRADES, 40)) == [40]


def test_a_log_without_its_last_row_refuses_its_pubend_at_the_start(tmp_path: Path) -> None:
    write_rows(tmp_path)
    execute(tmp_path, "DELETE FROM log WHERE pubend='trades#1' AND first=40")
    with StorageHarness(tmp_path) as harness:
        loaded = harness.storage.load()
        assert loaded.corrupt == {
            TRADES: "trades: rows are missing or too many: its log ends at 34, "
            "but the last row that was written ended at 44"
        }
        fetched = harness.fetch(TRADES)
        assert firsts(fetched) == [10, 20, 30]
        assert "rows are missing" in str(fetched.corruption)


def test_trimmed_rows_are_no_corruption(tmp_path: Path) -> None:
    with StorageHarness(tmp_path) as harness:
        harness.write(append(10), append(20), TrimLog(TRADES, 15), append(30), TrimLog(TRADES, 25))
        fetched = harness.fetch(TRADES)
        assert (firsts(fetched), fetched.corruption) == ([30], None)
        harness.write(TrimLog(TRADES, 99))
    with StorageHarness(tmp_path) as harness:
        assert not harness.storage.load().corrupt
        assert harness.fetch(TRADES).corruption is None


@pytest.mark.parametrize(
    "corruption",
    [
        "UPDATE logs SET trimmed=trimmed+1 WHERE pubend='trades#1'",
        "UPDATE logs SET last=last-1 WHERE pubend='trades#1'",
        "UPDATE logs SET pubend='trades' WHERE pubend='trades#1'",
        "DELETE FROM logs WHERE pubend='trades#1'",
    ],
)
def test_a_corrupt_log_mark_refuses_only_its_pubend(tmp_path: Path, corruption: str) -> None:
    write_rows(tmp_path)
    execute(tmp_path, corruption)
    with StorageHarness(tmp_path) as harness:
        loaded = harness.storage.load()
        assert list(loaded.corrupt) == [TRADES]
        assert "the mark of its log" in loaded.corrupt[TRADES]
        fetched = harness.fetch(TRADES)
        assert (fetched.rows, fetched.complete) == ((), False)
        assert fetched.corruption == loaded.corrupt[TRADES]
        assert firsts(harness.fetch(QUOTES)) == [10]


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: record.key[0])
@pytest.mark.parametrize("change", ["body=CAST(substr(body,2) AS BLOB)", "checksum=checksum+1"])
def test_a_corrupt_record_refuses_its_owner(tmp_path: Path, record: Record, change: str) -> None:
    with StorageHarness(tmp_path) as harness:
        harness.write(*map(PutRecord, RECORDS))
    key = encode_key(record.key)
    execute(tmp_path, f"UPDATE records SET {change} WHERE key=?", key)  # noqa: S608
    with StorageHarness(tmp_path) as harness:
        if record.key[0] in {
            "incarnation",
            "configuration",
            "neighbourhood",
            "retirement",
            "operation",
            "operation lock",
            "plan",
            "promise",
            "tick ceiling",
        }:
            with pytest.raises(CorruptionError, match="without it the broker must not start"):
                harness.storage.load()
            return
        loaded = harness.storage.load()
        names = [*map(str, loaded.corrupt), *loaded.subscriptions]
        assert names == [record.key[1]]
        (problem,) = [*loaded.corrupt.values(), *loaded.subscriptions.values()]
        assert f"the record {key} is corrupt" in problem
        left = [each for each in RECORDS if names[0] not in each.key[1:2]]
        assert loaded.records == sorted(left, key=lambda each: each.key)


def test_a_record_with_a_corrupt_key_refuses_both_possible_owners(tmp_path: Path) -> None:
    with StorageHarness(tmp_path) as harness:
        harness.write(PutRecord(PublisherRecord(TRADES, "p", 1, 1, (), 1)))
        harness.write(PutRecord(PublisherRecord(FAR, "p", 1, 1, (), 1)))
    execute(
        tmp_path,
        'UPDATE records SET key=\'["publisher","trader","p"]\' WHERE key=?',
        '["publisher","trades","p"]',
    )
    with StorageHarness(tmp_path) as harness:
        loaded = harness.storage.load()
        assert set(loaded.corrupt) == {TRADES, PubendId("trader")}
        assert loaded.records == [PublisherRecord(FAR, "p", 1, 1, (), 1)]


def test_a_record_without_a_known_owner_refuses_the_broker(tmp_path: Path) -> None:
    with StorageHarness(tmp_path) as harness:
        harness.write(PutRecord(PublisherRecord(TRADES, "p", 1, 1, (), 1)))
    execute(tmp_path, "UPDATE records SET key='x', body=x'c1'")
    with (
        StorageHarness(tmp_path) as harness,
        pytest.raises(CorruptionError, match="the broker must not start"),
    ):
        harness.storage.load()


def test_the_key_of_a_corrupt_record_names_a_numbered_pubend(tmp_path: Path) -> None:
    key = encode_key(("publisher", str(QUOTES), "p"))
    with StorageHarness(tmp_path) as harness:
        harness.write(PutRecord(PublisherRecord(QUOTES, "p", 1, 1, (), 1)))
    flip_record(tmp_path, key)
    execute(tmp_path, "UPDATE records SET body=x'c1'")
    with StorageHarness(tmp_path) as harness:
        assert set(harness.storage.load().corrupt) == {QUOTES}


def test_a_database_with_a_corrupt_page_is_refused_and_not_changed(tmp_path: Path) -> None:
    write_rows(tmp_path)
    path = tmp_path / "broker.db"
    content = bytearray(path.read_bytes())
    content[PAGE_BYTES:] = b"\xff" * (len(content) - PAGE_BYTES)
    path.write_bytes(content)
    with pytest.raises(CorruptionError, match="corrupt"):
        StorageHarness(tmp_path)
    assert path.read_bytes() == content


def test_a_record_missing_from_its_index_refuses_the_broker(tmp_path: Path) -> None:
    # it would be written a second time, and both would be read
    key = encode_key(("publisher", str(TRADES), "ann")).encode()
    with StorageHarness(tmp_path) as harness:
        harness.write(PutRecord(PublisherRecord(TRADES, "ann", 1, 1, (), 1)))
    path = tmp_path / "broker.db"
    content = bytearray(path.read_bytes())
    offsets = [at for at in range(len(content)) if content.startswith(key, at)]
    (indexed,) = [at for at in offsets if content[at // PAGE_BYTES * PAGE_BYTES] == INDEX_LEAF]
    content[indexed + key.index(b"ann")] ^= 1
    path.write_bytes(content)
    with (
        StorageHarness(tmp_path) as harness,
        pytest.raises(CorruptionError, match="records is corrupt"),
    ):
        harness.storage.load()
