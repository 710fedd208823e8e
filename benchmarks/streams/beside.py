"""Runs a measurement in a process of its own, with the sources of this tree or of another commit.

``python -m benchmarks.streams.beside MEASUREMENT ARGUMENTS`` is that process: it prints its results as
JSON. The measurement is the code of this tree in both cases; only the packages ``gapless`` and ``gapless_lab`` differ. So
the other commit must have the same client library, as far as the measurement calls it.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import uvloop

from benchmarks.streams.counted import Counted, measure_counted
from benchmarks.streams.idle import Idle, measure_idle
from benchmarks.streams.measure import Throughput, measure_throughput
from benchmarks.streams.subscribing import Subscribing, measure_subscribing

__all__ = ["SOURCES", "counted_of", "idle_of", "sources_of", "subscribing_of", "throughput_of"]

ROOT: Final = Path(__file__).resolve().parents[2]
SOURCES: Final = ROOT / "src"


@contextlib.contextmanager
def sources_of(commit: str) -> Iterator[Path]:
    """Check out a commit and build its kernels; yield its sources."""
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "tree"
        _run("git", "worktree", "add", "--detach", str(tree), commit)
        try:
            _run(sys.executable, "setup.py", "-q", "build_ext", "--inplace", cwd=tree)
            yield tree / "src"
        finally:
            _run("git", "worktree", "remove", "--force", str(tree))


def _run(*command: str, cwd: Path = ROOT) -> None:
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)  # noqa: S603 - ours
    if done.returncode:
        sys.exit(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")


async def subscribing_of(
    sources: Path, commit: str, hops: int, *, busy: bool, count: int
) -> list[Subscribing]:
    """Measure the calls of subscribers with the given sources."""
    found = await _measured(sources, "subscribing", hops, busy, count)
    return [Subscribing(**each | {"commit": commit}) for each in found]


async def idle_of(
    sources: Path, commit: str, hops: int, pubends: int, kind: str, seconds: float
) -> Idle:
    """Measure idle brokers with the given sources."""
    return Idle(**await _measured(sources, "idle", commit, hops, pubends, kind, seconds))


async def counted_of(sources: Path, commit: str, hops: int, seconds: float) -> Counted:
    """Count the messages between brokers with the given sources, in virtual time."""
    return Counted(**await _measured(sources, "counted", commit, hops, seconds))


async def throughput_of(
    sources: Path, contender: str, commit: str, hops: int, count: int, subscriptions: int
) -> Throughput:
    """Measure the throughput with the given sources."""
    found = await _measured(sources, "throughput", contender, hops, count, subscriptions)
    return Throughput(**found | {"contender": f"{contender}, {commit}"})


async def _measured(sources: Path, name: str, *args: Any) -> Any:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        __spec__.name,
        name,
        json.dumps(args),
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": os.pathsep.join((str(sources), str(ROOT)))},
        stdout=asyncio.subprocess.PIPE,
    )
    printed, _ = await process.communicate()
    if process.returncode:
        sys.exit(f"the measurement {name} of {sources} failed")
    return json.loads(printed)


async def _subscribing(*args: Any) -> Any:
    return [asdict(each) for each in await measure_subscribing(*args)]


async def _throughput(*args: Any) -> Any:
    return asdict(await measure_throughput(*args))


async def _idle(*args: Any) -> Any:
    return asdict(await measure_idle(*args))


async def _counted(*args: Any) -> Any:
    return asdict(await measure_counted(*args))


_MEASUREMENTS: Final[dict[str, Callable[..., Coroutine[Any, Any, Any]]]] = {
    "subscribing": _subscribing,
    "idle": _idle,
    "counted": _counted,
    "throughput": _throughput,
}


if __name__ == "__main__":
    print(json.dumps(uvloop.run(_MEASUREMENTS[sys.argv[1]](*json.loads(sys.argv[2])))))
