"""The WAL: copied back to the database now and then, and cut if readers have let it grow.

SQLite would copy it back inside the commit that makes it long enough, and whoever waits for that
commit would wait for the copying too. So it is done here, after the commit was reported.
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
"""After how many commits or bytes it is copied back. The smallest commit writes four pages, most of them
the same as the one before it."""


class WalCheckpointer:
    """Knows about how much went into the WAL since it was last copied back."""

    def __init__(self, directory: Path) -> None:
        self._path = wal_path(directory)
        self._commits = self._bytes = 0

    @property
    def is_due(self) -> bool:
        """Whether it is time to look after it."""
        return self._commits >= _CHECKPOINT_COMMITS or self._bytes >= _CHECKPOINT_BYTES

    def grew(self, size: int) -> None:
        """Note a commit of so many bytes."""
        self._commits += 1
        self._bytes += size

    def checkpoint(self, writer: sqlite3.Connection, reading: threading.Lock) -> None:
        """Copy it back; if it is large all the same, cut it, while nobody is ``reading``."""
        self._commits = self._bytes = 0
        with suppress(sqlite3.Error):  # nothing is lost: it is tried again, and a write says more
            checkpoint_wal(writer)
        if self._path.stat().st_size > WAL_BYTES_MAX:
            with reading:
                truncate_wal(writer)
