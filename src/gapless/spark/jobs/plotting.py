"""Plots of a table: one quantity over another, a line for each value of a third."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from gapless.core.errors import UsageError

__all__ = ["Plot", "can_plot", "draw_plot"]


class Plot(msgspec.Struct, frozen=True):
    """A plot: ``y`` over ``x``, a line for each value of ``series``."""

    x: str
    y: str
    series: str | None = None

    @classmethod
    def parse(cls, text: str) -> Plot:
        """Return the plot of ``x:y`` or ``x:y:series``.

        >>> Plot.parse("cells:steps:shape")
        Plot(x='cells', y='steps', series='shape')
        """
        parts = [part.strip() for part in text.split(":")]
        if len(parts) not in {2, 3} or not all(parts):
            raise UsageError(f"{text!r} is no plot; write x:y or x:y:series with names of columns")
        return cls(*parts)

    @property
    def file_name(self) -> str:
        """The name of the picture."""
        name = f"{self.y}-over-{self.x}" + (f"-by-{self.series}" if self.series else "")
        return re.sub(r"[^\w.-]+", "_", name) + ".png"


def can_plot() -> bool:
    """Return whether matplotlib is installed."""
    return importlib.util.find_spec("matplotlib") is not None


def draw_plot(rows: Sequence[Mapping[str, Any]], plot: Plot, directory: Path) -> Path | None:
    """Draw a plot into a directory and return the picture; None without matplotlib.

    Points of a line with the same ``x`` are drawn as dots, with the line through their mean.
    """
    lines = lines_of(rows, plot)
    if not can_plot():
        return None
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4.5), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    for label, points in lines.items():
        indices = sorted({x for x, _ in points})
        means = [_mean([y for x, y in points if x == index]) for index in indices]
        (line,) = axes.plot(indices, means, marker="o", label=label)
        if len(indices) < len(points):
            along, above = zip(*points, strict=True)
            axes.scatter(along, above, s=8, alpha=0.4, color=line.get_color())
    axes.set(xlabel=plot.x, ylabel=plot.y)
    axes.grid(alpha=0.3)
    if plot.series is not None:
        axes.legend(title=plot.series)
    target = directory / plot.file_name
    figure.savefig(target, dpi=120)
    return target


def lines_of(rows: Sequence[Mapping[str, Any]], plot: Plot) -> dict[str, list[tuple[Any, float]]]:
    """Return the points of each line; rows without one of the values are omitted."""
    names = {name for row in rows for name in row}
    wanted = [plot.x, plot.y, *([plot.series] if plot.series else [])]
    missing = [name for name in wanted if name not in names]
    if rows and missing:
        raise UsageError(
            f"nothing to plot: no column {', '.join(missing)}; there are {', '.join(sorted(names))}"
        )
    lines: dict[str, list[tuple[Any, float]]] = {}
    for row in rows:
        x, y = row.get(plot.x), row.get(plot.y)
        if x is None or y is None:
            continue
        if not isinstance(y, int | float):
            raise UsageError(f"column {plot.y!r} has no numbers, so it cannot be drawn")
        label = str(row.get(plot.series)) if plot.series else ""
        lines.setdefault(label, []).append((x, float(y)))
    return lines


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
