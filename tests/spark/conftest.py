"""One Spark session for all tests that need one: its start takes ten seconds and more."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from gapless.core.errors import UsageError
from gapless.spark.extra import INSTALL
from gapless.spark.java import find_java
from gapless.testing import SyncOverlay
from tests.spark.rows import Stream

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """Return a small session."""
    pytest.importorskip("pyspark", reason=f"Spark is not installed: {INSTALL}")
    try:
        find_java()
    except UsageError as error:
        pytest.skip(str(error))
    from gapless.spark.session import spark_session

    settings = {
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "UTC",
        "spark.driver.memory": "1g",
        "spark.log.level": "ERROR",
        "spark.python.authenticate.socketTimeout": "120s",
    }
    session = spark_session("local[2,3]", name="gapless tests", settings=settings)
    yield session
    session.stop()


@pytest.fixture
def stream(spark: SparkSession) -> Iterator[Stream]:
    """Return a broker with functions that publish to it and read from it."""
    with SyncOverlay() as overlay, Stream(spark, overlay) as made:
        yield made
