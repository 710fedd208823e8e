"""``scripts/coverage_by_component.py``: files are added up by component."""

from __future__ import annotations

from typing import Any

from scripts.coverage_by_component import COMPONENTS, ROOT, SHARED, Row, folders_of, rows


def measured(lines: int, hit: int, branches: int, taken: int) -> dict[str, Any]:
    summary = {
        "num_statements": lines,
        "covered_lines": hit,
        "num_branches": branches,
        "covered_branches": taken,
    }
    return {"summary": summary}


FILES = {
    "src/gapless/overlay/session.py": measured(10, 9, 4, 3),
    "/somewhere/src/gapless/overlay/deeper/ways.py": measured(5, 5, 0, 0),
    "src/gapless/broker/entry.py": measured(20, 20, 6, 6),
    "src/gapless/cli/main.py": measured(100, 0, 50, 0),
}


def test_files_are_summed_by_component_with_a_total_at_the_end() -> None:
    assert rows(FILES, ["overlay", "broker"]) == [
        Row("overlay", 15, 14, 4, 3),
        Row("broker", 20, 20, 6, 6),
        Row("**all**", 35, 34, 10, 9),
    ]


def test_one_component_has_no_total() -> None:
    assert rows(FILES, ["overlay"]) == [Row("overlay", 15, 14, 4, 3)]
    assert rows(FILES, ["nowhere"]) == [Row("nowhere", 0, 0, 0, 0)]


def test_a_row_counts_lines_and_branches_together() -> None:
    assert Row("overlay", 15, 14, 4, 3).line() == "| overlay | 14 of 15 | 3 of 4 | 89.5 |"
    assert (
        Row("messages", 1_000, 1_000, 0, 0).line().endswith("| 1,000 of 1,000 | 0 of 0 | 100.0 |")
    )


def test_every_component_exists_and_includes_the_shared_tests() -> None:
    assert all((ROOT / "src" / "gapless" / component).is_dir() for component in COMPONENTS)
    assert set(folders_of([])) >= {f"tests/{name}" for name in ("core", "broker", *SHARED)}
    assert folders_of(["broker", "messages"]) == ["tests/broker"], (
        "messages have no tests of their own"
    )
