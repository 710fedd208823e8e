"""Profiles: traffic between cells from real brokers, and a tree with fewer hops."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark", reason='Spark is not installed: pip install "gapless[spark]"')

from gapless.audit import AuditOptions, AuditWriter
from gapless.audit.records import (
    AuditDelivered,
    AuditFilterChanged,
    AuditOpened,
    AuditPublished,
    Confirmed,
)
from gapless.cli.main import main
from gapless.client.sync import connect_sync
from gapless.core.errors import UsageError
from gapless.core.ids import PubendId
from gapless.runtime.overlay_config import generate, load_overlay
from gapless.spark.jobs.interests import CellInterest
from gapless.spark.jobs.profiling import CellTraffic, edges_of, profile
from gapless.spark.jobs.trees import TrafficGroup
from gapless.testing import SyncOverlay

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def traffic(directory: Path) -> None:
    """In a line of four, one end publishes, and most events go to the other end."""
    with (
        SyncOverlay("line:4", audit=directory, on_disk=False) as overlay,
        connect_sync(overlay.url("b1")) as near,
        connect_sync(overlay.url("b2")) as next_door,
        connect_sync(overlay.url("b4")) as far,
        near.publisher("quotes") as publisher,
        far.subscribe("n >= 10") as most,
        far.subscribe("n >= 90") as also,
        next_door.subscribe("n < 20") as few,
    ):
        for events in (most, also, few):
            while "quotes" not in events.position:
                time.sleep(0.01)
        publisher.publish_many({"n": n} for n in range(100))
        for events, count in ((most, 90), (also, 10), (few, 20)):
            for _ in range(count):
                events.get()


@pytest.fixture
def command(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make commands use the session of the tests and leave it running."""
    monkeypatch.setattr(type(spark), "stop", lambda _: None)
    monkeypatch.setenv("GAPLESS_SPARK_MASTER", str(spark.sparkContext.master))


@pytest.mark.usefixtures("command")
def test_traffic_between_cells_is_counted_once_a_cell_and_a_shorter_tree_is_found(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    logs, present, better = tmp_path / "logs", tmp_path / "now.toml", tmp_path / "better.toml"
    traffic(logs)
    present.write_text(generate("line:4").to_toml())
    found = profile(spark, [logs], load_overlay(present))
    assert found.events == 100
    assert found.flows == [CellTraffic("c1", "c4", 90, 90), CellTraffic("c1", "c2", 20, 20)]
    assert found.interests == [
        CellInterest("c2", 1, ["n < 20"]),
        CellInterest("c4", 2, ["n >= 10", "n >= 90"]),
    ]
    assert found.groups == [
        TrafficGroup("c1", ("c4",), 80),
        TrafficGroup("c1", ("c2",), 10),
        TrafficGroup("c1", ("c2", "c4"), 10),
    ]
    assert found.present_hops == 80 * 3 + 10 + 10 * 3
    assert found.proposed_hops == 80 + 10 + 20
    arguments = ["spark", "profile", str(logs), "--topology", str(present), "--out", str(better)]
    assert main([*arguments, "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["proposed_hops"] == 110
    assert printed["saving"] == pytest.approx(1 - 110 / 280)
    assert edges_of(load_overlay(better)) == found.proposed
    assert load_overlay(better).brokers == load_overlay(present).brokers
    assert main([*arguments[:-2], "--degree", "2"]) == 0
    output = capsys.readouterr().out
    assert "c1 - c4" in output
    assert "fewer" in output
    assert "n >= 10; n >= 90" in output
    assert main([*arguments[:-1], str(tmp_path / "tree")]) == 2
    assert "must end in .toml" in capsys.readouterr().err


def middle_to_each(directory: Path, cells: int = 7) -> None:
    """Write logs of brokers around a first one, whose events go to one of the others each, ten to every one."""
    pubend = PubendId("quotes")

    def writer(cell: int) -> AuditWriter:
        options = AuditOptions(directory=str(directory))
        return AuditWriter(options, "broker", f"b{cell}", cell=f"c{cell}")

    middle = writer(1)
    for cell in range(2, cells + 1):
        ticks = [*range(10 * cell, 10 * cell + 10)]
        middle.add(AuditPublished(pubend, "p", ticks[0], ticks, [{"to": cell}] * 10))
        around = writer(cell)
        around.add(
            AuditOpened("mine", "1", f"b{cell}", f"to = {cell}", False, False, [(pubend, 0)])
        )
        around.add(AuditDelivered("mine", "1", [(pubend, ticks, [])]))
        around.close()
    middle.close()


@pytest.mark.usefixtures("command")
def test_a_tree_within_the_degree_that_costs_more_is_not_called_better(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    logs, proposed = tmp_path / "logs", tmp_path / "proposed.toml"
    middle_to_each(logs)
    arguments = ["spark", "profile", str(logs), "--topology", "star:7", "--out", str(proposed)]
    assert main(arguments) == 0
    output = capsys.readouterr()
    assert "60, at most 6 neighbours: more than the 3 that are allowed" in output.out
    assert "90, at most 3 neighbours allowed (50.0% more: keeping" in output.out
    assert "50.0% more: keeping the current tree costs 60 hops" in output.err
    assert "fewer" not in output.out
    assert "better" not in output.out + output.err
    assert main([*arguments, "--json", "--degree", "6"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert (printed["saving"], printed["is_within_degree"]) == (0.0, True)
    assert edges_of(load_overlay(proposed)) == edges_of(generate("star:7"))


def test_interest_is_counted_also_without_deliveries_if_attributes_are_logged(
    spark: SparkSession, tmp_path: Path
) -> None:
    pubend, options = PubendId("quotes"), AuditOptions(directory=str(tmp_path / "described"))
    near = AuditWriter(options, "broker", "b1", cell="c1")
    near.add(AuditPublished(pubend, "p", 1, [1, 2, 3], [{"n": 1}, {"n": 2}, {"n": 3}]))
    near.close()
    far = AuditWriter(options, "broker", "b2", cell="c2")
    far.add(AuditOpened("early", "1", "b2", "n = 1", False, False, []))
    far.add(AuditFilterChanged("early", "1", "n >= 2", [(pubend, 2)]))
    far.add(AuditDelivered("early", "1", [(pubend, [3], [])]))
    far.close()
    found = profile(spark, [tmp_path / "described"], generate("line:2"))
    assert found.flows == [CellTraffic("c1", "c2", 1, 3)]
    assert found.interests == [CellInterest("c2", 1, ["n = 1", "n >= 2"])]
    bare = AuditWriter(AuditOptions(directory=str(tmp_path / "bare")), "broker", "b1", cell="c1")
    bare.add(AuditPublished(pubend, "p", 1, [1]))
    bare.close()
    assert profile(spark, [tmp_path / "bare"], generate("line:2")).flows == []


def test_without_logs_of_brokers_there_is_no_profile(spark: SparkSession, tmp_path: Path) -> None:
    writer = AuditWriter(AuditOptions(directory=str(tmp_path)), "client", "c")
    writer.add(Confirmed(PubendId("quotes"), "p", 1, [1]))
    writer.close()
    with pytest.raises(UsageError, match="no log of a broker"):
        profile(spark, [tmp_path], generate("line:2"))
