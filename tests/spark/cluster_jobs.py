"""The jobs of the driver of the cluster, and the task that stops where a test wants it to."""

from __future__ import annotations

import json
import os
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from time import sleep
from typing import TYPE_CHECKING, Any, Final

from pyspark import TaskContext

from gapless.spark.session import spark_session

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

ANSWER: Final = "answer: "
FIRST: Final = "first"
VICTIM: Final = "victim"
COPIES: Final = "copies"
EXECUTORS: Final = 2

TIMEOUT_S: Final = 240
"""The start of six JVMs on a loaded computer."""

_SETTINGS: Final = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "512m",
    "spark.executor.cores": "1",
    "spark.executor.memory": "512m",
    "spark.executor.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
    "spark.executorEnv.PYTHONPATH": os.environ.get("PYTHONPATH", ""),
    "spark.log.level": "ERROR",
    # batches much smaller than a partition, so that a task can stop in the middle
    "spark.sql.execution.arrow.maxRecordsPerBatch": "500",
    "spark.sql.shuffle.partitions": "2",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # a copy starts when the others have finished and one takes five times as long
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.multiplier": "5",
    "spark.speculation.quantile": "0.5",
}


class Stumble:
    """Forwards rows; in the middle of one partition, the first attempt leaves a trace and stops.

    Later attempts forward all rows. A process of Spark or the task may be killed meanwhile.
    """

    def __init__(self, traces: str, partition: int, after: int) -> None:
        self._traces = Path(traces)
        self._partition = partition
        self._after = after

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Forward the rows of a partition."""
        context = TaskContext.get()
        assert context is not None
        is_mine = context.partitionId() == self._partition
        if is_mine:
            (self._traces / f"attempt-{context.taskAttemptId()}").touch()
        seen = 0
        for batch in batches:
            yield batch
            seen += batch.num_rows
            if is_mine and seen >= self._after and self._is_first():
                self._stand_still()

    def _is_first(self) -> bool:
        try:
            (self._traces / FIRST).touch(exist_ok=False)
        except FileExistsError:
            return False
        return True

    def _stand_still(self) -> None:
        draft = self._traces / "draft"
        draft.write_text(str(executor_pid()))
        draft.rename(self._traces / VICTIM)
        parent = os.getppid()
        for _ in range(10 * TIMEOUT_S):
            if os.getppid() != parent:
                os._exit(1)  # the executor has ended, so end this process
            sleep(0.1)
        raise TimeoutError("the test has not ended this task")


def executor_pid() -> int:
    """Return the executor of this process: the first Java among its ancestors."""
    pid = os.getppid()
    while Path(f"/proc/{pid}/comm").read_text().strip() != "java":
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return pid


# --- jobs --------------------------------------------------------------------------------------------


def ready(spark: SparkSession) -> int:
    """Wait for both executors; return their number."""
    executors = 0
    for _ in range(10 * TIMEOUT_S):
        known = spark.sparkContext._jsc.sc().getExecutorMemoryStatus().size()
        executors = int(known) - 1  # the driver is counted too
        if executors == EXECUTORS:
            return executors
        sleep(0.1)
    raise TimeoutError(f"there are {executors} executors")


def read_batch(spark: SparkSession, options: dict[str, str], stumble: list[Any]) -> list[int]:
    """Read a batch; return its numbers."""
    frame = _stumbling(spark.read.format("gapless").options(**options).load(), stumble)
    return sorted(row.n for row in frame.select("n").collect())


def read_stream(
    spark: SparkSession, options: dict[str, str], stumble: list[Any], directory: str
) -> list[int]:
    """Copy a stream into Parquet; return its numbers."""
    frame = _stumbling(spark.readStream.format("gapless").options(**options).load(), stumble)
    writer = frame.writeStream.format("parquet").option("path", f"{directory}/rows")
    _run_to_its_end(writer.option("checkpointLocation", f"{directory}/checkpoint"))
    rows = spark.read.schema(frame.schema).parquet(f"{directory}/rows")
    return sorted(row.n for row in rows.select("n").collect())


def copy_stream(
    spark: SparkSession, options: dict[str, str], stumble: list[Any], directory: str
) -> None:
    """Copy a stream into another one."""
    frame = _stumbling(spark.readStream.format("gapless").options(**options).load(), stumble)
    copies = frame.select("n", "payload").writeStream.format("gapless")
    copies = copies.option("servers", options["servers"]).option("pubend", COPIES)
    _run_to_its_end(copies.option("checkpointLocation", f"{directory}/checkpoint"))


def write_batch(spark: SparkSession, servers: str, stumble: list[Any], rows: int) -> None:
    """Write numbers, in four partitions."""
    frame = _stumbling(spark.range(0, rows, 1, 4).withColumnRenamed("id", "n"), stumble)
    frame.write.format("gapless").option("servers", servers).option("pubend", COPIES).mode(
        "append"
    ).save()


def _stumbling(frame: DataFrame, stumble: list[Any]) -> DataFrame:
    return frame.mapInArrow(Stumble(*stumble), frame.schema)


def _run_to_its_end(writer: Any) -> None:
    query = writer.trigger(availableNow=True).start()
    if not query.awaitTermination(TIMEOUT_S):
        raise TimeoutError("the query does not end")


def main() -> None:
    """Run the requested jobs, one a line, until there are no more."""
    spark = spark_session(sys.argv[1], name="gapless cluster tests", settings=_SETTINGS)
    jobs = (ready, read_batch, read_stream, copy_stream, write_batch)
    by_name = {job.__name__: job for job in jobs}
    for line in sys.stdin:
        name, arguments = json.loads(line)
        try:
            answer: Any = by_name[name](spark, **arguments)
        except Exception:  # noqa: BLE001 - the test reports any error
            answer = {"failed": traceback.format_exc()}
        sys.stdout.write(f"{ANSWER}{json.dumps(answer)}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    # executors find functions and classes by the name of this module
    from tests.spark.cluster_jobs import main as named_main

    named_main()
