"""A tour of gapless with Spark, from top to bottom: each cell does one thing and explains it.

It reads like a notebook, and editors that know ``# %%`` run it as one. ``make spark-tour`` runs all
of it on this computer, with brokers of its own. It needs ``pip install "gapless[spark,java]"``.
"""

# %% Imports. Everything except Spark's own modules comes from gapless.
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

from pyspark.sql import functions as f

from gapless import Filter, connect_sync
from gapless.spark.jobs import archive, audit, backtest, read_archive
from gapless.spark.jobs.filters import NamedFilter
from gapless.spark.session import spark_session
from gapless.testing import SyncOverlay

# %% Three brokers in a line, in this process. In production they run elsewhere: `gapless up
# --topology line:3`. They write audit logs of what they publish and deliver, for the audit at the
# end.
directory = TemporaryDirectory(prefix="gapless-tour-")  # the last cell removes it
work = Path(directory.name)
opened = ExitStack()  # closes at the end what is opened here
overlay = opened.enter_context(SyncOverlay("line:3", audit=work / "audit"))
servers = overlay.url("b1", "b2", "b3")

# %% A Spark session, which finds Java. Any other session works too.
spark = spark_session("local[2]", settings={"spark.log.level": "ERROR"})

# %% Made-up quotes, as a DataFrame: 3,000 rows of ten symbols.
quotes = spark.range(3_000).select(
    f.concat(f.lit("S"), f.col("id") % 10).alias("symbol"),
    (f.col("id") % 700 / 7).alias("price"),
    f.col("id").alias("n"),
)

# %% A durable subscription, before anything is published, at the broker at the other end. Its
# client writes an audit log too. It starts with the earliest event.
DEAR = "symbol = 'S3' AND price > 50"
desk = opened.enter_context(connect_sync(overlay.url("b3"), name="desk", audit=work / "audit"))
dear = opened.enter_context(desk.subscribe(DEAR, durable="dear", start="earliest"))

# %% Write the rows to a stream, each exactly once. Columns become attributes. With a writer and a
# batch number the batch is written once, however often this cell is run; so run it twice.
batch = {"servers": overlay.url("b1"), "pubend": "quotes", "writer": "tour", "batch": "1"}
for _ in range(2):
    quotes.write.format("gapless").options(**batch).mode("append").save()

# %% Read the stream back. Declared columns are attributes with a type. Spark itself evaluates
# `where`; with the option `filter`, as in a query below, brokers send only matching events.
reading = {"servers": servers, "columns": "symbol STRING, price DOUBLE, n LONG"}
events = spark.read.format("gapless").options(**reading).load()
print("in the log:", events.count(), "- of S3 above 50:", events.where(DEAR).count())
assert events.count() == quotes.count() == events.select("n").distinct().count()

# %% A stream: a query that copies matching events to another stream as they come. Its checkpoint
# stores its position. `availableNow` ends it at the present end of the stream; without it, it would
# continue.
copying = (
    spark.readStream.format("gapless")
    .options(**reading, filter="price > 90", start="earliest")
    .load()
    .writeStream.format("gapless")
    .options(
        servers=overlay.url("b2"), pubend="dear quotes", checkpointLocation=f"{work}/checkpoint"
    )
    .trigger(availableNow=True)
    .start()
)
copying.awaitTermination()
copies = spark.read.format("gapless").options(**reading, pubends="dear quotes").load()
print("copied:", copies.count())
assert copies.count() == events.where("price > 90").count()

# %% The subscriber receives the same events, of both streams, as they are published.
expected = events.where(DEAR).count() + copies.where(DEAR).count()
got = [dear.get() for _ in range(expected)]
print("the desk got", len(got), "- the first:", dict(got[0].attributes))

# %% An archive: both streams as Parquet, by day. A second run continues where the first ended.
kept = archive(spark, servers, work / "history")
history = read_archive(spark, work / "history")
print("archived:", [(each.pubend, each.events) for each in kept.streams])

# %% A backtest: what would these filters have matched, and which of them match the same?
filters = {"dear": DEAR, "cheap": "price < 10", "none": "price < 0"}
tested = backtest(
    spark, history, [NamedFilter(name, Filter(text)) for name, text in filters.items()]
)
for each in tested.filters:
    print(f"  {each.name:6} {each.count:5} events, {each.share:.1%} of all")

# %% The audit, after all clients have left: what each must receive, and what arrived. It agrees
# with the backtest.
opened.close()
report = audit(spark, [work / "audit"])
print(
    "expected:",
    report.total.expected,
    "- delivered:",
    report.total.delivered,
    "- lost:",
    report.total.lost,
)
assert report.is_clean
assert report.published == kept.events
assert report.total.expected == report.total.delivered == tested.filters[0].count == expected

# %% Clean up.
directory.cleanup()
