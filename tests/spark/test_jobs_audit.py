"""Audits from logs: they agree with the demo's own audit, and leave open what they cannot know."""

from __future__ import annotations

import json
import random
import re
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

pytest.importorskip("pyspark", reason='Spark is not installed: pip install "gapless[spark]"')

from gapless.audit import AuditOptions, AuditWriter
from gapless.audit.records import (
    Acked,
    AuditDelivered,
    AuditEnded,
    AuditFilterChanged,
    AuditOpened,
    AuditPublished,
    Confirmed,
    GapReported,
    Stored,
)
from gapless.cli import spark_audit
from gapless.cli.main import main
from gapless.client.sync import connect_sync
from gapless.core.errors import UsageError
from gapless.core.ids import PubendId
from gapless.spark.jobs.audit_logs import kept_facts
from gapless.spark.jobs.auditing import AuditReport, AuditRow, audit
from gapless.spark.jobs.manifest import ArchiveStore, Manifest
from gapless.testing import SyncOverlay
from gapless_lab.commands.demo_audit import audit_and_profile
from gapless_lab.demo import records as demo
from gapless_lab.demo.audit import audit as demo_audit
from gapless_lab.demo.audit import audit_files
from gapless_lab.demo.run import DemoOptions, perform_and_show
from gapless_lab.demo.workload import BLUE, DESK_FIRST, DESK_LATER, EVERYTHING, LARGE, TESTS, quotes
from tests.spark.test_jobs_archive import add_batch

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EVENTS = "pubend string, tick long, attributes string"
COUNTS = ("expected", "delivered", "lost", "duplicates", "out_of_order", "spurious", "gaps")
EXCHANGES = {"nyse": "NYSE", "lse": "LSE"}


@pytest.fixture
def command(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make commands use the session of the tests and leave it running."""
    monkeypatch.setattr(type(spark), "stop", lambda _: None)
    monkeypatch.setenv("GAPLESS_SPARK_MASTER", str(spark.sparkContext.master))


class AuditedClient(NamedTuple):
    name: str
    filter: str
    durable: bool = False
    total: bool = False
    later: str = ""


SUBSCRIBERS = (
    AuditedClient("tape", EVERYTHING.text),
    AuditedClient("blue", BLUE.text),
    AuditedClient("desk", DESK_FIRST.text, durable=True, later=DESK_LATER.text),
    AuditedClient("ledger", LARGE.text, durable=True, total=True),
)


class Traffic:
    """Generated traffic, recorded twice: as the demo does, and as brokers and clients do."""

    def __init__(self, directory: Path, seed: int, *, faults: bool = True) -> None:
        self.dice = random.Random(seed)
        self.faults = faults
        self.now = time.time_ns() // 1_000
        self.published: list[demo.DemoPublished] = []
        self.notes: dict[str, list[demo.Note]] = {}
        options = AuditOptions(directory=str(directory), segment_bytes=4_096)
        self.broker = AuditWriter(options, "broker", "b1", cell="c1")
        self.client = AuditWriter(options, "client", "all")

    def run(self, count: int = 300) -> None:
        start = self.now
        streams = {name: quotes(place, self.dice) for name, place in EXCHANGES.items()}
        for number in range(1, count + 1):
            self.publish(number, self.dice.choice([*streams]), streams)
        for subscriber in SUBSCRIBERS:
            self.subscribe(subscriber, start)
        self.broker.close()
        self.client.close()

    def publish(self, number: int, pubend: str, streams: dict[str, Iterator[Any]]) -> None:
        self.now += self.dice.randrange(1, 50)
        quote = next(streams[pubend])
        one = demo.DemoPublished(f"feed-{pubend}", number, pubend, quote, self.now, "ok", self.now)
        self.published.append(one)
        stream = PubendId(pubend)
        self.broker.add(AuditPublished(stream, one.publisher, number, [self.now], [quote]))
        self.broker.add(Stored(stream, self.now))
        self.client.add(Confirmed(stream, one.publisher, number, [self.now]))
        self.broker.flush()

    def subscribe(self, subscriber: AuditedClient, start: int) -> None:
        positions = dict.fromkeys(EXCHANGES, start)
        middle = self.published[len(self.published) // 2].tick
        notes: list[demo.Note] = [
            demo.DemoOpened(
                subscriber.filter, "total" if subscriber.total else "publisher", positions, start
            )
        ]
        self.client.add(
            AuditOpened(
                subscriber.name,
                subscriber.name,
                "b1",
                subscriber.filter,
                subscriber.durable,
                subscriber.total,
                ids(positions),
            )
        )
        if subscriber.later:
            switch = dict.fromkeys(EXCHANGES, middle)
            notes.append(demo.DemoFilterChanged(subscriber.later, switch))
            self.client.add(
                AuditFilterChanged(subscriber.name, subscriber.name, subscriber.later, ids(switch))
            )
        for one in self.delivered(subscriber, middle):
            notes.append(
                demo.DemoDelivered(
                    one.publisher, one.number, one.pubend, one.tick, one.attributes, self.now
                )
            )
            run = (PubendId(one.pubend), [one.tick], [one.number])
            self.client.add(AuditDelivered(subscriber.name, subscriber.name, [run]))
            self.client.flush()
        if self.faults and subscriber.name == "blue":
            notes.append(demo.DemoGap("nyse", start - 9, start - 5))
            report = GapReported(
                subscriber.name, subscriber.name, PubendId("nyse"), start - 9, start - 5
            )
            self.client.add(report)
        last = ids(dict.fromkeys(EXCHANGES, self.now))
        self.client.add(AuditEnded(subscriber.name, subscriber.name, last))
        self.notes[subscriber.name] = notes

    def delivered(self, subscriber: AuditedClient, middle: int) -> list[demo.DemoPublished]:
        """Return the deliveries, with losses, repetitions, wrong order and spurious events."""

        def wants(one: demo.DemoPublished) -> bool:
            text = subscriber.later if subscriber.later and one.tick > middle else subscriber.filter
            return TESTS[text](one.attributes)

        came = [one for one in self.published if wants(one)]
        other = [one for one in self.published if not wants(one)]
        if not self.faults:
            return came
        for _ in range(3):
            came.pop(self.dice.randrange(len(came)))
            came.insert(self.dice.randrange(len(came)), self.dice.choice(came))
            if other:
                came.insert(self.dice.randrange(len(came)), self.dice.choice(other))
            place = self.dice.randrange(1, len(came))
            came[place - 1 : place + 1] = reversed(came[place - 1 : place + 1])
        return came


def ids(positions: dict[str, int]) -> list[tuple[PubendId, int]]:
    return [(PubendId(name), tick) for name, tick in positions.items()]


def counts(row: Any) -> dict[str, int]:
    return {name: getattr(row, name) for name in COUNTS}


def agree(found: AuditReport, traffic: Traffic) -> None:
    expected = demo_audit(traffic.published, traffic.notes, TESTS)
    rows = {row.subscription.split("@")[0]: counts(row) for row in found.rows}
    assert rows == {row.subscriber: counts(row) for row in expected.rows}
    assert counts(found.total) == counts(expected.total)
    assert found.published == expected.published
    assert found.is_clean == expected.is_clean


def test_the_audit_of_logs_agrees_with_the_demos_audit_to_the_event(
    spark: SparkSession, tmp_path: Path
) -> None:
    traffic = Traffic(tmp_path, 1)
    traffic.run()
    found = audit(spark, [tmp_path])
    agree(found, traffic)
    assert found.total.lost
    assert found.total.out_of_order
    assert found.examples


def test_both_audits_of_a_demo_with_a_killed_broker_agree(
    spark: SparkSession, tmp_path: Path
) -> None:
    options = DemoOptions(seconds=3, topology="line:3", rate=300)
    assert perform_and_show(options, tmp_path, as_json=True) == 0
    expected = audit_files(tmp_path / "records", TESTS)
    found = audit(spark, [tmp_path / "audit"])
    assert found.is_clean, found.examples
    rows: dict[str, dict[str, int]] = {}
    for each in found.rows:
        name = each.subscription.split("@")[0].split("-")[0]
        sums = rows.setdefault(name, dict.fromkeys(COUNTS, 0))
        for key, count in counts(each).items():
            sums[key] += count
    assert {name: row["delivered"] for name, row in rows.items()} == {
        row.subscriber: row.delivered for row in expected.rows
    }
    # the demo does not expect events without a confirmation of the publisher; the broker knows them
    assert {name: row["expected"] for name, row in rows.items()} == {
        row.subscriber: row.delivered for row in expected.rows
    }
    assert found.total.expected >= expected.total.expected
    assert 0 <= found.published - expected.published <= expected.unknown + found.unsure


@pytest.mark.usefixtures("command")
def test_the_demo_ends_with_an_audit_of_its_streams_and_logs(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = DemoOptions(seconds=2, topology="line:2", rate=200)
    logs: list[Path] = []

    def ending(audit: Path, tree: Path) -> bool:
        capsys.readouterr()
        logs.extend(audit.iterdir())
        return audit_and_profile(audit, tree)

    assert perform_and_show(options, tmp_path, then=ending) == 0
    output = capsys.readouterr().out
    expected = audit_files(tmp_path / "records", TESTS)
    (given,) = re.findall(r"in the streams +([\d,]+) of them", output)
    assert int(given.replace(",", "")) >= expected.published > 0, (
        "all that was acknowledged is there"
    )
    assert "clean: every promise was kept" in output
    assert "wanted there" in output
    assert sorted((tmp_path / "audit").iterdir()) == sorted(logs), "the second audit is in no log"
    assert spark.range(1).count() == 1


def test_new_segments_are_read_once_over_several_calls(spark: SparkSession, tmp_path: Path) -> None:
    traffic = Traffic(tmp_path / "logs", 4)
    for number in range(1, 60):
        traffic.publish(number, "nyse", {"nyse": quotes("NYSE", traffic.dice)})
    first = audit(spark, [tmp_path / "logs"], state=tmp_path / "state")
    assert 0 < first.published <= 59
    traffic.published.clear()
    traffic.now += 1_000_000
    traffic.run(200)
    second = audit(spark, [tmp_path / "logs"], state=tmp_path / "state")
    assert second == audit(spark, [tmp_path / "logs"])
    assert second.published == 259
    taken = kept_facts(spark, [tmp_path / "logs"], tmp_path / "state")
    assert taken.where("kind = 'p'").count() == 259


def real_traffic(directory: Path) -> None:
    """Run a real overlay: a durable subscriber disconnects and returns, a filter changes."""
    with (
        SyncOverlay("line:2", audit=directory) as overlay,
        connect_sync(overlay.url("b1"), audit=directory) as near,
        connect_sync(overlay.url("b2"), audit=directory) as far,
        near.publisher("quotes") as publisher,
    ):
        with far.subscribe("n % 2 = 0", durable="even") as events:
            while "quotes" not in events.position:
                time.sleep(0.01)
            publisher.publish_many({"n": n} for n in range(100))
            for _ in range(20):
                events.get()
        overlay.restart("b1")
        publisher.publish_many({"n": n} for n in range(100, 200))
        with far.subscribe("n % 2 = 0", durable="even") as events:
            for _ in range(80):
                events.get()
            events.set_filter("n % 3 = 0")
            publisher.publish_many({"n": n} for n in range(200, 300))
            for _ in range(33):
                events.get()


def test_real_traffic_with_a_crash_and_a_return_is_clean(
    spark: SparkSession, tmp_path: Path
) -> None:
    real_traffic(tmp_path)
    found = audit(spark, [tmp_path])
    assert found.is_clean, found.examples
    (row,) = found.rows
    assert (row.side, row.expected, row.delivered) == ("client", 133, 133)
    assert found.published == 300
    by_brokers = tmp_path / "brokers"
    by_brokers.mkdir()
    for path in tmp_path.glob("broker-*"):
        path.rename(by_brokers / path.name)
    alone = audit(spark, [by_brokers])
    assert alone.is_clean, alone.examples
    assert (alone.rows[0].side, alone.rows[0].expected) == ("broker", 133)


# --- incomplete logs -------------------------------------------------------------------------------


class ScenarioRecorder:
    """A subscription of everything on its own pubend, with its own logs."""

    def __init__(self, directory: Path, name: str, *, durable: bool = False) -> None:
        self.options = AuditOptions(directory=str(directory))
        self.name = name
        self.pubend = PubendId(name)
        self.durable = durable
        self.broker = AuditWriter(self.options, "broker", f"broker of {name}")
        self.client = AuditWriter(self.options, "client", f"client of {name}")
        self.start = self.now = time.time_ns() // 1_000
        self.number = 0

    def publish(self, count: int) -> list[int]:
        for _ in range(count):
            self.number += 1
            self.now += 10
            attributes = [{"n": self.number}]
            self.broker.add(AuditPublished(self.pubend, "p", self.number, [self.now], attributes))
            self.broker.add(Stored(self.pubend, self.now))
        return [*range(self.now - 10 * (count - 1), self.now + 1, 10)]

    def open(self, after: int, session: str = "1") -> None:
        positions = [(self.pubend, after)]
        self.client.add(
            AuditOpened(self.name, session, "b1", "TRUE", self.durable, False, positions)
        )

    def take(self, *ticks: int, session: str = "1") -> None:
        self.client.add(AuditDelivered(self.name, session, [(self.pubend, list(ticks), [])]))

    def leave(self, tick: int, session: str = "1") -> None:
        self.client.add(AuditEnded(self.name, session, [(self.pubend, tick)]))

    def end(self) -> None:
        self.broker.close()
        self.client.close()


def record_failovers(directory: Path) -> None:
    scenario = ScenarioRecorder(directory, "flight")
    scenario.open(scenario.start)
    ticks = scenario.publish(5)
    scenario.take(*ticks[:3])
    scenario.end()


def record_an_interrupted_writer(directory: Path) -> None:
    scenario = ScenarioRecorder(directory, "interrupted", durable=True)
    scenario.open(scenario.start)
    ticks = scenario.publish(6)
    scenario.take(*ticks[:2])
    scenario.client.flush()
    scenario.client.abandon()
    scenario.client = AuditWriter(scenario.options, "client", "again")
    scenario.open(ticks[3], "2")
    scenario.take(*ticks[4:], session="2")
    scenario.end()


def record_a_skip(directory: Path) -> None:
    scenario = ScenarioRecorder(directory, "skip", durable=True)
    scenario.open(scenario.start)
    ticks = scenario.publish(6)
    scenario.take(*ticks[:2])
    scenario.leave(ticks[1])
    scenario.open(ticks[3], "2")
    scenario.take(*ticks[4:], session="2")
    scenario.end()


def record_repetitions(directory: Path) -> None:
    scenario = ScenarioRecorder(directory, "repetition", durable=True)
    scenario.open(scenario.start)
    ticks = scenario.publish(4)
    scenario.take(*ticks)
    scenario.client.add(Acked(scenario.name, "1", [(scenario.pubend, ticks[1])]))
    scenario.leave(ticks[3])
    scenario.open(ticks[0], "2")
    scenario.take(*ticks[1:], session="2")
    scenario.end()


def record_a_dead_broker(directory: Path) -> None:
    scenario = ScenarioRecorder(directory, "death")
    scenario.open(scenario.start)
    (first,) = scenario.publish(1)
    scenario.broker.add(AuditPublished(scenario.pubend, "p", 2, [first + 10, first + 11], [{}, {}]))
    scenario.client.add(Confirmed(scenario.pubend, "p", 2, [first + 10]))
    scenario.broker.flush()
    scenario.broker.abandon()
    scenario.take(first)
    scenario.leave(first + 100)
    scenario.client.close()


def record_an_unlogged_event(directory: Path) -> None:
    scenario = ScenarioRecorder(directory, "unlogged")
    (tick,) = scenario.publish(1)
    scenario.client.add(Confirmed(scenario.pubend, "p", 1, [tick, tick + 1]))
    scenario.end()


def record_old_events(directory: Path) -> None:
    scenario = ScenarioRecorder(directory, "old")
    scenario.open(0)
    (tick,) = scenario.publish(1)
    scenario.take(5, tick, tick + 1)
    scenario.end()


@pytest.fixture(scope="module")
def report(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> AuditReport:
    """Return one audit of all scenarios: they share only the directory."""
    directory = tmp_path_factory.mktemp("stories")
    for tell in (
        record_failovers,
        record_an_interrupted_writer,
        record_a_skip,
        record_repetitions,
        record_a_dead_broker,
        record_an_unlogged_event,
        record_old_events,
    ):
        tell(directory)
    return audit(spark, [directory])


def row(report: AuditReport, name: str) -> AuditRow:
    return next(each for each in report.rows if each.subscription.split("@")[0] == name)


def test_events_after_the_last_delivery_are_in_flight(report: AuditReport) -> None:
    found = row(report, "flight")
    assert (found.expected, found.lost, found.in_flight) == (3, 0, 2)


def test_events_after_the_last_record_of_an_interrupted_writer_are_not_lost(
    report: AuditReport,
) -> None:
    found = row(report, "interrupted")
    assert (found.lost, found.in_flight, found.expected) == (0, 2, 4)


def test_events_skipped_between_client_sessions_that_ended_in_order_are_lost(
    report: AuditReport,
) -> None:
    assert row(report, "skip").lost == 2


def test_a_repeated_event_is_a_duplicate_only_if_it_was_acknowledged(report: AuditReport) -> None:
    found = row(report, "repetition")
    assert (found.duplicates, found.repeated, found.delivered) == (1, 2, 5)


def test_events_of_a_dead_broker_are_expected_if_they_were_confirmed(report: AuditReport) -> None:
    found = row(report, "death")
    assert (found.lost, found.expected, report.unsure) == (1, 2, 2)


def test_an_acknowledged_event_that_is_in_no_log_is_reported(report: AuditReport) -> None:
    assert report.unlogged == 1
    assert not report.is_clean


def test_events_older_than_the_log_are_not_judged(report: AuditReport) -> None:
    found = row(report, "old")
    assert (found.unjudged, found.spurious) == (1, 1)


def test_without_attributes_the_events_are_needed(spark: SparkSession, tmp_path: Path) -> None:
    scenario = ScenarioRecorder(tmp_path, "bare")
    scenario.open(scenario.start)
    tick = scenario.now + 1
    scenario.broker.add(AuditPublished(scenario.pubend, "p", 1, [tick]))
    scenario.broker.add(Stored(scenario.pubend, tick))
    scenario.take(tick)
    scenario.end()
    with pytest.raises(UsageError, match="1 publications were recorded without attributes"):
        audit(spark, [tmp_path])
    events = spark.createDataFrame([("bare", tick, "{}")], EVENTS)
    assert audit(spark, [tmp_path], events=events).total.expected == 1
    with pytest.raises(UsageError, match="the events have no column attributes"):
        audit(spark, [tmp_path], events=events.drop("attributes"))
    with pytest.raises(
        UsageError, match="none of the 1 publications in the logs is among the events"
    ):
        audit(spark, [tmp_path], events=spark.createDataFrame([], EVENTS))


@pytest.mark.usefixtures("command")
def test_events_without_a_description_are_named_and_not_judged(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    scenario = ScenarioRecorder(tmp_path / "logs", "börse")
    scenario.open(scenario.start)
    ticks = [scenario.now + 1, scenario.now + 2, scenario.now + 3]
    scenario.broker.add(AuditPublished(scenario.pubend, "p", 1, ticks))
    scenario.broker.add(Stored(scenario.pubend, ticks[-1]))
    scenario.take(ticks[0], ticks[1])
    scenario.leave(ticks[-1])
    scenario.end()
    store = ArchiveStore(tmp_path / "history")
    store.create(Manifest())
    add_batch(store, 0, range(ticks[0], ticks[0] + 1), "börse")
    add_batch(store, 1, range(ticks[2], ticks[2] + 1), "börse")
    arguments = ["spark", "audit", str(tmp_path / "logs"), "--events", str(store.path)]
    assert main([*arguments, "--json"]) == 1
    report = json.loads(capsys.readouterr().out)
    assert (report["published"], report["given"], report["undescribed"]) == (3, 2, 1)
    total = report["total"]
    assert (total["expected"], total["lost"], total["spurious"], total["unjudged"]) == (2, 1, 0, 1)
    assert main(arguments) == 1
    output = capsys.readouterr().out
    assert f"1 of them, börse:{ticks[1]} first" in output


def test_given_events_override_the_log_which_supplies_missing_ones(
    spark: SparkSession, tmp_path: Path
) -> None:
    scenario = ScenarioRecorder(tmp_path, "both")
    positions = [(scenario.pubend, scenario.start)]
    scenario.client.add(AuditOpened("both", "1", "b1", "n = 2", False, False, positions))
    ticks = scenario.publish(3)
    scenario.take(ticks[1], ticks[2])
    scenario.leave(ticks[-1])
    scenario.end()
    events = spark.createDataFrame([("both", ticks[2], '{"n": 2}')], EVENTS)
    found = audit(spark, [tmp_path], events=events)
    assert (found.given, found.undescribed, found.total.expected, found.total.spurious) == (
        1,
        0,
        2,
        0,
    )
    assert audit(spark, [tmp_path]).total.spurious == 1


# --- the command -----------------------------------------------------------------------------------


@pytest.mark.usefixtures("command")
def test_a_following_audit_waits_for_the_first_segment_and_reports_everything_each_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    scenario = ScenarioRecorder(tmp_path / "logs", "followed")
    scenario.publish(2)
    scenario.broker.flush()
    later = ScenarioRecorder(tmp_path / "logs", "later")
    output: list[str] = []

    def pause(seconds: float) -> None:
        assert seconds == 7
        captured = capsys.readouterr()
        output.append(captured.out + captured.err)
        if len(output) == 1:
            scenario.end()
        elif len(output) == 2:
            later.publish(3)
            later.end()
        else:
            raise KeyboardInterrupt

    monkeypatch.setattr(spark_audit, "time", SimpleNamespace(sleep=pause))
    # inside the directory that is read, as users will have it
    arguments = ["spark", "audit", str(tmp_path / "logs"), "--state", str(tmp_path / "logs" / "s")]
    assert main([*arguments, "--json", "--follow", "--every", "7"]) == 130
    assert "nothing to audit yet: no segment of an audit log is closed" in output[0]
    published = [json.loads(each.splitlines()[-1])["published"] for each in output[1:]]
    assert published == [2, 5]
    checkpoints = tmp_path / "logs" / "s" / "checkpoints"
    assert len([*checkpoints.iterdir()]) == 1, "only that of the logs"
    assert main([*arguments[:3], "--follow"]) == 2
    assert "--state" in capsys.readouterr().err


@pytest.mark.usefixtures("command")
def test_the_command_distinguishes_a_clean_log_from_an_unclean_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good, bad = tmp_path / "good", tmp_path / "bad"
    Traffic(good, 5, faults=False).run(80)
    Traffic(bad, 6).run(80)
    assert main(["spark", "audit", str(good), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["clean"] is True
    assert found["total"]["lost"] == 0
    assert main(["spark", "audit", str(tmp_path / "b*")]) == 1
    output = capsys.readouterr().out
    assert "never came" in output
    assert "came twice" in output
    assert main(["spark", "audit", str(tmp_path / "none")]) == 2
    assert "not a directory of an audit log" in capsys.readouterr().err


def test_an_audit_without_segments_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there are no segments"):
        audit(spark, [tmp_path])
    with pytest.raises(UsageError, match="no segment of an audit log is closed"):
        audit(spark, [tmp_path], state=tmp_path / "state")
