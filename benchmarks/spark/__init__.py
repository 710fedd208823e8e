"""The Spark source against the most that Spark takes from any Python source.

Run with ``python -m benchmarks.spark``. A broker is a process of its own and holds a log; Spark runs in
this computer with two tasks at a time, and drops the rows. Measured are:

- the *ceiling*: record batches that were made beforehand, of the same columns, without any network;
- the source without a filter, in rows a second;
- the source with a filter that keeps one event in a hundred, in events that are examined a second;
- a query that reads nothing: what every query takes before its first event.
"""
