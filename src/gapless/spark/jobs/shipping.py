"""Executors on other computers need gapless: this checks whether they have it, and ships it if not.

The sources are shipped in a zip. A compiled kernel cannot be imported from a zip, so executors then
match with the Python fallback: the same results, slower. For speed, install gapless there.
"""

from __future__ import annotations

import atexit
import shutil
import tempfile
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Final

import gapless
from gapless.core.errors import UsageError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["ready_executors"]

NEEDED: Final = ("msgspec", "numpy", "pyarrow")
"""Packages that gapless needs in a task, and that cannot be shipped as sources."""

_TASKS_MAX: Final = 64
"""How many tasks check: enough to reach every executor of a small cluster."""


def ready_executors(spark: SparkSession, *more: ModuleType) -> bool:
    """Ensure that tasks can import gapless and ``more`` packages; return whether they were shipped.

    Raises a UsageError that names what executors lack. A local session needs nothing: its tasks run
    in the same installation.
    """
    master = str(spark.sparkContext.master)
    if master.startswith("local") and not master.startswith("local-cluster"):
        return False
    packages = (gapless, *more)
    names = tuple(package.__name__ for package in packages)
    lacking = _lacking(spark, (*names, *NEEDED))
    shipped = any(name in lacking for name in names)
    if shipped:
        spark.sparkContext.addPyFile(str(packed(*packages)))
        lacking = _lacking(spark, (*names, *NEEDED))
    if lacking:
        shown = "; ".join(f"{host} lacks {', '.join(names)}" for host, names in lacking.hosts())
        raise UsageError(
            f"executors cannot run gapless: {shown}. Install it where executors run, for the Python "
            f"that PYSPARK_PYTHON names there: pip install gapless=={gapless.__version__}"
        )
    return shipped


class _Lacking(dict[str, set[str]]):
    """The hosts that lack each package."""

    def hosts(self) -> Iterable[tuple[str, list[str]]]:
        found: dict[str, list[str]] = {}
        for package, hosts in sorted(self.items()):
            for host in hosts:
                found.setdefault(host, []).append(package)
        return sorted(found.items())


def _lacking(spark: SparkSession, packages: tuple[str, ...]) -> _Lacking:
    # A nested function is sent as its code, so it runs on hosts without gapless.
    def report_packages(_: Iterable[int]) -> Iterator[tuple[str, str]]:
        import importlib
        import socket

        importlib.invalidate_caches()
        for package in packages:
            try:
                importlib.import_module(package)
            except ImportError:
                yield package, socket.gethostname()

    context = spark.sparkContext
    tasks = min(4 * context.defaultParallelism, _TASKS_MAX)
    found = _Lacking()
    for package, host in (
        context.parallelize(range(tasks), tasks).mapPartitions(report_packages).collect()
    ):
        found.setdefault(package, set()).add(host)
    return found


def packed(*packages: ModuleType) -> Path:
    """Return a zip of the sources of packages, which exists as long as this process.

    Executors fetch it when they start, so it is needed as long as new ones may start.
    """
    directory = tempfile.mkdtemp(prefix="gapless-")
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    target = Path(directory) / "gapless.zip"
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for package in packages:
            root = Path(package.__path__[0])
            for path in sorted(root.rglob("*.py")):
                archive.write(path, package.__name__ / path.relative_to(root))
    return target
