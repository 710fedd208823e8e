"""What was published or delivered without a right, from audit logs of brokers and rules that are stated.

A broker writes down whose each publication and each visit is, as it knows it by a token. Rules are evaluated
on executors, once for an event, for its publisher and for all who were sent it. What clients have written
counts not here: what a broker has sent is out, whether it was taken or not.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec

from gapless.audit.timelines import Recipient
from gapless.content.filter import Filter
from gapless.content.matching import MatchIndex
from gapless.spark.jobs.owing import attributes_in, described
from gapless.spark.jobs.rights import Rights, Rulings

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.core.broadcast import Broadcast
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["PrincipalRow", "RightsReport", "Ruled", "ruled"]

_EVENT: Final = ["pubend", "tick"]
_WRONG: Final = "pubend string, tick long, principal string, is_delivery boolean, event string"
"""What a task tells of an event that somebody had no right to, as Spark writes schemas."""

_UNDESCRIBED: Final = "told IS NULL AND attributes IS NULL"

_NOBODY: Final = "somebody without a name"


class PrincipalRow(msgspec.Struct, frozen=True, kw_only=True):
    """What one principal did or got without a right."""

    principal: str
    """Empty: the broker asked for no token."""
    published: int = 0
    delivered: int = 0


class RightsReport(msgspec.Struct, frozen=True, kw_only=True):
    """What the rules say of a log."""

    rules: int
    unauthorised_publications: int
    unauthorised_deliveries: int
    """Once for each subscription and event, however often it was sent."""
    unjudged: int
    """Publications and deliveries of events of which nobody has written down what they have."""
    principals: list[PrincipalRow]

    @property
    def is_clean(self) -> bool:
        """Whether nobody did or got what the rules do not allow."""
        return not (self.unauthorised_publications or self.unauthorised_deliveries)


class Ruled(msgspec.Struct, frozen=True):
    """What was found."""

    report: RightsReport
    by_subscription: dict[str, int]
    """Deliveries without a right."""
    examples: list[str]


def ruled(
    facts: DataFrame,
    published: DataFrame,
    recipients: Sequence[Recipient],
    rights: Rights,
    examples: int,
) -> Ruled:
    """Hold rules against what was published and delivered."""
    spark = facts.sparkSession
    shared = spark.sparkContext.broadcast(rights.rulings())
    sent = _sent(spark, facts, recipients).persist()
    wrong = _wrong(published, sent, shared).persist()
    try:
        deliveries = sent.join(wrong.where("is_delivery"), [*_EVENT, "principal"]).persist()
        try:
            return _told(published, sent, wrong, deliveries, rights, examples)
        finally:
            deliveries.unpersist()
    finally:
        wrong.unpersist()
        sent.unpersist()
        shared.destroy()


def _sent(spark: SparkSession, facts: DataFrame, recipients: Sequence[Recipient]) -> DataFrame:
    """Return to whom brokers have sent which event, for which subscription, each once."""
    from pyspark.sql import functions as f

    columns = "run string, visit string, subscription string, principal string"
    known = f.broadcast(spark.createDataFrame([tuple(each) for each in recipients], columns))
    sent = facts.where("kind = 'd'").select("run", "visit", *_EVENT).join(known, ["run", "visit"])
    return sent.select("subscription", "principal", *_EVENT).distinct()


def _wrong(published: DataFrame, sent: DataFrame, shared: Broadcast[Rulings]) -> DataFrame:
    """Return events that were published, or sent to somebody, without a right."""
    from pyspark.sql import functions as f

    receivers = sent.groupBy(*_EVENT).agg(f.collect_set("principal").alias("receivers"))
    both = published.join(receivers, _EVENT, "left").select(
        *_EVENT,
        *("publisher", "sequence", "told", "attributes", "receivers"),
        f.coalesce("principal", f.lit("")).alias("principal"),
    )
    found = both.mapInArrow(_judge(shared), _WRONG)
    return found.dropDuplicates([*_EVENT, "principal", "is_delivery"])


def _told(
    published: DataFrame,
    sent: DataFrame,
    wrong: DataFrame,
    deliveries: DataFrame,
    rights: Rights,
    examples: int,
) -> Ruled:
    publications = wrong.where("NOT is_delivery")
    by_author = _counts(publications, "principal")
    by_receiver = _counts(deliveries, "principal")
    by_subscription = _counts(deliveries, "subscription")
    dark = published.where(_UNDESCRIBED).count()
    light = published.where(f"NOT ({_UNDESCRIBED})").select(*_EVENT)
    unjudged = dark + sent.join(light, _EVENT, "left_anti").count()
    report = RightsReport(
        rules=rights.count,
        unauthorised_publications=sum(by_author.values()),
        unauthorised_deliveries=sum(by_subscription.values()),
        unjudged=unjudged,
        principals=[
            PrincipalRow(
                principal=name, published=by_author.get(name, 0), delivered=by_receiver.get(name, 0)
            )
            for name in sorted({*by_author, *by_receiver})
        ],
    )
    found = [] if report.is_clean else _examples(publications, deliveries, examples)
    return Ruled(report, by_subscription, found)


def _counts(rows: DataFrame, name: str) -> dict[str, int]:
    return {row[name]: row["count"] for row in rows.groupBy(name).count().collect()}


def _examples(publications: DataFrame, deliveries: DataFrame, most: int) -> list[str]:
    first = publications.orderBy(*_EVENT, "principal").limit(most).collect()
    found = [
        f"{row['principal'] or _NOBODY} published {row['event']}: unauthorised" for row in first
    ]
    order = ("subscription", *_EVENT, "principal")
    then = deliveries.orderBy(*order).limit(most).collect()
    found += [
        f"{row['subscription']}: {row['event']} came to {row['principal'] or _NOBODY}: unauthorised"
        for row in then
    ]
    return found


# --- in tasks --------------------------------------------------------------------------------------------


@functools.lru_cache(maxsize=1)
def _index(texts: tuple[str, ...]) -> MatchIndex:
    """Build the index of a process; the next task there finds it built."""
    index = MatchIndex()
    for place, text in enumerate(texts):
        index.add(place, Filter(text))
    return index


def _judge(
    shared: Broadcast[Rulings],
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def judge(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            known = described(batch)
            if len(known):
                yield _judged(shared.value, known)

    return judge


def _judged(rulings: Rulings, batch: pa.RecordBatch) -> pa.RecordBatch:
    import pyarrow as pa

    found = _index(rulings.texts).match_batch(attributes_in(batch))
    names = ("pubend", "tick", "publisher", "sequence", "principal", "receivers")
    events = zip(*(batch.column(name).to_pylist() for name in names), strict=True)
    rows: list[tuple[Any, ...]] = []
    for matching, (pubend, tick, publisher, sequence, author, receivers) in zip(
        found, events, strict=True
    ):
        places = set(matching)
        event = f"{publisher} {sequence} at {pubend}:{tick}"
        if not rulings.allow(author, "publish", places):
            rows.append((pubend, tick, author, False, event))
        rows += [
            (pubend, tick, receiver, True, event)
            for receiver in receivers or ()
            if not rulings.allow(receiver, "subscribe", places)
        ]
    kinds: list[Any] = [pa.string(), pa.int64(), pa.string(), pa.bool_(), pa.string()]
    columns = [[row[place] for row in rows] for place in range(len(kinds))]
    arrays = [pa.array(column, kind) for column, kind in zip(columns, kinds, strict=True)]
    labels = ["pubend", "tick", "principal", "is_delivery", "event"]
    return pa.RecordBatch.from_arrays(arrays, names=labels)
