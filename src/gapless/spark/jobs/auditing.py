"""``audit``: expected deliveries, actual deliveries, and every difference, from audit logs.

Expected deliveries are computed from the events that brokers published and from the timelines of
subscriptions (:mod:`gapless.audit.timelines`); gapless' own index evaluates the filters on
executors (:mod:`.expected_deliveries`). Spark compares actual deliveries with them, event by event.

- *lost*: expected, settled, and never came.
- *duplicates*: came again without a request of the subscriber.
- *out of order*: came after a later one of its pubend, of its publisher, or of the total order.
- *spurious*: came and does not match the filter that applies there, is before the start, was never
  published, or differs from what was published.
- *in flight*: expected, did not come, and may still come or have come.
- *unauthorised*: published by, or sent to, a principal against the given rules
  (:mod:`.rights_audit`).
- *unjudged*: came, and it is unknown whether it should have: it was published before the log
  begins, or its attributes are not recorded anywhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from gapless.audit.facts import Control
from gapless.audit.recipients import readings_of, recipients_of
from gapless.audit.timelines import AuditedSubscription, subscriptions_of
from gapless.audit.writer_runs import AuditWriterRun, logs_of
from gapless.core.errors import UsageError
from gapless.spark.jobs.audit_logs import facts_at, kept_facts
from gapless.spark.jobs.audit_reports import AuditLogReport, AuditReport, AuditRow
from gapless.spark.jobs.expected_deliveries import EXPECTED, expected_deliveries_of, expected_writer
from gapless.spark.jobs.horizons import Horizon, looked_up, unlogged
from gapless.spark.jobs.rights import Rights, load_rights
from gapless.spark.jobs.rights_audit import ruled
from gapless.spark.jobs.shipping import ready_executors

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

__all__ = ["TAIL_S", "AuditLogReport", "AuditReport", "AuditRow", "audit"]

TAIL_S: Final = 60.0
"""How long an event may take before it counts as lost, even if nothing later came."""

EXAMPLES: Final = 10
"""So many findings are described; all are counted."""

_COUNTED: Final = (
    *("expected", "delivered", "lost", "duplicates", "out_of_order", "spurious"),
    *("in_flight", "repeated"),
)
_FINDINGS: Final = {
    "lost": "never came",
    "duplicates": "came twice",
    "out_of_order": "came out of order",
    "spurious": "should not have come",
}
_COUNTS: Final = (*_COUNTED, "unjudged")
_EVENT: Final = ["pubend", "tick"]
_NAMED_MAX: Final = 3
"""So many events are named that could not be judged."""
_UNDESCRIBED: Final = "given_attributes IS NULL AND attributes IS NULL"
_EXPECTED_EVENT: Final = ["sub", "pubend", "tick"]


def audit(
    spark: SparkSession,
    paths: Sequence[str | Path],
    *,
    tail_s: float = TAIL_S,
    state: str | Path | None = None,
    events: DataFrame | None = None,
    rights: Rights | str | Path | None = None,
    examples: int = EXAMPLES,
) -> AuditReport:
    """Return which guarantees were kept and broken according to audit logs.

    ``paths`` are directories of brokers and clients, or patterns of such. With ``state``, a
    directory that is kept between calls, each segment is read once, when it is closed. ``events``
    are streams (``format("gapless")``) or an archive of them: the attributes of publications are
    then taken from there, and from the log where they are missing. They are needed if publications
    were recorded without attributes. With ``rights``, rules or a file with rules, it also judges
    which principals published and received which events, over the whole log.
    """
    rules = rights if rights is None or isinstance(rights, Rights) else load_rights(rights)
    if events is not None and (missing := {*_EVENT, "attributes"} - {*events.columns}):
        raise UsageError(f"the events have no column {', '.join(sorted(missing))}")
    ready_executors(spark)
    facts = facts_at(spark, paths) if state is None else kept_facts(spark, paths, state)
    facts = facts.persist()
    try:
        return _audited(spark, facts, round(tail_s * 1_000_000), events, rules, examples)
    finally:
        facts.unpersist()


def _audited(
    spark: SparkSession,
    facts: DataFrame,
    tail_us: int,
    events: DataFrame | None,
    rights: Rights | None,
    examples: int,
) -> AuditReport:
    rows = facts.where("kind = 'c'").select("control").toArrow().column("control").to_pylist()
    decode = msgspec.msgpack.Decoder(Control).decode
    controls = [decode(row) for row in rows]
    logs = logs_of(controls)
    subscriptions = subscriptions_of(controls, tail_us)
    published = _published(facts, events)
    if events is not None:
        published = published.persist()  # read the events only once
    shared = spark.sparkContext.broadcast(expected_deliveries_of(subscriptions, logs))
    expected = published.mapInArrow(expected_writer(shared), EXPECTED)
    judged = _judged(_receipts(spark, facts, subscriptions), expected, subscriptions).persist()
    try:
        described = _description(published, are_given=events is not None)
        found = _report(
            judged, facts, published, Horizon(facts, logs), subscriptions, logs, examples, described
        )
        if rights is not None:
            sent = recipients_of(controls), readings_of(controls)
            found.add_rights(ruled(facts, published, *sent, rights, examples))
        return found
    finally:
        judged.unpersist()
        published.unpersist()
        shared.destroy()


class _Description(msgspec.Struct, frozen=True):
    """How many published events have known attributes."""

    given: int | None
    undescribed: int
    undescribed_first: list[str]


def _published(facts: DataFrame, events: DataFrame | None) -> DataFrame:
    """Return published events with the attributes of the given events."""
    from pyspark.sql import functions as f

    published = facts.where("kind = 'p'").drop("control")
    if events is None:
        return published.withColumn("given_attributes", f.lit(None).cast("string"))
    described = events.select(*_EVENT, f.col("attributes").alias("given_attributes"))
    return published.join(described, _EVENT, "left")


def _description(published: DataFrame, *, are_given: bool) -> _Description:
    """Count events with known attributes; raise if there are none, so nothing can be judged."""
    from pyspark.sql import functions as f

    row = published.agg(
        f.count("*").alias("all"),
        f.count("given_attributes").alias("given"),
        f.count(f.when(f.expr(_UNDESCRIBED), 1)).alias("undescribed"),
    ).first()
    assert row is not None
    if row["undescribed"] and not are_given:
        raise UsageError(
            f"{row['undescribed']:,} publications were recorded without attributes, so deliveries are "
            "not known: set attributes = true under [audit] of the brokers, or give the events themselves"
        )
    if row["undescribed"] and row["undescribed"] == row["all"]:
        raise UsageError(
            f"none of the {row['all']:,} publications in the logs is among the events: are they of the "
            "same streams, and of the same time?"
        )
    named = []
    if row["undescribed"]:
        dark = published.where(_UNDESCRIBED).orderBy(*_EVENT).limit(_NAMED_MAX).collect()
        named = [f"{each['pubend']}:{each['tick']}" for each in dark]
    return _Description(row["given"] if are_given else None, row["undescribed"], named)


def _receipts(
    spark: SparkSession, facts: DataFrame, subscriptions: Sequence[AuditedSubscription]
) -> DataFrame:
    """Return which event came for which subscription."""
    from pyspark.sql import functions as f

    sessions = [
        (index, *session)
        for index, each in enumerate(subscriptions)
        for session in each.client_sessions
    ]
    columns = (
        "sub long, run string, client_session string, rank long, epoch long, pubend string, above long, "
        "up_to long, fresh_up_to long"
    )
    known = f.broadcast(spark.createDataFrame(sessions, columns))
    came = facts.where("kind = 'd'").select(
        "run", "offset", "client_session", "pubend", "tick", "sequence"
    )
    came = came.join(known, ["run", "client_session", "pubend"]).where(
        "tick > above AND tick <= up_to"
    )
    return came.select(*_EXPECTED_EVENT, "sequence", "rank", "epoch", "offset", "fresh_up_to")


def _judged(
    receipts: DataFrame, expected: DataFrame, subscriptions: Sequence[AuditedSubscription]
) -> DataFrame:
    """Return every event that came, or was expected and did not, with its verdict.

    Everything is evaluated by subscription and pubend, so events are shuffled once; those of a
    subscription in total order are shuffled once more.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    both = receipts.unionByName(expected, allowMissingColumns=True).repartition("sub", "pubend")
    event = Window.partitionBy("sub", "pubend", "tick")
    earlier = f.lag("rank").over(event.orderBy("rank", "offset"))
    both = both.withColumn("earlier", earlier)
    for name in ("publisher", "number", "settled", "sure"):
        both = both.withColumn(name, f.max(name).over(event))
    both = both.withColumn("came", f.max(f.col("offset").isNotNull()).over(event))
    marked = both.where("offset IS NOT NULL OR NOT came").selectExpr(
        "*",
        "offset IS NOT NULL AND earlier IS NULL AS is_first",
        "coalesce(rank > earlier AND tick > fresh_up_to, false) AS is_repeated",
    )
    marked = marked.selectExpr(
        "*",
        # nothing is expected there, or it differs from what was published
        "is_first AND (number IS NULL OR (sequence >= 0 AND sequence <> number)) AS is_strange",
        "int(is_repeated) AS repeated",
        "int(came AND NOT is_first AND NOT is_repeated) AS duplicates",
        "int(came AND NOT is_repeated) AS delivered",
        "int(NOT came AND sure AND settled) AS lost",
        "int(NOT came AND sure AND NOT settled) AS in_flight",
        "int(NOT came AND NOT sure) AS unproven",
    )
    totals = [index for index, each in enumerate(subscriptions) if each.total]
    good = marked.withColumn("good", f.expr("is_first AND NOT is_strange"))
    ordered = good.withColumn("out_of_order", _out_of_order(totals))
    return ordered.selectExpr(
        "*",
        "int(is_strange) AS spurious",
        "int(lost = 1 OR (is_first AND number IS NOT NULL)) AS expected",
    )


def _out_of_order(totals: list[int]) -> Column:
    """Return whether a later event came before an event."""
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    def behind(value: Column, *partition: str) -> Column:
        window = Window.partitionBy(*partition).orderBy("rank", "offset")
        before = window.rowsBetween(Window.unboundedPreceding, -1)
        highest = f.max(f.when(f.col("good"), value)).over(before)
        return f.coalesce(value <= highest, f.lit(False))

    found = behind(f.col("tick"), "sub", "pubend", "epoch")
    found = found | behind(f.col("number"), "sub", "pubend", "epoch", "publisher")
    if totals:
        among_all = behind(f.struct("tick", "pubend"), "sub", "epoch")
        found = found | (f.col("sub").isin(totals) & among_all)
    return (f.col("good") & found).cast("int")


# --- report ---------------------------------------------------------------------------------------


def _report(
    judged: DataFrame,
    facts: DataFrame,
    published: DataFrame,
    horizon: Horizon,
    subscriptions: Sequence[AuditedSubscription],
    logs: dict[str, AuditWriterRun],
    examples: int,
    described: _Description,
) -> AuditReport:
    from pyspark.sql import functions as f

    counted = (*_COUNTED, "unproven")
    sums = judged.groupBy("sub").agg(*(f.sum(name).alias(name) for name in counted)).collect()
    if any(row["spurious"] or row["unproven"] for row in sums):
        undescribed = published.where(_UNDESCRIBED)
        judged = looked_up(judged, facts, horizon, undescribed).persist()
        sums = judged.groupBy("sub").agg(*(f.sum(name).alias(name) for name in _COUNTS)).collect()
    by_sub = {row["sub"]: row.asDict() for row in sums}
    for found in by_sub.values():
        for name in [*found.keys() - set(_COUNTS)]:
            del found[name]
    rows = [
        AuditRow(
            subscription=each.name, side=each.side, gaps=len(each.gaps), **by_sub.get(index, {})
        )
        for index, each in enumerate(subscriptions)
    ]
    total = AuditRow(subscription="total")
    for name in (*_COUNTS, "gaps"):
        setattr(total, name, sum(getattr(row, name) for row in rows))
    report = AuditReport(
        published=horizon.published,
        unsure=horizon.unsure,
        unlogged=unlogged(facts, horizon),
        given=described.given,
        undescribed=described.undescribed,
        undescribed_first=described.undescribed_first,
        rights=None,
        rows=rows,
        total=total,
        examples=_examples(judged, subscriptions, total, examples),
        logs=_log_reports(logs),
    )
    judged.unpersist()
    return report


def _examples(
    judged: DataFrame, subscriptions: Sequence[AuditedSubscription], total: AuditRow, most: int
) -> list[str]:
    found = [
        f"{each.name}: a gap on {pubend} from {low} to {high}"
        for each in subscriptions
        for pubend, low, high in each.gaps
    ]
    if not total.is_clean:
        wrong = " OR ".join(f"{name} = 1" for name in _FINDINGS)
        columns = (*_EXPECTED_EVENT, "publisher", "number", *_FINDINGS)
        for row in (
            judged.where(wrong).orderBy(*_EXPECTED_EVENT).select(*columns).limit(most).collect()
        ):
            findings = " and ".join(text for name, text in _FINDINGS.items() if row[name])
            event = f"{row['pubend']}:{row['tick']}"
            if row["number"] is not None:
                event = f"{row['publisher']} {row['number']} at {event}"
            found.append(f"{subscriptions[row['sub']].name}: {event} {findings}")
    return found[:most]


def _log_reports(logs: dict[str, AuditWriterRun]) -> list[AuditLogReport]:
    found = sorted(
        logs.values(), key=lambda log: (log.header.side, log.header.name, log.started_us)
    )
    return [
        AuditLogReport(
            side=log.header.side,
            name=log.header.name,
            cell=log.header.cell,
            started_us=log.started_us,
            seen_us=log.seen_us,
            is_closed=log.is_closed,
            is_whole=log.is_whole,
        )
        for log in found
    ]
