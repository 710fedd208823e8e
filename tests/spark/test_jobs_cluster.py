"""Jobs on a cluster: results equal the local ones, also without gapless on the executors."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason='Spark is not installed: pip install "gapless[spark]"')

import pyspark

from gapless.cli.main import main
from tests.spark import cluster
from tests.spark.cluster import Cluster, skip_without_cluster
from tests.spark.cluster_jobs import TIMEOUT_S

pytestmark = pytest.mark.campaign


class Workers(Cluster):
    """A master and two workers without our sources; drivers are commands."""

    def _start(self) -> None:
        self._start_daemon("master", cluster._MASTER, cluster._HOSTS[0])
        self._master = self._output("master", r"Starting Spark master at (spark://\S+)")
        for host in cluster._HOSTS:
            self._start_daemon(
                f"worker-{host}", cluster._WORKER, host, "--cores", "1", self._master
            )
        for host in cluster._HOSTS:
            self._output(f"worker-{host}", "(Successfully registered) with master")

    def _start_daemon(self, name: str, kind: str, host: str, *rest: str) -> None:
        program = Path(pyspark.__file__).parent / "bin" / "spark-class"
        where = ["--host", host, "--port", "0", "--webui-port", "0"]
        self._run(name, [str(program), kind, *where, *rest], SPARK_LOCAL_IP=host, PYTHONPATH="")

    def tasks(self, host: str) -> int:
        """Return how many tasks the executors of a worker have finished."""
        logs = (self.directory / f"worker-{host}").glob("app-*/*/stderr")
        return sum(path.read_text().count("Finished task") for path in logs)

    def command(self, *arguments: str) -> str:
        """Run a command at the cluster; return its output."""
        whole = [sys.executable, "-m", "gapless", "spark", *arguments, "--master", self._master]
        process = self._run("driver", whole, stdout=subprocess.PIPE, SPARK_LOCAL_IP="127.0.0.1")
        printed, _ = process.communicate(timeout=TIMEOUT_S)
        assert process.returncode == 0, self._log("driver").read_text()[-2_000:]
        return printed


@pytest.fixture
def workers(tmp_path: Path) -> Iterator[Workers]:
    skip_without_cluster()
    with Workers(tmp_path) as made:
        yield made


def test_a_sweep_over_two_workers_has_the_results_of_the_local_runner(
    workers: Workers, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--seeds", "3", "--start", "9", "--json"]
    found = json.loads(workers.command("sweep", *arguments))
    assert main(["sim", "run", *arguments]) == 0
    expected = json.loads(capsys.readouterr().out)
    del found["summary"]["steps_per_second"], expected["summary"]["steps_per_second"]
    assert found == expected
    assert all(workers.tasks(host) for host in cluster._HOSTS), "both workers had a part"
