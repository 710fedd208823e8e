"""Spark with brokers that require tokens: sources, sinks and jobs use tokens and do not show them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark", reason='Spark is not installed: pip install "gapless[spark]"')

from pyspark.errors import PySparkException

from gapless.cli.main import EXIT_REFUSED, main
from gapless.client.credentials import Credentials
from gapless.core.errors import AuthenticationError, UsageError
from gapless.spark.jobs.archiving import archive, read_archive
from gapless.spark.options import parse_options
from gapless.spark.planning import Range
from gapless.spark.reading import read_range
from gapless.spark.sink_options import parse_sink_options
from gapless.testing import SyncOverlay
from gapless.wire import new_token
from tests.cli.overlays import ROOT
from tests.spark.rows import TIMEOUT_S, Sink, Stream, numbers
from tests.tokens import Principals

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def principals(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Principals:
    for name in ("GAPLESS_TOKEN", "GAPLESS_TOKEN_FILE"):
        monkeypatch.delenv(name, raising=False)
    return Principals(tmp_path, "feed", "job")


@pytest.fixture
def guarded(spark: SparkSession, principals: Principals) -> Iterator[Stream]:
    """Return an overlay that requires tokens, and a session that may publish to it."""
    with (
        SyncOverlay("line:2", tokens=principals.path) as overlay,
        Stream(spark, overlay, token=principals["feed"]) as made,
    ):
        yield made


def write(stream: Stream, frame: Any, **options: Any) -> None:
    chosen = {"servers": stream.servers, "pubend": "copies", "deadline": 30, **options}
    frame.write.format("gapless").options(**chosen).mode("append").save()


def test_batches_are_read_and_written_with_a_token_or_a_token_file(
    guarded: Stream, principals: Principals
) -> None:
    guarded.publish(range(20))
    for options in ({"token": principals["job"]}, {"tokenFile": str(principals.file_of("job"))}):
        frame = guarded.load(pubends="quotes", **options)
        assert numbers(frame) == [*range(20)]
        write(guarded, frame.select("n"), **options)
    copied = [each.attributes["n"] for each in guarded.session.read("copies")]
    assert sorted(copied) == sorted([*range(20)] * 2)


def test_tasks_use_the_token_at_another_broker(guarded: Stream, principals: Principals) -> None:
    guarded.publish(range(20))
    servers = guarded.overlay.url("b2", "b1")
    frame = guarded.load(servers=servers, pubends="quotes", token=principals["job"])
    assert numbers(frame) == [*range(20)]


def test_a_stream_with_a_reader_is_copied_from_source_to_sink(
    guarded: Stream, principals: Principals, tmp_path: Path
) -> None:
    principals.add("job", operator=True)  # the driver moves the reader's subscription
    path = str(principals.file_of("job"))
    guarded.publish(range(30))
    frame = guarded.stream(
        start="earliest", pubends="quotes", maxEventsPerTrigger=10, reader="copier", tokenFile=path
    )
    target: dict[str, Any] = {
        "servers": guarded.servers,
        "pubend": "copies",
        "tokenFile": path,
        "deadline": 30,
    }
    writer = frame.select("n").writeStream.format("gapless").options(**target)
    writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
    for numbers_of_run in (range(30, 40), range(40, 50)):
        guarded.publish(numbers_of_run)
        query = writer.trigger(availableNow=True).start()
        assert query.awaitTermination(TIMEOUT_S)
    copied = [each.attributes["n"] for each in guarded.session.read("copies")]
    assert copied == [*range(50)]


def test_a_missing_or_wrong_token_is_refused_when_a_query_is_planned(
    guarded: Stream, tmp_path: Path
) -> None:
    guarded.publish(range(3))
    frame = guarded.spark.range(3).withColumnRenamed("id", "n")
    refused = guarded.overlay._overlay.node("b1").acceptor
    for options, message in (({}, "requires a token"), ({"token": new_token()}, "does not know")):
        with pytest.raises(PySparkException, match=message) as caught:
            guarded.load(pubends="quotes", **options).collect()
        assert "AuthenticationError" in str(caught.value)
        with pytest.raises(PySparkException, match=message):
            Sink(guarded.stream(**options), tmp_path / message).run()
        before = refused.refused
        with pytest.raises(PySparkException, match=message) as caught:
            write(guarded, frame, **options)
        assert refused.refused == before + 1, "no task has started"
        for token in options.values():
            assert token not in str(caught.value)
    with pytest.raises(PySparkException, match="nowhere cannot be read"):
        guarded.load(pubends="quotes", tokenFile=str(tmp_path / "nowhere")).collect()
    with pytest.raises(PySparkException, match="nowhere cannot be read"):
        write(guarded, frame, tokenFile=str(tmp_path / "nowhere"))


def test_a_task_reads_its_token_file_when_it_dials_and_reports_a_refusal(
    guarded: Stream, principals: Principals
) -> None:
    last = guarded.publish(range(3))["quotes"]
    part = Range("quotes", 1, last, (guarded.servers,))
    path = principals.directory / "task.token"

    def read() -> int:
        credentials = Credentials(token_file=str(path))
        return len([*read_range(part, "TRUE", "skip", 30.0, credentials)])

    with pytest.raises(UsageError, match=r"task\.token cannot be read"):
        read()
    path.write_text(new_token())
    with pytest.raises(AuthenticationError, match="does not know"):
        read()
    path.write_text(principals["job"])
    assert read()


def test_an_archive_is_made_with_a_token_file(
    guarded: Stream, principals: Principals, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    guarded.publish(range(20))
    path = principals.file_of("job")
    with pytest.raises(AuthenticationError, match="requires a token"):
        archive(guarded.spark, guarded.servers, tmp_path / "refused")
    done = archive(guarded.spark, guarded.servers, tmp_path / "archive", token_file=path)
    assert done.events == 20
    assert read_archive(guarded.spark, tmp_path / "archive").count() == 20
    monkeypatch.setattr(type(guarded.spark), "stop", lambda _: None)
    monkeypatch.setenv("GAPLESS_SPARK_MASTER", str(guarded.spark.sparkContext.master))
    command = ["spark", "archive", "--url", guarded.servers, "--json"]
    assert main([*command, str(tmp_path / "other")]) == EXIT_REFUSED
    assert main([*command, str(tmp_path / "again"), "--token-file", str(path)]) == 0
    assert read_archive(guarded.spark, tmp_path / "again").count() == 20


# --- options and secrets ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"token": "two words"}, "option token: a token has no blanks"),
        ({"tokenFile": " "}, "option tokenFile: name the file"),
        ({"token": "a", "tokenfile": "b"}, "not both"),
        ({"auth_token": "x"}, "the option tokenFile"),
    ],
)
def test_an_invalid_option_is_named_without_the_token(given: dict[str, str], message: str) -> None:
    for parse in (parse_options, parse_sink_options):
        with pytest.raises(UsageError, match=message) as caught:
            parse({"servers": "gapless://127.0.0.1", **given})
        assert "two words" not in str(caught.value)


def test_options_do_not_show_the_token() -> None:
    token = new_token()
    for parse in (parse_options, parse_sink_options):
        options = parse({"servers": "gapless://127.0.0.1", "token": token})
        assert options.credentials.token == token
        assert token not in repr(options)


def test_plans_do_not_show_the_token(
    guarded: Stream, principals: Principals, capsys: pytest.CaptureFixture[str]
) -> None:
    token = principals["job"]
    guarded.publish(range(3))
    frame = guarded.load(pubends="quotes", token=token).where("n > 0")
    for mode in ("simple", "extended", "codegen", "cost", "formatted"):
        frame.explain(mode=mode)
    shown = capsys.readouterr().out
    assert "gapless" in shown.lower()
    java: Any = frame._jdf
    shown += java.queryExecution().toString() + java.queryExecution().stringWithStats()
    guarded.spark.sql(
        f"CREATE OR REPLACE TEMPORARY VIEW guarded USING gapless OPTIONS "
        f"(servers '{guarded.servers}', pubends 'quotes', token '{token}')"
    )
    guarded.spark.sql("SELECT * FROM guarded").explain(mode="extended")
    shown += capsys.readouterr().out
    assert guarded.spark.sql("SELECT count(*) FROM guarded").first()[0] == 3  # type: ignore[index]
    assert token not in shown


EVENT_LOG = """
import sys
from gapless.spark.session import spark_session

directory, servers, token = sys.argv[1], sys.argv[2], sys.stdin.read()
spark = spark_session(
    "local[1]",
    settings={
        "spark.eventLog.enabled": "true",
        "spark.eventLog.compress": "false",
        "spark.eventLog.dir": f"file://{directory}/events",
        "spark.sql.shuffle.partitions": "1",
    },
)
frame = spark.read.format("gapless").option("servers", servers).option("token", token).load()
assert frame.count() == 3
to = {"servers": servers, "pubend": "copies", "token": token}
frame.select("payload").write.format("gapless").options(**to).mode("append").save()
stream = spark.readStream.format("gapless").option("servers", servers).option("token", token)
query = (
    stream.option("pubends", "quotes").option("start", "earliest").load()
    .select("payload").writeStream.format("gapless").options(**to)
    .option("checkpointLocation", f"{directory}/checkpoint").trigger(availableNow=True).start()
)
query.awaitTermination()
spark.sql(
    f"CREATE TEMPORARY VIEW seen USING gapless OPTIONS "
    f"(servers '{servers}', filter 'in_plain_sight > 0', token '{token}')"
)
assert spark.sql("SELECT * FROM seen").count() == 0
print(query.lastProgress.json if query.lastProgress else "", query.id)
spark.stop()
"""


def test_the_files_of_a_spark_run_do_not_contain_the_token(
    guarded: Stream, principals: Principals, tmp_path: Path
) -> None:
    guarded.publish(range(3))
    (tmp_path / "events").mkdir()
    token = principals["job"]
    ran = subprocess.run(
        [sys.executable, "-c", EVENT_LOG, str(tmp_path), guarded.servers],
        input=token,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
        cwd=ROOT,
    )
    assert ran.returncode == 0, ran.stderr
    kept = [each for each in tmp_path.rglob("*") if each.is_file() and each.suffix != ".token"]
    events = b"".join(each.read_bytes() for each in kept if "events" in each.parts)
    assert b"gapless" in events
    assert b"in_plain_sight" in events, "other options are shown"
    assert b"redacted" in events
    assert [each.name for each in kept if "checkpoint" in each.parts]
    for each in kept:
        assert token.encode() not in each.read_bytes(), each
    assert token not in ran.stdout + ran.stderr
