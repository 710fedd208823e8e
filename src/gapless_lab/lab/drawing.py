"""Charts as one picture, if matplotlib is installed (the extra ``lab``)."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gapless_lab.lab.experiment import Chart

__all__ = ["can_draw", "draw"]

_WIDTH, _HEIGHT = 6.4, 4.2
_PAPER = "#b45f06"
"""The colour of the paper's values."""


def can_draw() -> bool:
    """Return whether matplotlib is installed."""
    return importlib.util.find_spec("matplotlib") is not None


def draw(charts: Sequence[Chart], target: Path) -> bool:
    """Draw charts side by side, two per line; return whether there is a picture."""
    if not charts or not can_draw():
        return False
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    across = min(2, len(charts))
    down = -(-len(charts) // across)
    figure = Figure(figsize=(_WIDTH * across, _HEIGHT * down), layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(down, across, squeeze=False).flatten()
    for axes, chart in zip(panels, charts, strict=False):
        _draw(axes, chart)
    for axes in panels[len(charts) :]:
        axes.set_axis_off()
    # the same rows give the same bytes, so that a picture in a repository changes only with its
    # numbers
    figure.savefig(target, dpi=90, metadata={"Software": None})
    return True


def _draw(axes: Any, chart: Chart) -> None:
    for line in chart.lines:
        along, above = zip(*line.dots, strict=True) if line.dots else ((), ())
        course = "steps-post" if line.steps else "default"
        colour = {"color": _PAPER} if line.from_paper else {}
        axes.plot(
            along, above, line.style, label=line.label, markersize=4, drawstyle=course, **colour
        )
    for label, level in chart.levels:
        axes.axhline(level, color=_PAPER, linestyle="--", linewidth=1, label=label)
    for label, index in chart.uprights:
        axes.axvline(index, color=_PAPER, linestyle="--", linewidth=1, label=label)
    for label, moment in chart.moments:
        axes.axvline(moment, color="#888888", linestyle=":", linewidth=1)
        axes.annotate(
            label,
            (moment, 0.98),
            xycoords=("data", "axes fraction"),
            rotation=90,
            va="top",
            ha="right",
            fontsize=7,
        )
    axes.set(title=chart.title, xlabel=chart.x, ylabel=chart.y)
    if chart.log_x:
        axes.set_xscale("log")
    axes.grid(alpha=0.3)
    if len(chart.lines) + len(chart.levels) + len(chart.uprights) > 1:
        axes.legend(fontsize=8)
