"""The Spark connector: streams of gapless as DataFrames.

Theory of operation
-------------------
``spark.read.format("gapless")`` and ``spark.readStream.format("gapless")`` read logs of pubends. A
row is an event. Three kinds of processes take part:

- The **driver** fetches the pubends and the extents of their logs, fixes the first and the last
  tick to read, and splits this into ranges (:mod:`.planning`, :mod:`.splitting`). A range is a
  partition: one pubend, two ticks, and the addresses of the broker that has the log.
- **Executors** read one range each, over a connection of their own, directly from that broker
  (:mod:`.reading`), and make Arrow batches of the replies (:mod:`.batches`): events remain packed,
  as in the log, until they are columns.
- **Brokers** evaluate the filter: the option ``filter`` and, for a batch query that requests it,
  the predicates that Spark pushes down (:mod:`.pushing`). Events that do not match are never sent.

A checkpoint contains only a position of a stream (:mod:`.offsets`). Between two positions a log has
the same events whenever and wherever it is read, until they are released. Therefore a batch that
Spark repeats is the same batch. Logs are released in time, so a query that must not lose anything
has a ``reader``: a durable subscription without deliveries that holds the logs from the committed
position on (:mod:`.durable_reader`).

A silent stream still advances, tick by tick. The driver checks whether any event matches before it
reports a new offset (:mod:`.lookahead`), so that silence makes no batches.

Invariants
----------
- The same options and the same two positions give the same rows, or an error; never other rows.
- "All pubends" are the pubends that the servers know together. Brokers that could not be queried
  are named, and a query waits for a pubend that it names.
- Released events that a query needs are an error, or are counted (``onRelease``); they are never
  omitted silently.
- A predicate is evaluated by the brokers alone only if it means the same there and in Spark; Spark
  evaluates all others again.
- A read waits for a broker that fails and continues after the last tick received, until the
  deadline has passed without progress.
- ``import gapless`` needs neither Java nor pyspark. Modules that do need them check it
  (:mod:`.extra`).

Modules
-------
- :mod:`.session`, :mod:`.java`, :mod:`.extra`: a Spark session and its requirements
- :mod:`.source`, :mod:`.batch`, :mod:`.streaming`: the interface for Spark
- :mod:`.options`, :mod:`.columns`: options of users
- :mod:`.network`, :mod:`.planning`, :mod:`.splitting`, :mod:`.lookahead`, :mod:`.durable_reader`:
  the driver
- :mod:`.reading`, :mod:`.batches`: executors
- :mod:`.sink`, :mod:`.sink_options`, :mod:`.row_mapping`: rows that become events, each once
"""
