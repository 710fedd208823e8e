"""Results on disk: one line per finished point, so that a stopped run can continue."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

import msgspec

from gapless_lab.lab.drawing import draw
from gapless_lab.lab.experiment import Chart
from gapless_lab.lab.origin import ROOT, digest
from gapless_lab.lab.points import Point, PointOutcome, Row
from gapless_lab.lab.report import ExperimentReport, csv_of, markdown

__all__ = ["PAGE", "ResultStore", "StoredResult", "digest_of", "this_code"]

POINTS: Final = "points.jsonl"
PAGE: Final = "README.md"
PICTURE: Final = "plot.png"


class StoredResult(msgspec.Struct, frozen=True):
    """A finished point, as stored."""

    version: str
    """The version of gapless with a digest of its files: points that other code measured are
    measured again."""
    point: Point
    row: Row
    seconds: float


@cache
def this_code(version: str) -> str:
    """Return the version of this code: the release, and a digest of the product and the lab.

    The release alone does not identify the code between two releases, and any changed line that an
    experiment runs may change its results.
    """
    return f"{version}+{digest_of(ROOT / 'gapless', ROOT / 'gapless_lab')}"


def digest_of(*packages: Path) -> str:
    """Return a digest of the files of packages, compiled ones too, without the caches of Python."""
    paths = [path for package in packages for path in package.rglob("*") if path.is_file()]
    sources = (each for each in paths if "__pycache__" not in each.parts)
    return digest(packages[0].parent, sources)[:16]


class ResultStore:
    """The directory with the results of one experiment."""

    def __init__(self, directory: Path, version: str) -> None:
        self.directory = directory
        self.version = version
        self._points = directory / POINTS

    def clear(self) -> None:
        """Delete all results."""
        self._points.unlink(missing_ok=True)

    def finished(self) -> dict[str, StoredResult]:
        """Return the stored results by point; a line that a crash truncated does not count."""
        return {key_of(kept.point): kept for kept in self._lines() if kept.version == self.version}

    def _lines(self) -> Iterator[StoredResult]:
        if not self._points.exists():
            return
        for line in self._points.read_bytes().splitlines():
            try:
                yield msgspec.json.decode(line, type=StoredResult)
            except msgspec.DecodeError:
                continue

    def keep(self, outcome: PointOutcome) -> StoredResult:
        """Store a finished point."""
        kept = StoredResult(self.version, outcome.point, outcome.row, round(outcome.seconds, 3))
        self.directory.mkdir(parents=True, exist_ok=True)
        with self._points.open("ab") as file:
            file.write(msgspec.json.encode(kept) + b"\n")
        return kept

    def write(self, report: ExperimentReport, charts: list[Chart]) -> list[Path]:
        """Write the tables, the page and the picture; return the files."""
        self.directory.mkdir(parents=True, exist_ok=True)
        written: list[Path] = []
        for index, table in enumerate(report.tables):
            name = "table.csv" if index == 0 else f"table-{index + 1}.csv"
            written.append(self._write(name, csv_of(table)))
        picture = self.directory / PICTURE
        drawn = draw(charts, picture)
        written.append(self._write(PAGE, markdown(report, PICTURE if drawn else None)))
        return [*written, picture] if drawn else written

    def _write(self, name: str, text: str) -> Path:
        target = self.directory / name
        target.write_text(text, "utf-8")
        return target


def key_of(point: Point) -> str:
    """Return a text that is equal for equal points.

    >>> key_of({"b": 1, "a": "x"})
    '{"a":"x","b":1}'
    """
    return msgspec.json.encode(point, order="sorted").decode()
