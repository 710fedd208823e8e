"""A Spark cluster on this computer: a master, two workers with a core each, and a driver.

Master and workers are started from the PySpark distribution with the Java that our sessions use. The
workers have different addresses, because Spark runs no second copy of a task on the host of the first. The
driver is a process too: this one has a session already, and a process has at most one. The driver reads jobs
(:mod:`tests.spark.cluster_jobs`) as lines of JSON, so that all tests share it.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, Final, Self

import pyspark
import pytest

from gapless.core.errors import UsageError
from gapless.spark.java import find_java
from tests.spark.cluster_jobs import ANSWER, TIMEOUT_S
from tests.spark.rows import until

ROOT: Final = Path(__file__).resolve().parent.parent.parent

_MASTER: Final = "org.apache.spark.deploy.master.Master"
_WORKER: Final = "org.apache.spark.deploy.worker.Worker"
_HOSTS: Final = ("127.0.0.1", "127.0.0.2")
_QUICK: Final = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
"""Options for a JVM that runs for a minute: little compilation."""


NO_CLUSTER: Final = "GAPLESS_TESTS_NO_CLUSTER"
"""The variable that skips the tests that need a cluster."""


class ClusterError(Exception):
    """The cluster did not start."""


def skip_without_cluster() -> None:
    """Skip a test if there is no Java or if the variable says that no cluster can run.

    Anywhere else a cluster that does not start is a failure.
    """
    try:
        find_java()
    except UsageError as error:
        pytest.skip(str(error))
    if os.environ.get(NO_CLUSTER):
        pytest.skip(f"{NO_CLUSTER} says that no cluster runs here")


class Cluster:
    """Runs until it is closed; use it with ``with``."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._processes: list[subprocess.Popen[str]] = []

    def __enter__(self) -> Self:
        try:
            self._start()
        except (AssertionError, OSError) as error:
            self.close()
            raise ClusterError(f"no Spark cluster could be started here: {error}") from error
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """End all started processes and their children."""
        for process in reversed(self._processes):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            for stream in (process.stdin, process.stdout):
                if stream is not None:
                    stream.close()
        self._processes = []

    # --- processes -------------------------------------------------------------------------------

    def _start(self) -> None:
        self._start_daemon("master", _MASTER, _HOSTS[0])
        master = self._output("master", r"Starting Spark master at (spark://\S+)")
        for host in _HOSTS:
            self._start_daemon(f"worker-{host}", _WORKER, host, "--cores", "1", master)
        for host in _HOSTS:
            self._output(f"worker-{host}", "(Successfully registered) with master")
        command = [sys.executable, "-m", "tests.spark.cluster_jobs", master]
        self._driver = self._run("driver", command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def _start_daemon(self, name: str, kind: str, host: str, *rest: str) -> None:
        program = Path(pyspark.__file__).parent / "bin" / "spark-class"
        where = ["--host", host, "--port", "0", "--webui-port", "0"]
        self._run(name, [str(program), kind, *where, *rest], SPARK_LOCAL_IP=host)

    def _run(
        self, name: str, command: list[str], stdin: Any = None, stdout: Any = None, **more: str
    ) -> subprocess.Popen[str]:
        environment = {
            **os.environ,
            "JAVA_HOME": str(find_java().home),
            "PYSPARK_PYTHON": sys.executable,
            "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)]),
            "SPARK_DAEMON_JAVA_OPTS": _QUICK,
            "SPARK_LOCAL_DIRS": str(self.directory),
            "SPARK_WORKER_DIR": str(self.directory / name),
            **more,
        }
        with self._log(name).open("w") as log:
            process = subprocess.Popen(
                command,
                cwd=self.directory,
                env=environment,
                stdin=stdin or subprocess.DEVNULL,
                stdout=stdout or log,
                stderr=log,
                text=True,
                start_new_session=True,
            )
        self._processes.append(process)
        return process

    def _log(self, name: str) -> Path:
        return self.directory / f"{name}.log"

    def _output(self, name: str, pattern: str) -> str:
        """Wait until a process has logged a pattern; return its group."""
        process = self._processes[-1]
        found: list[str] = []

        def is_there() -> bool:
            found[:] = re.findall(pattern, self._log(name).read_text())
            assert found or process.poll() is None, self._log(name).read_text()[-500:]
            return bool(found)

        until(is_there, f"{name} says {pattern}", TIMEOUT_S)
        return found[0]

    # --- jobs ------------------------------------------------------------------------------------

    def start(self, job: str, **arguments: Any) -> None:
        """Start a job in the driver."""
        assert self._driver.stdin is not None
        print(json.dumps([job, arguments]), file=self._driver.stdin, flush=True)

    def result(self) -> Any:
        """Wait for the result of the job."""
        assert self._driver.stdout is not None
        for line in self._driver.stdout:
            if line.startswith(ANSWER):
                return json.loads(line.removeprefix(ANSWER))
        raise AssertionError(f"the driver ended: {self._log('driver').read_text()[-2_000:]}")

    def run(self, job: str, **arguments: Any) -> Any:
        """Run a job to its end."""
        self.start(job, **arguments)
        return self.result()
