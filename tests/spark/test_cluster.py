"""A cluster whose executors are killed or run a task twice: every row is there once."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason='Spark is not installed: pip install "gapless[spark]"')

from gapless.client.sync import SyncSession, connect_sync
from gapless.testing import SyncOverlay
from tests.spark.cluster import Cluster, skip_without_cluster
from tests.spark.cluster_jobs import COPIES, EXECUTORS, TIMEOUT_S, VICTIM
from tests.spark.rows import until

pytestmark = pytest.mark.campaign

EVENTS = 24_000
"""A kilobyte each. Half of them exceed the socket buffers, so a task that reads them stops when its
consumer does."""

STUMBLE_AFTER = 3_000


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    skip_without_cluster()
    with Cluster(tmp_path_factory.mktemp("cluster")) as made:
        assert made.run("ready") == EXECUTORS
        yield made


class ScenarioRecorder:
    """A broker with events, and the traces of the task that stops."""

    def __init__(self, overlay: SyncOverlay, session: SyncSession, traces: Path) -> None:
        self.servers = overlay.url()
        self._node = overlay._overlay.node("b1")
        self._session = session
        self._traces = traces
        self.options = {
            "servers": self.servers,
            "pubends": "quotes,orders",
            "columns": "n LONG",
            "start": "earliest",
            "partitionBytes": "1000000000",
        }

    def stumble(self, partition: int, after: int = STUMBLE_AFTER) -> list[Any]:
        return [str(self._traces), partition, after]

    def publish(self) -> None:
        """Fill two logs; each becomes a partition."""
        for place, pubend in enumerate(("quotes", "orders")):
            numbers = range(place, EVENTS, 2)
            with self._session.publisher(pubend) as publisher:
                publisher.publish_many(({"n": n}, b"x" * 1_000) for n in numbers)

    def kill_executor(self) -> None:
        """Kill the process that runs the stopped task."""
        self.wait_for_the_middle()
        os.kill(int((self._traces / VICTIM).read_text()), signal.SIGKILL)

    def wait_for_the_middle(self) -> None:
        """Wait until a task has stopped in the middle."""
        until((self._traces / VICTIM).exists, "a task is in the middle", TIMEOUT_S)

    def clients(self) -> int:
        """Return the number of connected clients: the test and every reader."""
        return len(self._node.clients)

    def attempts(self) -> int:
        """Return how often the partition of the stopped task was started."""
        return len(list(self._traces.glob("attempt-*")))

    def staged(self) -> int:
        """Return the bytes that wait for a commit."""
        return self._node.broker.components.staging.bytes

    def written(self) -> list[Any]:
        return [event.attributes["n"] for event in self._session.read(COPIES)]


@pytest.fixture
def scenario(tmp_path: Path) -> Iterator[ScenarioRecorder]:
    traces = tmp_path / "traces"
    traces.mkdir()
    with SyncOverlay() as overlay, connect_sync(overlay.url()) as session:
        yield ScenarioRecorder(overlay, session, traces)


def test_killing_an_executor_during_a_batch_read_loses_no_row(
    cluster: Cluster, scenario: ScenarioRecorder
) -> None:
    scenario.publish()
    cluster.start("read_batch", options=scenario.options, stumble=scenario.stumble(1))
    scenario.wait_for_the_middle()
    still_reads = "one task has finished, the other one still reads"
    until(lambda: scenario.clients() <= 2, still_reads, TIMEOUT_S)
    scenario.kill_executor()
    assert cluster.result() == [*range(EVENTS)]
    assert scenario.attempts() == 2


def test_killing_an_executor_during_a_stream_loses_no_row(
    cluster: Cluster, scenario: ScenarioRecorder, tmp_path: Path
) -> None:
    scenario.publish()
    job = {"options": scenario.options, "stumble": scenario.stumble(0), "directory": str(tmp_path)}
    cluster.start("read_stream", **job)
    scenario.kill_executor()
    assert cluster.result() == [*range(EVENTS)]
    assert scenario.attempts() == 2


def test_killing_an_executor_during_a_write_writes_every_row_once(
    cluster: Cluster, scenario: ScenarioRecorder, tmp_path: Path
) -> None:
    scenario.publish()
    job = {"options": scenario.options, "stumble": scenario.stumble(0), "directory": str(tmp_path)}
    cluster.start("copy_stream", **job)
    until(lambda: scenario.staged() > 0, "something is staged", TIMEOUT_S)
    scenario.kill_executor()
    assert cluster.result() is None
    assert scenario.attempts() == 2
    assert sorted(scenario.written()) == [*range(EVENTS)]
    assert scenario.staged() == 0


def test_a_speculative_copy_of_a_task_writes_every_row_once(
    cluster: Cluster, scenario: ScenarioRecorder
) -> None:
    stumble = scenario.stumble(2, after=1_500)
    assert cluster.run("write_batch", servers=scenario.servers, stumble=stumble, rows=8_000) is None
    assert scenario.attempts() == 2, "Spark has not begun a second copy"
    assert scenario.written() == [*range(8_000)]
    assert scenario.staged() == 0
