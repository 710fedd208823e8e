"""Archives: every event once under failures, and files that are merged while they are read."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest.mock import MagicMock

import pytest

pytest.importorskip("pyspark", reason='Spark is not installed: pip install "gapless[spark]"')

import msgspec
import pyarrow as pa

from gapless.cli.main import EXIT_WRONG_INPUT, main
from gapless.core.errors import CorruptionError, NewerFormatError, UsageError
from gapless.spark.jobs import archive, compact_archive, read_archive
from gapless.spark.jobs import parts as parts_module
from gapless.spark.jobs.compacting import small_groups
from gapless.spark.jobs.locations import local_path, spark_uri
from gapless.spark.jobs.manifest import ArchiveStore, DataFile, Manifest
from gapless.spark.jobs.parts import FILE, file_of_row, merged, part_writer
from tests.spark.rows import Stream

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

DAY = 86_400_000_000


class Crash(BaseException):
    """The process has ended."""


def numbers(frame: DataFrame) -> list[int]:
    """Return the numbers of the events in a frame, sorted."""
    return sorted(json.loads(row.attributes)["n"] for row in frame.select("attributes").collect())


def crashing(error: type[BaseException] = Crash) -> Callable[..., Any]:
    def fail(*_: object, **__: object) -> None:
        raise error("killed")

    return fail


# --- with a broker -------------------------------------------------------------------------------


def test_an_archive_has_every_event_once_and_ignores_a_repeated_batch(
    stream: Stream, tmp_path: Path
) -> None:
    stream.publish(range(50))
    stream.publish(range(50, 60), "eu/trades 1")
    found = archive(stream.spark, stream.servers, tmp_path)
    assert (found.events, found.new_events) == (60, 60)
    assert [each.pubend for each in found.streams] == ["eu/trades 1", "quotes"]
    commits = tmp_path / "_checkpoint" / "commits"
    last = max(int(each.name) for each in commits.glob("[0-9]*"))
    for each in commits.glob(f"*{last}*"):
        each.unlink()  # as if it was killed before this commit, so Spark repeats the batch
    stream.publish(range(60, 70))
    again = archive(stream.spark, stream.servers, tmp_path)
    assert (again.events, again.new_events) == (70, 10)
    frame = read_archive(stream.spark, tmp_path)
    rows = frame.collect()
    expected = stream.load().select(frame.drop("date").columns).collect()
    assert sorted(tuple(row)[:-1] for row in rows) == sorted(map(tuple, expected))
    assert all(row.date == row.timestamp.date() for row in rows)
    assert numbers(frame.where("pubend = 'eu/trades 1'")) == list(range(50, 60))


def test_files_written_before_a_crash_and_not_in_the_manifest_are_not_read(
    stream: Stream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream.publish(range(20))
    with monkeypatch.context() as patch:
        patch.setattr(ArchiveStore, "change", crashing(RuntimeError))
        with pytest.raises(UsageError, match="killed"):
            archive(stream.spark, stream.servers, tmp_path)
    assert read_archive(stream.spark, tmp_path).count() == 0
    assert list((tmp_path / "data").rglob("*.parquet"))
    found = archive(stream.spark, stream.servers, tmp_path)
    assert (found.events, found.new_events) == (20, 20)
    assert ArchiveStore(tmp_path).clean(keep_s=0)
    assert numbers(read_archive(stream.spark, tmp_path)) == list(range(20))


def test_an_archive_keeps_its_streams_and_needs_its_checkpoint(
    stream: Stream, tmp_path: Path
) -> None:
    stream.publish(range(20))
    archive(stream.spark, stream.servers, tmp_path, pubends=["quotes"], filter="n<5")
    assert numbers(read_archive(stream.spark, tmp_path)) == list(range(5))
    with pytest.raises(UsageError, match="is an archive of quotes with the filter n < 5"):
        archive(stream.spark, stream.servers, tmp_path)
    shutil.rmtree(tmp_path / "_checkpoint")
    with pytest.raises(UsageError, match="lost its checkpoint"):
        archive(stream.spark, stream.servers, tmp_path, pubends=["quotes"], filter="n < 5")


def test_the_commands_archive_and_compact_print_their_results(
    stream: Stream,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(type(stream.spark), "stop", lambda _: None)
    monkeypatch.setenv("GAPLESS_SPARK_MASTER", str(stream.spark.sparkContext.master))
    arguments = ["spark", "archive", str(tmp_path), "--url", stream.servers]
    stream.publish(range(20))
    assert main([*arguments, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["new_events"] == 20
    stream.publish(range(20, 30))
    assert main(arguments) == 0
    assert "new events" in capsys.readouterr().out
    assert main(["spark", "compact", str(tmp_path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["merged"] == 2
    assert main(["spark", "compact", str(tmp_path)]) == 0
    assert "0 files became 0" in capsys.readouterr().out
    assert main(["spark", "compact", str(tmp_path / "nowhere")]) == 2
    assert "is not an archive" in capsys.readouterr().err


# --- without a broker: files as a batch would have written them -----------------------------------


def add_batch(store: ArchiveStore, batch: int, ticks: range, pubend: str = "quotes") -> None:
    """Do what a task does with some events, and the driver after it."""
    rows = pa.RecordBatch.from_pydict(
        {
            "pubend": [pubend] * len(ticks),
            "tick": list(ticks),
            "timestamp": pa.array(ticks, pa.timestamp("us", tz="UTC")),
            "publisher": ["desk"] * len(ticks),
            "sequence": list(ticks),
            "attributes": [json.dumps({"n": tick}) for tick in ticks],
            "payload": [b"x"] * len(ticks),
        }
    )
    written = [batch.to_pylist() for batch in part_writer(str(store.data))(iter([rows]))]
    files = [file_of_row(list(row.values())) for rows in written for row in rows]
    store.change(lambda now: now.with_batch(batch, files))


@pytest.fixture
def store(tmp_path: Path) -> ArchiveStore:
    """Return an archive of four batches on two days."""
    made = ArchiveStore(tmp_path)
    made.create(Manifest())
    for batch, low in enumerate((1, 11, DAY - 5, DAY + 5)):
        add_batch(made, batch, range(low, low + 10))
    return made


EXPECTED = [*range(1, 21), *range(DAY - 5, DAY + 15)]


def test_events_are_divided_into_files_by_pubend_and_day(store: ArchiveStore) -> None:
    found = {key: [(each.low, each.high) for each in files] for key, files in parts(store)}
    assert found == {
        ("quotes", "1970-01-01"): [(1, 10), (11, 20), (DAY - 5, DAY - 1)],
        ("quotes", "1970-01-02"): [(DAY, DAY + 4), (DAY + 5, DAY + 14)],
    }


def parts(store: ArchiveStore) -> list[tuple[tuple[str, str], list[DataFile]]]:
    return list(store.read().partitions().items())


@pytest.mark.parametrize("name", ["börse", "日本", "eu/a%b {x}*", "007"])
def test_a_condition_on_the_pubend_reads_only_its_files(
    spark: SparkSession, store: ArchiveStore, name: str
) -> None:
    others = store.read().files
    add_batch(store, 4, range(30, 40), name)
    frame = read_archive(spark, store.path)
    assert {row.pubend for row in frame.select("pubend").distinct().collect()} == {"quotes", name}
    for each in others:
        (store.data / each.path).write_bytes(b"x" * each.bytes)
    assert numbers(frame.where(frame.pubend == name)) == [*range(30, 40)]
    files = [each.path for each in store.read().files]
    assert all(path.isascii() for path in files), "Java may find no others"


def test_a_file_is_reported_after_its_directories_are_synced(
    store: ArchiveStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[Path] = []
    monkeypatch.setattr(parts_module, "sync_directory", synced.append)
    add_batch(store, 4, range(30, 40), "orders")
    day = store.data / "pubend=orders" / "date=1970-01-01"
    assert synced == [day, day.parent, store.data]


def test_a_batch_in_the_archive_is_not_added_again(store: ArchiveStore) -> None:
    before = store.read()
    add_batch(store, 3, range(5))
    assert store.read() == before


def test_compaction_leaves_one_file_a_day_in_order_and_all_events(
    spark: SparkSession, store: ArchiveStore
) -> None:
    done = compact_archive(spark, store.path)
    assert (done.merged, done.made, done.rows, done.removed) == (5, 2, 40, 0)
    assert [len(files) for _, files in parts(store)] == [1, 1]
    frame = read_archive(spark, store.path)
    assert numbers(frame) == EXPECTED
    ticks = [row.tick for row in frame.where("date = '1970-01-01'").select("tick").collect()]
    assert ticks == sorted(ticks)
    assert compact_archive(spark, store.path).merged == 0


def test_a_reader_that_started_before_a_compaction_continues(
    spark: SparkSession, store: ArchiveStore
) -> None:
    early = read_archive(spark, store.path)
    compact_archive(spark, store.path)
    add_batch(store, 4, range(DAY + 100, DAY + 101))
    assert numbers(early) == EXPECTED
    assert numbers(read_archive(spark, store.path)) == [*EXPECTED, DAY + 100]


def test_a_crash_before_the_manifest_changes_nothing_and_the_next_compaction_succeeds(
    spark: SparkSession, store: ArchiveStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = store.read()
    with monkeypatch.context() as patch:
        patch.setattr(ArchiveStore, "_link", crashing())
        with pytest.raises(Crash):
            compact_archive(spark, store.path)
    assert store.read() == before
    assert numbers(read_archive(spark, store.path)) == EXPECTED
    assert compact_archive(spark, store.path).merged == 5
    assert numbers(read_archive(spark, store.path)) == EXPECTED


def test_a_crash_between_two_manifests_keeps_all_events(
    spark: SparkSession, store: ArchiveStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, calls = ArchiveStore._link, []

    def once(self: ArchiveStore, manifest: Manifest) -> bool:
        calls.append(manifest)
        if len(calls) > 1:
            raise Crash
        return whole(self, manifest)

    with monkeypatch.context() as patch:
        patch.setattr(ArchiveStore, "_link", once)
        with pytest.raises(Crash):
            compact_archive(spark, store.path)
    assert [len(files) for _, files in parts(store)] == [1, 2]
    assert numbers(read_archive(spark, store.path)) == EXPECTED


def test_a_batch_added_during_a_compaction_is_kept(store: ArchiveStore) -> None:
    (group, _) = small_groups(store.read(), 10**9, 2)
    new = merged(str(store.data), group)
    add_batch(store, 4, range(30, 40))
    store.change(lambda now: now.with_replaced(group, new, 0.0))
    assert store.read().rows == 50


def test_of_two_compactions_of_the_same_files_the_second_is_dropped(store: ArchiveStore) -> None:
    (group, _) = small_groups(store.read(), 10**9, 2)
    first, second = (merged(str(store.data), group) for _ in range(2))
    assert store.change(lambda now: now.with_replaced(group, first, 0.0))
    assert store.change(lambda now: now.with_replaced(group, second, 0.0)) is None
    assert store.read().rows == 40


def test_a_file_that_the_driver_does_not_see_is_refused(
    store: ArchiveStore,
) -> None:
    (_, files), *_ = parts(store)
    store.check(files)
    (store.data / files[0].path).write_bytes(b"cut")
    with pytest.raises(UsageError, match="executors share"):
        store.check(files)


def test_concurrent_changes_are_all_made(store: ArchiveStore) -> None:
    def add(index: int) -> None:
        file = DataFile(f"{index}.parquet", "quotes", "1970-01-01", 1, 1, index, index)
        store.change(lambda now: msgspec.structs.replace(now, files=(*now.files, file)))

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(add, range(40)))
    assert len(store.read().files) == 5 + 40


def test_cleaning_removes_old_replaced_files_and_no_file_in_the_manifest(
    spark: SparkSession, store: ArchiveStore
) -> None:
    compact_archive(spark, store.path)
    assert store.clean(keep_s=3_600) == []
    assert len(store.clean(keep_s=0)) == 5
    assert not store.read().removed
    assert store.clean(keep_s=0) == []
    assert numbers(read_archive(spark, store.path)) == EXPECTED


def test_groups_have_small_adjacent_files_up_to_the_target_size() -> None:
    sizes = [10, 10, 90, 10, 30, 30, 30, 45]
    files = tuple(
        DataFile(f"{index}", "quotes", "1970-01-01", 1, size, index, index)
        for index, size in enumerate(sizes)
    )
    found = small_groups(Manifest(files=files), 100, 2)
    assert [[each.bytes for each in group] for group in found] == [[10, 10], [10, 30, 30, 30]]


def test_a_manifest_that_is_corrupt_or_of_a_newer_program_is_named(tmp_path: Path) -> None:
    store = ArchiveStore(tmp_path)
    store.create(Manifest())
    path = tmp_path / "_manifest" / "00000002.json"
    path.write_text("{")
    with pytest.raises(CorruptionError, match="is not a manifest"):
        store.read()
    path.write_bytes(msgspec.json.encode(Manifest(format=99, version=2)))
    with pytest.raises(NewerFormatError):
        store.read()


@pytest.mark.parametrize("uri", ["s3://bucket/archive", "s3a://bucket/x", "hdfs:///x", "S3A://b"])
def test_an_archive_at_a_uri_of_an_object_store_is_refused(uri: str) -> None:
    with pytest.raises(UsageError, match="an archive is in a directory of a file system") as caught:
        ArchiveStore(uri)
    assert str(caught.value).startswith(f"{uri}: "), "the URI is named as it was written"


def test_paths_and_file_uris_are_local_and_other_uris_reach_spark_as_they_are_written() -> None:
    assert local_path("file:/a/b", "it") == local_path("file:///a/b", "it") == Path("/a/b")
    assert local_path("a", "it") == Path("a").absolute()
    assert spark_uri("s3a://bucket/x y%2F//z") == "s3a://bucket/x y%2F//z"
    assert spark_uri("file:///a") == "file:///a"
    for wrong in ("s3a:bucket/x", "s3a:/bucket/x", "hdfs://x", "file:a", "file://host/a"):
        with pytest.raises(UsageError, match=wrong):
            local_path(wrong, "it")
    assert local_path("./s3a:b", "it") == Path("s3a:b").absolute()
    assert spark_uri("s3a:bucket") == "s3a:bucket"
    assert spark_uri("a:b") == f"file://{Path('a:b').absolute()}"


@pytest.mark.parametrize(
    "arguments",
    [
        ("archive", "s3a://bucket/x"),
        ("compact", "s3a://bucket/x"),
        ("backtest", "archive", "--filters", "FILTERS", "--out", "s3a://bucket/x"),
        ("audit", "s3a://bucket/x"),
        ("audit", "logs", "--state", "s3a://bucket/x"),
    ],
)
def test_a_command_refuses_a_uri_that_it_cannot_use_and_makes_no_directory(
    arguments: tuple[str, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    filters = tmp_path / "filters"
    filters.write_text("n > 5\n")
    monkeypatch.setattr("gapless.cli.spark.session", no_session)
    monkeypatch.setattr("gapless.cli.spark_audit.session", no_session)
    named = [str(filters) if each == "FILTERS" else each for each in arguments]
    assert main(["spark", *named]) == EXIT_WRONG_INPUT
    assert "s3a://bucket/x: " in capsys.readouterr().err
    assert [*tmp_path.iterdir()] == [filters]


@contextmanager
def no_session(*_: object) -> Iterator[Any]:
    """A session that no job reaches: the path is checked first."""
    made = MagicMock()
    made.sparkContext.defaultParallelism = 1
    yield made


def test_columns_of_a_file_begin_with_the_tick() -> None:
    assert FILE.names[0] == "tick"
