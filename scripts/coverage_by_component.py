"""Branch coverage by component: the tests of the components and seeds of the simulator, added up.

``make coverage-components`` runs it. Without components it measures all protocol components, and
runs the scenarios and the papers' sentences too; with components only their tests. The simulator
always runs whole brokers, so its seeds count for every component. The data is in
``build/coverage``.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parent.parent
DATA = ROOT / "build" / "coverage"
WHOLE = DATA / "all"

COMPONENTS = (
    "core",
    "messages",
    "packed",
    "stream",
    "overlay",
    "directory",
    "propagation",
    "feeds",
    "routing",
    "requests",
    "pubend",
    "subscribers",
    "retirement",
    "mobility",
    "reshape",
    "inspection",
    "broker",
)
"""The components of the protocols."""

SHARED = ("scenarios", "papers")
"""Tests of several components."""


class Row(NamedTuple):
    """The coverage of one component."""

    component: str
    lines: int
    lines_hit: int
    branches: int
    branches_hit: int

    def line(self) -> str:
        """Return the row as a line of a Markdown table."""
        every = self.lines + self.branches
        share = 100 * (self.lines_hit + self.branches_hit) / every if every else 100.0
        lines = f"{self.lines_hit:,} of {self.lines:,}"
        branches = f"{self.branches_hit:,} of {self.branches:,}"
        return f"| {self.component} | {lines} | {branches} | {share:.1f} |"


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description="Branch coverage by component.")
    parser.add_argument("components", nargs="*", help="all protocol components if none is given")
    parser.add_argument("--seeds", type=int, default=120, help="seeds of the simulator; 0 for none")
    parser.add_argument("--cases", type=int, default=2_000, help="cases of each property")
    parser.add_argument("--workers", type=int, default=2, help="processes for the tests")
    wanted = parser.parse_args()
    components = wanted.components or list(COMPONENTS)
    shutil.rmtree(DATA, ignore_errors=True)
    DATA.mkdir(parents=True)
    passed = _run_tests(folders_of(wanted.components), wanted.cases, wanted.workers)
    passed = _run_seeds(wanted.seeds) and passed
    _coverage("combine", "--quiet", "--keep", f"--data-file={WHOLE}", *map(str, DATA.iterdir()))
    _coverage("json", f"--data-file={WHOLE}", f"-o{DATA / 'all.json'}", "--quiet")
    report = json.loads((DATA / "all.json").read_text())
    print(f"\nmeasured at {_commit()}: {wanted.seeds} seeds, {wanted.cases} cases a property\n")
    print("| component | lines | branches | % |\n|---|---|---|---|")
    for row in rows(report["files"], components):
        print(row.line())
    print(
        f"\nto list missed lines: python -m coverage report -m --data-file={WHOLE.relative_to(ROOT)}"
    )
    sys.exit(0 if passed else 1)


def folders_of(components: Iterable[str]) -> list[str]:
    """Return the folders of tests for these components, or for all."""
    named = list(components) or [*COMPONENTS, *SHARED]
    return [f"tests/{name}" for name in named if (ROOT / "tests" / name).is_dir()]


def rows(files: Mapping[str, Any], components: Iterable[str]) -> list[Row]:
    """Sum a report of files by component, and all of them at the end."""
    found = [_row(component, files) for component in components]
    return found if len(found) == 1 else [*found, _sum("**all**", found)]


def _row(component: str, files: Mapping[str, Any]) -> Row:
    inside = f"src/gapless/{component}/"
    parts = [
        Row(
            component,
            summary["num_statements"],
            summary["covered_lines"],
            summary["num_branches"],
            summary["covered_branches"],
        )
        for path, each in files.items()
        if inside in Path(path).as_posix()
        for summary in (each["summary"],)
    ]
    return _sum(component, parts)


def _sum(name: str, parts: list[Row]) -> Row:
    if not parts:
        return Row(name, 0, 0, 0, 0)
    lines, lines_hit, branches, branches_hit = map(
        sum, zip(*(part[1:] for part in parts), strict=True)
    )
    return Row(name, lines, lines_hit, branches, branches_hit)


def _run_tests(folders: list[str], cases: int, workers: int) -> bool:
    if not folders:
        return True
    command = ["-m", "pytest", "-q", "--cov", "--cov-report=", "-n", str(workers), *folders]
    return _python(command, "tests", GAPLESS_CASES=str(cases))


def _run_seeds(seeds: int) -> bool:
    # in one process: forked ones exit without writing their coverage
    code = f"from gapless.cli.main import main; raise SystemExit(main(['sim', 'run', '--seeds', '{seeds}']))"
    script = DATA / "seeds.py"
    script.write_text(code)
    done = seeds <= 0 or _python(["-m", "coverage", "run", str(script)], "seeds")
    script.unlink()
    return done


def _python(arguments: list[str], data: str, **environment: str) -> bool:
    """Run Python with coverage, which writes its data to a file of that name."""
    around = {**os.environ, "COVERAGE_FILE": str(DATA / data), **environment}
    return (
        subprocess.run([sys.executable, *arguments], cwd=ROOT, env=around, check=False).returncode
        == 0
    )


def _coverage(*arguments: str) -> None:
    subprocess.run([sys.executable, "-m", "coverage", *arguments], cwd=ROOT, check=True)


def _commit() -> str:
    command = ["git", "describe", "--always", "--dirty"]
    found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return found.stdout.strip() or "no commit"


if __name__ == "__main__":
    main()
