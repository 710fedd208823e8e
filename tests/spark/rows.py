"""The events that the tests of the source publish, and functions that read them back."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import ExitStack
from pathlib import Path
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any, Self

from gapless.client.position import Position
from gapless.client.sync import SyncSession, connect_sync
from gapless.testing import SyncOverlay

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

COLUMNS = "symbol STRING, price DOUBLE, n LONG"
TIMEOUT_S = 240
"""The deadline of every wait; no test fails because a computer is busy."""


def event(n: int) -> tuple[dict[str, Any], bytes]:
    """Return the event with a number: every tenth is of IBM."""
    symbol = "IBM" if n % 10 == 0 else f"S{n % 10}"
    return {"symbol": symbol, "price": n / 2, "n": n}, f"payload {n}".encode()


class Stream:
    """Publishes to an overlay and reads it with Spark."""

    def __init__(
        self,
        spark: SparkSession,
        overlay: SyncOverlay,
        broker: str = "b1",
        token: str | None = None,
    ) -> None:
        self.spark = spark
        self.token = token
        self.overlay = overlay
        self.servers = overlay.url(broker)
        self._stack = ExitStack()
        self._session: SyncSession | None = None

    def __enter__(self) -> Self:
        self._session = self._stack.enter_context(connect_sync(self.servers, token=self.token))
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    @property
    def session(self) -> SyncSession:
        assert self._session is not None
        return self._session

    def publish(self, numbers: Iterable[int], pubend: str = "quotes") -> Position:
        """Publish the events with these numbers."""
        return self.publish_all([event(n) for n in numbers], pubend)

    def publish_all(
        self, events: Iterable[tuple[dict[str, Any], bytes]], pubend: str = "quotes"
    ) -> Position:
        with self.session.publisher(pubend) as publisher:
            return publisher.publish_many(events)

    def load(self, **options: Any) -> DataFrame:
        """Read a batch."""
        return self.spark.read.format("gapless").options(**self._chosen(options)).load()

    def stream(self, **options: Any) -> DataFrame:
        """Read a stream."""
        return self.spark.readStream.format("gapless").options(**self._chosen(options)).load()

    def _chosen(self, options: dict[str, Any]) -> dict[str, Any]:
        return {"servers": self.servers, "columns": COLUMNS, "deadline": 30, **options}


def numbers(frame: DataFrame) -> list[int]:
    """Return the numbers of the events in a frame, sorted."""
    return sorted(row.n for row in frame.select("n").collect())


class Sink:
    """A query that writes a stream to Parquet, batch by batch."""

    def __init__(self, frame: DataFrame, directory: Path) -> None:
        self.frame = frame
        self.directory = directory
        self.query: StreamingQuery | None = None

    def start(self, **trigger: Any) -> StreamingQuery:
        writer = (
            self.frame.writeStream.format("parquet")
            .option("path", str(self.directory / "rows"))
            .option("checkpointLocation", str(self.directory / "checkpoint"))
        )
        self.query = (writer.trigger(**trigger) if trigger else writer).start()
        return self.query

    def run(self) -> StreamingQuery:
        """Run until everything that existed at the start is written."""
        query = self.start(availableNow=True)
        assert query.awaitTermination(TIMEOUT_S)
        return query

    def numbers(self) -> list[int]:
        rows = self.directory / "rows"
        if not (rows / "_spark_metadata" / "0").exists():
            return []
        return numbers(self.frame.sparkSession.read.schema(self.frame.schema).parquet(str(rows)))


def until(condition: Callable[[], bool], what: str, timeout_s: float = TIMEOUT_S) -> None:
    """Wait for a condition without a notification."""
    end = monotonic() + timeout_s
    while not condition():
        assert monotonic() < end, f"not in time: {what}"
        sleep(0.05)
