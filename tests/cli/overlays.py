"""Real overlays for tests of the command line: ``gapless up`` in its own process.

Nothing here sleeps for a guessed time. It waits for a condition, with a generous deadline after which the
test fails.
"""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

DEADLINE_S = 60.0
"""The deadline of every wait; a loaded computer takes a few seconds."""

ROOT = Path(__file__).resolve().parent.parent.parent
OUTSIDE = ("GAPLESS_URL", "GAPLESS_TOKEN", "GAPLESS_TOKEN_FILE")
GAPLESS = (sys.executable, "-m", "gapless")


def environment() -> dict[str, str]:
    """Return an environment in which commands find the sources and no settings of the user."""
    found = {key: value for key, value in os.environ.items() if key not in OUTSIDE}
    found["PYTHONPATH"] = str(ROOT / "src")
    return found


def gapless(*arguments: str, lines: str = "") -> subprocess.CompletedProcess[str]:
    """Run a command to its end."""
    return subprocess.run(
        [*GAPLESS, *arguments],
        input=lines,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
        env=environment(),
    )


class Running:
    """A running command and the lines that it prints."""

    def __init__(self, *arguments: str) -> None:
        self.process = subprocess.Popen(
            [*GAPLESS, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment(),
        )
        self.errors: list[str] = []
        self._lines: queue.Queue[str | None] = queue.Queue()
        assert self.process.stdout is not None
        assert self.process.stderr is not None
        self._threads = [
            threading.Thread(target=self._read, args=(self.process.stdout, self._lines.put)),
            threading.Thread(target=self._read, args=(self.process.stderr, self.errors.append)),
        ]
        for thread in self._threads:
            thread.start()

    def _read(self, stream: IO[str], take: Callable[[str], None]) -> None:
        for line in stream:
            take(line)
        if stream is self.process.stdout:
            self._lines.put(None)

    def line(self) -> Any:
        """Return the next line that it prints, parsed as JSON."""
        line = self._lines.get(timeout=DEADLINE_S)
        assert line is not None, f"it ended: {''.join(self.errors)}"
        return json.loads(line)

    def interrupt(self) -> None:
        """Send the signal of Ctrl-C."""
        self.process.send_signal(signal.SIGINT)

    def wait(self) -> int:
        """Return its exit code when it has ended."""
        code = self.process.wait(timeout=DEADLINE_S)
        self._join()
        return code

    def end(self) -> None:
        """End the command and its children."""
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(timeout=DEADLINE_S)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        self._join()

    def _join(self) -> None:
        for thread in self._threads:
            thread.join(timeout=DEADLINE_S)
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            if stream is not None:
                stream.close()


@contextmanager
def running(*arguments: str) -> Iterator[Running]:
    """Run a command for the duration of the block."""
    made = Running(*arguments)
    try:
        yield made
    finally:
        made.end()


class Overlay:
    """Brokers that ``gapless up`` has started."""

    def __init__(self, command: Running) -> None:
        self.command = command
        self.first = command.line()
        self.brokers: list[dict[str, Any]] = self.first["brokers"]

    def url(self, index: int = 0) -> str:
        """Return the URL of a broker."""
        found = self.brokers[index]["url"]
        assert isinstance(found, str)
        return found

    def pid(self, index: int = 0) -> int:
        """Return the first process id of a broker."""
        found = self.brokers[index]["pid"]
        assert isinstance(found, int)
        return found

    def kill(self, index: int = 0) -> None:
        """Kill a broker with SIGKILL."""
        os.kill(self.pid(index), signal.SIGKILL)

    def await_stage(self, stage: str) -> Any:
        """Wait until a broker is reported at a stage; return the report."""
        while True:
            line = self.command.line()
            if line["stage"] == stage:
                return line


@contextmanager
def overlay(*options: str, topology: str = "line:3") -> Iterator[Overlay]:
    """Run an overlay on free ports for the duration of the block."""
    with running("up", "--json", "--port", "0", "--topology", topology, *options) as command:
        yield Overlay(command)


def is_alive(pid: int) -> bool:
    """Return whether a process has not ended."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def until(happened: Callable[[], bool]) -> None:
    """Wait until a condition holds."""
    deadline = time.monotonic() + DEADLINE_S
    while not happened():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.01)


def event(number: int, payload: str = "") -> str:
    """Return an event as a line."""
    return json.dumps({"attributes": {"n": number}, "payload": payload}) + "\n"


def events(*numbers: int) -> str:
    """Return events as lines."""
    return "".join(map(event, numbers))
