"""The manifest of an archive: which files belong to it, and which batches they hold.

Theory of operation
-------------------
An archive is a directory::

    _manifest/00000007.json      what the archive is, at its version 7
    _checkpoint/                 where Spark is in the streams
    data/pubend=quotes/date=2026-01-31/….parquet

The newest version is the archive. A file that it does not name does not belong to it: it may be of a
task that failed, of a batch that was not finished, or replaced by a larger one since.

A change is one step. The next version is written beside, synced, and then linked to its name, which
fails if somebody else took that name. Then the change is made anew, on top of what the other did. So
there is no moment without a whole manifest, and no change is lost.

A batch is in the archive if its number is: the number and the files of a batch come in by the same step.
Spark may repeat a batch that was not finished, or was and Spark does not know; the second time it is
seen here that nothing is to be done.

A reader takes the file names of one version. Files that were replaced stay for a time (``keep_s``), so
that a reader that began before can end. Then they are removed, and with them the versions that name
them.

All this needs a file system with hard links, as local disks and NFS have.
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

__all__ = ["KEEP_S", "ArchiveStore", "DataFile", "Manifest", "partition_path"]

FORMAT: Final = 1
"""What this program writes, and the newest that it reads."""

KEEP_S: Final = 86_400.0
"""How long replaced files stay for those who read them still, unless the user says otherwise."""

VERSIONS_KEPT: Final = 20
"""Versions that are always kept, for people who want to see what happened."""

TRIES_MAX: Final = 100
"""How often a change is made anew because somebody else was faster."""

_NAME: Final = "{:08d}.json"


class DataFile(msgspec.Struct, frozen=True):
    """A file of events of one pubend and one day."""

    path: str
    """Relative to ``data``."""
    pubend: str
    date: str
    rows: int
    bytes: int
    low: int
    """The first tick in it."""
    high: int
    """The last tick in it."""


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
    """Which streams are archived; empty for all."""
    query: str = ""
    """The checkpoint that counts the batches."""
    batch: int = -1
    """The last batch that is in."""
    files: tuple[DataFile, ...] = ()
    removed: tuple[Removed, ...] = ()

    @property
    def rows(self) -> int:
        """How many events there are."""
        return sum(each.rows for each in self.files)

    @property
    def bytes(self) -> int:
        """How much room the files take."""
        return sum(each.bytes for each in self.files)

    def partitions(self) -> dict[tuple[str, str], list[DataFile]]:
        """Return the files by pubend and day, in the order of their ticks."""
        found: dict[tuple[str, str], list[DataFile]] = {}
        for each in sorted(self.files, key=lambda file: (file.pubend, file.date, file.low)):
            found.setdefault((each.pubend, each.date), []).append(each)
        return found

    def with_batch(self, batch: int, files: Iterable[DataFile], query: str = "") -> Manifest | None:
        """Return it with a batch, None if it has that batch."""
        if batch <= self.batch:
            return None
        added = (*self.files, *files)
        return msgspec.structs.replace(self, query=query, batch=batch, files=added)

    def with_replaced(self, old: Iterable[DataFile], new: DataFile, at: float) -> Manifest | None:
        """Return it with one file for several, None if one of them is gone already."""
        replaced = {each.path for each in old}
        kept = tuple(each for each in self.files if each.path not in replaced)
        if len(kept) + len(replaced) != len(self.files):
            return None
        removed = (*self.removed, *(Removed(path, at) for path in sorted(replaced)))
        return msgspec.structs.replace(self, files=(*kept, new), removed=removed)


class ArchiveStore:
    """An archive's directory."""

    def __init__(self, path: str | Path) -> None:
        text = str(path).removeprefix("file://")
        if "://" in text:
            raise UsageError(f"{path}: an archive is in a directory of a file system, not at a URL")
        self.path = Path(text).absolute()
        self.data = self.path / "data"
        self.checkpoint = self.path / "_checkpoint"
        self._versions = self.path / "_manifest"

    def exists(self) -> bool:
        """Say whether there is an archive."""
        return bool(self._numbers())

    def create(self, manifest: Manifest) -> None:
        """Make the first version; if there is one already it stays."""
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
                raise UsageError(f"{self.path} is no archive")
            try:
                return self._decoded(self._versions / _NAME.format(numbers[-1]))
            except FileNotFoundError:
                continue  # an old version, removed while we looked
        raise UsageError(f"{self.path}: the archive changes faster than it can be read")

    def change(self, change: Callable[[Manifest], Manifest | None]) -> Manifest | None:
        """Make a change in one step; None if there is nothing to be changed."""
        for _ in range(TRIES_MAX):
            before = self.read()
            after = change(before)
            if after is None:
                return None
            after = msgspec.structs.replace(after, version=before.version + 1)
            if self._link(after):
                return after
        raise UsageError(f"{self.path}: others change the archive all the time")

    def check(self, files: Iterable[DataFile]) -> None:
        """Raise unless files that tasks told of are here, whole."""
        for each in files:
            path = self.data / each.path
            if not path.exists() or path.stat().st_size != each.bytes:
                raise UsageError(
                    f"{path} is not as a task wrote it; an archive has to be in a directory that the "
                    "driver and all executors share"
                )

    def clean(self, keep_s: float = KEEP_S) -> list[str]:
        """Remove files that nothing names and that nobody can need any more; return their paths.

        These are replaced files, and what failed tasks and batches have left. Younger ones than
        ``keep_s`` stay: somebody may read them, or be about to write them.
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
            raise CorruptionError(f"{path} is no manifest: {error}") from error
        if found.format > FORMAT:
            raise NewerFormatError(f"{path} was written by a newer program")
        return found

    def _link(self, manifest: Manifest) -> bool:
        """Give a version its name, whole and synced; False if the name is taken."""
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
    """See that the names in a directory are on disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def partition_path(pubend: str, day: date | str) -> str:
    """Return where files of a pubend and a day are, as Spark names partitions.

    Names of files are plain ASCII, whatever a pubend is called: Java finds no others where the system's
    language is not set.

    >>> partition_path("eu/quotes", "2026-01-31")
    'pubend=eu%2Fquotes/date=2026-01-31'
    """
    return f"pubend={quote(pubend, safe='')}/date={day}"
