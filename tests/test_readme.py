"""The README is correct: its Python runs, and its commands and files exist."""

from __future__ import annotations

import doctest
import re
from pathlib import Path

import pytest

import gapless
from gapless.core import limits

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text()
PAGES = sorted(
    path.relative_to(ROOT).as_posix() for path in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]
)
GUIDES = ["docs/filters.md", "docs/matching.md"]


@pytest.mark.parametrize("page", GUIDES)
def test_the_python_examples_of_a_guide_run_as_printed(page: str) -> None:
    result = doctest.testfile(str(ROOT / page), module_relative=False, optionflags=doctest.ELLIPSIS)
    assert result.attempted > 0
    assert result.failed == 0


@pytest.mark.parametrize("page", PAGES)
def test_the_links_of_a_page_have_targets(page: str) -> None:
    path = ROOT / page
    targets = re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", path.read_text())
    missing = [t for t in targets if "://" not in t and not (path.parent / t).exists()]
    assert not missing


def test_the_make_targets_that_the_readme_names_exist() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = set(re.findall(r"\bmake ([a-z-]+)", README))
    assert {"demo", "test"} <= named <= targets


def test_the_version_is_the_same_everywhere() -> None:
    project = (ROOT / "pyproject.toml").read_text()
    assert f'version = "{gapless.__version__}"' in project
    assert f"## {gapless.__version__}" in (ROOT / "CHANGELOG.md").read_text()


def test_the_limits_in_the_guide_are_the_limits_in_the_code() -> None:
    rows = re.findall(
        r"^\| `([A-Z_]+)` \| ([\d,]+) ", (ROOT / "docs/filters.md").read_text(), re.MULTILINE
    )
    assert len(rows) >= 4
    assert {name: int(number.replace(",", "")) for name, number in rows} == {
        name: getattr(limits, name) for name, _ in rows
    }
