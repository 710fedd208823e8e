"""Results on disk: a line a finished point, so that a run which was stopped goes on where it was."""

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
    """A finished point, as its line has it."""

    version: str
    """Of gapless, with a digest of its files: what other code measured is measured again."""
    point: Point
    row: Row
    seconds: float


@cache
def this_code(version: str) -> str:
    """Return which code measures here: the version, and a digest of the product and the lab.

    Between two releases the version says nothing, and one line changed anywhere below an experiment may
    change what it measures.
    """
    return f"{version}+{digest_of(ROOT / 'gapless', ROOT / 'gapless_lab')}"


def digest_of(*packages: Path) -> str:
    """Return a digest of the files of packages, compiled ones too, without the caches of Python."""
    paths = [path for package in packages for path in package.rglob("*") if path.is_file()]
    sources = (each for each in paths if "__pycache__" not in each.parts)
    return digest(packages[0].parent, sources)[:16]


class ResultStore:
    """Where the results of one experiment are."""

    def __init__(self, directory: Path, version: str) -> None:
        self.directory = directory
        self.version = version
        self._points = directory / POINTS

    def clear(self) -> None:
        """Forget all that was measured."""
        self._points.unlink(missing_ok=True)

    def finished(self) -> dict[str, StoredResult]:
        """Return what is there, by point; the line that a crash cut off does not count."""
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
        """Write down a finished point."""
        kept = StoredResult(self.version, outcome.point, outcome.row, round(outcome.seconds, 3))
        self.directory.mkdir(parents=True, exist_ok=True)
        with self._points.open("ab") as file:
            file.write(msgspec.json.encode(kept) + b"\n")
        return kept

    def write(self, report: ExperimentReport, charts: list[Chart]) -> list[Path]:
        """Write tables, the page and the picture; return the files."""
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
    """Return a point as a text that is the same for the same point.

    >>> key_of({"b": 1, "a": "x"})
    '{"a":"x","b":1}'
    """
    return msgspec.json.encode(point, order="sorted").decode()
