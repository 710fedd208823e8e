"""Checksums are plain CRC-32 with every implementation, so that data directories are portable."""

from __future__ import annotations

import struct
import zlib

import pytest

from gapless.storage import codec
from gapless.storage.codec import LogMark, StoredRow, is_valid, record_checksum

SIZES = (0, 1, 300, 5_120, 5_121, 200_000)
"""Sizes around the one up to which a row is summed at once."""


def content(size: int) -> bytes:
    return bytes(range(256)) * (size // 256) + bytes(range(size % 256))


@pytest.mark.parametrize("size", SIZES)
def test_the_checksum_of_a_row_is_that_of_zlib(size: int) -> None:
    row = StoredRow("quotes#1", 1, 7, 0, 3, content(size))
    expected = zlib.crc32(b"quotes#1" + struct.pack("<qqqq", 1, 7, 0, 3) + content(size))
    assert row.checksum == expected
    assert is_valid(row, expected)
    assert not is_valid(row, expected ^ 1)


def test_the_checksums_of_log_marks_and_records_are_those_of_zlib() -> None:
    assert LogMark("quotes#1", 3, 9).checksum == zlib.crc32(b"quotes#1" + struct.pack("<qq", 3, 9))
    assert record_checksum("key", b"body") == zlib.crc32(b"keybody")


@pytest.mark.parametrize("size", SIZES)
def test_checksums_are_the_same_with_zlib_alone(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    row = StoredRow("quotes#1", 1, 7, 0, 3, content(size))
    fast = row.checksum
    monkeypatch.setattr(codec, "crc32", zlib.crc32)
    assert row.checksum == fast
    assert is_valid(row, fast)
