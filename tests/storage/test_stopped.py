"""Trimming logs and ending subscriptions in the data directory of a stopped broker."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from gapless.core.errors import DirectoryLockedError, DiskFullError, StorageError
from gapless.core.ids import BrokerId
from gapless.messages.overlay import PubendProperties
from gapless.messages.records import PubendRecord, PutRecord, TrimLog
from gapless.pubend.forced_release import forced_release
from gapless.storage import open_stopped, verify
from gapless.storage.reserve import RESERVE, make_reserve
from gapless.storage.schema import wal_path
from tests.storage.harness import QUOTES, TRADES, StorageHarness, append, firsts

SIZE = 20_000
RECORD = PubendRecord(TRADES, PubendProperties(BrokerId("b1"), "c1", "TRUE"), 1, 0, 0)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """Mount a file system of 24 MiB, and return a directory on it."""
    mount = tmp_path / "disk"
    mount.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", str(mount)]
    if os.geteuid() or subprocess.run(command, check=False, capture_output=True).returncode:
        pytest.skip("only root may mount a small file system")
    try:
        yield mount / "store"
    finally:
        subprocess.run(["umount", str(mount)], check=True)


def fill(harness: StorageHarness) -> int:
    """Append rows until the disk is full; return the first tick of the last durable row."""
    tick = 0
    with pytest.raises(DiskFullError, match="gapless log trim"):  # noqa: PT012
        while True:
            tick += 10
            harness.write(append(tick, size=SIZE))
    return tick - 10


def test_a_log_on_a_full_disk_is_trimmed_and_the_space_is_free_again(small_disk: Path) -> None:
    with StorageHarness(small_disk) as harness:
        harness.storage.make_reserve()
        harness.write(PutRecord(RECORD))
        last = fill(harness)
    assert (small_disk / RESERVE).exists(), "it is kept after a failed write"
    space = os.statvfs(small_disk)
    assert space.f_bavail * space.f_frsize < 2 * SIZE
    with open_stopped(small_disk) as store:
        (stored,) = store.state.pubends
        assert store.log_end(TRADES) == last
        store.write(forced_release(stored, last - 100))
        store.reclaim()
    space = os.statvfs(small_disk)
    assert space.f_bavail * space.f_frsize > 20_000_000
    assert verify(small_disk, structure=True).corruptions == ()
    with StorageHarness(small_disk) as harness:
        assert firsts(harness.fetch(TRADES)) == [*range(last - 90, last + 1, 10)]
        harness.write(append(last + 10, size=SIZE))


def test_a_directory_in_use_is_not_changed(tmp_path: Path) -> None:
    with StorageHarness(tmp_path) as harness:
        harness.write(append(1), append(2))
        with (
            pytest.raises(DirectoryLockedError, match=f"in use by process {os.getpid()}"),
            open_stopped(tmp_path),
        ):
            raise AssertionError("it was opened")
        assert firsts(harness.fetch(TRADES)) == [1, 2]


def test_a_directory_without_data_is_refused_and_stays_empty(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="is not a data directory"), open_stopped(tmp_path):
        raise AssertionError("it was opened")
    assert [*tmp_path.iterdir()] == []


def test_only_the_named_log_is_trimmed_and_the_wal_stays_small(tmp_path: Path) -> None:
    with StorageHarness(tmp_path) as harness:
        for low in range(1, 201, 20):
            rows = [append(tick, size=SIZE) for tick in range(low, low + 20)]
            harness.write(*rows, *(append(tick, pubend=QUOTES) for tick in range(low, low + 3)))
    before = (tmp_path / "broker.db").stat().st_size
    with open_stopped(tmp_path) as store:
        store.write((TrimLog(TRADES, 190),))
        store.reclaim()
        assert wal_path(tmp_path).stat().st_size == 0
    assert (tmp_path / "broker.db").stat().st_size < before // 10
    with StorageHarness(tmp_path) as harness:
        assert firsts(harness.fetch(TRADES)) == [*range(191, 201)]
        assert len(harness.fetch(QUOTES).rows) == 30


def test_a_stopped_broker_reserves_nothing_and_a_running_one_does(tmp_path: Path) -> None:
    with StorageHarness(tmp_path) as harness:
        harness.storage.make_reserve()
        assert (tmp_path / RESERVE).stat().st_size > 0
    assert not (tmp_path / RESERVE).exists()


def test_a_disk_without_space_for_the_reserve_has_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    assert not make_reserve(tmp_path)
    assert not (tmp_path / RESERVE).exists()
