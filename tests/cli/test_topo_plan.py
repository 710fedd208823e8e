"""``gapless topo plan``, and drawings of trees."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from gapless.cli.main import main
from gapless.cli.tree_svg import svg_of_tree
from gapless.cli.tree_text import drawn_tree
from gapless.reshape.planning.trees import CellTree
from gapless.runtime.overlay_config import generate

FILE = """
edges = [["c1", "c2"], ["c2", "paris"]]

[cells]
c1 = ["b1"]
c2 = ["b2"]
paris = ["p1"]
"""


def planned(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    assert main(["topo", "plan", *arguments, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert isinstance(document, dict)
    return document


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(["topo", "plan", *arguments]) == 2
    return capsys.readouterr().err


def test_a_plan_between_two_shapes_is_shown_with_its_costs(
    capsys: pytest.CaptureFixture[str],
) -> None:
    document = planned(capsys, "star:9", "--from", "line:9")
    assert len(document["steps"]) == document["lower_bound"] == 6
    assert document["steps"][0] == {
        "kind": "shift",
        "cells": ["c3", "c4", "c5"],
        "degree": 3,
        "diameter": 7,
    }
    assert document["baseline_length"] == 9
    assert (document["peak_degree"], document["peak_diameter"]) == (8, 8)
    assert document["asked"] == document["kept"] == {"degree": 10, "diameter": 12, "pairs": []}
    assert document["wanted"]["edges"] == [
        ["c1", "c5"],
        ["c2", "c5"],
        ["c3", "c5"],
        ["c4", "c5"],
    ] + [["c5", f"c{number}"] for number in range(6, 10)]


def test_a_file_names_cells_that_come_and_leave(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "wanted.toml"
    file.write_text(FILE)
    document = planned(capsys, str(file), "--from", "line:3")
    kinds = [(each["kind"], each["cells"]) for each in document["steps"]]
    assert kinds == [("append", ["paris", "c2"]), ("detach", ["c3", "c2"])]
    assert document["is_shortest"]


def test_the_text_has_a_table_and_drawings_of_both_trees(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["topo", "plan", "star:4", "--from", "line:4", "--degree", "3"]) == 0
    shown = capsys.readouterr().out
    assert "1 step: 1 SHIFT" in shown
    assert "1; no plan is shorter" in shown
    assert "3 of at most 3" in shown
    assert "1  SHIFT(c4, c3, c2)  c4 leaves c3 for c2  3       2" in shown
    assert shown.endswith("wanted\nc2\n└── c1, c3, c4\n")


def test_a_relaxed_bound_is_named(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "wanted.toml"
    file.write_text(
        'edges = [["c3", "c2"], ["c2", "c1"], ["c1", "c4"]]\n'
        '[cells]\nc1 = ["b1"]\nc2 = ["b2"]\nc3 = ["b3"]\nc4 = ["b4"]\n'
    )
    arguments = ["topo", "plan", str(file), "--from", "line:4", "--degree", "2"]
    assert main(arguments) == 0
    assert "3: the bound of 2 had to be relaxed to 3" in capsys.readouterr().out


def test_the_same_tree_needs_no_step(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["topo", "plan", "star:5", "--from", "star:5"]) == 0
    assert capsys.readouterr().out.startswith("the present tree is the wanted one\n\nnow\nc1\n")


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["star:9", "--from", "line:8"], "the shape has 9 cells and the overlay has 8"),
        (["ring:9", "--from", "line:9"], "'ring:9' is no overlay: write line:3"),
        (["star:5", "--from", "line:5", "--degree", "3"], "the degree bound is 3"),
        (["star:5", "--from", "line:5", "--keep", "c9"], "keep names c9, which is no cell"),
        (["star:5", "--from", "line:5", "--keep", "c3"], "keep names c3, whose neighbours change"),
        (["star:5", "--from", "line:5", "--near", "c1,c2"], "'c1,c2' is no bound on two cells"),
        (["star:5", "--from", "line:5", "--near", "c1,c5,2"], "are 4 apart in the present tree"),
    ],
)
def test_wrong_input_is_refused_with_its_cause(
    capsys: pytest.CaptureFixture[str], arguments: list[str], problem: str
) -> None:
    assert problem in refused(capsys, *arguments)


def test_svg_has_a_drawing_of_the_tree_after_each_step(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert main(["topo", "plan", "star:6", "--from", "line:6", "--svg", str(tmp_path / "way")]) == 0
    capsys.readouterr()
    drawings = sorted((tmp_path / "way").iterdir())
    assert [each.name for each in drawings] == [f"step-00{number}.svg" for number in range(4)]
    marked = [ET.parse(each).findall(".//*[@class='marked']") for each in drawings]  # noqa: S314
    assert [len(each) for each in marked] == [0, 1, 1, 1]


# --- drawings -------------------------------------------------------------------------------------


DASH = "\N{EN DASH}"


def shape(word: str) -> CellTree:
    cells = generate(word).topology.cells
    edges = [(cell.name, each) for cell in cells for each in cell.neighbours if cell.name < each]
    return CellTree.of([cell.name for cell in cells], edges)


def test_cells_in_a_row_and_outer_cells_stand_on_one_line() -> None:
    assert drawn_tree(shape("line:5")) == ["c3", f"├── c2 {DASH} c1", f"└── c4 {DASH} c5"]
    assert drawn_tree(shape("star:4")) == ["c1", "└── c2, c3, c4"]
    assert drawn_tree(shape("line:1")) == ["c1"]
    assert drawn_tree(shape("tree:2x3")) == [
        "c1",
        "├── c2",
        "│   └── c4, c5",
        "└── c3",
        "    └── c6, c7",
    ]


def test_many_neighbours_are_wrapped() -> None:
    lines = drawn_tree(shape("star:200"))
    assert max(map(len, lines)) <= 84
    assert len(lines) < 20
    assert " ".join(lines).count("c") == 200


def test_a_drawing_as_svg_places_every_cell_apart_and_escapes_names() -> None:
    tree = shape("tree:3x4").appended("<&>", "c1")
    root = ET.fromstring(svg_of_tree(tree, cells=["<&>"]))  # noqa: S314
    space = "{http://www.w3.org/2000/svg}"
    places = [
        (float(each.attrib["cx"]), float(each.attrib["cy"])) for each in root.iter(f"{space}circle")
    ]
    assert len(set(places)) == len(tree)
    closest = min(
        (x - u) ** 2 + (y - v) ** 2
        for number, (x, y) in enumerate(places)
        for u, v in places[:number]
    )
    assert closest > 14**2
    assert {each.text for each in root.iter(f"{space}text")} == set(tree)
    assert len([*root.iter(f"{space}line")]) == len(tree.edges)


def test_a_drawing_of_one_cell_is_possible() -> None:
    assert "<circle" in svg_of_tree(shape("line:1"))
