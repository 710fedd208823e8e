"""The Spark guides are correct: their programs run as printed, and so does the tour."""

from __future__ import annotations

import runpy
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark", reason='Spark is not installed: pip install "gapless[spark]"')

from gapless.client.sync import connect_sync
from gapless.testing import SyncOverlay
from tests.guides import ROOT, blocks, with_brokers
from tests.spark.rows import event

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TOPOLOGY = "line:2"
MINE = """
def area(point):
    return {"area": point["width"] * point["height"]}
"""
FILTERS = "symbol = 'IBM'\nsymbol IN ('IBM', 'S1')\n"


class Guides:
    """A working directory, brokers with some quotes, and the pages."""

    def __init__(self, spark: SparkSession, overlay: SyncOverlay, directory: Path) -> None:
        self._spark = spark
        self._overlay = overlay
        self._directory = directory

    def run(self, page: str) -> dict[str, Any]:
        """Run the blocks of a page one after the other, as one program; return its names."""
        names: dict[str, Any] = {"__name__": "guide"}
        for line, block in blocks(page):
            code = compile("\n" * line + self.prepared(block), page, "exec")
            exec(code, names)  # noqa: S102  # our own page
        assert len(names) > 2, f"{page} has no program"
        return names

    def prepared(self, block: str) -> str:
        """Return the block with the addresses, directories and number of seeds of the test.

        Java has its own working directory, so paths that Spark itself writes are absolute here.
        """
        block = with_brokers(block, self._overlay)
        block = block.replace("/var/log/gapless/audit", str(self._directory / "audit"))
        for name in ("ibm", "trades.checkpoint"):
            block = block.replace(f'"{name}', f'"{self._directory / name}')
        return block.replace("tree:2x3", TOPOLOGY).replace("range(2000)", "(9, 10)")

    def end_queries(self, count: int) -> None:
        """Let running queries process everything, and stop them."""
        active = self._spark.streams.active
        assert len(active) == count, "a query has ended by itself: Spark has logged why"
        for query in active:
            query.processAllAvailable()
            query.stop()


@pytest.fixture
def guides(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Guides]:
    monkeypatch.chdir(tmp_path)
    audit = tmp_path / "audit"
    with SyncOverlay(TOPOLOGY, audit=audit) as overlay:
        with (
            connect_sync(overlay.url(), audit=audit) as session,
            session.publisher("quotes") as publisher,
            session.subscribe("symbol = 'IBM'", durable="desk", start="earliest") as events,
        ):
            publisher.publish_many(event(n) for n in range(300))
            for _ in range(30):
                events.get()
        yield Guides(spark, overlay, tmp_path)


def test_the_programs_of_the_guide_read_and_write_streams(
    spark: SparkSession, guides: Guides, tmp_path: Path
) -> None:
    names = guides.run("docs/spark.md")
    guides.end_queries(2)
    assert spark.read.parquet(str(tmp_path / "ibm")).select("price").count() == 30
    written = {"servers": names["target"]["servers"], "pubends": "trades"}
    assert spark.read.format("gapless").options(**written).load().count() == 119
    ((_, statement),) = blocks("docs/spark.md", "sql")
    spark.sql(guides.prepared(statement))
    try:
        assert spark.sql("SELECT max(price) FROM quotes").collect()[0][0] == 149.5
    finally:
        spark.catalog.dropTempView("quotes")


def test_the_programs_of_the_guide_run_jobs(
    spark: SparkSession, guides: Guides, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine.py").write_text(MINE)
    (tmp_path / "filters.txt").write_text(FILTERS)
    monkeypatch.syspath_prepend(str(tmp_path))
    spark.sparkContext.addPyFile(str(tmp_path / "mine.py"))
    names = guides.run("docs/spark-jobs.md")
    assert names["events"].count() == 300
    assert [each.count for each in names["found"].filters] == [30, 60]
    sys.modules.pop("mine", None)


def test_the_programs_of_the_guide_audit_and_profile(
    guides: Guides, capsys: pytest.CaptureFixture[str]
) -> None:
    names = guides.run("docs/spark-audit.md")
    assert "Published" in capsys.readouterr().out
    report = names["report"]
    assert (report.published, report.total.expected, report.total.delivered) == (300, 30, 30)
    assert report.is_clean


def test_the_tour_runs_from_top_to_bottom(
    spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    assert spark.range(1).count() == 1  # the tour uses the existing session
    runpy.run_path(str(ROOT / "examples" / "spark_tour.py"))
    assert "expected: 168 - delivered: 168 - lost: 0" in capsys.readouterr().out
