"""The Spark source compared with the highest rate of any Python source in Spark.

Run with ``python -m benchmarks.spark``. A broker is a process of its own and holds a log; Spark
runs on this computer with two tasks at a time, and drops the rows. The measurements are:

- the *ceiling*: record batches that were made beforehand, of the same columns, without any network;
- the source without a filter, in rows per second;
- the source with a filter that keeps one event in a hundred, in examined events per second;
- a query that reads nothing: the fixed cost of every query.
"""
