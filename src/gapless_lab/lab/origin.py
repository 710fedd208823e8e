"""Which code made a result: the version of gapless, and digests of the sources that were run.

A finished point is stored with a digest of everything (:mod:`.results`): in doubt it is measured
again. A report is read later and elsewhere, and should remain valid after a change of code that it
did not run. So its digests cover only sources, because compiled files differ between computers, and
only those that the experiment runs. There are two: one of the packages of the machine that it runs,
and one of its own files in the lab. So a change in the lab does not affect the digest of the
brokers, and vice versa.
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

import msgspec

from gapless_lab.lab.experiment import Experiment

__all__ = ["Origin", "digest", "origin_of"]

SOURCES: Final = frozenset({".py", ".pyx", ".pxi", ".h"})
"""Suffixes of files that affect what is run and are equal everywhere."""

DIGITS: Final = 12
"""The length of a digest: short enough to read, long enough to avoid collisions."""

ROOT: Final = Path(__file__).parents[2]
"""The folder of the product and the lab."""


class Origin(msgspec.Struct, frozen=True):
    """The code that made a result."""

    version: str
    """The version of gapless."""
    machine: str
    """The digest of the packages that an experiment runs."""
    experiment: str
    """The digest of its files in the lab."""

    @property
    def digests(self) -> str:
        """The two digests, as a report shows them."""
        return f"machine `{self.machine}`, experiment `{self.experiment}`"


def origin_of(experiment: Experiment, version: str) -> Origin:
    """Return the present code of an experiment: the packages that it runs, and its own files."""
    machine = [path for package in experiment.packages for path in _sources(ROOT / package)]
    own = _with_imports(experiment.measure.__module__.rpartition(".")[2])
    return Origin(version, digest(ROOT, machine)[:DIGITS], digest(ROOT, own)[:DIGITS])


def digest(base: Path, paths: Iterable[Path]) -> str:
    """Return a digest of some files and of their names below a folder."""
    found = hashlib.sha256()
    for path in sorted(paths):
        name = path.relative_to(base).as_posix().encode()
        held = path.read_bytes()
        # lengths separate a name from the content that follows
        found.update(b"%d %d " % (len(name), len(held)) + name + held)
    return found.hexdigest()


def _sources(package: Path) -> list[Path]:
    """Return the sources of a package, or a single file."""
    return [path for path in (package, *package.rglob("*")) if path.suffix in SOURCES]


def _with_imports(name: str) -> set[Path]:
    """Return the file of a module of the lab and the files of the lab that it needs."""
    found: set[Path] = set()
    left = [name]
    while left:
        path = ROOT / "gapless_lab" / "lab" / f"{left.pop()}.py"
        if path not in found:
            found.add(path)
            left += _imported(path)
    return found


def _imported(path: Path) -> Iterator[str]:
    """Yield the modules of the lab that a file imports."""
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("gapless_lab.lab."):
            yield str(node.module).rpartition(".")[2]
