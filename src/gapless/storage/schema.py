"""The database of a data directory: opening it, its tables, and its errors."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final
from urllib.parse import quote

from gapless.core.errors import CorruptionError, DiskFullError, NewerFormatError, StorageError
from gapless.core.limits import STATEMENTS_KEPT, WAL_BYTES_KEPT

__all__ = [
    "APPLICATION",
    "DATABASE",
    "FORMAT",
    "PAGE_BYTES",
    "checkpoint_wal",
    "connect_reader",
    "connect_writer",
    "open_read_only",
    "snapshot",
    "storage_error",
    "translated",
    "truncate_wal",
    "wal_path",
]

DATABASE: Final = "broker.db"
"""The file in the data directory."""

APPLICATION: Final = 0x6761706C
"""``application_id`` of our databases, "gapl"."""

FORMAT: Final = 5
"""``user_version``: raised when a program that does not know the change would misread the file."""

PAGE_BYTES: Final = 8_192
"""Each page of a batch costs some system calls, in the WAL and at the checkpoint, and a single
event writes four whole pages. With 4,096 the writer takes a quarter longer for batches, with 16,384
a single commit takes a fifth longer. A database keeps its page size."""

_BUSY_S = 10.0
"""How long others may lock the database: only while it is recovered or truncated."""

_TRUNCATE_WAIT_MS = 50
"""How long writes may wait for the WAL to be truncated; after that, it is tried again later."""

_REMEDIES: Final = {
    sqlite3.SQLITE_READONLY: "let the user of the broker write it and its directory",
    sqlite3.SQLITE_CANTOPEN: "let the user of the broker read and write it and its directory",
    sqlite3.SQLITE_PERM: "let the user of the broker read and write it and its directory",
    sqlite3.SQLITE_BUSY: "another program has locked it: end that program",
    sqlite3.SQLITE_IOERR: "check the disk, its free space and the log of the system",
}
"""What to do about an error of SQLite, by its code."""

_TABLES = """
CREATE TABLE records (
    key TEXT PRIMARY KEY, body BLOB NOT NULL, checksum INTEGER NOT NULL
) STRICT;
CREATE TABLE logs (
    pubend TEXT PRIMARY KEY, trimmed INTEGER NOT NULL, last INTEGER NOT NULL,
    checksum INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TABLE log (
    pubend TEXT NOT NULL, first INTEGER NOT NULL, last INTEGER NOT NULL,
    previous INTEGER NOT NULL, events INTEGER NOT NULL, frame BLOB NOT NULL,
    checksum INTEGER NOT NULL, PRIMARY KEY (pubend, first)
) STRICT;
"""


def connect_writer(directory: Path, *, durable: bool) -> sqlite3.Connection:
    """Open the database of a data directory for writing; create it if it does not exist."""
    path = directory / DATABASE
    with translated(path):
        connection = _connect(path, "rwc")
        try:
            _check_format(connection, path)
            _set_up(connection, path, durable=durable)
            # SQLite opens a file that this user may not write, and fails at the first write.
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("ROLLBACK")
            # Data that a crash left in the WAL can be read but may not be on disk. The checkpoint
            # copies it to the database and syncs it before any reader acts on it.
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        except BaseException:
            connection.close()
            raise
    return connection


def connect_reader(directory: Path) -> sqlite3.Connection:
    """Open the database of a data directory for reading beside its writer."""
    path = directory / DATABASE
    with translated(path):
        connection = _connect(path, "rw")
        connection.execute("PRAGMA query_only=ON")
    return connection


@contextmanager
def open_read_only(directory: Path) -> Iterator[sqlite3.Connection]:
    """Open the database of a data directory for inspection, whether or not a broker uses it."""
    path = directory / DATABASE
    if not path.is_file():
        raise StorageError(f"{directory} has no {DATABASE}: it is not a data directory of a broker")
    with translated(path):
        connection = _connect(path, "ro")
        try:
            _check_format(connection, path)
            yield connection
        finally:
            connection.close()


@contextmanager
def snapshot(connection: sqlite3.Connection) -> Iterator[None]:
    """Read one consistent snapshot inside the block. Keep it short: it prevents a WAL restart."""
    connection.execute("BEGIN")
    try:
        yield
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")


def checkpoint_wal(connection: sqlite3.Connection) -> None:
    """Checkpoint the WAL as far as readers allow; it restarts if they allow all."""
    connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()


def truncate_wal(connection: sqlite3.Connection) -> None:
    """Checkpoint and truncate the WAL, unless another process is reading it."""
    connection.execute(f"PRAGMA busy_timeout={_TRUNCATE_WAIT_MS}")
    try:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    finally:
        connection.execute(f"PRAGMA busy_timeout={int(_BUSY_S * 1000)}")


def wal_path(directory: Path) -> Path:
    """Return the path of the WAL of a data directory."""
    return directory / f"{DATABASE}-wal"


def storage_error(error: Exception, what: str) -> StorageError:
    """Translate an error of SQLite; ``what`` describes the failed action."""
    if isinstance(error, StorageError):
        return error
    name = getattr(error, "sqlite_errorname", type(error).__name__)
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code == sqlite3.SQLITE_FULL:
        return DiskFullError(
            f"{what}: no space is left on the disk ({error}, {name}); "
            "free space and start the broker again, or release events with gapless log trim first; "
            "acknowledged events are safe"
        )
    if code in {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}:
        return CorruptionError(
            f"{what}: the database is corrupt ({error}, {name}); nothing was changed: "
            "check the disk, and save the readable rows with gapless log export"
        )
    remedy = _REMEDIES.get(code)
    return StorageError(f"{what}: {error} ({name})" + (f"; {remedy}" if remedy else ""))


@contextmanager
def translated(path: Path) -> Iterator[None]:
    """Translate errors of SQLite to errors of gapless."""
    try:
        yield
    except sqlite3.Error as error:
        raise storage_error(error, str(path)) from error


def _connect(path: Path, mode: str) -> sqlite3.Connection:
    return sqlite3.connect(
        f"file:{quote(str(path))}?mode={mode}",
        uri=True,
        timeout=_BUSY_S,
        isolation_level=None,
        check_same_thread=False,  # a connection is opened by one thread and then used by another
        cached_statements=STATEMENTS_KEPT,
    )


def _check_format(connection: sqlite3.Connection, path: Path) -> None:
    """Refuse a database of another application or of another format."""
    application, version = (
        _number(connection, "application_id"),
        _number(connection, "user_version"),
    )
    if application == 0 and version == 0 and _is_empty(connection):
        return
    if application != APPLICATION:
        raise CorruptionError(
            f"{path} is not a database of gapless (application_id {application:#x})"
        )
    if version > FORMAT:
        raise NewerFormatError(
            f"{path} has format {version}, this program knows formats up to {FORMAT}: "
            "use the program that wrote it, or a newer one"
        )
    if version < FORMAT:
        raise StorageError(
            f"{path} has format {version}, this program reads format {FORMAT} only: "
            "use the program that wrote it, or start with an empty data directory"
        )


def _set_up(connection: sqlite3.Connection, path: Path, *, durable: bool) -> None:
    if _is_empty(connection):
        # both must come before the first table
        connection.execute(f"PRAGMA page_size={PAGE_BYTES}")
        connection.execute("PRAGMA auto_vacuum=INCREMENTAL")
    mode = connection.execute("PRAGMA journal_mode=WAL").fetchone()[0]
    if mode != "wal":
        raise StorageError(f"{path}: the file system does not support a WAL (journal mode {mode})")
    connection.execute(f"PRAGMA synchronous={'FULL' if durable else 'OFF'}")
    # some builds of SQLite overwrite deleted rows by default: a trim would write the log once more
    connection.execute("PRAGMA secure_delete=OFF")
    connection.execute("PRAGMA wal_autocheckpoint=0")  # checkpoints happen outside of commits
    connection.execute(f"PRAGMA journal_size_limit={WAL_BYTES_KEPT}")
    if _is_empty(connection):
        connection.executescript(
            f"BEGIN IMMEDIATE; {_TABLES}"
            f"PRAGMA application_id={APPLICATION}; PRAGMA user_version={FORMAT}; COMMIT"
        )


def _is_empty(connection: sqlite3.Connection) -> bool:
    return _rows(connection, "SELECT 1 FROM sqlite_schema LIMIT 1") == []


def _number(connection: sqlite3.Connection, pragma: str) -> int:
    return int(connection.execute(f"PRAGMA {pragma}").fetchone()[0])


def _rows(connection: sqlite3.Connection, sql: str) -> list[tuple[object, ...]]:
    return connection.execute(sql).fetchall()
