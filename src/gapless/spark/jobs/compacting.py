"""Compaction: one large file for many small ones, while they may be read.

Files of a pubend and a day are merged in the order of their ticks, each group by a task. Then the
manifest is changed, group by group: the new file is added and the old ones are removed atomically.
A crash before that leaves a file that no version names; a crash after it leaves old files that
``clean`` removes later. Streams may continue meanwhile: new files are not in the groups that are
merged.
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
"""The size of merged files. A Spark task reads so much, and smaller files slow readers down."""

SMALL_FILES_MAX: Final = 16
"""So many small files may be in a partition before ``archive`` merges them."""


class Compaction(msgspec.Struct, frozen=True):
    """The result of a compaction."""

    merged: int
    """How many files were replaced."""
    made: int
    """By how many files."""
    rows: int
    removed: int
    """How many files were removed that no version names any more."""


def compact_archive(
    spark: SparkSession,
    path: str | Path,
    *,
    target_bytes: int = TARGET_BYTES,
    least: int = 2,
    keep_s: float = KEEP_S,
) -> Compaction:
    """Merge small files of an archive, then remove files that were replaced more than ``keep_s``
    ago.

    ``least`` is the smallest number of consecutive small files that are merged.
    """
    store = ArchiveStore(path)
    groups = small_groups(store.read(), target_bytes, least)
    merged_files = made = rows = 0
    for old, new in zip(groups, _merge(spark, store, groups), strict=True):
        replace = partial(_replaced, old, new)
        if store.change(replace) is None:  # another process has merged them
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
    """Return the runs of small files to merge, none larger than the target."""
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
