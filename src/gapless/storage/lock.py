"""A lock on a data directory. It ends with the process that holds it, also after a crash."""

from __future__ import annotations

import contextlib
import fcntl
import os
from pathlib import Path

from gapless.core.errors import DirectoryLockedError, StorageError

__all__ = ["DirectoryLock"]


class DirectoryLock:
    """The exclusive use of the data directory of a broker, or of an overlay, until its release."""

    def __init__(self, directory: Path, name: str = "broker.lock") -> None:
        path = directory / name
        try:
            self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise StorageError(
                f"{path} cannot be opened: {error.strerror}; let the user of the broker write "
                "the directory, or choose another one"
            ) from error
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(self._descriptor, 32, 0).decode(errors="replace").strip()
            os.close(self._descriptor)
            raise DirectoryLockedError(str(directory), holder) from None
        except OSError as error:
            os.close(self._descriptor)
            raise StorageError(
                f"{path} cannot be locked: {error.strerror}; use a file system with locks"
            ) from error
        # The process id is only for people, so a full disk does not matter.
        with contextlib.suppress(OSError):
            os.ftruncate(self._descriptor, 0)
            os.pwrite(self._descriptor, f"{os.getpid()}\n".encode(), 0)

    def release(self) -> None:
        """Release the directory. The file stays: to delete it would allow two holders."""
        os.close(self._descriptor)
