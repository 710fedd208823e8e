"""A broker that cannot start: the process ends with its exit code and one line that names the remedy."""

from __future__ import annotations

import asyncio
import ctypes
import signal
import socket
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gapless.core.errors import DiskFullError, StorageError, UsageError
from gapless.core.limits import PARAMETER_TIME_MAX
from gapless.core.parameters import Parameters
from gapless.runtime import BrokerSettings, Node, process
from gapless.runtime.process import EXIT_DISK, EXIT_STOPPED, EXIT_WRONG_INPUT
from gapless.runtime.toml import toml_text
from gapless.storage import Storage
from tests.runtime.nodes import run

DEADLINE_S = 60.0
PR_CAPBSET_DROP = 24
CAP_DAC_OVERRIDE = 1
"""The values of ``prctl.h`` and ``capability.h``."""


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """The directory of a broker."""
    return tmp_path


def configured(directory: Path, **keys: Any) -> Path:
    """Write the configuration of a broker."""
    path = directory / "broker.toml"
    path.write_text(toml_text({"name": "b1", "data": "data", "listen": "127.0.0.1:0", **keys}))
    return path


def started(config: Path, *options: str, **settings: Any) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "gapless.runtime", str(config), *options],
        stdin=settings.pop("stdin", subprocess.DEVNULL),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **settings,
    )


def ended(process: subprocess.Popen[str]) -> tuple[int, str]:
    """Wait for the end of a process; return its exit code and the one line that it wrote."""
    try:
        _, errors = process.communicate(timeout=DEADLINE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        raise
    lines = errors.splitlines()
    assert len(lines) == 1, errors
    return process.returncode, lines[0]


def a_store(directory: Path) -> None:
    """Make the store of a broker that has run."""

    async def scenario() -> None:
        node = Node(BrokerSettings(name="b1", data=directory / "data"))
        await node.start()
        await node.stop()

    run(scenario())


# --- the configuration ------------------------------------------------------------------------------


def _file_in_place_of(name: str) -> Callable[[Path], None]:
    def prepare(directory: Path) -> None:
        (directory / name).write_text("a file\n")

    return prepare


WRONG_INPUT: dict[str, tuple[dict[str, Any], Callable[[Path], None], str]] = {
    "no tokens file": ({"access": {"tokens": "none.toml"}}, lambda _: None, "none.toml"),
    "an audit directory that is a file": (
        {"audit": {"directory": "audit"}},
        _file_in_place_of("audit"),
        "audit log",
    ),
    "a log file in no directory": ({"log": {"file": "none/b1.log"}}, lambda _: None, "log.file"),
    "a timer without a delay": (
        {"parameters": {"keepalive_ms": 0}},
        lambda _: None,
        "parameters.keepalive_ms is 0: it must be a whole number from 1 to",
    ),
    "a host that is no name": ({"listen": f"{'a' * 70}.b:7400"}, lambda _: None, "cannot listen"),
    "a host of metrics that is no name": (
        {"metrics": f"{'a' * 70}.b:9400"},
        lambda _: None,
        "choose another address with metrics",
    ),
}


@pytest.mark.parametrize("what", WRONG_INPUT)
def test_a_wrong_configuration_ends_the_process_with_one_line(what: str, directory: Path) -> None:
    keys, prepare, shown = WRONG_INPUT[what]
    prepare(directory)
    code, line = ended(started(configured(directory, **keys)))
    assert (code, shown in line) == (EXIT_WRONG_INPUT, True), line


@pytest.mark.parametrize("text", ["name = ", "x = " + "[" * 100_000])
def test_a_file_that_is_no_configuration_ends_the_process(text: str, directory: Path) -> None:
    path = directory / "broker.toml"
    path.write_text(text)
    code, line = ended(started(path))
    assert (code, "broker.toml" in line) == (EXIT_WRONG_INPUT, True), line


@pytest.mark.parametrize("key", ["listen", "metrics"])
def test_a_port_in_use_ends_the_process(key: str, directory: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        code, line = ended(started(configured(directory, **{key: address})))
    problem = f"on {address}: Address already in use; choose another address with {key}"
    assert (code, problem in line) == (EXIT_WRONG_INPUT, True), line


def test_a_supervised_broker_without_a_pipe_ends(directory: Path) -> None:
    config = configured(directory)
    with config.open() as file:
        code, line = ended(started(config, "--supervised", stdin=file))
    assert (code, "--supervised needs a pipe" in line) == (EXIT_WRONG_INPUT, True), line


# --- the disk ---------------------------------------------------------------------------------------


def _foreign_database(directory: Path) -> None:
    (directory / "data").mkdir()
    with sqlite3.connect(directory / "data" / "broker.db") as other:
        other.execute("CREATE TABLE mail (text)")
    other.close()


def _corrupt_table(directory: Path) -> None:
    a_store(directory)
    path = directory / "data" / "broker.db"
    content = bytearray(path.read_bytes())
    content[8_192:] = b"\x5a" * (len(content) - 8_192)
    path.write_bytes(content)


def _no_database(directory: Path) -> None:
    (directory / "data").mkdir()
    (directory / "data" / "broker.db").write_bytes(b"no database " * 1_000)


DISKS: dict[str, tuple[Callable[[Path], None], str]] = {
    "a file in place of the directory": (_file_in_place_of("data"), "data"),
    "a directory in place of the database": (
        lambda directory: (directory / "data" / "broker.db").mkdir(parents=True),
        "broker.db",
    ),
    "a directory in place of the lock": (
        lambda directory: (directory / "data" / "broker.lock").mkdir(parents=True),
        "broker.lock cannot be opened",
    ),
    "bytes that are no database": (_no_database, "corrupt"),
    "the database of another program": (_foreign_database, "is not a database of gapless"),
    "a corrupt table": (_corrupt_table, "corrupt"),
}


@pytest.mark.parametrize("what", DISKS)
def test_an_unusable_disk_ends_the_process_with_one_line(what: str, directory: Path) -> None:
    prepare, shown = DISKS[what]
    prepare(directory)
    code, line = ended(started(configured(directory)))
    assert (code, shown in line) == (EXIT_DISK, True), line


def _obey_permissions() -> None:
    """Without this capability, root too may write only what its mode allows."""
    ctypes.CDLL(None).prctl(PR_CAPBSET_DROP, CAP_DAC_OVERRIDE, 0, 0, 0)


@pytest.mark.parametrize("mode", [0o555, 0o755])
def test_a_database_that_may_not_be_written_ends_the_process(directory: Path, mode: int) -> None:
    a_store(directory)
    data = directory / "data"
    for each in data.iterdir():
        each.chmod(0o644 if each.name == "broker.lock" else 0o444)
    data.chmod(mode)
    code, line = ended(started(configured(directory), preexec_fn=_obey_permissions))
    data.chmod(0o755)
    assert (code, "let the user of the broker" in line) == (EXIT_DISK, True), line


@pytest.mark.parametrize("supervised", [False, True])
def test_a_signal_ends_a_broker_that_waits_for_its_disk(
    directory: Path, *, supervised: bool
) -> None:
    a_store(directory)
    other = sqlite3.connect(directory / "data" / "broker.db", isolation_level=None)
    other.execute("PRAGMA locking_mode=EXCLUSIVE")
    other.execute("BEGIN EXCLUSIVE")
    options = ("--supervised",) if supervised else ()
    process = started(configured(directory), *options, stdin=subprocess.PIPE)
    lock = directory / "data" / "broker.lock"
    while lock.read_text() != f"{process.pid}\n":
        assert process.poll() is None
    if supervised:
        assert process.stdin is not None
        process.stdin.close()
        process.stdin = None
    else:
        process.send_signal(signal.SIGTERM)
    code, line = ended(process)
    other.close()
    assert (code, "stops before it is ready" in line) == (EXIT_STOPPED, True), line


def test_an_interrupt_before_the_event_loop_runs_is_one_line(
    directory: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_: Any, **__: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(process, "load_config", interrupted)
    assert process.run_broker(configured(directory)) == EXIT_STOPPED
    assert capsys.readouterr().err == "broker stops before it is ready: signal SIGINT\n"


# --- errors that are injected -----------------------------------------------------------------------


def _fails_with(error: str) -> Callable[..., Any]:
    def fail(*_: Any) -> Any:
        made = sqlite3.OperationalError("injected")
        made.sqlite_errorcode = getattr(sqlite3, error)
        made.sqlite_errorname = error
        raise made

    return fail


@pytest.mark.parametrize(
    ("error", "raised"), [("SQLITE_FULL", DiskFullError), ("SQLITE_IOERR", StorageError)]
)
def test_a_first_write_that_fails_ends_the_start(
    error: str, raised: type[StorageError], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Storage, "_commit", _fails_with(error))

    async def scenario() -> None:
        node = Node(BrokerSettings(name="b1", data=tmp_path))
        with pytest.raises(raised):
            await node.start()
        assert isinstance(node.failure, raised)

    run(scenario())


def test_a_disk_that_fails_while_it_is_opened_ends_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    load = Storage.load

    def failing(storage: Storage) -> Any:
        storage._fail(OSError("injected"))
        return load(storage)

    monkeypatch.setattr(Storage, "load", failing)

    async def scenario() -> None:
        node = Node(BrokerSettings(name="b1", data=tmp_path))
        with pytest.raises(StorageError, match="injected"):
            await node.start()
        assert not node.is_running

    run(scenario())


def test_a_cancelled_start_releases_the_data_directory(tmp_path: Path) -> None:
    async def scenario() -> None:
        node = Node(BrokerSettings(name="b1", data=tmp_path))
        starting = asyncio.create_task(node.start())
        await asyncio.sleep(0)
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await starting
        again = Node(BrokerSettings(name="b1", data=tmp_path))
        async with asyncio.timeout(DEADLINE_S):
            while True:
                try:
                    await again.start()
                except StorageError:  # the first one is not closed yet
                    again = Node(BrokerSettings(name="b1", data=tmp_path))
                else:
                    break
        await again.stop()

    run(scenario())


def test_a_parameter_beyond_its_range_is_refused_by_name() -> None:
    with pytest.raises(UsageError, match="progress_ms is 0"):
        Parameters(progress_ms=0)
    with pytest.raises(
        UsageError, match=f"publisher_ttl_s is .* whole number from 1 to {PARAMETER_TIME_MAX:,}"
    ):
        Parameters(publisher_ttl_s=2**62)
