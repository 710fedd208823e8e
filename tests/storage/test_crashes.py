"""Real processes with faults injected at system calls: nothing acknowledged is lost."""

from __future__ import annotations

import functools
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from gapless.core.errors import DiskFullError
from gapless.core.ids import PubendId
from gapless.messages.records import IncarnationRecord
from gapless.storage import verify
from tests.storage.harness import TIMEOUT_S, TRADES, StorageHarness, append, firsts

CHILD = Path(__file__).parent / "writing_child.py"
SOURCES = Path(__file__).resolve().parents[2] / "src"
PUBEND = PubendId("trades")


KILLED = {-signal.SIGKILL, 128 + signal.SIGKILL}
"""The exit codes of a killed child, as strace reports them."""


class Outcome(NamedTuple):
    """What a child acknowledged, and its exit."""

    acknowledged: list[int]
    status: int
    output: str


def run_child(
    directory: Path, inject: str = "", *, writes: int = 60, size: int = 300, file_bytes: int = 0
) -> Outcome:
    """Run a child that writes, with a fault injected at a system call."""
    command = [sys.executable, str(CHILD), str(directory), str(writes), str(size), str(file_bytes)]
    if inject:
        call = inject.split(":", 1)[0]
        command = [
            *("strace", "-f", "-qq", "-o", os.devnull, "-e", f"trace={call}"),
            *("-e", f"inject={inject}", *command),
        ]
    environment = {**os.environ, "PYTHONPATH": str(SOURCES)}
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )
    lines = done.stdout.splitlines()
    acknowledged = [int(line) for line in lines if line.isdecimal()]
    output = [line for line in lines if not line.isdecimal()]
    return Outcome(acknowledged, done.returncode, "\n".join([*output, done.stderr]))


def make_database(directory: Path) -> None:
    """Create the database, so that faults occur after its creation."""
    StorageHarness(directory).storage.close()


@functools.cache
def why_no_injection() -> str:
    """Return why faults cannot be injected here, or an empty text."""
    if not shutil.which("strace"):
        return "strace is not installed"
    probe = ["strace", "-f", "-qq", "-o", os.devnull, "-e", "inject=fdatasync:error=EIO", "true"]
    done = subprocess.run(probe, capture_output=True, text=True, check=False)
    return f"strace may not trace here: {done.stderr.strip()}" if done.returncode else ""


@pytest.fixture
def _injection() -> None:
    if reason := why_no_injection():
        pytest.skip(reason)


def check_survivors(directory: Path, outcome: Outcome) -> int:
    """Check that everything acknowledged is there, in order; return the number of rows."""
    assert outcome.acknowledged == list(range(1, len(outcome.acknowledged) + 1))
    with StorageHarness(directory) as harness:
        loaded = harness.storage.load()
        assert not loaded.corrupt
        rows = firsts(harness.fetch(PUBEND))
        assert rows == list(range(1, len(rows) + 1)), "a prefix of what was asked"
        assert len(rows) >= len(outcome.acknowledged)
        # a write is atomic: its record is as old as its row
        assert loaded.records == ([IncarnationRecord(len(rows))] if rows else [])
        harness.write(append(len(rows) + 1))
        assert len(firsts(harness.fetch(PUBEND))) == len(rows) + 1
    assert verify(directory, structure=True).corruptions == ()
    return len(rows)


def test_a_child_without_faults_acknowledges_every_write(tmp_path: Path) -> None:
    outcome = run_child(tmp_path)
    assert (outcome.status, outcome.output.strip()) == (0, "")
    assert len(outcome.acknowledged) == 60
    assert check_survivors(tmp_path, outcome) == 60


@pytest.mark.usefixtures("_injection")
@pytest.mark.parametrize("when", [1, 2, 4, 7])
def test_a_kill_during_the_creation_of_a_database_leaves_it_creatable(
    tmp_path: Path, when: int
) -> None:
    outcome = run_child(tmp_path, f"fdatasync:signal=SIGKILL:when={when}")
    assert outcome.status in KILLED, outcome.output
    check_survivors(tmp_path, outcome)


@pytest.mark.usefixtures("_injection")
@pytest.mark.parametrize("when", [2, 3, 5, 11, 18])
def test_a_kill_at_a_sync_loses_nothing_acknowledged(tmp_path: Path, when: int) -> None:
    make_database(tmp_path)
    outcome = run_child(tmp_path, f"fdatasync:signal=SIGKILL:when={when}")
    assert outcome.status in KILLED, outcome.output
    assert len(outcome.acknowledged) < 60
    assert when < 5 or outcome.acknowledged
    check_survivors(tmp_path, outcome)


@pytest.mark.usefixtures("_injection")
@pytest.mark.parametrize("when", [2, 9, 30, 61, 90])
def test_a_kill_during_a_write_loses_nothing_acknowledged(tmp_path: Path, when: int) -> None:
    make_database(tmp_path)
    outcome = run_child(tmp_path, f"pwrite64:signal=SIGKILL:when={when}", size=6_000)
    assert outcome.status in KILLED, outcome.output
    assert when < 61 or outcome.acknowledged
    check_survivors(tmp_path, outcome)


@pytest.mark.usefixtures("_injection")
def test_after_a_failed_sync_nothing_more_is_acknowledged(tmp_path: Path) -> None:
    make_database(tmp_path)
    outcome = run_child(tmp_path, "fdatasync:error=EIO:when=9")
    assert outcome.status == 3, outcome.output
    assert outcome.output.count("failed StorageError") == 1
    assert "disk I/O error" in outcome.output
    assert 0 < len(outcome.acknowledged) < 60
    check_survivors(tmp_path, outcome)


@pytest.mark.usefixtures("_injection")
def test_a_write_without_space_ends_the_storage(tmp_path: Path) -> None:
    make_database(tmp_path)
    outcome = run_child(tmp_path, "pwrite64:error=ENOSPC:when=70+")
    assert outcome.status == 3, outcome.output
    assert "DiskFullError" in outcome.output
    assert "no space is left on the disk" in outcome.output
    assert 0 < len(outcome.acknowledged) < 60
    check_survivors(tmp_path, outcome)


@pytest.mark.usefixtures("_injection")
def test_a_disk_error_during_the_opening_is_reported(tmp_path: Path) -> None:
    outcome = run_child(tmp_path, "pwrite64:error=EIO")
    assert outcome.status == 4, outcome.output
    assert "disk I/O error" in outcome.output


def test_a_file_that_may_not_grow_ends_the_storage(tmp_path: Path) -> None:
    outcome = run_child(tmp_path, file_bytes=200_000, size=5_000)
    assert outcome.status == 3, outcome.output
    assert 0 < len(outcome.acknowledged) < 60
    check_survivors(tmp_path, outcome)


@contextmanager
def small_disk(directory: Path) -> Iterator[None]:
    """Mount a file system of 1 MiB, or skip."""
    directory.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=1m", "gapless-test", str(directory)]
    try:
        mounted = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        pytest.skip("there is no mount command")
    if mounted.returncode:
        pytest.skip(f"no file system can be mounted here: {mounted.stderr.strip()}")
    try:
        yield
    finally:
        subprocess.run(["umount", str(directory)], check=True)


def test_a_full_disk_ends_the_storage_and_loses_nothing_acknowledged(tmp_path: Path) -> None:
    place = tmp_path / "small"
    with small_disk(place):
        ballast = place / "ballast"
        ballast.write_bytes(b"x" * 500_000)
        with StorageHarness(place / "data", durable=True) as harness:
            for tick in range(1, 200):
                harness.request_write(append(tick, size=10_000))
            problem = harness.failure()
            assert isinstance(problem, DiskFullError), problem
            assert harness.storage.failure is problem
        harness.collect()
        acknowledged = len(harness.written)
        assert acknowledged < 199
        ballast.unlink()
        with StorageHarness(place / "data", durable=True) as harness:
            rows = firsts(harness.fetch(TRADES))
            assert rows == list(range(1, len(rows) + 1))
            assert len(rows) >= acknowledged
            harness.write(append(len(rows) + 1))


def test_a_failed_write_is_reported_once_and_rolled_back(tmp_path: Path) -> None:
    with StorageHarness(tmp_path) as harness:
        harness.write(append(1))
        pages = harness.storage._writer.execute("PRAGMA page_count").fetchone()[0]
        harness.storage._writer.execute(f"PRAGMA max_page_count={pages + 2}")
        failing = harness.request_write(append(2, size=100_000))
        assert isinstance(harness.failure(), DiskFullError)
        later = harness.request_write(append(3))
    harness.collect()
    assert harness.failures.empty()
    assert not {failing, later} & {*harness.written}
    with StorageHarness(tmp_path) as harness:
        assert firsts(harness.fetch(TRADES)) == [1]
