"""The space on the disk of a broker: the share for its logs, and a warning when little is left."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from gapless.core.limits import DISK_WARNING_BYTES, MEMORY_LOG_BYTES
from gapless.core.parameters import Parameters
from gapless.runtime.logs import StructuredLog

__all__ = ["SPACE_CHECK_INTERVAL_S", "DiskSpace", "DiskWatch", "disk_space", "with_log_limits"]

SPACE_CHECK_INTERVAL_S: Final = 5.0
"""How often the free space is read."""

_LOGS_PART: Final = 4
"""All logs together take at most this part of the space that a broker finds at its start. Twice as
much is possible while absent subscribers keep logs, and the database needs space beside its rows."""

_WARNING_PART: Final = 10
"""The warning comes when less than this part of the disk is free."""


class DiskSpace(NamedTuple):
    """The size of a file system, and what this process may still use of it."""

    total: int
    free: int


def disk_space(directory: Path) -> DiskSpace | None:
    """Return the space on the disk of a directory, or None if the system does not tell."""
    try:
        found = os.statvfs(directory)
    except OSError:
        return None
    return DiskSpace(found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize)


def with_log_limits(parameters: Parameters, data: Path | None, shared_by: int = 1) -> Parameters:
    """Return parameters whose limits of logs are numbers: by default a share of the disk.

    The share is of the space that is free or used by this broker, divided by the number of brokers
    that share the disk. Without a data directory logs are in memory.
    """
    together = parameters.all_logs_bytes_max
    if not together:
        space = None if data is None else disk_space(data)
        if data is None or space is None:
            together = MEMORY_LOG_BYTES
        else:
            together = (space.free + _used(data)) // (_LOGS_PART * shared_by)
        # a limit of one log that the operator has set is not reduced
        together = max(together, parameters.log_bytes_max)
    return msgspec.structs.replace(
        parameters,
        all_logs_bytes_max=together,
        log_bytes_max=parameters.log_bytes_max or together,
    )


def _used(directory: Path) -> int:
    return sum(each.stat().st_size for each in directory.iterdir() if each.is_file())


class DiskWatch:
    """Warns once when little space is left on the disk of a broker, and when there is enough."""

    def __init__(self, data: Path | None, free_bytes_min: int, log: StructuredLog) -> None:
        self._data = data
        self._free_bytes_min = free_bytes_min
        self._log = log
        self.space: DiskSpace | None = None
        """The space when it was read last; None without a data directory."""
        self.warning = ""
        """What is wrong and what to do, or empty."""

    @property
    def free_bytes_min(self) -> int:
        """The free bytes below which the broker warns."""
        total = 0 if self.space is None else self.space.total
        return self._free_bytes_min or min(DISK_WARNING_BYTES, total // _WARNING_PART)

    def review(self) -> None:
        """Read the free space, and log a change."""
        self.space = None if self._data is None else disk_space(self._data)
        before, self.warning = self.warning, ""
        if self.space is not None and self.space.free < self.free_bytes_min:
            self.warning = (
                f"the disk of {self._data} has {self.space.free:,} bytes free (the warning comes "
                f"below {self.free_bytes_min:,}); free space, or lower all_logs_bytes_max or "
                "retention_s: a broker with a full disk stops"
            )
        if self.warning and not before:
            self._log.warning("disk is nearly full", reason=self.warning)
        elif before and not self.warning:
            self._log.info("disk has enough space again", data=self._data)
