"""``gapless topo plan``: the operations that lead from one tree of cells to another."""

from __future__ import annotations

from collections.abc import Sequence
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
from gapless.core.errors import UsageError, shortened
from gapless.reshape.planning.bounds import PairBound
from gapless.reshape.planning.plan import TreePlan, plan_between
from gapless.reshape.planning.steps import PlanStep, StepKind
from gapless.reshape.planning.trees import CellTree
from gapless.reshape.planning.wanted import named_tree, recorded_tree, shaped_tree
from gapless.runtime.overlay_config import generate, is_overlay_file, load_overlay, overlay_of

__all__ = ["plan_document", "planned", "show", "show_plan", "wanted_tree", "write_drawings"]


def planned(
    wanted: str,
    present: str,
    *,
    degree: int | None,
    diameter: int | None,
    keep: Sequence[str],
    near: Sequence[str],
) -> TreePlan:
    """Return the plan between two trees, each a file or a shape."""
    now = recorded_tree(overlay_of(present).topology.cells)
    return plan_between(
        now,
        wanted_tree(wanted, now),
        degree=degree,
        diameter=diameter,
        pairs=[_pair(each) for each in near],
        keep=keep,
    )


def wanted_tree(text: str, present: CellTree) -> CellTree:
    """Return the wanted tree that a file or a shape describes."""
    if is_overlay_file(text):
        return named_tree(recorded_tree(load_overlay(Path(text)).topology.cells), present)
    return shaped_tree(recorded_tree(generate(text).topology.cells), present)


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
