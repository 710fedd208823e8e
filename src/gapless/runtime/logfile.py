"""A file of lines that is put aside when it is full, so that what a broker says has a bound on disk.

``broker.log`` becomes ``broker.log.1``, that ``broker.log.2``, and so on; the oldest goes. Standard
error is led into the file too, and moves along: the last words of a process that breaks stand where
its other words are.
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
    """Writes at the end of a file, and begins a new one when it would be too long."""

    def __init__(
        self, path: Path, bytes_max: int, kept: int, *, takes_errors: bool = False
    ) -> None:
        """``kept`` full files are kept beside the one that is written to."""
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
        """Write lines; they are not divided between two files."""
        line = text.encode(errors="backslashreplace")
        size = os.fstat(self._file).st_size
        if size and size + len(line) > self._bytes_max:
            with suppress(OSError):  # rather a long file than a broker that does not run
                self._rotate()
        with suppress(OSError):  # nobody is left to be told
            os.write(self._file, line)

    def flush(self) -> None:
        """Nothing waits: every line is written at once."""

    def close(self) -> None:
        """Write no more."""
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
