"""The files of an audit log: written records can be read after any end of the writer."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from gapless.audit import AuditOptions, AuditWriter, read
from gapless.audit.records import AuditOpened, AuditRecord, Closing, Confirmed, Header
from gapless.audit.segments import MAGIC, encode_frame, segments_of
from gapless.core.errors import UsageError
from gapless.core.ids import PubendId

QUOTES = PubendId("quotes")


def confirmed(number: int) -> Confirmed:
    return Confirmed(QUOTES, "feed", number, [1_000 + number])


def records_in(directory: Path) -> list[AuditRecord]:
    return [entry.record for entry in read(directory)]


def writer_at(directory: Path, **options: int) -> AuditWriter:
    chosen = msgspec.structs.replace(AuditOptions(directory=str(directory)), **options)
    return AuditWriter(chosen, "client", "a/b-c")


def test_records_are_read_in_order_with_their_writer(tmp_path: Path) -> None:
    writer = writer_at(tmp_path)
    for number in range(3):
        writer.add(confirmed(number))
    writer.close()
    writer.close()
    entries = [*read(tmp_path)]
    assert [each.record for each in entries] == [*map(confirmed, range(3)), Closing()]
    assert {(each.header.side, each.header.name) for each in entries} == {("client", "a/b-c")}


def test_an_open_segment_is_read_up_to_its_last_frame(tmp_path: Path) -> None:
    writer = writer_at(tmp_path)
    writer.add(confirmed(1))
    writer.flush()
    assert records_in(tmp_path) == [confirmed(1)]
    assert [path.suffix for path in segments_of(tmp_path)] == [".open"]
    writer.close()
    assert [path.suffix for path in segments_of(tmp_path)] == [".audit"]


def test_a_segment_that_ends_during_the_listing_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = writer_at(tmp_path)
    writer.add(confirmed(1))
    writer.flush()
    original_glob = Path.glob

    def glob_then_end(directory: Path, pattern: str) -> Iterator[Path]:
        found = [*original_glob(directory, pattern)]
        writer.close()
        return iter(found)

    monkeypatch.setattr(Path, "glob", glob_then_end)
    assert [path.suffix for path in segments_of(tmp_path)] == [".audit"]


def test_records_are_flushed_by_time(tmp_path: Path) -> None:
    writer = writer_at(tmp_path, flush_ms=1)
    writer.add(confirmed(1))
    for _ in range(1_000):
        if records_in(tmp_path):
            break
        os.sched_yield()
        writer._stopped.wait(0.01)
    assert records_in(tmp_path) == [confirmed(1)]
    writer.close()


def test_a_crash_loses_only_what_was_not_flushed(tmp_path: Path) -> None:
    writer = writer_at(tmp_path, flush_ms=60_000)
    writer.add(confirmed(1))
    writer.flush()
    writer.add(confirmed(2))
    writer.abandon()
    assert records_in(tmp_path) == [confirmed(1)]


def test_a_torn_tail_leaves_the_records_before_it(tmp_path: Path) -> None:
    writer = writer_at(tmp_path)
    for number in (1, 2):
        writer.add(confirmed(number))
        writer.flush()
    writer.abandon()
    (path,) = segments_of(tmp_path)
    whole = path.read_bytes()
    last = len(encode_frame(2**50, [confirmed(2)]))
    for cut in range(1, last + 1):
        path.write_bytes(whole[:-cut])
        assert records_in(tmp_path) == [confirmed(1)]
    path.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    assert records_in(tmp_path) == [confirmed(1)]
    path.write_bytes(b"something else")
    assert records_in(tmp_path) == []


def test_a_new_writer_closes_the_segment_of_a_dead_writer_only(tmp_path: Path) -> None:
    dead, living = writer_at(tmp_path), writer_at(tmp_path)
    dead.abandon()
    another = writer_at(tmp_path)
    assert sorted(path.suffix for path in segments_of(tmp_path)) == [".audit", ".open", ".open"]
    living.close()
    another.close()


def test_segments_end_by_size_and_the_oldest_are_removed(tmp_path: Path) -> None:
    writer = writer_at(tmp_path, segment_bytes=4_096, bytes_max=16_384)
    other = AuditWriter(AuditOptions(directory=str(tmp_path)), "client", "a")
    for number in range(2_000):
        writer.add(confirmed(number))
        writer.flush()
    writer.close()
    other.close()
    sizes = [path.stat().st_size for path in segments_of(tmp_path) if "a%2Fb" in path.name]
    assert 8_192 < sum(sizes) <= 16_384
    kept = [record.first for record in records_in(tmp_path) if isinstance(record, Confirmed)]
    assert kept == [*range(kept[0], 2_000)]
    assert any(path.name.startswith("client-a-") for path in segments_of(tmp_path))


def test_a_segment_ends_by_time(tmp_path: Path) -> None:
    writer = writer_at(tmp_path, segment_s=1)
    writer.add(confirmed(1))
    writer.flush()
    writer._started_at -= 2
    writer._rotate_old()
    assert sorted(path.suffix for path in segments_of(tmp_path)) == [".audit", ".open"]
    writer._started_at -= 2
    writer._rotate_old()
    assert len(segments_of(tmp_path)) == 2, "a segment without new records continues"
    writer.close()


def test_every_segment_starts_with_the_open_subscriptions(tmp_path: Path) -> None:
    opened = AuditOpened("tape", "1", "b1", "TRUE", False, False, [(QUOTES, 7)], restated=True)
    options = AuditOptions(directory=str(tmp_path), segment_bytes=4_096, bytes_max=16_384)
    writer = AuditWriter(options, "client", "tape", restate=lambda: [opened])
    for number in range(300):
        writer.add(confirmed(number))
        writer.flush()
    writer.close()
    for path in segments_of(tmp_path):
        assert next(iter(read_one(path))) == opened


def read_one(path: Path) -> list[AuditRecord]:
    from gapless.audit import read_segment

    return [entry.record for entry in read_segment(path.read_bytes())]


def test_a_failed_write_ends_the_audit_log_and_not_its_owner(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    writer = writer_at(tmp_path)

    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    writer.add(confirmed(1))
    writer.flush()
    writer.add(confirmed(2))
    writer.flush()
    writer.close()
    assert writer.failure is not None
    assert len(caplog.records) == 1
    assert "No space left" in caplog.text


def test_an_invalid_directory_or_option_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="cannot be written"):
        writer_at(tmp_path / "file")
    with pytest.raises(UsageError, match="not a directory of an audit log"):
        [*read(tmp_path / "nowhere")]
    with pytest.raises(UsageError, match="at least 4 times"):
        AuditOptions(directory="x", bytes_max=10)


def test_a_log_of_a_later_version_is_refused(tmp_path: Path) -> None:
    header = Header(99, "client", "x", "", "r", 1, 1)
    (tmp_path / "client-x-r-000001.audit").write_bytes(MAGIC + encode_frame(1, [header]))
    with pytest.raises(UsageError, match="newer gapless"):
        [*read(tmp_path)]
