"""WAL checkpoints, and truncation if readers have let the WAL grow.

SQLite would checkpoint inside the commit that makes the WAL long enough, which would delay that
commit. So the writer checkpoints here, after the commit was reported.
"""

from __future__ import annotations

import sqlite3
import threading
from contextlib import suppress
from pathlib import Path

from gapless.core.limits import WAL_BYTES_MAX
from gapless.storage.schema import checkpoint_wal, truncate_wal, wal_path

__all__ = ["WalCheckpointer"]

_CHECKPOINT_COMMITS = 256
_CHECKPOINT_BYTES = 4 * 1024 * 1024
"""Commits or bytes after which a checkpoint is due. The smallest commit writes four pages, most of
them the same as the one before."""


class WalCheckpointer:
    """Counts the commits and bytes written to the WAL since the last checkpoint."""

    def __init__(self, directory: Path) -> None:
        self._path = wal_path(directory)
        self._commits = self._bytes = 0

    @property
    def is_due(self) -> bool:
        """Whether a checkpoint is due."""
        return self._commits >= _CHECKPOINT_COMMITS or self._bytes >= _CHECKPOINT_BYTES

    def grew(self, size: int) -> None:
        """Count a commit of this size."""
        self._commits += 1
        self._bytes += size

    def checkpoint(self, writer: sqlite3.Connection, reading: threading.Lock) -> None:
        """Checkpoint the WAL; if it is still large, truncate it while no fetch is ``reading``."""
        self._commits = self._bytes = 0
        with suppress(sqlite3.Error):  # nothing is lost: it is retried, and writes report errors
            checkpoint_wal(writer)
        if self._path.stat().st_size > WAL_BYTES_MAX:
            with reading:
                truncate_wal(writer)
