"""Checksums are plain CRC-32, whatever adds them up: data directories move between computers."""

from __future__ import annotations

import struct
import zlib

import pytest

from gapless.storage import codec
from gapless.storage.codec import LogMark, StoredRow, is_valid, record_checksum

SIZES = (0, 1, 300, 5_120, 5_121, 200_000)
"""About the size up to which is summed at once, too."""


def content(size: int) -> bytes:
    return bytes(range(256)) * (size // 256) + bytes(range(size % 256))


@pytest.mark.parametrize("size", SIZES)
def test_a_row_has_the_sum_that_zlib_gives(size: int) -> None:
    row = StoredRow("quotes#1", 1, 7, 0, 3, content(size))
    expected = zlib.crc32(b"quotes#1" + struct.pack("<qqqq", 1, 7, 0, 3) + content(size))
    assert row.checksum == expected
    assert is_valid(row, expected)
    assert not is_valid(row, expected ^ 1)


def test_marks_and_records_have_the_sums_that_zlib_gives() -> None:
    assert LogMark("quotes#1", 3, 9).checksum == zlib.crc32(b"quotes#1" + struct.pack("<qq", 3, 9))
    assert record_checksum("key", b"body") == zlib.crc32(b"keybody")


@pytest.mark.parametrize("size", SIZES)
def test_where_only_zlib_is_there_sums_are_the_same(
    size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = StoredRow("quotes#1", 1, 7, 0, 3, content(size))
    fast = row.checksum
    monkeypatch.setattr(codec, "crc32", zlib.crc32)
    assert row.checksum == fast
    assert is_valid(row, fast)
