"""WAL checkpoints, and truncation if a burst or readers have let the WAL grow.

SQLite would checkpoint inside the commit that makes the WAL long enough, which would delay that
commit. So the writer checkpoints here, after the commit was reported. If another process reads,
the WAL cannot be truncated. It is tried again while nothing is written, so that at rest the WAL
is below ``WAL_BYTES_MAX``.
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


_RETRY_S = 1.0
"""How long the writer is idle before it tries again to truncate a large WAL."""


class WalCheckpointer:
    """Counts the commits and bytes written to the WAL since the last checkpoint."""

    def __init__(self, directory: Path) -> None:
        self._path = wal_path(directory)
        self._commits = self._bytes = 0
        self._is_large = self._is_idle = False

    @property
    def is_due(self) -> bool:
        """Whether a checkpoint is due."""
        is_long = self._commits >= _CHECKPOINT_COMMITS or self._bytes >= _CHECKPOINT_BYTES
        return is_long or (self._is_large and self._is_idle)

    @property
    def idle_s(self) -> float | None:
        """How long to wait for a write before a checkpoint is due; None if it is not needed."""
        return _RETRY_S if self._is_large else None

    def note_idle(self) -> None:
        """Note that there was no write for ``idle_s``."""
        self._is_idle = True

    def grew(self, size: int) -> None:
        """Count a commit of this size."""
        self._commits += 1
        self._bytes += size

    def checkpoint(self, writer: sqlite3.Connection, reading: threading.Lock) -> None:
        """Checkpoint the WAL; if it is still large, truncate it while no fetch is ``reading``."""
        self._commits = self._bytes = 0
        self._is_idle = False
        # A full disk is no error here: nothing is lost, it is retried, and writes report errors.
        with suppress(sqlite3.Error):
            checkpoint_wal(writer)
        if self._size() > WAL_BYTES_MAX:
            with reading, suppress(sqlite3.Error):
                truncate_wal(writer)
        self._is_large = self._size() > WAL_BYTES_MAX

    def _size(self) -> int:
        return self._path.stat().st_size
