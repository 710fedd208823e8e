"""A broker that is killed repeatedly while Spark works."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from time import sleep
from typing import TYPE_CHECKING, Self

from tests.spark.rows import Stream

if TYPE_CHECKING:
    import pyarrow as pa


class Chaos(threading.Thread):
    """Kills the broker and restarts it until the block ends."""

    def __init__(self, stream: Stream, *, every_s: float) -> None:
        super().__init__()
        self._stream = stream
        self._every_s = every_s
        self._over = threading.Event()
        self.kills = 0

    def run(self) -> None:
        while not self._over.wait(self._every_s):
            self._stream.overlay.kill("b1")
            self.kills += 1
            sleep(0.1)
            self._stream.overlay.restart("b1")

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._over.set()
        self.join()


def slowly(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield rows slowly, so that the broker can be killed in between."""
    for batch in batches:
        for place in range(0, batch.num_rows, 500):
            sleep(0.05)
            yield batch.slice(place, 500)
