"""The Spark face: streams of gapless as DataFrames.

Theory of operation
-------------------
``spark.read.format("gapless")`` and ``spark.readStream.format("gapless")`` read logs of pubends. A row
is an event. Three kinds of processes take part:

- The **driver** asks which pubends there are and how far their logs go, fixes from which tick to which
  is read, and cuts that into ranges (:mod:`.planning`, :mod:`.splitting`). A range is a partition: one
  pubend, two ticks, and the addresses of the broker that holds the log.
- **Executors** read one range each, over a connection of their own, straight from that broker
  (:mod:`.reading`), and make Arrow batches of what comes (:mod:`.batches`): events stay packed as the
  log has them until they are columns.
- **Brokers** evaluate the filter: the option ``filter`` and, for a batch query that asks for it, what Spark
  pushes down (:mod:`.pushing`). What does not match is never sent.

A position of a stream (:mod:`.offsets`) is all that a checkpoint holds. Between two positions a log has
the same events whenever and wherever it is read, as long as it has them at all; that is what makes a
batch that Spark repeats the same batch. A log is released in time, so a query that must not lose
anything has a ``reader``: a durable subscription that nobody ever reads, which keeps the logs from what
was committed on (:mod:`.durable_reader`).

A stream that is silent still comes forward, tick by tick. The driver looks whether anything matches
before it says that there is something new (:mod:`.lookahead`), so that silence makes no batches.

Invariants
----------
- The same options and the same two positions give the same rows, or an error; never other rows.
- All pubends are those that the servers know together; who could not be asked is named, and a pubend
  that is asked for by its name is waited for.
- What is released and was asked for is an error, or is counted (``onRelease``); never left out unseen.
- A predicate is left to the brokers alone only if it means the same there and in Spark; everything
  else is tested by Spark again.
- A broker that fails is waited for, from the last tick that came, until the deadline has passed
  without progress.
- ``import gapless`` needs neither Java nor pyspark. What does says so (:mod:`.extra`).

What is where
-------------
- :mod:`.session`, :mod:`.java`, :mod:`.extra`: a Spark session, and what it needs
- :mod:`.source`, :mod:`.batch`, :mod:`.streaming`: what Spark calls
- :mod:`.options`, :mod:`.columns`: what users say
- :mod:`.network`, :mod:`.planning`, :mod:`.splitting`, :mod:`.lookahead`, :mod:`.durable_reader`: the driver
- :mod:`.reading`, :mod:`.batches`: executors
- :mod:`.sink`, :mod:`.sink_options`, :mod:`.row_mapping`: rows that become events, each once
"""
