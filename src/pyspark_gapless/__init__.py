"""Lets Spark find the data source ``gapless`` by itself: it imports every module ``pyspark_…``."""

from gapless.spark.source import GaplessSource as DefaultSource

__all__ = ["DefaultSource"]
