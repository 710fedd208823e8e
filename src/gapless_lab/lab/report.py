"""Reports: tables as text, Markdown and CSV, with the paper's statements beside our results."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence

import msgspec

from gapless_lab.lab.experiment import PAPERS, Chart, Experiment, PaperComparison, ResultTable
from gapless_lab.lab.origin import Origin
from gapless_lab.lab.points import Plain, Point, Row

__all__ = [
    "COMPARED",
    "ExperimentReport",
    "axes_line",
    "cell",
    "compared_rows",
    "csv_of",
    "markdown",
    "report_of",
]


class ExperimentReport(msgspec.Struct, frozen=True):
    """The results of an experiment."""

    name: str
    paper: str
    figure: str
    title: str
    about: str
    points: int
    done: int
    """How many points have a result; the others failed or were not run."""
    seconds: float
    """The duration of all measurements together."""
    axes: dict[str, list[Plain]]
    """The values at which it was measured."""
    comparisons: list[PaperComparison]
    tables: list[ResultTable]
    origin: Origin
    """The code that made it."""


def report_of(
    experiment: Experiment,
    rows: Sequence[Row],
    points: Sequence[Point],
    *,
    seconds: float,
    origin: Origin,
) -> tuple[ExperimentReport, list[Chart]]:
    """Make the report and the charts of some rows, perhaps of only some points."""
    comparisons = experiment.compare(rows) if rows else []
    tables = experiment.tables(rows) if rows else []
    charts = experiment.charts(rows) if rows else []
    report = ExperimentReport(
        name=experiment.name,
        paper=experiment.paper,
        figure=experiment.figure,
        title=experiment.title,
        about=experiment.about,
        points=len(points),
        done=len(rows),
        seconds=round(seconds, 1),
        axes={name: list(dict.fromkeys(point[name] for point in points)) for name in points[0]},
        comparisons=comparisons,
        tables=tables,
        origin=origin,
    )
    return report, charts


def cell(value: Plain) -> str:
    """Return a value as a table shows it.

    >>> [cell(each) for each in (1000, 0.12345, 97.3333, None, "x")]
    ['1,000', '0.123', '97.33', '', 'x']
    """
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        if value == int(value):
            return f"{int(value):,}"
        return f"{value:,.2f}" if abs(value) >= 1 else f"{value:.3g}"
    return value


def axes_line(report: ExperimentReport) -> str:
    """Return the values at which it was measured, in a line."""
    return "; ".join(
        f"{name} {', '.join(map(cell, values))}"
        for name, values in report.axes.items()
        if name != "experiment"
    )


def verdict(comparison: PaperComparison) -> str:
    """Return whether our result agrees, in a word."""
    return {True: "yes", False: "no", None: ""}[comparison.agrees]


COMPARED = ("what", "paper, from the text", "ours", "agrees")
"""The heads of the table of comparisons."""


def compared_rows(comparisons: Iterable[PaperComparison]) -> list[tuple[str, str, str, str]]:
    """Return comparisons as rows of a table."""
    return [(each.subject, each.paper, each.ours, verdict(each)) for each in comparisons]


def markdown(report: ExperimentReport, picture: str | None = None) -> str:
    """Return the report as a page."""
    source = PAPERS[report.paper]
    head = source if report.paper == "ours" else f"{source} ({report.paper}), {report.figure}"
    parts = [f"# {report.name}: {report.title}", f"{head}.", report.about.strip()]
    if report.done < report.points:
        parts.append(f"**Not complete: {report.done} of {report.points} points.**")
    if report.comparisons:
        parts.append(_table(COMPARED, compared_rows(report.comparisons)))
    if picture is not None:
        parts.append(f"![{report.title}]({picture})")
    for table in report.tables:
        shown = [tuple(cell(value) for value in row) for row in table.rows]
        parts += [f"## {table.title}", _table(table.heads, shown)]
    parts.append(f"Measured at: {axes_line(report)}.")
    made = f"Made by `gapless lab run {report.name}`"
    parts.append(f"{made}: {report.done:,} points, {report.seconds:,.0f} s of measuring.")
    code = f"gapless {report.origin.version}, {report.origin.digests}"
    check = "`python -m gapless_lab.lab.present DIRECTORY` compares reports with the present code"
    parts.append(f"Of {code} ({check}).")
    return "\n\n".join(parts) + "\n"


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = ["| " + " | ".join(each.replace("|", "/") for each in row) + " |" for row in rows]
    return "\n".join(["| " + " | ".join(heads) + " |", "|---" * len(heads) + "|", *lines])


def csv_of(table: ResultTable) -> str:
    """Return a table as CSV, with numbers as they are."""
    held = io.StringIO()
    writer = csv.writer(held, lineterminator="\n")
    writer.writerow(table.heads)
    writer.writerows(table.rows)
    return held.getvalue()
