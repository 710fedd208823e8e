"""A Spark session for a command: with little output, stopped at the end, with readable errors."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from rich.status import Status

__all__ = ["session", "tasks_shown"]

_LOOK_S = 0.5
"""How often the progress of tasks is read."""

_LOG = """
rootLogger.level = fatal
logger.cluster.name = org.apache.spark.scheduler.cluster
logger.cluster.level = error
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %d{HH:mm:ss} %p %c{1}: %m%n
"""


@contextmanager
def session(master: str, name: str) -> Iterator[SparkSession]:
    """A Spark session that is stopped at the end of the command, also after Ctrl-C."""
    from gapless.spark.session import spark_session

    # a call of Java that Ctrl-C interrupts is logged with its traceback
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    with tempfile.TemporaryDirectory(prefix="gapless-") as directory, _spark_message():
        made = spark_session(master, name=f"gapless {name}", settings=_quiet(Path(directory)))
        try:
            yield made
        except KeyboardInterrupt:
            made.sparkContext.cancelAllJobs()
            raise
        finally:
            made.stop()


def _quiet(directory: Path) -> dict[str, str]:
    """Return settings with which Spark logs no errors, from its first line on.

    Its errors about the cluster remain: they are the only hint if the cluster cannot be reached.
    """
    path = directory / "log4j2.properties"
    path.write_text(_LOG, encoding="utf-8")
    return {
        "spark.log.level": "FATAL",
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={path}",
    }


@contextmanager
def _spark_message() -> Iterator[None]:
    """Convert errors of Spark to errors of one line."""
    try:
        yield
    except Exception as error:
        if type(error).__module__.split(".")[0] not in {"py4j", "pyspark"}:
            raise
        from gapless.spark.jobs.reasons import as_ours

        raise as_ours(error, "Spark failed") from error


@contextmanager
def tasks_shown(made: SparkSession, status: Status) -> Iterator[None]:
    """Show how many tasks of the current job are done."""
    ended = Event()
    tracker = made.sparkContext.statusTracker()
    title = str(status.status)

    def look() -> None:
        while not ended.wait(_LOOK_S):
            stages = [tracker.getStageInfo(each) for each in tracker.getActiveStageIds()]
            counts = [f"{each.numCompletedTasks}/{each.numTasks}" for each in stages if each]
            status.update(f"{title}: {', '.join(counts)} tasks" if counts else title)

    poller = Thread(target=look, daemon=True)
    if status.console.is_terminal:
        poller.start()
    try:
        yield
    finally:
        ended.set()
        if poller.is_alive():
            poller.join()
