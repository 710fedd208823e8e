"""Audits against given rights: publications and deliveries that the rules do not allow."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark", reason='Spark is not installed: pip install "gapless[spark]"')

from gapless.audit import AuditOptions, AuditWriter, read
from gapless.audit.records import AuditDelivered, AuditOpened, AuditPublished, AuditRecord, Stored
from gapless.cli.main import EXIT_WRONG_INPUT, main
from gapless.client.sync import connect_sync
from gapless.core.errors import UsageError
from gapless.core.ids import PubendId
from gapless.spark.jobs.auditing import AuditReport, AuditRow, audit
from gapless.spark.jobs.rights import Right, Rights, load_rights
from gapless.spark.jobs.rights_audit import PrincipalRow, RightsReport
from gapless.testing import SyncOverlay
from tests.tokens import Principals

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

QUOTES = PubendId("quotes")

RULES = """
allow = [
  ["feeds", "publish"],
  ["readers", "subscribe", "n < 5"],
  ["*", "subscribe", "public = TRUE"],
]
deny = [["mallory", "subscribe", "n = 1"]]

[groups]
feeds = ["feed", "job"]
readers = ["alice", "mallory"]
"""


# --- rules ----------------------------------------------------------------------------------------------


def allowed(rights: Rights, principal: str, right: Right, attributes: dict[str, Any]) -> bool:
    from gapless.content.filter import Filter

    compiled_rights = rights.compiled_rights()
    matching = [
        place
        for place, text in enumerate(compiled_rights.texts)
        if Filter(text).matches(attributes)
    ]
    return compiled_rights.allow(principal, right, matching)


def test_rules_apply_to_principals_groups_and_everybody_and_a_denial_wins(tmp_path: Path) -> None:
    path = tmp_path / "rights.toml"
    path.write_text(RULES)
    rights = load_rights(path)
    assert rights.count == 4
    for principal, right, attributes, expected in (
        ("feed", "publish", {"n": 9}, True),
        ("job", "publish", {}, True),
        ("alice", "publish", {"n": 9}, False),
        ("feeds", "publish", {"n": 9}, False),  # a group is no principal
        ("alice", "subscribe", {"n": 1}, True),
        ("alice", "subscribe", {"n": 9}, False),
        ("alice", "subscribe", {}, False),
        ("alice", "subscribe", {"n": 9, "public": True}, True),
        ("mallory", "subscribe", {"n": 1}, False),
        ("mallory", "subscribe", {"n": 1, "public": True}, False),
        ("mallory", "subscribe", {"n": 2}, True),
        ("stranger", "subscribe", {"public": True}, True),
        ("", "subscribe", {"public": True}, True),
        ("", "subscribe", {"n": 1}, False),
        ("", "publish", {"n": 1}, False),
    ):
        assert allowed(rights, principal, right, attributes) is expected, (principal, attributes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('allow = [["a", "connect"]]', "rule 1 of allow: 'connect' is neither"),
        ('deny = [["a", "publish"], ["a"]]', "rule 2 of deny must be"),
        ('allow = [["a", "publish", "n >"]]', "rule 1 of allow: .*column"),
        ('allow = [["", "publish"]]', "names no principal"),
        ('alow = [["a", "publish"]]', "there is no key"),
        ('[groups]\na = ["b"]\nc = ["a"]', "the group c has a"),
        ('[groups]\n"*" = ["b"]', "a name of its own"),
        ('[groups]\na = ["*"]', "its members are principals"),
        ("allow = [", "is not TOML"),
    ],
)
def test_an_invalid_rule_is_named(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "rights.toml"
    path.write_text(content)
    with pytest.raises(UsageError, match=f"(?s){message}") as caught:
        load_rights(path)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize(
    "kind", ["unauthorised_publications", "unauthorised_deliveries", "unauthorised_reads"]
)
def test_any_unauthorised_count_makes_an_audit_unclean(kind: str) -> None:
    names = ("publications", "deliveries", "reads")
    counts = {f"unauthorised_{name}": 0 for name in names}

    def report(**found: int) -> AuditReport:
        rights = RightsReport(rules=1, unjudged=0, principals=[], **{**counts, **found})
        sums = {"published": 1, "unsure": 0, "unlogged": 0, "undescribed": 0}
        return AuditReport(
            **sums,
            given=None,
            undescribed_first=[],
            rights=rights,
            rows=[],
            total=AuditRow(subscription="total"),
            examples=[],
            logs=[],
        )

    assert report().is_clean
    assert not report(**{kind: 1}).is_clean


# --- real brokers -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the audit logs of brokers: feed and job published, alice and mallory subscribed.

    Events 0 to 9 are of feed, 10 is of mallory, 11 is of job, which staged it. Alice has read 0 to 2, 7 and 8.
    """
    directory = tmp_path_factory.mktemp("rights")
    principals = Principals(directory, "feed", "job", "alice", "mallory")
    logs = directory / "audit"
    with (
        SyncOverlay("line:2", audit=logs, tokens=principals.path) as overlay,
        connect_sync(overlay.url("b1"), token=principals["feed"]) as feed,
        connect_sync(overlay.url("b1"), token=principals["job"]) as job,
        connect_sync(overlay.url("b2"), token=principals["alice"], audit=logs) as alice,
        connect_sync(overlay.url("b2"), token=principals["mallory"]) as mallory,
    ):
        with feed.publisher("quotes", name="tape") as publisher:
            publisher.publish_many({"n": n} for n in range(10))
        with mallory.publisher("leaks", name="mole") as publisher:
            publisher.publish({"n": 10})
        staged = job.loop_thread.run(_stage(job._session))
        job.loop_thread.run(job._session.commit_staged([staged]))
        for session, wanted, name, last in (
            (alice, "n < 5", None, 5),
            (mallory, "n < 3 OR n = 10", "desk", 4),
        ):
            with session.subscribe(wanted, durable=name, start="earliest") as events:
                assert len([events.get() for _ in range(last)]) == last
        assert len([*alice.read("quotes", filter="n < 3")]) == 3
        for wanted, count in (("n = 7 OR n = 8", 2), ("n = 7", 1)):
            assert len([*alice.read("quotes", filter=wanted)]) == count
    return logs


async def _stage(session: Any) -> Any:
    async with session.staged_writer("quotes", writer="loader", batch=1) as staged:
        await staged.add([{"n": 11}])
        return await staged.finish()


def of(kind: type[AuditRecord], logs: Path) -> list[Any]:
    return [each for each in read(logs) if isinstance(each.record, kind)]


def test_brokers_record_the_principals_of_publications_and_client_sessions(
    logs: Path,
) -> None:
    published = {
        (each.record.publisher, each.record.principal) for each in of(AuditPublished, logs)
    }
    assert published == {("tape", "feed"), ("mole", "mallory"), ("loader", "job")}
    opened = {(each.header.side, each.record.principal) for each in of(AuditOpened, logs)}
    assert opened == {("broker", "alice"), ("broker", "mallory"), ("client", "")}


def judged(spark: SparkSession, logs: Path, rights: Rights | Path, tmp_path: Path) -> AuditReport:
    """Audit in a batch and by a stream; both must agree."""
    batch = audit(spark, [logs], rights=rights)
    stream = audit(spark, [logs], rights=rights, state=tmp_path / "state")
    assert stream.rights == batch.rights
    assert stream.examples == batch.examples
    assert [row.unauthorised for row in stream.rows] == [row.unauthorised for row in batch.rows]
    return batch


def test_publications_and_deliveries_without_a_right_are_counted_and_named(
    spark: SparkSession, logs: Path, tmp_path: Path
) -> None:
    path = tmp_path / "rights.toml"
    path.write_text(RULES)
    found = judged(spark, logs, path, tmp_path)
    assert found.rights is not None
    assert found.rights.unauthorised_publications == 1
    # mallory got 0 and 2 with a right, 1 against a denial, and 10, which no rule allows
    assert found.rights.unauthorised_deliveries == 2
    assert found.rights.unauthorised_reads == 2
    assert found.rights.unjudged == 0
    assert found.rights.principals == [
        PrincipalRow(principal="alice", read=2),
        PrincipalRow(principal="mallory", published=1, delivered=2),
    ]
    rows = {row.subscription.split("-")[0]: row for row in found.rows}
    assert rows["desk@b2"].unauthorised == 2
    assert [row.unauthorised for name, row in rows.items() if name != "desk@b2"] == [0]
    assert found.total.unauthorised == 2
    assert not found.total.lost
    assert not found.is_clean
    assert len(found.examples) == 5
    assert all(each.startswith("alice read tape ") for each in found.examples[3:])
    assert found.examples[0].startswith("mallory published mole 1 at leaks:")
    assert all("desk@b2: " in each and "came to mallory" in each for each in found.examples[1:3])


def test_an_audit_is_clean_if_the_rules_allow_everything(
    spark: SparkSession, logs: Path, tmp_path: Path
) -> None:
    rights = Rights.of(
        [
            ["feed", "publish", "n < 10"],
            ["job", "publish", "n = 11"],
            ["mallory", "publish", "n = 10"],
            ["alice", "subscribe", "n < 5"],
            ["alice", "subscribe", "n BETWEEN 7 AND 8"],
            ["mallory", "subscribe", "n < 3"],
            ["mallory", "subscribe", "n > 9"],
        ]
    )
    found = judged(spark, logs, rights, tmp_path)
    assert found.rights is not None
    assert (found.rights.unauthorised_publications, found.rights.unauthorised_deliveries) == (0, 0)
    assert found.rights.principals == []
    assert found.total.unauthorised == 0
    assert found.is_clean, found.examples


def test_without_rules_rights_are_reported_as_not_judged(
    spark: SparkSession,
    logs: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(type(spark), "stop", lambda _: None)
    monkeypatch.setenv("GAPLESS_SPARK_MASTER", str(spark.sparkContext.master))
    assert main(["spark", "audit", str(logs), "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["rights"] is None
    assert printed["total"]["unauthorised"] is None
    assert {row["unauthorised"] for row in printed["rows"]} == {None}
    assert main(["spark", "audit", str(logs)]) == 0
    message = capsys.readouterr().out
    assert "not judged: no rules were given" in message


def test_the_command_reports_violated_rights_as_text_and_json_with_exit_code_1(
    spark: SparkSession,
    logs: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(type(spark), "stop", lambda _: None)
    monkeypatch.setenv("GAPLESS_SPARK_MASTER", str(spark.sparkContext.master))
    path = tmp_path / "rights.toml"
    path.write_text(RULES)
    command = ["spark", "audit", str(logs), "--rights", str(path)]
    assert main([*command, "--json"]) == 1
    printed = json.loads(capsys.readouterr().out)
    assert printed["clean"] is False
    assert printed["rights"]["unauthorised_publications"] == 1
    assert printed["rights"]["unauthorised_deliveries"] == 2
    assert printed["rights"]["unauthorised_reads"] == 2
    assert [each["principal"] for each in printed["rights"]["principals"]] == ["alice", "mallory"]
    assert main(command) == 1
    message = capsys.readouterr().out
    assert (
        "4 rules; unauthorised: publications 1, deliveries 2, reads of logs 2 (alice, mallory)"
        in message
    )
    assert "came to mallory: unauthorised" in message
    assert "not clean" in message
    path.write_text('allow = [["*", "publish"], ["*", "subscribe"]]')
    assert main(command) == 0
    assert "unauthorised: publications 0, deliveries 0, reads of logs 0" in capsys.readouterr().out
    path.write_text("allow = [")
    assert main(command) == EXIT_WRONG_INPUT


# --- incomplete records -------------------------------------------------------------------------------------


def test_a_client_without_a_principal_has_the_rights_of_everybody(
    spark: SparkSession, tmp_path: Path
) -> None:
    writer = AuditWriter(AuditOptions(directory=str(tmp_path / "logs")), "broker", "b1", cell="c1")
    writer.add(AuditPublished(QUOTES, "p", 1, [100, 200], [{"n": 1}, {"n": 2}]))
    writer.add(Stored(QUOTES, 200))
    writer.add(AuditOpened("desk", "v", "b1", "TRUE", False, False, [(QUOTES, 0)]))
    writer.add(AuditDelivered("desk", "v", [(QUOTES, [100, 200], [])]))
    writer.close()
    rights = Rights.of([["*", "publish"], ["*", "subscribe", "n = 1"], ["bob", "subscribe"]])
    found = judged(spark, tmp_path / "logs", rights, tmp_path)
    assert found.rights is not None
    assert found.rights.unauthorised_publications == 0
    assert found.rights.unauthorised_deliveries == 1
    assert found.examples == [
        "desk: p 2 at quotes:200 came to a client without a principal: unauthorised"
    ]


def test_a_repeated_delivery_counts_once_and_an_event_without_attributes_is_not_judged(
    spark: SparkSession, tmp_path: Path
) -> None:
    writer = AuditWriter(AuditOptions(directory=str(tmp_path / "logs")), "broker", "b1", cell="c1")
    writer.add(AuditPublished(QUOTES, "p", 1, [100], [{"n": 1}], "feed"))
    writer.add(AuditPublished(QUOTES, "p", 2, [200], None, "feed"))
    writer.add(Stored(QUOTES, 200))
    for session in ("v1", "v2"):
        opened = AuditOpened(
            "desk", session, "b1", "TRUE", True, False, [(QUOTES, 0)], principal="bob"
        )
        writer.add(opened)
        writer.add(AuditDelivered("desk", session, [(QUOTES, [100, 200], [])]))
    writer.close()
    columns = "pubend string, tick long, attributes string"
    events = spark.createDataFrame([("quotes", 100, '{"n": 1}')], columns)
    found = audit(
        spark, [tmp_path / "logs"], events=events, rights=Rights.of([["feed", "publish"]])
    )
    assert found.rights is not None
    assert found.rights.unauthorised_deliveries == 1
    assert found.rights.unauthorised_publications == 0
    # the publication of 200, and its delivery
    assert found.rights.unjudged == 2
