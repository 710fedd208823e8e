"""Profiles: traffic between cells, from real brokers, and a tree that suits it better."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark", reason='Spark is not installed: pip install "gapless[spark]"')

from gapless.audit import AuditOptions, AuditWriter
from gapless.audit.records import Confirmed
from gapless.cli.main import main
from gapless.client.sync import connect_sync
from gapless.core.errors import UsageError
from gapless.core.ids import PubendId
from gapless.runtime.overlays import generate, load_overlay
from gapless.spark.jobs.profiling import Flow, edges_of, profile
from gapless.spark.jobs.trees import Group
from gapless.testing import SyncOverlay

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def traffic(directory: Path) -> None:
    """In a line of four, one end publishes, and most of it goes to the other end."""
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


def test_traffic_between_cells_is_counted_once_a_cell_and_a_shorter_tree_is_found(
    spark: SparkSession,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(type(spark), "stop", lambda _: None)
    monkeypatch.setenv("GAPLESS_SPARK_MASTER", str(spark.sparkContext.master))
    logs, present, better = tmp_path / "logs", tmp_path / "now.toml", tmp_path / "better.toml"
    traffic(logs)
    present.write_text(generate("line:4").to_toml())
    found = profile(spark, [logs], load_overlay(present))
    assert found.events == 100
    assert found.flows == [Flow("c1", "c4", 90), Flow("c1", "c2", 20)]
    assert found.groups == [
        Group("c1", ("c4",), 80),
        Group("c1", ("c2",), 10),
        Group("c1", ("c2", "c4"), 10),
    ]
    assert found.present_hops == 80 * 3 + 10 + 10 * 3
    assert found.better_hops == 80 + 10 + 20
    arguments = ["spark", "profile", str(logs), "--topology", str(present), "--out", str(better)]
    assert main([*arguments, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["better_hops"] == 110
    assert told["saving"] == pytest.approx(1 - 110 / 280)
    assert edges_of(load_overlay(better)) == found.better
    assert load_overlay(better).brokers == load_overlay(present).brokers
    assert main([*arguments[:-2], "--degree", "2"]) == 0
    said = capsys.readouterr().out
    assert "c1 - c4" in said
    assert "fewer" in said
    assert main([*arguments[:-1], str(tmp_path / "tree")]) == 2
    assert "must end in .toml" in capsys.readouterr().err


def test_without_logs_of_brokers_there_is_no_profile(spark: SparkSession, tmp_path: Path) -> None:
    writer = AuditWriter(AuditOptions(directory=str(tmp_path)), "client", "c")
    writer.add(Confirmed(PubendId("quotes"), "p", 1, [1]))
    writer.close()
    with pytest.raises(UsageError, match="no log of a broker"):
        profile(spark, [tmp_path], generate("line:2"))
