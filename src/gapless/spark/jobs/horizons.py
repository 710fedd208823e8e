"""What the logs of brokers cover: from which tick to which, and which events may not be on disk.

Most audits find nothing that has to be looked up here; the others look up few events.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gapless.audit.timelines import FOREVER
from gapless.audit.writer_runs import AuditWriterRun

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["Horizon", "looked_up", "unlogged"]

_EVENT: Final = ["pubend", "tick"]


class Horizon:
    """The ticks from which to which the logs contain the publications of each pubend."""

    def __init__(self, facts: DataFrame, logs: dict[str, AuditWriterRun]) -> None:
        from pyspark.sql import functions as f

        self._spark = facts.sparkSession
        published = facts.where("kind = 'p'")
        found = (
            published.groupBy("pubend", "run")
            .agg(f.max("tick").alias("last"), f.count("*").alias("count"))
            .collect()
        )
        self.published = sum(row["count"] for row in found)
        self.unsure = 0
        """Events of crashed or running brokers after the last that is known to be on disk."""
        self._bounds: dict[str, tuple[int, int]] = {}
        for row in found:
            pubend, log = row["pubend"], logs[row["run"]]
            low, high = self._bounds.get(pubend, (FOREVER, 0))
            last = FOREVER if log.is_closed else row["last"]
            self._bounds[pubend] = min(low, log.started_us), max(high, last)
            stored = log.stored.get(pubend, -1)
            if not log.is_closed and stored < row["last"]:
                mine = (f.col("run") == row["run"]) & (f.col("pubend") == pubend)
                self.unsure += published.where(mine & (f.col("tick") > stored)).count()

    def frame(self) -> DataFrame:
        """Return it by pubend."""
        rows = [(pubend, *bounds) for pubend, bounds in self._bounds.items()]
        columns = "pubend string, known_from long, known_to long"
        return self._spark.createDataFrame(rows, columns)


def looked_up(
    judged: DataFrame, facts: DataFrame, horizon: Horizon, undescribed: DataFrame
) -> DataFrame:
    """Return verdicts after a lookup of spurious and unproven events.

    An event that came unexpectedly is not judged if no log could contain it, or if it is
    ``undescribed``: its attributes are unknown. An event that may not be on disk is expected if it
    was acknowledged or delivered to any client.
    """
    from pyspark.sql import functions as f

    strange = judged.where("is_strange AND number IS NULL").select(*_EVENT).distinct()
    published = facts.where("kind = 'p'").select(*_EVENT)
    there = published.join(f.broadcast(strange), _EVENT, "left_semi").distinct()
    dark = undescribed.select(*_EVENT).join(f.broadcast(strange), _EVENT, "left_semi").distinct()
    unsure = judged.where("unproven = 1").select(*_EVENT).distinct()
    described = facts.where("kind IN ('d', 'q')").select(*_EVENT)
    proven = described.join(f.broadcast(unsure), _EVENT, "left_semi").distinct()
    joined = (
        judged.join(f.broadcast(horizon.frame()), "pubend", "left")
        .join(f.broadcast(there.withColumn("there", f.lit(1))), _EVENT, "left")
        .join(f.broadcast(dark.withColumn("dark", f.lit(1))), _EVENT, "left")
        .join(f.broadcast(proven.withColumn("proven", f.lit(1))), _EVENT, "left")
    )
    outside = "known_from IS NULL OR tick < known_from OR tick > known_to"
    unknown = f"dark IS NOT NULL OR (there IS NULL AND ({outside}))"
    return joined.withColumns(
        {
            "unjudged": f.expr(f"int(is_strange AND number IS NULL AND ({unknown}))"),
            "proven": f.expr("unproven = 1 AND proven IS NOT NULL"),
        }
    ).withColumns(
        {
            "spurious": f.expr("spurious - unjudged"),
            "lost": f.expr("lost + int(proven AND settled)"),
            "expected": f.expr("expected + int(proven AND settled)"),
            "in_flight": f.expr("in_flight + int(proven AND NOT settled)"),
        }
    )


def unlogged(facts: DataFrame, horizon: Horizon) -> int:
    """Count events that were acknowledged to publishers and are missing in the brokers' logs."""
    described = facts.where("kind = 'q'").select(*_EVENT)
    missing = described.join(facts.where("kind = 'p'").select(*_EVENT), _EVENT, "left_anti")
    known = missing.join(horizon.frame(), "pubend")
    return int(known.where("tick >= known_from AND tick <= known_to").count())
