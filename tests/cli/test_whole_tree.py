"""How ``topo show --all`` draws a tree that is not complete."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from gapless.cli.whole_tree import show_tree
from gapless.client.overlay import OverlayTree
from gapless.messages.overlay import CellMember, CellRecord, CellRole


def cell(name: str, brokers: list[str], *neighbours: str) -> CellRecord:
    return CellRecord.first(name, brokers, neighbours)


def test_cells_without_an_answer_are_drawn_and_named(capsys: pytest.CaptureFixture[str]) -> None:
    cells = (cell("a", ["a1", "a2"], "b"), cell("b", ["b1"], "a", "c"), cell("d", ["d1"], "c"))
    show_tree(OverlayTree(cells, ("b", "c")), as_json=False)
    shown = capsys.readouterr()
    lines = [line.strip("├└─│ ") for line in shown.out.splitlines()]
    assert lines == ["a  a1 (leader)  a2", "b  b1", "c (no answer)", "d  d1", "c (no answer)"]
    assert "no answer from b, c" in shown.err


def test_a_replaced_member_is_marked(capsys: pytest.CaptureFixture[str]) -> None:
    members = (CellMember("a1", CellRole.REPLACED), CellMember("a2"))
    found = replace(cell("a", ["a1", "a2"]), members=members, leader="a2")
    show_tree(OverlayTree((found,)), as_json=False)
    assert capsys.readouterr().out.strip() == "a  a1 (replaced)  a2 (leader)"
