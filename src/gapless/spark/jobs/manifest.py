"""The manifest of an archive: the files that belong to it, and the last batch in them.

Theory of operation
-------------------
An archive is a directory::

    _manifest/00000007.json      the manifest of version 7
    _checkpoint/                 the position of Spark in the streams
    data/pubend=quotes/date=2026-01-31/….parquet

The newest version is the archive. A file that it does not name does not belong to it: the file may
be from a failed task or an unfinished batch, or be replaced by a larger one.

A change is atomic. The next version is written to a draft, synced, and then linked to its name,
which fails if another process took that name. Then the change is repeated on top of the other one.
So there is always a complete manifest, and no change is lost.

The number and the files of a batch are added by the same change. Spark may repeat a batch that was
not finished, or whose completion it has not recorded; the manifest then contains its number
already, and nothing is added.

A reader uses the file names of one version. Replaced files are kept for a time (``keep_s``), so
that a reader that started before can finish. Then they are removed, and with them the versions that
name them.

This needs a file system with hard links, such as local disks and NFS.
"""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from datetime import date
from pathlib import Path
from typing import Final
from urllib.parse import quote

import msgspec

from gapless.core.errors import CorruptionError, NewerFormatError, UsageError
from gapless.spark.jobs.locations import local_path

__all__ = ["KEEP_S", "ArchiveStore", "DataFile", "Manifest", "partition_path"]

FORMAT: Final = 1
"""The format that this program writes, and the newest that it reads."""

KEEP_S: Final = 86_400.0
"""The default time for which replaced files are kept for readers."""

VERSIONS_KEPT: Final = 20
"""Versions that are always kept, for diagnosis."""

TRIES_MAX: Final = 100
"""How often a change is repeated because another process was faster."""

_NAME: Final = "{:08d}.json"


class DataFile(msgspec.Struct, frozen=True):
    """A file with events of one pubend and one day."""

    path: str
    """Relative to ``data``."""
    pubend: str
    date: str
    rows: int
    bytes: int
    low: int
    """Its first tick."""
    high: int
    """Its last tick."""


class Removed(msgspec.Struct, frozen=True):
    """A file that was replaced, and when."""

    path: str
    at: float


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """A version of an archive."""

    format: int = FORMAT
    version: int = 0
    filter: str = "TRUE"
    pubends: tuple[str, ...] = ()
    """The archived streams; empty for all."""
    query: str = ""
    """The id of the checkpoint that numbers the batches."""
    batch: int = -1
    """The last batch in the archive."""
    files: tuple[DataFile, ...] = ()
    removed: tuple[Removed, ...] = ()

    @property
    def rows(self) -> int:
        """The number of events."""
        return sum(each.rows for each in self.files)

    @property
    def bytes(self) -> int:
        """The size of all files."""
        return sum(each.bytes for each in self.files)

    def partitions(self) -> dict[tuple[str, str], list[DataFile]]:
        """Return the files by pubend and day, in the order of their ticks."""
        found: dict[tuple[str, str], list[DataFile]] = {}
        for each in sorted(self.files, key=lambda file: (file.pubend, file.date, file.low)):
            found.setdefault((each.pubend, each.date), []).append(each)
        return found

    def with_batch(self, batch: int, files: Iterable[DataFile], query: str = "") -> Manifest | None:
        """Return the manifest with a batch added, or None if it has that batch."""
        if batch <= self.batch:
            return None
        added = (*self.files, *files)
        return msgspec.structs.replace(self, query=query, batch=batch, files=added)

    def with_replaced(self, old: Iterable[DataFile], new: DataFile, at: float) -> Manifest | None:
        """Return the manifest with one file for several, or None if one of them is not in it."""
        replaced = {each.path for each in old}
        kept = tuple(each for each in self.files if each.path not in replaced)
        if len(kept) + len(replaced) != len(self.files):
            return None
        removed = (*self.removed, *(Removed(path, at) for path in sorted(replaced)))
        return msgspec.structs.replace(self, files=(*kept, new), removed=removed)


class ArchiveStore:
    """An archive's directory."""

    def __init__(self, path: str | Path) -> None:
        self.path = local_path(path, "an archive")
        self.data = self.path / "data"
        self.checkpoint = self.path / "_checkpoint"
        self._versions = self.path / "_manifest"

    def exists(self) -> bool:
        """Return whether there is an archive."""
        return bool(self._numbers())

    def create(self, manifest: Manifest) -> None:
        """Create the first version, unless there is one."""
        self._versions.mkdir(parents=True, exist_ok=True)
        self.data.mkdir(exist_ok=True)
        sync_directory(self.path)
        sync_directory(self.path.parent)
        if not self.exists():
            self._link(msgspec.structs.replace(manifest, version=1))

    def read(self) -> Manifest:
        """Return the newest version."""
        for _ in range(TRIES_MAX):
            numbers = self._numbers()
            if not numbers:
                raise UsageError(f"{self.path} is not an archive")
            try:
                return self._decoded(self._versions / _NAME.format(numbers[-1]))
            except FileNotFoundError:
                continue  # an old version, removed meanwhile
        raise UsageError(f"{self.path}: the archive changes faster than it can be read")

    def change(self, change: Callable[[Manifest], Manifest | None]) -> Manifest | None:
        """Make a change atomically; return None if there is nothing to change."""
        for _ in range(TRIES_MAX):
            before = self.read()
            after = change(before)
            if after is None:
                return None
            after = msgspec.structs.replace(after, version=before.version + 1)
            if self._link(after):
                return after
        raise UsageError(f"{self.path}: other processes change the archive: try again later")

    def check(self, files: Iterable[DataFile]) -> None:
        """Raise unless the files that tasks have reported are here and complete."""
        for each in files:
            path = self.data / each.path
            if not path.exists() or path.stat().st_size != each.bytes:
                raise UsageError(
                    f"{path} is missing or incomplete; an archive must be in a directory that the "
                    "driver and all executors share"
                )

    def clean(self, keep_s: float = KEEP_S) -> list[str]:
        """Remove files that no version needs; return their paths.

        These are replaced files, and files of failed tasks and batches. Files newer than ``keep_s``
        are kept: a process may read or write them.
        """
        before = time.time() - keep_s
        current = self.read()
        named = {each.path for each in current.files}
        replaced = {each.path: each.at for each in current.removed}
        removed = []
        for path in self._data_files():
            name = path.relative_to(self.data).as_posix()
            if name not in named and replaced.get(name, path.stat().st_mtime) <= before:
                path.unlink()
                removed.append(name)
        forgotten = {*removed, *(name for name in replaced if not (self.data / name).exists())}
        if forgotten & replaced.keys():
            self.change(lambda now: _forgetting(now, forgotten))
        for number in self._numbers()[:-VERSIONS_KEPT]:
            path = self._versions / _NAME.format(number)
            if path.stat().st_mtime <= before:
                path.unlink()
        return removed

    # --- files ---------------------------------------------------------------------------------

    def _numbers(self) -> list[int]:
        if not self._versions.is_dir():
            return []
        return sorted(int(each.stem) for each in self._versions.glob("[0-9]*.json"))

    def _data_files(self) -> Iterator[Path]:
        return self.data.rglob("*.parquet")

    def _decoded(self, path: Path) -> Manifest:
        try:
            found = msgspec.json.decode(path.read_bytes(), type=Manifest)
        except msgspec.MsgspecError as error:
            raise CorruptionError(f"{path} is not a manifest: {error}") from error
        if found.format > FORMAT:
            raise NewerFormatError(f"{path} was written by a newer program")
        return found

    def _link(self, manifest: Manifest) -> bool:
        """Link a complete and synced version to its name; return False if the name is taken."""
        draft = self._versions / f"draft-{uuid.uuid4().hex}"
        try:
            with draft.open("wb") as file:
                file.write(msgspec.json.format(msgspec.json.encode(manifest), indent=1))
                file.flush()
                os.fsync(file.fileno())
            (self._versions / _NAME.format(manifest.version)).hardlink_to(draft)
        except FileExistsError:
            return False
        finally:
            draft.unlink(missing_ok=True)
        sync_directory(self._versions)
        return True


def _forgetting(manifest: Manifest, dropped: set[str]) -> Manifest:
    removed = tuple(each for each in manifest.removed if each.path not in dropped)
    return msgspec.structs.replace(manifest, removed=removed)


def sync_directory(path: Path) -> None:
    """Sync a directory, so that the names in it are on disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def partition_path(pubend: str, day: date | str) -> str:
    """Return the directory of a pubend and a day, as Spark names partitions.

    File names are plain ASCII for any pubend name: Java finds no others if no locale is set.

    >>> partition_path("eu/quotes", "2026-01-31")
    'pubend=eu%2Fquotes/date=2026-01-31'
    """
    return f"pubend={quote(pubend, safe='')}/date={day}"
