"""Compaction: one large file for many small ones, under the eyes of readers.

Files of a pubend and a day are merged in the order of their ticks, each group by a task. Then the
manifest is switched, group by group: the new file comes in and the old ones go out in one step. A crash
before that leaves a file that nobody knows; one after it, old files that ``clean`` removes in time.
Streams may go on meanwhile: what they add is not among what is merged.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from gapless.spark.jobs.manifest import KEEP_S, ArchiveStore, DataFile, Manifest
from gapless.spark.jobs.shipping import ready_executors

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["SMALL_FILES_MAX", "TARGET_BYTES", "Compaction", "compact_archive", "small_groups"]

TARGET_BYTES: Final = 134_217_728
"""How large files get. Spark reads so much in a task, and smaller files are a cost for every reader."""

SMALL_FILES_MAX: Final = 16
"""So many small files may lie in a partition before ``archive`` merges them by itself."""


class Compaction(msgspec.Struct, frozen=True):
    """What a compaction did."""

    merged: int
    """How many files were replaced."""
    made: int
    """By how many."""
    rows: int
    removed: int
    """How many files were removed that nothing names any more."""


def compact_archive(
    spark: SparkSession,
    path: str | Path,
    *,
    target_bytes: int = TARGET_BYTES,
    least: int = 2,
    keep_s: float = KEEP_S,
) -> Compaction:
    """Merge small files of an archive, then remove what was replaced more than ``keep_s`` ago.

    ``least`` is how many small files in a row are worth it.
    """
    store = ArchiveStore(path)
    groups = small_groups(store.read(), target_bytes, least)
    merged_files = made = rows = 0
    for old, new in zip(groups, _merge(spark, store, groups), strict=True):
        replace = partial(_replaced, old, new)
        if store.change(replace) is None:  # somebody else has merged them
            (store.data / new.path).unlink()
            continue
        merged_files, made, rows = merged_files + len(old), made + 1, rows + new.rows
    return Compaction(merged_files, made, rows, len(store.clean(keep_s)))


def _replaced(old: Sequence[DataFile], new: DataFile, manifest: Manifest) -> Manifest | None:
    return manifest.with_replaced(old, new, time.time())


def _merge(
    spark: SparkSession, store: ArchiveStore, groups: Sequence[Sequence[DataFile]]
) -> list[DataFile]:
    if not groups:
        return []
    ready_executors(spark)
    data = str(store.data)

    def merge(group: Sequence[DataFile]) -> DataFile:
        from gapless.spark.jobs.parts import merged

        return merged(data, group)

    made = spark.sparkContext.parallelize(groups, len(groups)).map(merge).collect()
    store.check(made)
    return made


def small_groups(manifest: Manifest, target_bytes: int, least: int) -> list[list[DataFile]]:
    """Return the runs of small files that are worth merging, none larger than the target."""
    found: list[list[DataFile]] = []
    for files in manifest.partitions().values():
        group: list[DataFile] = []
        size = 0
        for each in files:
            if group and (each.bytes >= target_bytes // 2 or size + each.bytes > target_bytes):
                found.append(group)
                group, size = [], 0
            if each.bytes < target_bytes // 2:
                group.append(each)
                size += each.bytes
        found.append(group)
    return [group for group in found if len(group) >= max(least, 2)]
