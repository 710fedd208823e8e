"""A log file that is rotated when it is full, so that the log of a broker is bounded.

``broker.log`` becomes ``broker.log.1``, that becomes ``broker.log.2``, and so on; the oldest file
is removed. Standard error is redirected to the current file, so that the traceback of a crash is in
the log.
"""

from __future__ import annotations

import os
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Final

from gapless.core.errors import UsageError

__all__ = ["LogFile"]

_STANDARD_ERROR: Final = 2


class LogFile:
    """Appends to a file, and starts a new one when it would be too long."""

    def __init__(
        self, path: Path, bytes_max: int, kept: int, *, takes_errors: bool = False
    ) -> None:
        """``kept`` full files are kept beside the current one."""
        self._path = path
        self._bytes_max = bytes_max
        self._kept = kept
        self._takes_errors = takes_errors
        try:
            self._file = self._opened()
        except OSError as error:
            raise UsageError(f"log.file {path} cannot be written: {error.strerror}") from None
        self._redirect_errors()

    def write(self, text: str) -> None:
        """Write lines; a line is not split between two files."""
        line = text.encode(errors="backslashreplace")
        size = os.fstat(self._file).st_size
        if size and size + len(line) > self._bytes_max:
            with suppress(OSError):  # a longer file is better than a broker that stops
                self._rotate()
        with suppress(OSError):  # the failure cannot be reported
            os.write(self._file, line)

    def flush(self) -> None:
        """Nothing is buffered: every line is written at once."""

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)

    def _opened(self) -> int:
        return os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)

    def _rotate(self) -> None:
        names = [self._path, *(Path(f"{self._path}.{n + 1}") for n in range(self._kept))]
        for full, aside in reversed([*pairwise(names)]):
            if full.exists():
                full.replace(aside)
        self._path.unlink(missing_ok=True)
        full_file, self._file = self._file, self._opened()
        os.close(full_file)
        self._redirect_errors()

    def _redirect_errors(self) -> None:
        if self._takes_errors:
            os.dup2(self._file, _STANDARD_ERROR)
