"""The space reserve: a file that a running broker keeps, so that a full disk can be made usable.

To delete rows SQLite needs some space for its WAL, and to copy the WAL of a broker that has stopped
it needs space in the database. On a full disk there is none. The reserve is deleted before a stopped
data directory is changed. A broker makes it when it starts, if that leaves enough space.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Final

from gapless.core.limits import SPACE_RESERVE_BYTES

__all__ = ["RESERVE", "drop_reserve", "make_reserve"]

RESERVE: Final = "reserve"
"""The file in the data directory."""

_PART: Final = 8
"""The reserve takes at most this part of the space that is free."""


def make_reserve(directory: Path) -> bool:
    """Reserve space, unless it is reserved; return whether there is a reserve."""
    path = directory / RESERVE
    with contextlib.suppress(OSError):
        free = os.statvfs(directory)
        size = min(SPACE_RESERVE_BYTES, free.f_bavail * free.f_frsize // _PART)
        if size and not path.exists():
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                os.posix_fallocate(descriptor, 0, size)
            except OSError:
                path.unlink()
            finally:
                os.close(descriptor)
        return path.exists()
    return False


def drop_reserve(directory: Path) -> None:
    """Give the reserved space back."""
    with contextlib.suppress(FileNotFoundError):
        (directory / RESERVE).unlink()
