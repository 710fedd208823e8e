"""``gapless topo plan`` and ``apply``: the operations that lead from one tree of cells to another."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from gapless.cli.output import (
    console,
    counted,
    facts,
    listing,
    print_json,
    print_listing,
    print_note,
    records,
)
from gapless.cli.tree_svg import svg_of_tree
from gapless.cli.tree_text import drawn_tree
from gapless.client.tree_orders import (
    AppliedPlan,
    PlanBoundOptions,
    PlanProgress,
    ordered,
    wanted_by,
)
from gapless.core.errors import UsageError, shortened
from gapless.reshape.planning.bounds import PairBound
from gapless.reshape.planning.plan import TreePlan
from gapless.reshape.planning.steps import PlanStep, StepKind
from gapless.reshape.planning.trees import CellTree
from gapless.reshape.planning.wanted import recorded_tree
from gapless.runtime.overlay_config import overlay_of

__all__ = [
    "applied_document",
    "bound_options",
    "plan_document",
    "plan_progress",
    "planned",
    "show",
    "show_applied",
    "show_plan",
    "write_drawings",
]


def planned(wanted: str, present: str, bounds: PlanBoundOptions) -> TreePlan:
    """Return the plan between two trees, each a file or a shape."""
    now = recorded_tree(overlay_of(present).topology.cells)
    tree, newcomers = wanted_by(wanted, now)
    return ordered(now, tree, newcomers, bounds).plan


def bound_options(
    degree: int | None, diameter: int | None, keep: Sequence[str], near: Sequence[str]
) -> PlanBoundOptions:
    """Return the bounds of a plan by the options of a command."""
    return PlanBoundOptions(degree, diameter, tuple(keep), [_pair(each) for each in near])


def _pair(text: str) -> PairBound:
    cell, _, rest = text.partition(",")
    other, _, distance = rest.partition(",")
    if not distance.isascii() or not distance.isdigit() or len(distance) > 4:
        raise UsageError(
            f"{shortened(text)!r} is no bound on two cells: write CELL,CELL,N, such as c1,c4,3"
        )
    return PairBound(cell, other, int(distance))


# --- the output ---------------------------------------------------------------------------------


def show(found: TreePlan, *, svg: Path | None, as_json: bool) -> None:
    """Print a plan, and write its drawings."""
    if as_json:
        print_json(plan_document(found))
    else:
        show_plan(found)
    if svg is not None:
        write_drawings(found, svg)
        print_note(f"written: {counted(len(found.steps) + 1, 'drawing')} to {svg}")


def plan_document(found: TreePlan) -> dict[str, Any]:
    """Return a plan as a JSON document."""
    return {
        "steps": [
            {**records(step), "degree": tree.degree, "diameter": tree.diameter}
            for step, tree in zip(found.steps, found.trees, strict=True)
        ],
        "lower_bound": found.lower_bound,
        "is_shortest": found.is_shortest,
        "baseline_length": found.baseline_length,
        "peak_degree": found.peak_degree,
        "peak_diameter": found.peak_diameter,
        "is_relaxed": found.is_relaxed,
        "asked": records(found.asked),
        "kept": records(found.kept),
        "present": _tree_document(found.present),
        "wanted": _tree_document(found.wanted),
    }


def _tree_document(tree: CellTree) -> dict[str, Any]:
    return {"cells": [*tree], "edges": [[*edge] for edge in tree.edges]}


def show_plan(found: TreePlan) -> None:
    """Print a plan: what it costs, its steps, and the tree before and after it."""
    out = console()
    if found.steps:
        out.print(facts(_costs(found)))
        out.print()
        print_listing("", "operation", "what it does", "degree", "diameter", rows=_rows(found))
    else:
        out.print("the present tree is the wanted one")
    titles = (("now", found.present), ("wanted", found.wanted))
    for title, tree in titles if found.steps else titles[:1]:
        out.print()
        out.print(listing(title, rows=[[line] for line in drawn_tree(tree)]))


def _costs(found: TreePlan) -> list[tuple[str, str]]:
    kinds = [each.kind for each in found.steps]
    each_kind = ", ".join(
        counted(kinds.count(kind), kind.name) for kind in StepKind if kind in kinds
    )
    shortest = found.is_shortest or len(found.steps) == found.lower_bound
    return [
        ("plan", f"{counted(len(found.steps), 'step')}: {each_kind}"),
        ("lower bound", f"{found.lower_bound:,}{'; no plan is shorter' if shortest else ''}"),
        ("by HA's proof", counted(found.baseline_length, "step")),
        ("peak degree", _peak(found.peak_degree, found.asked.degree, found.kept.degree)),
        ("peak diameter", _peak(found.peak_diameter, found.asked.diameter, found.kept.diameter)),
    ]


def _peak(peak: int, asked: int, kept: int) -> str:
    if kept > asked:
        return f"{peak:,}: the bound of {asked:,} had to be relaxed to {kept:,}"
    return f"{peak:,} of at most {asked:,}"


def _rows(found: TreePlan) -> Sequence[Sequence[str]]:
    return [
        (str(number), str(step), _meaning(step), str(tree.degree), str(tree.diameter))
        for number, (step, tree) in enumerate(zip(found.steps, found.trees, strict=True), start=1)
    ]


def _meaning(step: PlanStep) -> str:
    match step.kind:
        case StepKind.APPEND:
            return "{} becomes a neighbour of {}".format(*step.cells)
        case StepKind.DETACH:
            return f"{step.cells[0]} leaves the tree"
        case StepKind.SHIFT:
            return "{} leaves {} for {}".format(*step.cells)


def write_drawings(found: TreePlan, directory: Path) -> None:
    """Write an SVG file for the tree before the plan and for that after each step."""
    directory.mkdir(parents=True, exist_ok=True)
    centre = next((each for each in (found.wanted.centre,) if each in found.present), None)
    before: set[tuple[str, str]] = set(found.present.edges)
    for number, tree in enumerate((found.present, *found.trees)):
        edges = set(tree.edges)
        drawing = svg_of_tree(tree, edges=edges - before, centre=centre)
        (directory / f"step-{number:03}.svg").write_text(drawing, encoding="utf-8")
        before = edges


# --- a plan under way ---------------------------------------------------------------------------


@contextlib.contextmanager
def plan_progress(*, shown: bool) -> Iterator[Callable[[PlanProgress], None]]:
    """Provide a callback that shows how far a plan is, on the standard error."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        console=Console(stderr=True),
        disable=not shown,
        transient=True,
    )
    with bar:
        task = bar.add_task("", total=None)

        def progress(now: PlanProgress) -> None:
            bar.update(task, description=now.state, completed=now.done, total=now.total or None)

        yield progress


def applied_document(applied: AppliedPlan | None) -> dict[str, Any]:
    """Return what a plan has done as a JSON document."""
    operations = [] if applied is None else [records(each) for each in applied.steps]
    return {"done": 0 if applied is None else applied.done, "operations": operations}


def show_applied(applied: AppliedPlan) -> None:
    """Print what a plan has done."""
    rows = [
        (str(number), str(each), f"{each.time_us / 1_000:,.1f} ms")
        for number, each in enumerate(applied.steps, start=1)
    ]
    print_listing("", "operation", "time", rows=rows)
    print_note(f"the wanted tree is there after {counted(applied.done, 'operation')}")
