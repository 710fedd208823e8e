"""The Spark session of the Spark tests, for the one test here that needs it."""

from __future__ import annotations

from tests.spark.conftest import spark

__all__ = ["spark"]
