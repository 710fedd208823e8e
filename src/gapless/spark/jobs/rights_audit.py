"""Unauthorised publications, deliveries and reads, from audit logs of brokers and given rules.

A broker records the principal of each publication, each client session and each read of a log, as
it authenticated it. Rules are evaluated on executors, once per event, for its publisher and for all
principals that it was sent to or that have read it. Records of clients do not count here: an event
that a broker has sent is disclosed, whether it was received or not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec

from gapless.audit.recipients import Reading, Recipient
from gapless.spark.jobs.expected_deliveries import attributes_in, described
from gapless.spark.jobs.filters import index_of
from gapless.spark.jobs.rights import CompiledRights, Rights

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.core.broadcast import Broadcast
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["PrincipalRow", "RightsFindings", "RightsReport", "ruled"]

_EVENT: Final = ["pubend", "tick"]
_WRONG: Final = "pubend string, tick long, principal string, kind string, event string"
"""The row of an unauthorised event that a task returns, as a Spark schema."""

_PUBLISHED: Final = "p"
_DELIVERED: Final = "d"
_READ: Final = "r"

_UNDESCRIBED: Final = "given_attributes IS NULL AND attributes IS NULL"

_NOBODY: Final = "a client without a principal"


class PrincipalRow(msgspec.Struct, frozen=True, kw_only=True):
    """What one principal did or received without a right."""

    principal: str
    """Empty: the broker required no token."""
    published: int = 0
    delivered: int = 0
    read: int = 0


class RightsReport(msgspec.Struct, frozen=True, kw_only=True):
    """The result of the rules for a log."""

    rules: int
    unauthorised_publications: int
    unauthorised_deliveries: int
    """Once per subscription and event, however often it was sent."""
    unauthorised_reads: int
    """Once per principal and event, however often it was read from a log."""
    unjudged: int
    """Publications and deliveries of events whose attributes are not recorded."""
    principals: list[PrincipalRow]

    @property
    def is_clean(self) -> bool:
        """Whether everything is allowed by the rules."""
        found = (
            self.unauthorised_publications,
            self.unauthorised_deliveries,
            self.unauthorised_reads,
        )
        return not any(found)


class _Known(msgspec.Struct, frozen=True):
    """The data for tasks: rules, and who has read what."""

    compiled_rights: CompiledRights
    texts: tuple[str, ...]
    """The filters of rules by index, then the other filters of reads."""
    spans: dict[tuple[int, str], list[tuple[int, int, str]]]
    """By filter and pubend: above which tick, up to which, and which principal has read it."""


def _known(rights: Rights, readings: Sequence[Reading]) -> _Known:
    compiled_rights = rights.compiled_rights()
    indices = {text: index for index, text in enumerate(compiled_rights.texts)}
    spans: dict[tuple[int, str], list[tuple[int, int, str]]] = {}
    for each in readings:
        place = indices.setdefault(each.filter, len(indices))
        spans.setdefault((place, each.pubend), []).append((each.low, each.high, each.principal))
    return _Known(compiled_rights, tuple(indices), spans)


class RightsFindings(msgspec.Struct, frozen=True):
    """The result."""

    report: RightsReport
    by_subscription: dict[str, int]
    """Unauthorised deliveries by subscription."""
    examples: list[str]


def ruled(
    facts: DataFrame,
    published: DataFrame,
    recipients: Sequence[Recipient],
    readings: Sequence[Reading],
    rights: Rights,
    examples: int,
) -> RightsFindings:
    """Evaluate rules for published, delivered and read events."""
    spark = facts.sparkSession
    shared = spark.sparkContext.broadcast(_known(rights, readings))
    sent = _sent(spark, facts, recipients).persist()
    wrong = _wrong(published, sent, shared).persist()
    try:
        deliveries = sent.join(
            wrong.where(f"kind = '{_DELIVERED}'"), [*_EVENT, "principal"]
        ).persist()
        try:
            return _findings(published, sent, wrong, deliveries, rights, examples)
        finally:
            deliveries.unpersist()
    finally:
        wrong.unpersist()
        sent.unpersist()
        shared.destroy()


def _sent(spark: SparkSession, facts: DataFrame, recipients: Sequence[Recipient]) -> DataFrame:
    """Return for which subscription and principal brokers have sent which event, each once."""
    from pyspark.sql import functions as f

    columns = "run string, client_session string, subscription string, principal string"
    known = f.broadcast(spark.createDataFrame([tuple(each) for each in recipients], columns))
    sent = (
        facts.where("kind = 'd'")
        .select("run", "client_session", *_EVENT)
        .join(known, ["run", "client_session"])
    )
    return sent.select("subscription", "principal", *_EVENT).distinct()


def _wrong(published: DataFrame, sent: DataFrame, shared: Broadcast[_Known]) -> DataFrame:
    """Return events that were published, sent or read without a right."""
    from pyspark.sql import functions as f

    receivers = sent.groupBy(*_EVENT).agg(f.collect_set("principal").alias("receivers"))
    both = published.join(receivers, _EVENT, "left").select(
        *_EVENT,
        *("publisher", "sequence", "given_attributes", "attributes", "receivers"),
        f.coalesce("principal", f.lit("")).alias("principal"),
    )
    found = both.mapInArrow(_judge(shared), _WRONG)
    return found.dropDuplicates([*_EVENT, "principal", "kind"])


def _findings(
    published: DataFrame,
    sent: DataFrame,
    wrong: DataFrame,
    deliveries: DataFrame,
    rights: Rights,
    examples: int,
) -> RightsFindings:
    publications, reads = (wrong.where(f"kind = '{each}'") for each in (_PUBLISHED, _READ))
    by_author, by_reader = _counts(publications, "principal"), _counts(reads, "principal")
    by_receiver = _counts(deliveries, "principal")
    by_subscription = _counts(deliveries, "subscription")
    dark = published.where(_UNDESCRIBED).count()
    light = published.where(f"NOT ({_UNDESCRIBED})").select(*_EVENT)
    unjudged = dark + sent.join(light, _EVENT, "left_anti").count()
    report = RightsReport(
        rules=rights.count,
        unauthorised_publications=sum(by_author.values()),
        unauthorised_deliveries=sum(by_subscription.values()),
        unauthorised_reads=sum(by_reader.values()),
        unjudged=unjudged,
        principals=[
            PrincipalRow(
                principal=name,
                published=by_author.get(name, 0),
                delivered=by_receiver.get(name, 0),
                read=by_reader.get(name, 0),
            )
            for name in sorted({*by_author, *by_receiver, *by_reader})
        ],
    )
    found = [] if report.is_clean else _examples(publications, deliveries, reads, examples)
    return RightsFindings(report, by_subscription, found)


def _counts(rows: DataFrame, name: str) -> dict[str, int]:
    return {row[name]: row["count"] for row in rows.groupBy(name).count().collect()}


def _examples(
    publications: DataFrame, deliveries: DataFrame, reads: DataFrame, most: int
) -> list[str]:
    def first(rows: DataFrame, *order: str) -> list[dict[str, str]]:
        chosen = rows.orderBy(*order, *_EVENT, "principal").limit(most).collect()
        return [{**row.asDict(), "who": row["principal"] or _NOBODY} for row in chosen]

    return [
        *("{who} published {event}: unauthorised".format_map(row) for row in first(publications)),
        *(
            "{subscription}: {event} came to {who}: unauthorised".format_map(row)
            for row in first(deliveries, "subscription")
        ),
        *("{who} read {event} from the log: unauthorised".format_map(row) for row in first(reads)),
    ]


# --- in tasks -------------------------------------------------------------------------------------


def _judge(
    shared: Broadcast[_Known],
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def judge(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            known = described(batch)
            if len(known):
                yield _judged(shared.value, known)

    return judge


def _judged(known: _Known, batch: pa.RecordBatch) -> pa.RecordBatch:
    import pyarrow as pa

    found = index_of(known.texts).match_batch(attributes_in(batch))
    names = ("pubend", "tick", "publisher", "sequence", "principal", "receivers")
    events = zip(*(batch.column(name).to_pylist() for name in names), strict=True)
    rows: list[tuple[Any, ...]] = []
    for matching, (pubend, tick, publisher, number, author, receivers) in zip(
        found, events, strict=True
    ):
        indices, allow = set(matching), known.compiled_rights.allow
        got = [
            *((each, _DELIVERED) for each in receivers or ()),
            *((each, _READ) for each in _readers(known, indices, pubend, tick)),
        ]
        wrong = [(each, kind) for each, kind in got if not allow(each, "subscribe", indices)]
        if not allow(author, "publish", indices):
            wrong.append((author, _PUBLISHED))
        event = f"{publisher} {number} at {pubend}:{tick}"
        rows += [(pubend, tick, each, kind, event) for each, kind in wrong]
    kinds: list[Any] = [pa.string(), pa.int64(), pa.string(), pa.string(), pa.string()]
    columns = [[row[index] for row in rows] for index in range(len(kinds))]
    arrays = [pa.array(column, kind) for column, kind in zip(columns, kinds, strict=True)]
    labels = ["pubend", "tick", "principal", "kind", "event"]
    return pa.RecordBatch.from_arrays(arrays, names=labels)


def _readers(known: _Known, indices: set[int], pubend: str, tick: int) -> set[str]:
    """Return the principals that have read an event, by the filters that match it."""
    return {
        principal
        for index in indices
        for low, high, principal in known.spans.get((index, pubend), ())
        if low < tick <= high
    }
