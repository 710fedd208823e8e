"""Runs of an archive: following, with a reader, too late, killed, and beside another file system."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark", reason='Spark is not installed: pip install "gapless[spark]"')

from gapless.cli.main import main
from gapless.core.errors import UsageError
from gapless.core.parameters import Parameters
from gapless.spark.jobs import archive, archiving, audit, read_archive
from gapless.spark.jobs.backtesting import events_at
from gapless.spark.jobs.manifest import ArchiveStore, Manifest
from gapless.testing import SyncOverlay
from tests.guides import ROOT
from tests.spark.rows import Stream, until
from tests.spark.test_jobs_archive import add_batch, numbers
from tests.spark.test_jobs_audit import Traffic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

BRIEF = Parameters(retention_s=1, aet_ms=500, ack_ms=100, interest_grace_s=1)
"""Brokers that release at once what is not needed."""


@pytest.fixture
def command(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make commands use the session of the tests and leave it running."""
    monkeypatch.setattr(type(spark), "stop", lambda _: None)
    monkeypatch.setenv("GAPLESS_SPARK_MASTER", str(spark.sparkContext.master))


def numbers_in(stream: Stream) -> set[object]:
    """Return the numbers of the events that the log still has."""
    return {each.attributes["n"] for each in stream.session.read("quotes")}


@pytest.mark.usefixtures("command")
def test_a_following_archive_adds_events_until_it_is_interrupted(
    stream: Stream,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    from pyspark.sql.streaming.query import StreamingQuery

    stream.publish(range(20))
    store = ArchiveStore(tmp_path)

    def until_interrupted(query: StreamingQuery, _: float) -> bool:
        until(lambda: store.read().rows == 20, "the first are archived")
        stream.publish(range(20, 30))
        until(lambda: store.read().rows == 30, "the later ones are archived too")
        assert query.isActive
        raise KeyboardInterrupt

    monkeypatch.setattr(StreamingQuery, "awaitTermination", until_interrupted)
    arguments = ["spark", "archive", str(tmp_path), "--url", stream.servers, "--json"]
    assert main([*arguments, "--follow", "--every", "0.1"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert (printed["events"], printed["new_events"]) == (30, 30)
    assert not stream.spark.streams.active
    assert numbers(read_archive(stream.spark, tmp_path)) == [*range(30)]


@pytest.mark.usefixtures("command")
def test_a_log_is_retained_for_the_reader_of_an_archive_until_it_is_archived(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with SyncOverlay(parameters=BRIEF) as overlay, Stream(spark, overlay) as stream:
        arguments = ["spark", "archive", str(tmp_path), "--url", stream.servers, "--json"]
        arguments += ["--reader", "history", "--filter", "kind IS NULL", "--start", "latest"]
        stream.publish(range(1))
        assert main(arguments) == 0
        stream.publish(range(10, 30))
        with stream.session.publisher("other", advertisement="kind = 'other'") as publisher:
            publisher.publish({"kind": "other"})
        until(lambda: not list(stream.session.read("other")), "what is not retained is released")
        assert numbers_in(stream) >= {*range(10, 30)}
        assert main([*arguments, "--events-max", "10"]) == 0
        assert numbers(read_archive(spark, tmp_path)) == [*range(10, 30)]
        assert '"skipped": {}' in capsys.readouterr().out


@pytest.mark.usefixtures("command")
def test_an_archive_that_is_too_late_continues_and_counts_the_skipped_ticks(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with SyncOverlay(parameters=BRIEF) as overlay, Stream(spark, overlay) as stream:
        arguments = ["spark", "archive", str(tmp_path), "--url", stream.servers]
        with stream.session.subscribe("TRUE", durable="keeper", start="earliest"):
            stream.publish(
                range(10)
            )  # retained, or they might be released before Spark has started
        assert main(arguments) == 0
        stream.session.unsubscribe("keeper")
        stream.publish(range(10, 20))
        until(lambda: not numbers_in(stream), "it is released")
        assert main(arguments) == 2
        assert "no longer has" in capsys.readouterr().err
        more = ["--on-release", "skip", "--deadline", "30", "--partition-bytes", "1000000"]
        assert main([*arguments, *more, "--json"]) == 0
        printed = json.loads(capsys.readouterr().out)
        assert printed["skipped"]["quotes"] > 0
        assert printed["new_skipped"] == printed["skipped"]
        assert {*range(10)} <= {*numbers(read_archive(spark, tmp_path))}
        assert main([*arguments, *more]) == 0
        assert "quotes lacks" in capsys.readouterr().out
        assert main([*arguments, "--on-release", "perhaps"]) == 2
        assert "neither 'fail' nor 'skip'" in capsys.readouterr().err


def test_an_archive_merges_its_small_files_and_keeps_all_events(
    stream: Stream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archiving, "SMALL_FILES_MAX", 2)
    stream.publish(range(24))
    seen: list[int] = []
    found = archive(
        stream.spark,
        stream.servers,
        tmp_path,
        events_max=4,
        keep_s=0.0,
        on_progress=lambda done: seen.append(done.merged),
    )
    assert found.new_batches >= 6
    assert any(merged < found.merged_files for merged in seen if merged), "also during the run"
    assert found.files < found.new_batches
    assert len(list((tmp_path / "data").rglob("*.parquet"))) == found.files
    assert numbers(read_archive(stream.spark, tmp_path)) == [*range(24)]


# --- a driver that dies ------------------------------------------------------------------------------

DRIVER = """
import sys, time
from pathlib import Path
from gapless.spark.jobs import archive
from gapless.spark.jobs.manifest import ArchiveStore
from gapless.spark.session import spark_session

servers, path, trace = sys.argv[1:]
change = ArchiveStore.change

def stand_still(self, made):
    if self.read().batch == 0:  # the second batch is written, and not in
        Path(trace).touch()
        time.sleep(600)
    return change(self, made)

ArchiveStore.change = stand_still
archive(spark_session("local[1]"), servers, path, events_max=20)
"""


@pytest.fixture
def driver(stream: Stream, tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Return a process that archives and stops in the middle of its second batch."""
    stream.publish(range(50))
    arguments = [stream.servers, str(tmp_path / "history"), str(tmp_path / "trace")]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)]),
        "JAVA_TOOL_OPTIONS": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",  # it runs for seconds
    }
    with (tmp_path / "driver.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-c", DRIVER, *arguments],
            env=environment,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    yield process
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


@pytest.mark.slow
def test_an_archive_continues_after_its_driver_was_killed_during_a_batch(
    stream: Stream, driver: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    def has_stopped() -> bool:
        assert driver.poll() is None, (tmp_path / "driver.log").read_text()[-2_000:]
        return (tmp_path / "trace").exists()

    until(has_stopped, "the second batch is written, and not in the archive")
    os.killpg(driver.pid, signal.SIGKILL)
    driver.wait()
    store = ArchiveStore(tmp_path / "history")
    before = store.read()
    assert (before.batch, before.rows) == (0, 20)
    assert len(list(store.data.rglob("*.parquet"))) > len(before.files), (
        "the files of the killed batch"
    )
    found = archive(stream.spark, stream.servers, store.path, events_max=20)
    assert (found.events, found.new_events) == (50, 30)
    assert numbers(read_archive(stream.spark, store.path)) == [*range(50)]


# --- beside another file system ----------------------------------------------------------------------


@pytest.fixture
def elsewhere(spark: SparkSession) -> Iterator[None]:
    """Make bare paths belong to a missing file system, as with YARN, where they belong to HDFS."""
    context = spark.sparkContext._jsc
    assert context is not None
    settings = context.hadoopConfiguration()
    settings.set("fs.defaultFS", "nowhere:///")
    yield
    settings.unset("fs.defaultFS")


@pytest.mark.usefixtures("elsewhere")
def test_local_paths_stay_local_with_another_default_file_system(
    spark: SparkSession, stream: Stream, tmp_path: Path
) -> None:
    with pytest.raises(Exception, match="nowhere"):
        spark.read.parquet(str(tmp_path)).count()
    stream.publish(range(10))
    archive(spark, stream.servers, tmp_path / "a history")
    assert numbers(read_archive(spark, tmp_path / "a history")) == [*range(10)]
    store = ArchiveStore(tmp_path / "made")
    store.create(Manifest())
    add_batch(store, 0, range(1, 11))
    plain = tmp_path / "plain"
    plain.mkdir()
    (plain / "events.parquet").hardlink_to(store.data / store.read().files[0].path)
    assert events_at(spark, plain).count() == 10
    Traffic(tmp_path / "logs", 5, faults=False).run(40)
    assert audit(spark, [tmp_path / "logs"], state=tmp_path / "state").published == 40


def test_an_invalid_option_is_refused_before_the_archive_is_created(
    spark: SparkSession, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match="option deadline: '-1' is not a time"):
        archive(spark, "gapless://127.0.0.1:1", tmp_path, deadline_s=-1)
    assert not ArchiveStore(tmp_path).exists()
