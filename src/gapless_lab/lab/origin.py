"""Which code made a result: the version of gapless, and digests of the sources that were run.

A finished point is kept with a digest of everything (:mod:`.results`): in doubt it is measured again. A
report is read later and elsewhere, and should still be good after a change of what it never ran. So its
digests are of sources alone, as compiled files differ from computer to computer, and of no others than
an experiment runs. They are two: of the rooms of the machine that it sets in motion, and of its own
files in the lab. A changed sentence in the lab says nothing of brokers, and the other way round.
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
"""The kinds of files that make a difference to what is run, and are the same everywhere."""

DIGITS: Final = 12
"""Of a digest: short enough to read, and no two states of the code share one by chance."""

ROOT: Final = Path(__file__).parents[2]
"""The folder that the product and the lab stand in."""


class Origin(msgspec.Struct, frozen=True):
    """The code that made a result."""

    version: str
    """Of gapless."""
    machine: str
    """The digest of the rooms that an experiment sets in motion."""
    experiment: str
    """The digest of its files in the lab."""

    @property
    def digests(self) -> str:
        """The two digests, as a report says them."""
        return f"machine `{self.machine}`, experiment `{self.experiment}`"


def origin_of(experiment: Experiment, version: str) -> Origin:
    """Return the code of an experiment as it is here: the rooms that it runs, and its own files."""
    machine = [path for package in experiment.packages for path in _sources(ROOT / package)]
    own = _with_imports(experiment.measure.__module__.rpartition(".")[2])
    return Origin(version, digest(ROOT, machine)[:DIGITS], digest(ROOT, own)[:DIGITS])


def digest(base: Path, paths: Iterable[Path]) -> str:
    """Return a digest of some files and of their names below a folder."""
    found = hashlib.sha256()
    for path in sorted(paths):
        name = path.relative_to(base).as_posix().encode()
        held = path.read_bytes()
        # lengths keep a name and what follows it apart
        found.update(b"%d %d " % (len(name), len(held)) + name + held)
    return found.hexdigest()


def _sources(package: Path) -> list[Path]:
    """Return the sources of a room; a single file is a room too."""
    return [path for path in (package, *package.rglob("*")) if path.suffix in SOURCES]


def _with_imports(name: str) -> set[Path]:
    """Return the file of a module of the lab and of all others of the lab that it needs."""
    found: set[Path] = set()
    left = [name]
    while left:
        path = ROOT / "gapless_lab" / "lab" / f"{left.pop()}.py"
        if path not in found:
            found.add(path)
            left += _imported(path)
    return found


def _imported(path: Path) -> Iterator[str]:
    """Return which modules of the lab a file imports."""
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("gapless_lab.lab."):
            yield str(node.module).rpartition(".")[2]
