"""Errors of the connector begin with the sentence that tells what is wrong."""

from __future__ import annotations

import gc
import logging
import os
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark", reason='Spark is not installed: pip install "gapless[spark]"')

from pyspark.errors import PySparkException

from gapless.core.errors import UsageError
from gapless.spark.jobs.reasons import reason_of
from gapless.spark.sentences import HIDE_TRACEBACK, sentence_first
from tests.spark.rows import Stream

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@sentence_first
def called() -> None:
    raise UsageError("no log")


@sentence_first
def generated() -> Iterator[int]:
    yield 1
    raise UsageError("no log")


@pytest.mark.parametrize("work", [called, lambda: list(generated())])
def test_the_traceback_is_hidden_as_long_as_the_error_exists(
    work: Callable[[], Any], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(HIDE_TRACEBACK, raising=False)
    caplog.set_level(logging.DEBUG, logger="gapless.spark")
    try:
        work()
    except UsageError:
        assert os.environ[HIDE_TRACEBACK] == "1"
    assert "Traceback" in caplog.messages[-1]
    gc.collect()
    assert HIDE_TRACEBACK not in os.environ


def test_another_error_and_a_setting_of_the_user_are_left_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(HIDE_TRACEBACK, "yes")
    with pytest.raises(UsageError):
        called()
    gc.collect()
    assert os.environ[HIDE_TRACEBACK] == "yes"
    monkeypatch.delenv(HIDE_TRACEBACK)

    @sentence_first
    def broken() -> None:
        raise KeyError

    with pytest.raises(KeyError):
        broken()
    assert HIDE_TRACEBACK not in os.environ


def test_errors_of_the_source_and_the_sink_begin_with_their_sentence(
    spark: SparkSession, stream: Stream
) -> None:
    stream.publish(range(3))
    sink = {"servers": stream.servers, "pubend": "out"}
    decimal = spark.sql("SELECT CAST(1 AS DECIMAL(3, 1)) AS price")
    listed = spark.sql("SELECT '{\"a\": [1]}' AS attributes")
    calls: dict[str, Callable[[], object]] = {
        "there is no option 'nonsense'": lambda: stream.load(nonsense=1),
        "option pubends: there is no log of nowhere": lambda: stream.load(
            pubends="nowhere", deadline=1
        ).count(),
        "column 'price' is DECIMAL": lambda: _append(decimal, sink),
        "column 'attributes': 'a' is not a single value": lambda: _append(listed, sink),
    }
    for sentence, call in calls.items():
        with pytest.raises(PySparkException) as caught:
            call()
        text = str(caught.value)
        assert f"UsageError: {sentence}" in text
        assert "Traceback" not in text
        assert reason_of(caught.value).startswith(sentence)


def _append(frame: Any, options: dict[str, str]) -> None:
    frame.write.format("gapless").options(**options).mode("append").save()
